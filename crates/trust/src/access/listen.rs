//! Rules for the addresses on which a client may ask the server to listen (PROTOCOL REVERSE-3).
//!
//! | rule | addresses that it names |
//! | --- | --- |
//! | `ADDRESS:PORT`, `[V6]:PORT` | this address and port; with port 0 the system chooses the port |
//! | `ADDRESS:FIRST-LAST` | this address with any port of the range |
//! | `ADDRESS:*`, `*:PORT` | this address with any port, the system's choice included; any address with this port |
//! | `unix:/path`, `unix:/dir/*` | this path; any path below this directory, which links in it do not leave |
//! | `udp:` and one of the above with a port | the same for datagrams |
//! | `*` | any address, any port, any path, but not for datagrams |
//!
//! `localhost` stands for 127.0.0.1. An unspecified address (`0.0.0.0`, `[::]`) counts as an address of its own. Peers
//! can reach it from everywhere, so a rule for another address does not name it. A listener on `0.0.0.0` has all IPv4
//! addresses, and one on `[::]` has all addresses of both families: a rule for `[::]` allows more than one for `0.0.0.0`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use quictun_wire::listening::{ListenAddress, ListenAddressError};
use thiserror::Error;

/// A pattern of addresses on which the server may listen for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenRule {
    /// The rule as the configuration writes it. `Display` prints this text.
    text: String,
    pattern: Pattern,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Everything,
    Ip {
        /// The rule is for datagrams, not for connections.
        udp: bool,
        /// `None` stands for any address.
        address: Option<IpAddr>,
        ports: RangeInclusive<u16>,
    },
    UnixPath(String),
    /// The directory, with a slash at its end.
    UnixBelow(String),
}

/// The reason why a text is not a rule for a listener. Each message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ListenRuleError {
    /// The text is neither an address with a port nor a path.
    #[error(
        "{0:?} is not an address with a port: write ADDRESS:PORT, ADDRESS:FIRST-LAST, [IPV6]:PORT, *:PORT, udp: before any of these, unix:/PATH or unix:/DIRECTORY/*"
    )]
    Form(String),
    /// The port is not a number from 0 to 65535, or the range ends before it begins.
    #[error("bad port {0:?}: write a number from 0 to 65535, two of them as in 8000-8010, or *")]
    Port(String),
    /// The path is not plain, or its wildcard does not stand for a whole directory.
    #[error("{0}; use * only as the last part of a path, for everything below a directory")]
    Path(ListenAddressError),
}

/// The reason why the server does not listen for a client. Each message says what would allow it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ListenDenied {
    /// The server does not know the client by name.
    #[error("the server listens only for clients that it knows by name")]
    Unnamed,
    /// No rule of the client names the address.
    #[error("the client {0:?} has no rule for listening on {1}: listen = [{2:?}] would allow it")]
    NoRule(String, ListenAddress, String),
}

impl ListenRule {
    /// Returns true if the rule names the address.
    pub fn names(&self, asked: &ListenAddress) -> bool {
        match (&self.pattern, asked) {
            (Pattern::Everything, ListenAddress::Tcp(_) | ListenAddress::Unix(_)) => true,
            (
                Pattern::Ip {
                    udp,
                    address,
                    ports,
                },
                ListenAddress::Tcp(at) | ListenAddress::Udp(at),
            ) => {
                let is_network = *udp == matches!(asked, ListenAddress::Udp(_));
                let is_address = address.is_none_or(|address| address == at.ip());
                is_network && is_address && ports.contains(&at.port())
            }
            (Pattern::UnixPath(path), ListenAddress::Unix(asked)) => path == asked,
            (Pattern::UnixBelow(directory), ListenAddress::Unix(asked)) => {
                asked.starts_with(directory)
            }
            _ => false,
        }
    }

