//! HTTP/1.0 and HTTP/1.1 CONNECT (RFC 9110 section 9.3.6, RFC 9112 section 3.2.3).
//!
//! The request is parsed line by line and strictly: a request that two programs could read differently is refused.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Credentials, Refusal};
use crate::code::FlowCode;

/// Maximum length of a request's head with the empty line, bytes: that of common servers.
pub const MAX_HEAD: usize = 8192;

/// The successful answer, without Content-Length and Transfer-Encoding (RFC 9110 section 9.3.6).
pub(super) const ACCEPTED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// The head of a request, as far as it has been read.
#[derive(Default)]
pub(super) struct Head {
    /// Number of bytes examined so far.
    seen: usize,
    /// Offset of the first incomplete line.
    line: usize,
    request: Option<RequestLine>,
    host: Option<String>,
    login: Option<String>,
}

/// The content of the request line.
struct RequestLine {
    authority: String,
    /// HTTP/1.1, in which requests have a Host field.
    is_1_1: bool,
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
            // RFC 9112 section 2.2 allows a recipient to accept a bare LF as the end of a line, but other recipients
            // may not.
            let Some(line) = line.strip_suffix(b"\r\n") else {
                return bad("a line does not end in CR LF");
            };
            let line = std::str::from_utf8(line).ok();
            let clean = |c: char| c == '\t' || !c.is_control();
            let Some(line) = line.filter(|line| line.chars().all(clean)) else {
                return bad("a line is not UTF-8 or has control characters");
            };
            match &self.request {
                None => self.request = Some(request_line(line)?),
                Some(_) if line.is_empty() => return self.end().map(Some),
                Some(_) => self.field(line)?,
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
        let kept = match name.to_ascii_lowercase().as_str() {
            // RFC 9110 section 9.3.6: CONNECT has no content. RFC 9112 section 6.3: the bytes that follow would be
            // ambiguous.
            "content-length" | "transfer-encoding" => return bad("CONNECT has no content"),
            "host" => &mut self.host,
            "proxy-authorization" => &mut self.login,
            _ => return Ok(()),
        };
        match kept.replace(value.to_owned()) {
            Some(_) => bad("a field occurs twice"),
            None => Ok(()),
        }
    }

    /// Handles the empty line at the end of the head.
    fn end(&mut self) -> HttpResult<(String, Option<Credentials>)> {
        let Some(RequestLine { authority, is_1_1 }) = self.request.take() else {
            return bad("the request line is missing");
        };
        // RFC 9112 section 3.2: an HTTP/1.1 request without Host is refused. RFC 9110 section 7.2: Host equals the
        // authority.
        match &self.host {
            None if is_1_1 => return bad("the Host field is missing"),
            Some(host) if !is_same_host(host, &authority) => {
                return bad("Host and the target of CONNECT are different");
            }
            _ => {}
        }
        Ok((authority, self.login.take().as_deref().and_then(basic)))
    }
}

fn too_long<T>() -> HttpResult<T> {
    let status = "431 Request Header Fields Too Large";
    Err(Status(status, "the request is too long"))
}

/// Parses the request line (RFC 9112 section 3) with a target in authority form (section 3.2.3).
fn request_line(line: &str) -> HttpResult<RequestLine> {
    let mut words = line.split(' ');
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
    let is_1_1 = match version {
        "HTTP/1.1" => true,
        "HTTP/1.0" => false,
        _ => {
            let status = "505 HTTP Version Not Supported";
            return Err(Status(status, "only HTTP/1.0 and HTTP/1.1 are served here"));
        }
    };
    if target.contains(['/', '?', '#', '@']) {
        return bad("CONNECT names HOST:PORT and nothing else");
    }
    let authority = target.to_owned();
    Ok(RequestLine { authority, is_1_1 })
}

/// Returns whether a Host field names the same host as an authority. Some clients leave the port out.
fn is_same_host(host: &str, authority: &str) -> bool {
    let bare = authority.rsplit_once(':').map_or(authority, |(it, _)| it);
    host.eq_ignore_ascii_case(authority) || host.eq_ignore_ascii_case(bare)
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
fn response(status: &str, fields: &str, why: &str) -> Vec<u8> {
    let length = why.len() + 1;
    format!(
        "HTTP/1.1 {status}\r\n{fields}Content-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{why}\n"
    )
    .into_bytes()
}
