//! The administrator at the other end of the ssh connection through which this process was started.

use std::net::IpAddr;

/// Largest number of ancestor processes to inspect: sudo, shells and terminal multiplexers lie in between.
const GENERATIONS: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Administrator {
    pub(super) peer: IpAddr,
    /// The local port of the administrator's connection.
    pub(super) port: u16,
}

/// Parses `$SSH_CONNECTION` of this process. Because sudo removes the variable, falls back to the nearest ancestor
/// process that has it.
pub(super) fn find() -> Option<Administrator> {
    if let Ok(text) = std::env::var("SSH_CONNECTION") {
        return parse(&text);
    }
    let mut process = "self".to_owned();
    for _ in 0..GENERATIONS {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        parent.trim().clone_into(&mut process);
        // Processes of other users cannot be read, but their ancestors may be readable.
        let variables = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        let mut variables = variables.split(|byte| *byte == 0);
        if let Some(value) = variables.find_map(|it| it.strip_prefix(b"SSH_CONNECTION=")) {
            return parse(std::str::from_utf8(value).ok()?);
        }
    }
    None
}

/// Parses four words: remote address, remote port, local address, local port.
fn parse(text: &str) -> Option<Administrator> {
    let mut words = text.split(' ');
    let peer: IpAddr = words.next()?.split('%').next()?.parse().ok()?;
    let port = words.nth(2)?.parse().ok()?;
    Some(Administrator {
        peer: peer.to_canonical(),
        port,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_administrator_is_read_from_the_variables_of_ssh() {
        for (text, peer) in [
            ("192.0.2.7 50000 198.51.100.1 22", Some("192.0.2.7")),
            ("::ffff:192.0.2.7 50000 198.51.100.1 22", Some("192.0.2.7")),
            ("fe80::1%eth0 50000 fe80::2%eth0 22", Some("fe80::1")),
            ("2001:db8::1 50000 2001:db8::2 22", Some("2001:db8::1")),
            ("", None),
            ("192.0.2.7 50000", None),
            ("here 1 there 22", None),
            ("192.0.2.7 1 198.51.100.1 70000", None),
        ] {
            let found = parse(text).map(|it| (it.peer.to_string(), it.port));
            assert_eq!(found, peer.map(|it| (it.to_owned(), 22)), "{text:?}");
        }
    }
}
