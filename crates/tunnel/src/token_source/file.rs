//! Tokens from a file with lines of `CLIENT-ADDRESS TOKEN`. The file is read again for each flow.
//!
//! Any number of spaces and tabs separates the two words. Text after the token is ignored, as by the original. `#`
//! begins a comment line. Addresses are compared by value, IPv6 with or without brackets. A line with the application's
//! address has priority, then a line `unix` for Unix-socket clients, then a line `*`. Of several equal lines the first
//! one counts. Invalid lines do not affect the others. If no other line matches, the error names the first invalid
//! line.

use std::net::IpAddr;
use std::path::Path;

use thiserror::Error;

use crate::app_addr::AppAddr;
use quictun_trust::keeper::{self, ReadError};

/// The reason why the file has no token for an application. Lines count from 1.
#[derive(Debug, Error)]
pub(crate) enum FileError {
    #[error("cannot read it")]
    Read(#[source] ReadError),
    #[error("line {0} is not UTF-8 text: save the file as UTF-8")]
    NotText(usize),
    #[error(
        "line {0} has an address but no token: write ADDRESS TOKEN, as in '10.0.0.1 tcp:127.0.0.1:22'"
    )]
    NoToken(usize),
    /// No line matches, and one line is invalid: it may be the one that the user meant.
    #[error(
        "no line for {app}, and line {line} begins with {found:?}, which is not an address: write an IP address without port or network, 'unix' or '*'"
    )]
    NoAddress {
        app: AppAddr,
        line: usize,
        found: String,
    },
    /// No line matches. The text is the address with which a matching line would begin.
    #[error("no line for {0}: add '{1} TOKEN', or '* TOKEN' for all applications without a line")]
    NoLine(AppAddr, String),
}

pub(super) fn token(path: &Path, app: AppAddr) -> Result<String, FileError> {
    let content = keeper::read(path, MAX_FILE).map_err(FileError::Read)?;
    let text = std::str::from_utf8(&content).map_err(|e| {
        // The damaged line is the last line that begins before the damage.
        let line = content[..e.valid_up_to()]
            .split(|byte| *byte == b'\n')
            .count();
        FileError::NotText(line)
    })?;
    find(text, app).map(str::to_owned)
}

fn find(text: &str, app: AppAddr) -> Result<&str, FileError> {
    let mut best: Option<(MatchRank, TokenLine<'_>)> = None;
    let mut invalid = None;
    for line in lines(text) {
        match match_rank(line.address, app) {
            Some(rank) if best.as_ref().is_none_or(|(best, _)| rank > *best) => {
                best = Some((rank, line));
            }
            None if invalid.is_none() && !is_address(line.address) => invalid = Some(line),
            _ => {}
        }
    }
    match (best, invalid) {
        (Some((_, line)), _) => line.token.ok_or(FileError::NoToken(line.number)),
        (None, Some(line)) => Err(FileError::NoAddress {
            app,
            line: line.number,
            found: line.address.to_owned(),
        }),
        (None, None) => {
            let wanted = match app {
                AppAddr::Ip(addr) => addr.ip().to_canonical().to_string(),
                AppAddr::Unix => "unix".to_owned(),
            };
            Err(FileError::NoLine(app, wanted))
        }
    }
}

/// The degree to which a line's address matches an application, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum MatchRank {
    Everyone,
    Exact,
}

struct TokenLine<'a> {
    number: usize,
    address: &'a str,
    token: Option<&'a str>,
}

fn lines(text: &str) -> impl Iterator<Item = TokenLine<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    text.lines().enumerate().filter_map(|(index, line)| {
        let mut words = line.split_ascii_whitespace();
        let address = words.next().filter(|word| !word.starts_with('#'))?;
        Some(TokenLine {
            number: index + 1,
            address,
            token: words.next(),
        })
    })
}

fn match_rank(address: &str, app: AppAddr) -> Option<MatchRank> {
    match (address, app) {
        ("*", _) => Some(MatchRank::Everyone),
        ("unix", AppAddr::Unix) => Some(MatchRank::Exact),
        (text, AppAddr::Ip(app)) if parse_address(text) == Some(app.ip().to_canonical()) => {
            Some(MatchRank::Exact)
        }
        _ => None,
    }
}

fn is_address(text: &str) -> bool {
    text == "unix" || parse_address(text).is_some()
}

fn parse_address(text: &str) -> Option<IpAddr> {
    let addr = match text.strip_prefix('[') {
        Some(rest) => IpAddr::V6(rest.strip_suffix(']')?.parse().ok()?),
        None => text.parse().ok()?,
    };
    Some(addr.to_canonical())
}

/// Maximum size of a token file, bytes: some twenty thousand lines. The file is read for every flow, so reading must
/// stay quick.
pub(crate) const MAX_FILE: u64 = 1 << 20;

#[cfg(test)]
mod tests;
