//! CONNECT as the first bytes of a stream: the requests of programs that use a server's HTTPS proxy.
//!
//! The parser is that of a client's proxy ([`super::http`]). A server judges the login together with the target, so a
//! request without one is complete.

use super::MAX_HEAD;
use super::http::{self, Head, HeadResult};
use crate::code::{CloseCode, FlowCode};
use crate::open::{Decoded, Open};

pub(crate) use super::http::ACCEPTED;

/// Decodes a request at the beginning of a stream. For an error, [`refusal`] has the answer.
pub(crate) fn read(bytes: &[u8]) -> Result<Decoded<Open>, FlowCode> {
    match Head::default().read(to_parse(bytes)) {
        HeadResult::More => Ok(Decoded::Need),
        HeadResult::Done {
            length,
            authority,
            login,
        } => Ok(Decoded::Done {
            frame: Open {
                target: format!("tcp:{authority}"),
                login,
                ..Open::default()
            },
            consumed: length,
        }),
        HeadResult::Refuse(_) => Err(FlowCode::BadOpen),
    }
}

/// Returns the bytes to parse now: all, if they have the end of the head or are as many as one may have, and else the
/// request line. A client that sends its head byte by byte would have it parsed as often.
fn to_parse(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    while let Some(next) = after_line_end(rest) {
        rest = next;
    }
    let mut line_ends = (1..=rest.len()).filter(|&end| rest[end - 1] == b'\n');
    let first_line = line_ends.clone().next().unwrap_or_default();
    let has_end = line_ends.any(|end| after_line_end(&rest[end..]).is_some());
    if has_end || bytes.len() >= MAX_HEAD {
        bytes
    } else {
        &rest[..first_line]
    }
}

/// Returns what follows an empty line, if `bytes` begins with one.
fn after_line_end(bytes: &[u8]) -> Option<&[u8]> {
    let line = bytes.strip_prefix(b"\r").unwrap_or(bytes);
    line.strip_prefix(b"\n")
}

/// Returns the answer to a request that is refused with this code. `read` has the bytes of a request that is not
/// complete, or is malformed.
pub(crate) fn refusal(code: FlowCode, read: &[u8]) -> Vec<u8> {
    match code {
        FlowCode::Unauthenticated => http::unknown().answer,
        FlowCode::BadOpen if !read.is_empty() => match Head::default().read(read) {
            HeadResult::Refuse(refusal) => refusal.answer,
            HeadResult::More => late(),
            HeadResult::Done { .. } => http::refused(Some(code)),
        },
        code => http::refused(Some(code)),
    }
}

/// Returns the answer on a connection that is closed with this code before its request was answered.
pub(crate) fn closing(code: CloseCode) -> Vec<u8> {
    match code {
        CloseCode::NotAuthorized => http::unknown().answer,
        CloseCode::Revoked | CloseCode::Expired => {
            http::response("403 Forbidden", "", &code.to_string())
        }
        _ => http::response("503 Service Unavailable", "", &code.to_string()),
    }
}

fn late() -> Vec<u8> {
    let why = "no whole request has arrived in time";
    http::response("408 Request Timeout", "", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: FlowCode, read: &[u8]) -> String {
        let answer = String::from_utf8(refusal(code, read)).expect("text");
        answer["HTTP/1.1 ".len()..][..3].to_owned()
    }

    // PROTOCOL PROXY-2, PROXY-3.
    #[test]
    fn a_request_names_its_target_in_its_first_line_and_its_login_in_a_field() {
        let head = "CONNECT A.example:443 HTTP/1.1\r\nHost: b:1\r\n\
                    Proxy-Authorization: Basic YW5uOndvbmRlcg==\r\n\r\n";
        let bytes = [head.as_bytes(), b"early"].concat();
        let Ok(Decoded::Done { frame, consumed }) = read(&bytes) else {
            panic!("a whole request");
        };
        assert_eq!(
            (&*frame.target, consumed),
            ("tcp:A.example:443", head.len())
        );
        let login = frame.login.expect("a login");
        assert_eq!(
            (&*login.user, &*login.password),
            (&b"ann"[..], &b"wonder"[..])
        );
        for cut in 0..head.len() {
            assert_eq!(read(&bytes[..cut]), Ok(Decoded::Need), "{cut} bytes");
        }
        let Ok(Decoded::Done { frame, .. }) = read(b"CONNECT a:1 HTTP/1.1\r\n\r\n") else {
            panic!("a whole request");
        };
        assert_eq!(frame.login, None);
    }

    #[test]
    fn a_head_that_arrives_byte_by_byte_is_not_parsed_as_often() {
        for (before, line_end) in [("", "\r\n"), ("\r\n\n\r\n", "\r\n"), ("\n", "\n")] {
            let line = format!("CONNECT a:1 HTTP/1.1{line_end}");
            let fields = format!("X: y{line_end}").repeat(1000);
            let head = format!("{before}{line}{fields}{line_end}");
            assert!(head.len() < MAX_HEAD);
            for cut in 0..head.len() {
                let parsed = to_parse(&head.as_bytes()[..cut]).len();
                assert!(parsed <= line.len(), "{parsed} of {cut} bytes");
            }
            let whole = [head.as_bytes(), b"early"].concat();
            assert_eq!(to_parse(&whole), whole);
            let read = read(&whole);
            assert!(matches!(read, Ok(Decoded::Done { consumed, .. }) if consumed == head.len()));
        }
        // The end of a head may mix both ends of lines.
        let mixed = b"CONNECT a:1 HTTP/1.1\n\r\n";
        assert!(matches!(read(mixed), Ok(Decoded::Done { .. })));
    }

    // PROTOCOL PROXY-3, PROXY-4.
    #[test]
    fn each_refusal_has_its_status() {
        for (code, expected) in [
            (FlowCode::Denied, "403"),
            (FlowCode::Quota, "403"),
            (FlowCode::Unauthenticated, "407"),
            (FlowCode::Refused, "502"),
            (FlowCode::NameNotFound, "502"),
            (FlowCode::Limit, "503"),
            (FlowCode::DialTimeout, "504"),
            (FlowCode::BadOpen, "400"),
        ] {
            assert_eq!(status(code, b""), expected, "{code:?}");
        }
        let long = [&b"CONNECT a:1 HTTP/1.1\r\nX: "[..], &[b'y'; MAX_HEAD]].concat();
        for (bytes, expected) in [
            (&b"GET http://a/ HTTP/1.1\r\n"[..], "405"),
            (b"CONNECT a:1 HTTP/1.1\r\nContent-Length: 5\r\n", "400"),
            (
                b"CONNECT a:1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
                "400",
            ),
            (b"CONNECT a:1 HTTP/1.1\r\nOrigin: https://b\r\n", "403"),
            (b"CONNECT a:1 HTTP/1.1\r\nX", "408"),
            (&long, "431"),
        ] {
            assert_eq!(status(FlowCode::BadOpen, bytes), expected);
        }
        for bytes in [&b"GET / HTTP/1.1\r\n"[..], &long] {
            assert_eq!(read(bytes), Err(FlowCode::BadOpen));
        }
        let challenge = String::from_utf8(refusal(FlowCode::Unauthenticated, b"")).expect("text");
        assert!(
            challenge.contains("\r\nProxy-Authenticate: Basic "),
            "{challenge}"
        );
    }
}
