//! SOCKS version 4 (Ying-Da Lee, "SOCKS: A protocol for TCP proxy across firewalls") and its extension 4A, in which the
//! proxy resolves names.

use std::net::Ipv4Addr;

use super::{Dialect, HandshakeState, HandshakeStep, Refusal, target};

const CONNECT: u8 = 1;

/// Maximum length of a user id and of a name, bytes. The user id is ignored.
const MAX_TEXT: usize = 255;

/// Offset of the user id: after version, command, port and address.
const USER: usize = 8;

/// "Request granted". Port and address have no meaning after CONNECT.
pub(super) const ACCEPTED: [u8; 8] = [0, 90, 0, 0, 0, 0, 0, 0];

/// "Request rejected or failed". The only other refusals are two for identd.
pub(super) const REJECTED: [u8; 8] = [0, 91, 0, 0, 0, 0, 0, 0];

/// Takes the request off the input once it is complete.
pub(super) fn poll(input: &mut Vec<u8>, protected: bool) -> (HandshakeState, HandshakeStep) {
    let refuse = |why| {
        let answer = REJECTED.to_vec();
        (
            HandshakeState::Over,
            HandshakeStep::Refuse(Refusal { answer, why }),
        )
    };
    if protected {
        // A user id proves nothing.
        return refuse("SOCKS4 has no passwords, and this proxy requires one");
    }
    let more = (HandshakeState::Socks4, HandshakeStep::More);
    let Some(&[_, command, p0, p1, a, b, c, d]) = input.first_chunk::<USER>() else {
        return more;
    };
    if command != CONNECT {
        return refuse("the request has another command than CONNECT");
    }
    let end = match text(input, USER) {
        NulTerminated::More => return more,
        NulTerminated::TooLong => return refuse("the user id is too long"),
        NulTerminated::Ends(end) => end,
    };
    let port = u16::from_be_bytes([p0, p1]);
    // SOCKS4A: the address 0.0.0.x with x other than 0 says that a name follows.
    let (to, end) = if [a, b, c] == [0, 0, 0] && d != 0 {
        let name_ends = match text(input, end) {
            NulTerminated::More => return more,
            NulTerminated::TooLong => return refuse("the host name is too long"),
            NulTerminated::Ends(name_ends) => name_ends,
        };
        match std::str::from_utf8(&input[end..name_ends - 1]) {
            Ok(name) => (target("tcp", name, port), name_ends),
            Err(_) => return refuse("the host name is not UTF-8"),
        }
    } else {
        let host = Ipv4Addr::new(a, b, c, d).to_string();
        (target("tcp", &host, port), end)
    };
    input.drain(..end);
    (
        HandshakeState::Requested(Dialect::Socks4, to),
        HandshakeStep::More,
    )
}

enum NulTerminated {
    More,
    TooLong,
    /// Offset of the first byte after the text's NUL.
    Ends(usize),
}

fn text(input: &[u8], at: usize) -> NulTerminated {
    let rest = &input[at..];
    match rest.iter().take(MAX_TEXT + 1).position(|byte| *byte == 0) {
        Some(length) => NulTerminated::Ends(at + length + 1),
        None if rest.len() > MAX_TEXT => NulTerminated::TooLong,
        None => NulTerminated::More,
    }
}
