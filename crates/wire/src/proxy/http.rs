//! HTTP/1.0 and HTTP/1.1 CONNECT (RFC 9110 section 9.3.6, RFC 9112 section 3.2.3).
//!
//! The parser accepts what programs send and common proxies accept: a line that ends in LF alone, empty lines before the
//! request, any white space in the request line, and any `Host`, since only the request line names the target. After an
//! accepted head, all bytes belong to the target, so no second request can hide in them.
//!
//! A request is refused if programs disagree about the end of its head, or about its fields: with content, a folded line,
//! a repeated field, or white space before a colon. A page of a browser cannot send CONNECT. If one could, its request
//! would have `Origin` or `Sec-Fetch-Site`, and these are refused as well.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Credentials, Refusal};
use crate::code::FlowCode;

/// Maximum length of a request's head with the empty line, bytes: that of common servers.
pub const MAX_HEAD: usize = 8192;

/// The successful answer, without Content-Length and Transfer-Encoding (RFC 9110 section 9.3.6).
pub(crate) const ACCEPTED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// The head of a request, as far as it has been read.
#[derive(Default)]
pub(super) struct Head {
    /// Number of bytes examined so far.
    seen: usize,
    /// Offset of the first incomplete line.
    line: usize,
    /// The target of the request line.
    authority: Option<String>,
    has_host: bool,
    login: Option<String>,
}

pub(super) enum HeadResult {
    More,
    Done {
        length: usize,
        authority: String,
        login: Option<Credentials>,
    },
    Refuse(Refusal),
}

/// Status and reason of an answer.
#[derive(Clone, Copy)]
struct Status(&'static str, &'static str);

type HttpResult<T> = Result<T, Status>;

const BAD: &str = "400 Bad Request";

const fn bad<T>(why: &'static str) -> HttpResult<T> {
    Err(Status(BAD, why))
}

impl Head {
    /// Continues where the last call stopped. `input` begins with the request line.
    pub(super) fn read(&mut self, input: &[u8]) -> HeadResult {
        match self.lines(input) {
            Ok(None) => HeadResult::More,
            Ok(Some((authority, login))) => HeadResult::Done {
                length: self.seen,
                authority,
                login,
            },
            Err(Status(status, why)) => HeadResult::Refuse(answer(status, "", why)),
        }
    }

    fn lines(&mut self, input: &[u8]) -> HttpResult<Option<(String, Option<Credentials>)>> {
        while let Some(at) = input[self.seen..].iter().position(|byte| *byte == b'\n') {
            let end = self.seen + at + 1;
            if end > MAX_HEAD {
                return too_long();
            }
            let line = &input[self.line..end];
            (self.seen, self.line) = (end, end);
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line
                .iter()
                .any(|byte| byte.is_ascii_control() && *byte != b'\t')
            {
                return bad("a line has control characters");
            }
            match self.authority.take() {
                // RFC 9112 section 2.2.
                None if line.is_empty() => {}
                None => self.authority = Some(request_line(line)?),
                Some(authority) if line.is_empty() => {
                    let login = self.login.take();
                    return Ok(Some((authority, login.as_deref().and_then(basic))));
                }
                Some(authority) => {
                    self.authority = Some(authority);
                    // The values of ignored fields may have any encoding.
                    self.field(&String::from_utf8_lossy(line))?;
                }
            }
        }
        self.seen = input.len();
        if self.seen >= MAX_HEAD {
            return too_long();
        }
        Ok(None)
    }

    /// Reads a field line (RFC 9112 section 5).
    fn field(&mut self, line: &str) -> HttpResult<()> {
        let Some((name, value)) = line.split_once(':') else {
            return bad("a field has no colon");
        };
        // White space here is an obsolete fold (section 5.2), or precedes the colon (section 5.1).
        if name.is_empty() || !name.bytes().all(is_token) {
            return bad("a field name is malformed");
        }
        let value = value.trim_matches([' ', '\t']);
        let seen = match name.to_ascii_lowercase().as_str() {
            // RFC 9110 section 9.3.6: CONNECT has no content. RFC 9112 section 6.3: the bytes that follow would be
            // ambiguous. Some programs say that there are none.
            "content-length" if is_zero(value) => return Ok(()),
            "content-length" | "transfer-encoding" => return bad("CONNECT has no content"),
            "origin" | "sec-fetch-site" => {
                return Err(Status("403 Forbidden", "pages may not use this proxy"));
            }
            "host" => std::mem::replace(&mut self.has_host, true),
            "proxy-authorization" => self.login.replace(value.to_owned()).is_some(),
            _ => return Ok(()),
        };
        // RFC 9112 section 3.2.
        if seen {
            return bad("a field occurs twice");
        }
        Ok(())
    }
}