    /// Returns the directory that a path of this rule must not leave by links. `None` if the rule has none.
    pub fn directory(&self) -> Option<&str> {
        match &self.pattern {
            Pattern::UnixBelow(directory) => Some(directory.as_str()).filter(|it| *it != "/"),
            Pattern::Everything | Pattern::Ip { .. } | Pattern::UnixPath(_) => None,
        }
    }
}

impl FromStr for ListenRule {
    type Err = ListenRuleError;

    fn from_str(text: &str) -> Result<Self, ListenRuleError> {
        let pattern = match text.strip_prefix("unix:") {
            Some(path) => unix(path)?,
            None if text == "*" => Pattern::Everything,
            None => ip(text)?,
        };
        Ok(Self {
            text: text.to_owned(),
            pattern,
        })
    }
}

impl fmt::Display for ListenRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns the text of the narrowest rule that names the address.
pub(super) fn narrowest_rule(address: &ListenAddress) -> String {
    match address {
        ListenAddress::Tcp(address) => address.to_string(),
        other @ (ListenAddress::Udp(_) | ListenAddress::Unix(_)) => other.to_string(),
    }
}

fn unix(path: &str) -> Result<Pattern, ListenRuleError> {
    let Some(directory) = path.strip_suffix("/*") else {
        if path.contains('*') {
            return Err(ListenRuleError::Path(ListenAddressError::Path));
        }
        ListenAddress::unix(path).map_err(ListenRuleError::Path)?;
        return Ok(Pattern::UnixPath(path.to_owned()));
    };
    if directory.contains('*') {
        return Err(ListenRuleError::Path(ListenAddressError::Path));
    }
    if !directory.is_empty() {
        ListenAddress::unix(directory).map_err(ListenRuleError::Path)?;
    }
    Ok(Pattern::UnixBelow(format!("{directory}/")))
}

fn ip(text: &str) -> Result<Pattern, ListenRuleError> {
    let form = || ListenRuleError::Form(text.to_owned());
    // The LISTEN frame writes TCP addresses with the prefix `tcp:`.
    let network = |network| text.strip_prefix(network).filter(|rest| rest.contains(':'));
    let datagrams = network("udp:");
    let (udp, short) = (datagrams.is_some(), datagrams.or_else(|| network("tcp:")));
    let (host, ports) = short.unwrap_or(text).rsplit_once(':').ok_or_else(form)?;
    let address = match host {
        "*" => None,
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        host => Some(match host.strip_prefix('[') {
            Some(rest) => {
                let literal = rest.strip_suffix(']').ok_or_else(form)?;
                let address: Ipv6Addr = literal.parse().map_err(|_| form())?;
                IpAddr::V6(address).to_canonical()
            }
            None => IpAddr::V4(host.parse().map_err(|_| form())?),
        }),
    };
    let ports = port_range(ports).ok_or_else(|| ListenRuleError::Port(ports.to_owned()))?;
    Ok(Pattern::Ip {
        udp,
        address,
        ports,
    })
}

