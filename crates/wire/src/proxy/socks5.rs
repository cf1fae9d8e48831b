//! SOCKS version 5 (RFC 1928), with or without user and password (RFC 1929).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Credentials, Dialect, HandshakeState, HandshakeStep, Refusal, target};
use crate::code::FlowCode;

pub(crate) const VERSION: u8 = 5;

/// Methods (RFC 1928 section 3).
pub(crate) const NO_AUTHENTICATION: u8 = 0x00;
pub(crate) const PASSWORD: u8 = 0x02;
pub(crate) const NONE_ACCEPTABLE: u8 = 0xff;

/// Version of the sub-negotiation (RFC 1929 section 2).
pub(crate) const LOGIN_VERSION: u8 = 1;

/// Answers to user and password (RFC 1929 section 2).
pub(super) const WELCOME: [u8; 2] = [LOGIN_VERSION, 0];
pub(super) const UNKNOWN: [u8; 2] = [LOGIN_VERSION, 1];

/// Address types (RFC 1928 section 5).
pub(crate) const IPV4: u8 = 1;
pub(crate) const NAME: u8 = 3;
pub(crate) const IPV6: u8 = 4;

/// Commands (RFC 1928 section 4).
pub(crate) const CONNECT: u8 = 1;
pub(crate) const UDP_ASSOCIATE: u8 = 3;

/// The answer once the target is connected. The local address of the server's connection is not known here, so it is
/// all zeros, as in other programs that carry connections elsewhere.
pub(super) const ACCEPTED: [u8; 10] = reply(0x00);

/// Reply codes (RFC 1928 section 6).
pub(crate) const GENERAL_FAILURE: u8 = 0x01;
pub(crate) const NOT_ALLOWED: u8 = 0x02;
pub(crate) const NETWORK_UNREACHABLE: u8 = 0x03;
pub(crate) const HOST_UNREACHABLE: u8 = 0x04;
pub(crate) const REFUSED: u8 = 0x05;
pub(crate) const EXPIRED: u8 = 0x06;
pub(crate) const COMMAND_NOT_SUPPORTED: u8 = 0x07;
pub(crate) const ADDRESS_NOT_SUPPORTED: u8 = 0x08;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Socks5State {
    Methods,
    Login,
    Request,
}

/// Takes the next message off the input once it is complete.
pub(super) fn poll(
    state: Socks5State,
    input: &mut Vec<u8>,
    protected: bool,
) -> (HandshakeState, HandshakeStep) {
    let read = match state {
        Socks5State::Methods => methods(input, protected),
        Socks5State::Login => login(input, protected),
        Socks5State::Request => request(input),
    };
    match read {
        Ok(Some((length, next, step))) => {
            input.drain(..length);
            (next, step)
        }
        Ok(None) => (HandshakeState::Socks5(state), HandshakeStep::More),
        Err(refusal) => (HandshakeState::Over, HandshakeStep::Refuse(refusal)),
    }
}

/// A message's length, the next state and the next step, or `None` if the message is incomplete.
type Message = Result<Option<(usize, HandshakeState, HandshakeStep)>, Refusal>;

/// Reads the greeting (RFC 1928 section 3): version, number of methods, methods.
fn methods(input: &[u8], protected: bool) -> Message {
    let Some((methods, length)) = counted(input, 1) else {
        return Ok(None);
    };
    let (method, next) = if !protected && methods.contains(&NO_AUTHENTICATION) {
        (NO_AUTHENTICATION, Socks5State::Request)
    } else if methods.contains(&PASSWORD) {
        // A program that has been given a user offers nothing else, although an open proxy needs no user.
        (PASSWORD, Socks5State::Login)
    } else {
        let answer = vec![VERSION, NONE_ACCEPTABLE];
        let why = "the client offers no authentication method that this proxy accepts";
        return Err(Refusal { answer, why });
    };
    let step = HandshakeStep::Reply(vec![VERSION, method]);
    Ok(Some((length, HandshakeState::Socks5(next), step)))
}

/// Reads the login (RFC 1929 section 2): version, user, password. An open proxy accepts any, as it ignores the user of
/// SOCKS4 and the fields of HTTP.
fn login(input: &[u8], protected: bool) -> Message {
    if input.first().is_some_and(|first| *first != LOGIN_VERSION) {
        let answer = UNKNOWN.to_vec();
        let why = "user and password are not in the form of RFC 1929";
        return Err(Refusal { answer, why });
    }
    let Some((user, end)) = counted(input, 1) else {
        return Ok(None);
    };
    let Some((password, length)) = counted(input, end) else {
        return Ok(None);
    };
    if !protected {
        let step = HandshakeStep::Reply(WELCOME.to_vec());
        return Ok(Some((
            length,
            HandshakeState::Socks5(Socks5State::Request),
            step,
        )));
    }
    let step = HandshakeStep::Login(Credentials {
        user: user.to_vec(),
        password: password.to_vec(),
    });
    let request = Box::new(HandshakeState::Socks5(Socks5State::Request));
    let next = HandshakeState::LoggingIn(request, Dialect::Socks5);
    Ok(Some((length, next, step)))
}

