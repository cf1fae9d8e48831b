//! HTTP/1.1 CONNECT (RFC 9110 section 9.3.6), as a client of a proxy.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::error::shown;
use super::{Awaiting, OutboundError, OutboundTarget, State};
use crate::proxy::Credentials;

/// The first bytes of every answer (RFC 9112 section 4).
const VERSION: &[u8] = b"HTTP/1.";

/// Returns the request. Its login is Basic (RFC 7617 section 2).
pub(super) fn request(target: &OutboundTarget, login: Option<&Credentials>) -> Vec<u8> {
    let authority = target.authority();
    let mut request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n");
    if let Some(Credentials { user, password }) = login {
        let encoded = STANDARD.encode([user, &b":"[..], password].concat());
        request.push_str("Proxy-Authorization: Basic ");
        request.push_str(&encoded);
        request.push_str("\r\n");
    }
    request.push_str("\r\n");
    request.into_bytes()
}

/// Returns whether an answer may begin like this. Empty lines may precede it (RFC 9112 section 2.2).
pub(super) fn begins(input: &[u8]) -> bool {
    let input = without_empty_lines(input);
    let length = input.len().min(VERSION.len());
    input[..length] == VERSION[..length]
}

/// Reads the head of an answer. Returns `None` until it is complete.
pub(super) fn head(
    input: &[u8],
    target: &OutboundTarget,
    has_login: bool,
) -> Option<Result<State, OutboundError>> {
    let head = without_empty_lines(input);
    let ends = head.ends_with(b"\n\n") || head.ends_with(b"\n\r\n");
    ends.then(|| answer(head, target, has_login))
}

fn answer(head: &[u8], target: &OutboundTarget, has_login: bool) -> Result<State, OutboundError> {
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let line = lines.next().unwrap_or_default();
    let malformed = OutboundError::Malformed("the status line has no status");
    let (_, status) = line.split_first_chunk::<9>().ok_or(malformed.clone())?;
    let code = status.first_chunk::<3>().ok_or(malformed.clone())?;
    if !code.iter().all(u8::is_ascii_digit) || status.get(3).is_some_and(|byte| *byte != b' ') {
        return Err(malformed);
    }
    let fields = Fields::read(lines);
    let text = shown(status);
    Err(match code {
        // RFC 9110 section 15.2: interim answers may precede the final one.
        b"100" | b"102" | b"103" => return Ok(State::Reading(Awaiting::Head)),
        // Content-Length and Transfer-Encoding mean nothing here (RFC 9110 section 9.3.6).
        [b'2', ..] if fields.is_html => OutboundError::Page,
        [b'2', ..] => return Ok(State::Connected),
        [b'3', ..] | b"511" => match fields.location {
            Some(location) => OutboundError::Redirect(location),
            None => OutboundError::Page,
        },
        // Tinyproxy answers a wrong login with 401.
        b"401" | b"407" => fields.login_error(has_login),
        b"403" | b"405" | b"451" => {
            OutboundError::Forbidden(format!("{text} for {}", target.authority()))
        }
        b"404" | b"408" | b"410" | b"500" | b"502" | b"503" | b"504" => {
            OutboundError::Unreachable(format!("{text} for {}", target.authority()))
        }
        _ => OutboundError::Status(text),
    })
}

/// The fields of an answer that decide.
#[derive(Default)]
struct Fields {
    /// The answer is a document, such as the page by which a network asks for a login.
    is_html: bool,
    location: Option<String>,
    /// The names of the schemes by which the proxy accepts a login.
    schemes: Vec<String>,
}

impl Fields {
    fn read<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut fields = Self::default();
        for line in lines {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else {
                continue;
            };
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            match &name.to_ascii_lowercase()[..] {
                b"content-type" => {
                    fields.is_html |= value.to_ascii_lowercase().starts_with(b"text/html");
                }
                b"location" => fields.location = Some(shown(value)),
                b"proxy-authenticate" => {
                    let scheme = value.split(|byte| *byte == b' ').next();
                    fields.schemes.push(shown(scheme.unwrap_or_default()));
                }
                _ => {}
            }
        }
        fields
    }

    /// Returns the reason of the status 407.
    fn login_error(&self, has_login: bool) -> OutboundError {
        let mut schemes = self.schemes.iter();
        let basic = schemes.any(|scheme| scheme.eq_ignore_ascii_case("basic"));
        if !basic && !self.schemes.is_empty() {
            OutboundError::OtherScheme(self.schemes.join(", "))
        } else if has_login {
            OutboundError::LoginRefused
        } else {
            OutboundError::LoginMissing
        }
    }
}

fn without_empty_lines(input: &[u8]) -> &[u8] {
    let empty = input.iter().take_while(|byte| b"\r\n".contains(byte));
    &input[empty.count()..]
}