fn port_range(text: &str) -> Option<RangeInclusive<u16>> {
    if text == "*" {
        return Some(0..=u16::MAX);
    }
    let port = |text: &str| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|_| digits)
    };
    match text.split_once('-') {
        Some((first, last)) => {
            let range = port(first)?..=port(last)?;
            (!range.is_empty()).then_some(range)
        }
        None => port(text).map(|port| port..=port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(rule: &str, address: &str) -> bool {
        let rule: ListenRule = rule.parse().expect(rule);
        rule.names(&ListenAddress::parse(address).expect(address))
    }

    // PROTOCOL REVERSE-3.
    #[test]
    fn a_listen_rule_names_its_addresses_ports_and_paths_only() {
        for (rule, yes, no) in [
            (
                "127.0.0.1:8000-8010",
                &[
                    "tcp:127.0.0.1:8000",
                    "tcp:127.0.0.1:8010",
                    "tcp:[::ffff:127.0.0.1]:8005",
                ][..],
                &[
                    "tcp:127.0.0.1:7999",
                    "tcp:127.0.0.1:8011",
                    "tcp:127.0.0.1:0",
                    "tcp:127.0.0.2:8000",
                    "tcp:0.0.0.0:8000",
                    "tcp:[::1]:8000",
                    "unix:/a",
                ][..],
            ),
            ("localhost:80", &["tcp:127.0.0.1:80"], &["tcp:[::1]:80"]),
            ("127.0.0.1:0", &["tcp:127.0.0.1:0"], &["tcp:127.0.0.1:1"]),
            (
                "127.0.0.1:*",
                &["tcp:127.0.0.1:0", "tcp:127.0.0.1:65535"],
                &["tcp:0.0.0.0:80"],
            ),
            (
                "*:80",
                &["tcp:0.0.0.0:80", "tcp:[::]:80", "tcp:192.0.2.1:80"],
                &["tcp:0.0.0.0:0"],
            ),
            ("[::1]:80", &["tcp:[::1]:80"], &["tcp:127.0.0.1:80"]),
            (
                "[::ffff:127.0.0.1]:80",
                &["tcp:127.0.0.1:80"],
                &["tcp:[::1]:80"],
            ),
            (
                "tcp:127.0.0.1:80",
                &["tcp:127.0.0.1:80"],
                &["tcp:127.0.0.1:81"],
            ),
            (
                "unix:/run/x/a",
                &["unix:/run/x/a"],
                &["unix:/run/x/ab", "unix:/run/x/a/b"],
            ),
            (
                "unix:/run/x/*",
                &["unix:/run/x/a", "unix:/run/x/a/b"],
                &["unix:/run/x", "unix:/run/xy/a", "tcp:127.0.0.1:80"],
            ),
            ("unix:/*", &["unix:/a"], &["tcp:127.0.0.1:80"]),
            (
                "udp:127.0.0.1:5000-5010",
                &["udp:127.0.0.1:5005", "udp:[::ffff:127.0.0.1]:5005"],
                &[
                    "tcp:127.0.0.1:5005",
                    "udp:127.0.0.1:5011",
                    "udp:0.0.0.0:5005",
                ],
            ),
            ("udp:*:53", &["udp:[::]:53"], &["tcp:[::]:53"]),
            ("127.0.0.1:53", &["tcp:127.0.0.1:53"], &["udp:127.0.0.1:53"]),
            ("*", &["unix:/a", "tcp:[::]:0"], &["udp:127.0.0.1:53"]),
        ] {
            for address in yes {
                assert!(names(rule, address), "{rule} {address}");
            }
            for address in no {
                assert!(!names(rule, address), "{rule} {address}");
            }
        }
    }

    #[test]
    fn a_malformed_listen_rule_is_refused_with_what_to_write() {
        for rule in [
            "",
            "80",
            "example.net:80",
            "::1:80",
            "[::1:80",
            "10.0.0.0/8:80",
            "127.1:80",
            "udp:80",
            "udp:*",
        ] {
            let error = rule.parse::<ListenRule>().expect_err(rule);
            assert!(matches!(error, ListenRuleError::Form(_)), "{rule}: {error}");
        }
        for rule in [
            "127.0.0.1:",
            "*:65536",
            "*:-1",
            "*:10-9",
            "*:1-",
            "*:x",
            "*:+1",
            "*:1-2-3",
        ] {
            let error = rule.parse::<ListenRule>().expect_err(rule);
            assert!(matches!(error, ListenRuleError::Port(_)), "{rule}: {error}");
        }
        for rule in [
            "unix:",
            "unix:a",
            "unix:/a/../b",
            "unix:/a*",
            "unix:/*/b",
            "unix:/a//*",
        ] {
            let error = rule.parse::<ListenRule>().expect_err(rule);
            assert!(matches!(error, ListenRuleError::Path(_)), "{rule}: {error}");
        }
    }
}