/// Reads the request (RFC 1928 section 4): version, command, reserved, address type, address, port.
fn request(input: &[u8]) -> Message {
    let refuse = |code, why| {
        let answer = reply(code).to_vec();
        Err(Refusal { answer, why })
    };
    let Some(&[version, command, reserved, _]) = input.first_chunk() else {
        return Ok(None);
    };
    if version != VERSION || reserved != 0 {
        return refuse(GENERAL_FAILURE, "the request is not SOCKS5");
    }
    if ![CONNECT, UDP_ASSOCIATE].contains(&command) {
        return refuse(
            COMMAND_NOT_SUPPORTED,
            "the request has another command than CONNECT and UDP ASSOCIATE",
        );
    }
    let address = match address(&input[3..]) {
        Ok(Some(address)) => address,
        Ok(None) => return Ok(None),
        Err(SocksAddressError::Name) => {
            return refuse(GENERAL_FAILURE, "the host name is not UTF-8");
        }
        Err(SocksAddressError::Kind) => {
            return refuse(ADDRESS_NOT_SUPPORTED, "the address type is unknown");
        }
    };
    let (next, step) = if command == CONNECT {
        let target = target("tcp", &address.host, address.port);
        let next = HandshakeState::Requested(Dialect::Socks5, target);
        (next, HandshakeStep::More)
    } else {
        // The address is what the application believes to have, which other hosts may see differently.
        let from_port = Some(address.port).filter(|port| *port != 0);
        (HandshakeState::Over, HandshakeStep::Associate { from_port })
    };
    Ok(Some((3 + address.length, next, step)))
}

/// An address of RFC 1928 section 5, with its port.
pub(super) struct SocksAddress {
    pub(super) host: String,
    pub(super) port: u16,
    /// Length of its bytes, from the address type to the port.
    pub(super) length: usize,
}

/// The reason why bytes are not an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocksAddressError {
    /// The name is not UTF-8.
    Name,
    /// The address type is unknown.
    Kind,
}

/// Reads an address at the front of `input`: address type, address, port. `None` means that it is incomplete.
pub(super) fn address(input: &[u8]) -> Result<Option<SocksAddress>, SocksAddressError> {
    let found = match input.first() {
        None => return Ok(None),
        Some(&IPV4) => fixed::<4>(input, 1).map(|it| (Ipv4Addr::from(it).to_string(), 5)),
        Some(&IPV6) => fixed::<16>(input, 1).map(|it| (Ipv6Addr::from(it).to_string(), 17)),
        Some(&NAME) => match counted(input, 1) {
            Some((name, end)) => match std::str::from_utf8(name) {
                Ok(name) => Some((name.to_owned(), end)),
                Err(_) => return Err(SocksAddressError::Name),
            },
            None => None,
        },
        Some(_) => return Err(SocksAddressError::Kind),
    };
    Ok(found.and_then(|(host, end)| {
        Some(SocksAddress {
            host,
            port: u16::from_be_bytes(fixed(input, end)?),
            length: end + 2,
        })
    }))
}

/// Reads a one-byte length at `at` and as many bytes. Returns the bytes and the offset after them.
fn counted(input: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let end = at + 1 + usize::from(*input.get(at)?);
    Some((input.get(at + 1..end)?, end))
}

fn fixed<const N: usize>(input: &[u8], at: usize) -> Option<[u8; N]> {
    input.get(at..)?.first_chunk().copied()
}

/// Encodes a reply (RFC 1928 section 6) without a bound address.
const fn reply(code: u8) -> [u8; 10] {
    [VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0]
}

/// Encodes the reply to UDP ASSOCIATE: the address to which the application sends its datagrams.
pub(super) fn associated(relay: SocketAddr) -> Vec<u8> {
    let mut reply = vec![VERSION, 0x00, 0];
    match relay.ip() {
        IpAddr::V4(ip) => {
            reply.push(IPV4);
            reply.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            reply.push(IPV6);
            reply.extend(ip.octets());
        }
    }
    reply.extend(relay.port().to_be_bytes());
    reply
}

pub(super) fn refused(code: Option<FlowCode>) -> Vec<u8> {
    let code = code.map_or(GENERAL_FAILURE, |code| match code {
        FlowCode::Refused | FlowCode::AppReset => REFUSED,
        FlowCode::Unreachable | FlowCode::NameNotFound => HOST_UNREACHABLE,
        FlowCode::Denied | FlowCode::Unauthenticated | FlowCode::Revoked | FlowCode::Quota => {
            NOT_ALLOWED
        }
        FlowCode::Unsupported => COMMAND_NOT_SUPPORTED,
        FlowCode::DialTimeout => EXPIRED,
        FlowCode::ConnectionLost | FlowCode::ShuttingDown => NETWORK_UNREACHABLE,
        _ => GENERAL_FAILURE,
    });
    reply(code).to_vec()
}
