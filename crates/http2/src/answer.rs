//! An answer in the form of HTTP/1.1, as the fields of HTTP/2 that say the same.

use crate::hpack::{put_field, put_status};

/// Maximum length of an answer's head, bytes. This side writes all of them.
const HEAD_MAX: usize = 1024;

/// The beginning of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ParsedAnswer {
    /// More bytes have to follow.
    Incomplete,
    Whole {
        status: u16,
        /// The block of the HEADERS frame.
        block: Vec<u8>,
        /// Length of the head, bytes. Content follows it.
        length: usize,
    },
    /// The bytes are no head.
    Invalid,
}

/// Reads the head of an answer at the beginning of `bytes`.
pub(crate) fn read(bytes: &[u8]) -> ParsedAnswer {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return if bytes.len() < HEAD_MAX {
            ParsedAnswer::Incomplete
        } else {
            ParsedAnswer::Invalid
        };
    };
    parse(&bytes[..end]).map_or(ParsedAnswer::Invalid, |(status, block)| {
        ParsedAnswer::Whole {
            status,
            block,
            length: end + 4,
        }
    })
}

fn parse(head: &[u8]) -> Option<(u16, Vec<u8>)> {
    let head = std::str::from_utf8(head).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?;
    let status = status.parse().ok()?;
    let mut block = Vec::new();
    put_status(&mut block, status);
    for line in lines {
        let (name, value) = line.split_once(':')?;
        let name = name.to_ascii_lowercase();
        // The first belongs to HTTP/1.1. The frames tell the length, which is 0 if the peer gives no credit.
        if name != "connection" && name != "content-length" {
            put_field(&mut block, name.as_bytes(), value.trim().as_bytes());
        }
    }
    Some((status, block))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::Decoder;

    fn fields(block: &[u8]) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        let sink = |name: &[u8], value: &[u8]| fields.push((text(name), text(value)));
        Decoder::default().decode(block, sink).expect("a block");
        fields
    }

    #[test]
    fn an_answer_becomes_fields() {
        let accepted = b"HTTP/1.1 200 Connection established\r\n\r\nfirst bytes";
        let expected = ParsedAnswer::Whole {
            status: 200,
            block: vec![0x88],
            length: accepted.len() - "first bytes".len(),
        };
        assert_eq!(read(accepted), expected);
        let refused =
            b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\
            Content-Length: 4\r\nConnection: close\r\n\r\nwhy\n";
        let ParsedAnswer::Whole {
            status,
            block,
            length,
        } = read(refused)
        else {
            panic!("a whole answer");
        };
        assert_eq!((status, &refused[length..]), (407, &b"why\n"[..]));
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [
            field(":status", "407"),
            field("proxy-authenticate", "Basic"),
        ];
        assert_eq!(fields(&block), expected);
    }

    #[test]
    fn an_answer_may_arrive_in_parts_and_has_a_limit() {
        let accepted = b"HTTP/1.1 200 OK\r\n\r\n";
        for cut in 0..accepted.len() {
            assert_eq!(read(&accepted[..cut]), ParsedAnswer::Incomplete);
        }
        assert_eq!(read(&[b'x'; HEAD_MAX]), ParsedAnswer::Invalid);
        for invalid in [
            "HTTP/1.0 200 OK\r\n\r\n",
            "HTTP/1.1 xyz\r\n\r\n",
            "HTTP/1.1 200\r\nx\r\n\r\n",
        ] {
            assert_eq!(read(invalid.as_bytes()), ParsedAnswer::Invalid, "{invalid}");
        }
    }
}
