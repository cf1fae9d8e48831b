//! The fields of a request, and the head of HTTP/1.1 that says the same.
//!
//! One reader decides what a CONNECT request means, whatever its version. So a request of HTTP/2 takes the form of
//! HTTP/1.1 once it is well-formed by RFC 9113. A field of it cannot become two: names are tokens, and no value has the
//! end of a line.

use crate::hpack::FIELD_OVERHEAD;

/// Maximum size of the fields of a request as RFC 9113 section 6.5.2 counts them, bytes: that of a head of HTTP/1.1, which
/// is shorter than its fields by that count.
pub(crate) const LIST_MAX: usize = 8192;

/// Fields that belong to a connection of HTTP/1.1 (RFC 9113 section 8.2.2).
const OF_CONNECTIONS: [&[u8]; 5] = [
    b"connection",
    b"proxy-connection",
    b"keep-alive",
    b"transfer-encoding",
    b"upgrade",
];

/// The fields of a request that have been decoded.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
pub(crate) struct Request {
    method: Option<Vec<u8>>,
    authority: Option<Vec<u8>>,
    has_scheme: bool,
    has_path: bool,
    /// The fields that are no pseudo-header, as lines.
    lines: Vec<u8>,
    has_fields: bool,
    size: usize,
    malformed: bool,
}

/// The head of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestHead {
    /// The request in the form of HTTP/1.1.
    Whole {
        text: Vec<u8>,
        /// The answer may have no content.
        is_head: bool,
    },
    /// The request is malformed (RFC 9113 section 8.1.1).
    Malformed,
    /// The fields are larger than [`LIST_MAX`].
    TooLarge,
}

impl Request {
    pub(crate) fn push(&mut self, name: &[u8], value: &[u8]) {
        self.size += name.len() + value.len() + FIELD_OVERHEAD;
        if self.size > LIST_MAX {
            return;
        }
        let accepted = match name.strip_prefix(b":") {
            Some(pseudo) => !self.has_fields && self.pseudo(pseudo, value),
            None => self.field(name, value),
        };
        self.malformed |= !accepted;
    }

    /// Takes a pseudo-header field (section 8.3.1). Returns false if it is unknown, repeated or malformed.
    fn pseudo(&mut self, name: &[u8], value: &[u8]) -> bool {
        let is_visible = value.iter().all(u8::is_ascii_graphic);
        let place = match name {
            b"method" if is_visible && !value.is_empty() => &mut self.method,
            b"authority" if is_visible => &mut self.authority,
            b"scheme" => return !std::mem::replace(&mut self.has_scheme, true),
            b"path" => return !std::mem::replace(&mut self.has_path, true) && !value.is_empty(),
            _ => return false,
        };
        place.replace(value.to_owned()).is_none()
    }

    /// Takes a field. Returns false if its name or value is malformed, or if it belongs to HTTP/1.1.
    fn field(&mut self, name: &[u8], value: &[u8]) -> bool {
        self.has_fields = true;
        let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
        let fits = !name.is_empty()
            && name.iter().copied().all(is_name)
            && !OF_CONNECTIONS.contains(&name)
            && (name != b"te" || value == b"trailers")
            && !value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'))
            && !is_blank(value.first())
            && !is_blank(value.last());
        if fits {
            for part in [name, b": ", value, b"\r\n"] {
                self.lines.extend_from_slice(part);
            }
        }
        fits
    }

    /// Returns the head, once all fields were taken.
    pub(crate) fn finish(self) -> RequestHead {
        if self.size > LIST_MAX {
            return RequestHead::TooLarge;
        }
        let is_connect = self.method.as_deref() == Some(b"CONNECT");
        // Section 8.5. A request that is no CONNECT has both, and an authority only if its sender wants.
        let has_pseudo = if is_connect {
            self.authority.is_some() && !self.has_scheme && !self.has_path
        } else {
            self.has_scheme && self.has_path
        };
        let Some(method) = self.method.filter(|_| has_pseudo && !self.malformed) else {
            return RequestHead::Malformed;
        };
        let authority = self.authority.filter(|_| is_connect);
        // The path of a request that is refused anyway may have spaces.
        let target = authority.as_deref().unwrap_or(b"*");
        let text = [
            &method[..],
            b" ",
            target,
            b" HTTP/1.1\r\n",
            &self.lines[..],
            b"\r\n",
        ]
        .concat();
        RequestHead::Whole {
            text,
            is_head: method == b"HEAD",
        }
    }
}

