//! SOCKS version 4 (Ying-Da Lee, "SOCKS: A protocol for TCP proxy across firewalls"), and its extension 4A, by which the
//! proxy looks names up.

use std::net::Ipv4Addr;

use super::{Dialect, Refusal, Stage, Step, target};

const CONNECT: u8 = 1;

/// Longest user id and longest name, bytes. A user id means nothing here.
const MAX_TEXT: usize = 255;

/// Where the user id begins: after version, command, port and address.
const USER: usize = 8;

/// "Request granted"; port and address mean nothing after CONNECT.
pub(super) const ACCEPTED: [u8; 8] = [0, 90, 0, 0, 0, 0, 0, 0];

/// "Request rejected or failed", the only reason that there is but for two of identd's.
pub(super) const REJECTED: [u8; 8] = [0, 91, 0, 0, 0, 0, 0, 0];

/// Reads the request, if it is there, and takes it off.
pub(super) fn poll(input: &mut Vec<u8>, protected: bool) -> (Stage, Step) {
    let refuse = |why| {
        let answer = REJECTED.to_vec();
        (Stage::Over, Step::Refuse(Refusal { answer, why }))
    };
    if protected {
        // A user id is no proof.
        return refuse("SOCKS4 has no passwords, and one is wanted here");
    }
    let more = (Stage::Socks4, Step::More);
    let Some(&[_, command, p0, p1, a, b, c, d]) = input.first_chunk::<USER>() else {
        return more;
    };
    if command != CONNECT {
        return refuse("it asks for another command than CONNECT");
    }
    let end = match text(input, USER) {
        Text::More => return more,
        Text::TooLong => return refuse("its user id is too long"),
        Text::Ends(end) => end,
    };
    let port = u16::from_be_bytes([p0, p1]);
    // SOCKS4A: 0.0.0.x with x other than 0 says that a name follows.
    let (to, end) = if [a, b, c] == [0, 0, 0] && d != 0 {
        let name_ends = match text(input, end) {
            Text::More => return more,
            Text::TooLong => return refuse("its host name is too long"),
            Text::Ends(name_ends) => name_ends,
        };
        match std::str::from_utf8(&input[end..name_ends - 1]) {
            Ok(name) => (target(name, port), name_ends),
            Err(_) => return refuse("its host name is no text"),
        }
    } else {
        let host = Ipv4Addr::new(a, b, c, d).to_string();
        (target(&host, port), end)
    };
    input.drain(..end);
    (Stage::Asked(Dialect::Socks4, to), Step::More)
}

enum Text {
    More,
    TooLong,
    /// Behind its NUL.
    Ends(usize),
}

fn text(input: &[u8], at: usize) -> Text {
    let rest = &input[at..];
    match rest.iter().take(MAX_TEXT + 1).position(|byte| *byte == 0) {
        Some(length) => Text::Ends(at + length + 1),
        None if rest.len() > MAX_TEXT => Text::TooLong,
        None => Text::More,
    }
}
