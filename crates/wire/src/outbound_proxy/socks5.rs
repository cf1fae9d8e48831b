//! SOCKS version 5 (RFC 1928), with or without user and password (RFC 1929), as a client of a proxy.

use std::net::IpAddr;

use super::{Awaiting, OutboundError, OutboundTarget, State};
use crate::proxy::Credentials;
use crate::proxy::socks5::{
    ADDRESS_NOT_SUPPORTED, COMMAND_NOT_SUPPORTED, CONNECT, EXPIRED, HOST_UNREACHABLE, IPV4, IPV6,
    LOGIN_VERSION, NAME, NETWORK_UNREACHABLE, NO_AUTHENTICATION, NONE_ACCEPTABLE, NOT_ALLOWED,
    PASSWORD, REFUSED, VERSION,
};

/// The next state, or `None` if the message is incomplete.
type Message = Result<Option<State>, OutboundError>;

/// Returns the greeting (RFC 1928 section 3).
pub(super) fn greeting(has_login: bool) -> Vec<u8> {
    if has_login {
        vec![VERSION, 2, NO_AUTHENTICATION, PASSWORD]
    } else {
        vec![VERSION, 1, NO_AUTHENTICATION]
    }
}

/// Returns whether a message may begin like this.
pub(super) fn begins(awaited: Awaiting, input: &[u8]) -> bool {
    let version = match awaited {
        // Some programs answer with the version of SOCKS.
        Awaiting::LoginAnswer => [LOGIN_VERSION, VERSION],
        _ => [VERSION; 2],
    };
    input.first().is_none_or(|first| version.contains(first))
}

/// Reads the method that the proxy has chosen (RFC 1928 section 3).
pub(super) fn method(
    input: &[u8],
    target: &OutboundTarget,
    login: Option<&Credentials>,
) -> Message {
    let Some(&[_, method]) = input.first_chunk() else {
        return Ok(None);
    };
    match (method, login) {
        (NO_AUTHENTICATION, _) => request(target),
        (PASSWORD, Some(login)) => Ok(Some(State::Sending(of_login(login), Awaiting::LoginAnswer))),
        (NONE_ACCEPTABLE | PASSWORD, None) => Err(OutboundError::LoginMissing),
        (NONE_ACCEPTABLE, Some(_)) => Err(OutboundError::OtherScheme("others".to_owned())),
        _ => Err(OutboundError::Malformed(
            "it chooses a method that was not offered",
        )),
    }
}

/// Returns user and password (RFC 1929 section 2).
fn of_login(login: &Credentials) -> Vec<u8> {
    let mut message = vec![LOGIN_VERSION];
    for text in [&login.user, &login.password] {
        // The settings permit no longer ones.
        let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
        message.push(length);
        message.extend(&text[..usize::from(length).min(text.len())]);
    }
    message
}

/// Reads the answer to user and password (RFC 1929 section 2).
pub(super) fn login_answer(input: &[u8], target: &OutboundTarget) -> Message {
    match input {
        [_, 0] => request(target),
        [_, _] => Err(OutboundError::LoginRefused),
        _ => Ok(None),
    }
}

/// Returns the request (RFC 1928 section 4).
fn request(target: &OutboundTarget) -> Message {
    let mut message = vec![VERSION, CONNECT, 0];
    match target.host.parse() {
        Ok(IpAddr::V4(ip)) => {
            message.push(IPV4);
            message.extend(ip.octets());
        }
        Ok(IpAddr::V6(ip)) => {
            message.push(IPV6);
            message.extend(ip.octets());
        }
        Err(_) => {
            let length = u8::try_from(target.host.len());
            message.extend([NAME, length.map_err(|_| OutboundError::NameTooLong)?]);
            message.extend(target.host.as_bytes());
        }
    }
    message.extend(target.port.to_be_bytes());
    Ok(Some(State::Sending(message, Awaiting::Reply)))
}

/// Reads the reply (RFC 1928 section 6) with its bound address, which has no meaning here.
pub(super) fn reply(input: &[u8]) -> Message {
    let Some(&[_, code, _, kind]) = input.first_chunk() else {
        return Ok(None);
    };
    if code != 0 {
        return Err(of_code(code));
    }
    let address = match (kind, input.get(4)) {
        (IPV4, _) => 4,
        (IPV6, _) => 16,
        (NAME, Some(length)) => 1 + usize::from(*length),
        (NAME, None) => return Ok(None),
        _ => {
            return Err(OutboundError::Malformed(
                "its reply has an unknown address type",
            ));
        }
    };
    let complete = input.len() == 4 + address + 2;
    Ok(complete.then_some(State::Connected))
}

/// Returns the reason for a reply code (RFC 1928 section 6).
fn of_code(code: u8) -> OutboundError {
    let unreachable = |why: &str| OutboundError::Unreachable(format!("SOCKS5 code {code}, {why}"));
    match code {
        NOT_ALLOWED => {
            OutboundError::Forbidden("SOCKS5 code 2, not allowed by its rules".to_owned())
        }
        NETWORK_UNREACHABLE => unreachable("network unreachable"),
        HOST_UNREACHABLE => unreachable("host unreachable"),
        REFUSED => unreachable("connection refused"),
        EXPIRED => unreachable("time-out"),
        COMMAND_NOT_SUPPORTED => OutboundError::Status("CONNECT is not supported".to_owned()),
        ADDRESS_NOT_SUPPORTED => {
            OutboundError::Status("this kind of address is not supported".to_owned())
        }
        _ => unreachable("general failure"),
    }
}