/// Returns whether the byte may be part of a field's name, which is a token without capital letters (section 8.2.1).
fn is_name(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: &[(&str, &str)]) -> RequestHead {
        let mut request = Request::default();
        for (name, value) in fields {
            request.push(name.as_bytes(), value.as_bytes());
        }
        request.finish()
    }

    fn text(fields: &[(&str, &str)]) -> String {
        match head(fields) {
            RequestHead::Whole { text, .. } => String::from_utf8(text).expect("text"),
            other => panic!("{fields:?}: {other:?}"),
        }
    }

    const CONNECT: [(&str, &str); 2] = [(":method", "CONNECT"), (":authority", "a:443")];

    fn connect_with(field: (&str, &str)) -> RequestHead {
        head(&[&CONNECT[..], &[field]].concat())
    }

    #[test]
    fn a_request_has_the_form_of_http_1() {
        let fields = [
            &CONNECT[..],
            &[("proxy-authorization", "Basic eA=="), ("te", "trailers")],
        ]
        .concat();
        assert_eq!(
            text(&fields),
            "CONNECT a:443 HTTP/1.1\r\nproxy-authorization: Basic eA==\r\nte: trailers\r\n\r\n"
        );
        let get = [
            (":method", "HEAD"),
            (":scheme", "https"),
            (":path", "/a b"),
            (":authority", "a"),
        ];
        assert_eq!(text(&get), "HEAD * HTTP/1.1\r\n\r\n");
        assert!(matches!(
            head(&get),
            RequestHead::Whole { is_head: true, .. }
        ));
    }

    // RFC 9113 sections 8.1.1, 8.2 and 8.3.
    #[test]
    fn malformed_requests_have_no_head() {
        let wrong = [
            ("Upper", "x"),
            ("", "x"),
            ("a b", "x"),
            ("a:", "x"),
            ("a", "x\r\nproxy-authorization: Basic eA=="),
            ("a", "x\n"),
            ("a", "x\0"),
            ("a", " x"),
            ("a", "x\t"),
            ("connection", "close"),
            ("transfer-encoding", "chunked"),
            ("te", "gzip"),
            (":method", "CONNECT"),
            (":authority", "b:443"),
            (":scheme", "https"),
            (":path", "/"),
            (":protocol", "websocket"),
            (":status", "200"),
        ];
        for field in wrong {
            assert_eq!(connect_with(field), RequestHead::Malformed, "{field:?}");
        }
        let late = [("a", "x"), CONNECT[0], CONNECT[1]];
        assert_eq!(
            head(&late),
            RequestHead::Malformed,
            "a pseudo-header after a field"
        );
        for authority in ["a:443 HTTP/1.1", "a:443\r\nx: y", "ä:443"] {
            let fields = [CONNECT[0], (":authority", authority)];
            assert_eq!(head(&fields), RequestHead::Malformed, "{authority}");
        }
        for missing in [
            &CONNECT[..1],
            &CONNECT[1..],
            &[(":method", "GET"), (":path", "/")],
            &[],
        ] {
            assert_eq!(head(missing), RequestHead::Malformed, "{missing:?}");
        }
    }

    #[test]
    fn the_size_has_a_limit_and_the_text_is_shorter() {
        let size: usize = CONNECT
            .iter()
            .map(|(name, value)| name.len() + value.len() + 32)
            .sum();
        let longest = "x".repeat(LIST_MAX - size - 32 - 1);
        let RequestHead::Whole { text, .. } = connect_with(("a", &longest)) else {
            panic!("the longest list is answered");
        };
        assert!(text.len() < LIST_MAX);
        let longer = format!("{longest}x");
        assert_eq!(connect_with(("a", &longer)), RequestHead::TooLarge);
    }
}