/// Returns whether a Content-Length is 0. RFC 9110 section 8.6: it may be a list of equal numbers.
fn is_zero(length: &str) -> bool {
    length.split(',').all(|number| {
        let number = number.trim_matches([' ', '\t']);
        !number.is_empty() && number.bytes().all(|digit| digit == b'0')
    })
}

fn too_long<T>() -> HttpResult<T> {
    let status = "431 Request Header Fields Too Large";
    Err(Status(status, "the request is too long"))
}

/// Parses the request line (RFC 9112 section 3, with any white space between its words) with a target in authority form
/// (section 3.2.3). Returns the target.
fn request_line(line: &[u8]) -> HttpResult<String> {
    let Ok(line) = std::str::from_utf8(line) else {
        return bad("the request line is not UTF-8");
    };
    let mut words = line.split([' ', '\t']).filter(|word| !word.is_empty());
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return bad("the request line does not have three words");
    };
    if method != "CONNECT" {
        // The client is a page in a browser, or a program that expects a proxy that fetches documents.
        let status = "405 Method Not Allowed\r\nAllow: CONNECT";
        return Err(Status(status, "only CONNECT is served here"));
    }
    // RFC 9110 section 2.5: a later minor version is read like the last known one.
    let minor = version.strip_prefix("HTTP/1.").unwrap_or_default();
    if minor.len() != 1 || !minor.bytes().all(|digit| digit.is_ascii_digit()) {
        let status = "505 HTTP Version Not Supported";
        return Err(Status(status, "only HTTP/1.0 and HTTP/1.1 are served here"));
    }
    if target.contains(['/', '?', '#', '@']) {
        return bad("CONNECT names HOST:PORT and nothing else");
    }
    Ok(target.to_owned())
}

/// Parses Basic credentials (RFC 7617 section 2). Returns `None` for anything else, which never authenticates.
fn basic(value: &str) -> Option<Credentials> {
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = STANDARD.decode(encoded.trim_start_matches(' ')).ok()?;
    // A user's name has no colon; a password may have one.
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some(Credentials {
        user: decoded[..colon].to_vec(),
        password: decoded[colon + 1..].to_vec(),
    })
}

/// Returns whether the byte may be part of a token (RFC 9110 section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Returns the answer to a request without credentials or with unknown ones (RFC 9110 section 15.5.8).
pub(super) fn unknown() -> Refusal {
    let challenge = "Proxy-Authenticate: Basic realm=\"quictun\", charset=\"UTF-8\"\r\n";
    let why = "this proxy requires a user and a password";
    answer("407 Proxy Authentication Required", challenge, why)
}

pub(super) fn refused(code: Option<FlowCode>) -> Vec<u8> {
    let status = code.map_or("502 Bad Gateway", |code| match code {
        FlowCode::BadOpen => BAD,
        FlowCode::Denied | FlowCode::Unauthenticated | FlowCode::Revoked | FlowCode::Quota => {
            "403 Forbidden"
        }
        FlowCode::DialTimeout => "504 Gateway Timeout",
        FlowCode::Limit | FlowCode::ShuttingDown => "503 Service Unavailable",
        _ => "502 Bad Gateway",
    });
    let why = code.map_or_else(
        || "the target cannot be reached".to_owned(),
        |code| code.to_string(),
    );
    response(status, "", &why)
}

fn answer(status: &str, fields: &str, why: &'static str) -> Refusal {
    let answer = response(status, fields, why);
    Refusal { answer, why }
}

/// Formats an answer that also closes the connection.
pub(super) fn response(status: &str, fields: &str, why: &str) -> Vec<u8> {
    let length = why.len() + 1;
    format!(
        "HTTP/1.1 {status}\r\n{fields}Content-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{why}\n"
    )
    .into_bytes()
}
