//! Addresses as people write them: servers to dial, and local addresses to listen on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use quictun_tunnel::settings::{HostPort, ListenOn};
use thiserror::Error;

/// Longest DNS name, bytes (RFC 1035 section 2.3.4).
const MAX_NAME: usize = 253;

/// Why a text is no address. Each message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AddressError {
    /// No colon and number at the end.
    #[error("{text:?} is not HOST:PORT: write both, as in 127.0.0.1:7500")]
    NotHostPort {
        /// As given.
        text: String,
    },
    /// The port is no number up to 65535, or 0 where something is dialled.
    #[error("bad port {port:?}: write a number from {lowest} to 65535")]
    BadPort {
        /// The text after the last colon.
        port: String,
        /// 1 for what is dialled; 0, the system's choice, is fine for what listens.
        lowest: u16,
    },
    /// `:7500` where something is dialled.
    #[error("{text:?} has no host: write HOST{text}")]
    NoHost {
        /// As given.
        text: String,
    },
    /// `::1:7500`.
    #[error("IPv6 addresses need brackets: write [ADDRESS]:PORT, as in [::1]:7500")]
    UnbracketedIpv6,
    /// Brackets around something else.
    #[error("{literal:?} is not an IPv6 address")]
    BadIpv6 {
        /// The text between the brackets.
        literal: String,
    },
    /// A character no DNS name has, or a name of a length none has.
    #[error(
        "{host:?} is neither a host name nor an address: write HOST:PORT without scheme or path"
    )]
    BadHost {
        /// The text before the last colon.
        host: String,
    },
    /// A name where only an address says what is meant.
    #[error(
        "{host:?} is not an address of this machine: write a number such as 127.0.0.1 or [::1], or nothing for all"
    )]
    NotAnAddress {
        /// The text before the last colon.
        host: String,
    },
    /// `tcp4:[::1]:6500`.
    #[error("{address} is not an address of the network {network}")]
    FamilyMismatch {
        /// The network as given.
        network: String,
        /// The address.
        address: IpAddr,
    },
    /// Something else than `tcp`, `tcp4`, `tcp6` and `unix`.
    #[error("unsupported network {network:?}: write tcp:ADDRESS:PORT or unix:/PATH")]
    UnsupportedNetwork {
        /// The text before the first colon.
        network: String,
    },
    /// `unix:` and nothing else.
    #[error("the Unix socket has no path: write unix:/PATH")]
    NoPath,
}

/// What `0.0.0.0` means to a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wildcard {
    /// All addresses of both families, as in Go: the same as `[::]`.
    BothFamilies,
    /// All IPv4 addresses.
    AsWritten,
}

/// Reads a server to dial: `HOST:PORT`, `ADDRESS:PORT`, `[IPV6]:PORT`.
pub fn parse_server(text: &str) -> Result<HostPort, AddressError> {
    let (host, port) = split_port(text, 1)?;
    if host.is_empty() {
        return Err(AddressError::NoHost {
            text: text.to_owned(),
        });
    }
    if let Some(literal) = host.strip_prefix('[') {
        let literal = literal.strip_suffix(']').unwrap_or(literal);
        let (address, zone) = literal
            .split_once('%')
            .map_or((literal, None), |(address, zone)| (address, Some(zone)));
        if address.parse::<Ipv6Addr>().is_err() || zone.is_some_and(str::is_empty) {
            return Err(AddressError::BadIpv6 {
                literal: literal.to_owned(),
            });
        }
        return Ok(HostPort {
            host: literal.to_owned(),
            port,
        });
    }
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    if host.len() > MAX_NAME || host.starts_with(['.', '-']) || !host.chars().all(is_name) {
        return Err(AddressError::BadHost {
            host: host.to_owned(),
        });
    }
    Ok(HostPort {
        host: host.to_owned(),
        port,
    })
}

/// Reads a local address to listen on: `ADDRESS:PORT`, `localhost:PORT`, and `:PORT` or `*:PORT` for all.
pub fn parse_listen(text: &str, wildcard: Wildcard) -> Result<SocketAddr, AddressError> {
    let (host, port) = split_port(text, 0)?;
    let address = match host {
        "" | "*" => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        "localhost" => IpAddr::from(Ipv4Addr::LOCALHOST),
        "0.0.0.0" if wildcard == Wildcard::BothFamilies => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        _ => match host.strip_prefix('[') {
            Some(literal) => {
                let literal = literal.strip_suffix(']').unwrap_or(literal);
                let bad = |_| AddressError::BadIpv6 {
                    literal: literal.to_owned(),
                };
                literal.parse::<Ipv6Addr>().map_err(bad)?.into()
            }
            None => host.parse().map_err(|_| AddressError::NotAnAddress {
                host: host.to_owned(),
            })?,
        },
    };
    Ok(SocketAddr::new(address, port))
}

/// Reads quic-tun's `NETWORK:ADDRESS` of a local listener, `tcp:127.0.0.1:6500` or `unix:/run/app.sock`.
pub fn parse_network_listen(text: &str) -> Result<ListenOn, AddressError> {
    let unsupported = |network: &str| AddressError::UnsupportedNetwork {
        network: network.to_owned(),
    };
    let (network, address) = text.split_once(':').ok_or_else(|| unsupported(text))?;
    let network = network.to_ascii_lowercase();
    let address = match network.as_str() {
        "unix" if address.is_empty() => return Err(AddressError::NoPath),
        "unix" => return Ok(ListenOn::Unix(PathBuf::from(address))),
        "tcp" | "tcp6" => parse_listen(address, Wildcard::BothFamilies)?,
        "tcp4" if address.starts_with([':', '*']) => SocketAddr::new(
            Ipv4Addr::UNSPECIFIED.into(),
            parse_listen(address, Wildcard::AsWritten)?.port(),
        ),
        "tcp4" => parse_listen(address, Wildcard::AsWritten)?,
        _ => return Err(unsupported(&network)),
    };
    let mismatch =
        (network == "tcp4" && address.is_ipv6()) || (network == "tcp6" && address.is_ipv4());
    if mismatch {
        return Err(AddressError::FamilyMismatch {
            network,
            address: address.ip(),
        });
    }
    Ok(ListenOn::Tcp(address))
}

/// Reads the left side of a native forward: `PORT`, `ADDRESS:PORT`, `unix:/PATH`. A port alone is on 127.0.0.1.
pub fn parse_forward_listen(text: &str) -> Result<ListenOn, AddressError> {
    if let Some(path) = text.strip_prefix("unix:") {
        if path.is_empty() {
            return Err(AddressError::NoPath);
        }
        return Ok(ListenOn::Unix(PathBuf::from(path)));
    }
    if !text.contains(':') {
        let port = parse_port(text, 0)?;
        return Ok(ListenOn::Tcp(SocketAddr::new(
            Ipv4Addr::LOCALHOST.into(),
            port,
        )));
    }
    parse_listen(text, Wildcard::AsWritten).map(ListenOn::Tcp)
}

fn split_port(text: &str, lowest: u16) -> Result<(&str, u16), AddressError> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((literal, rest)) => {
            let port = rest
                .strip_prefix(':')
                .ok_or_else(|| AddressError::NotHostPort {
                    text: text.to_owned(),
                })?;
            (&text[..literal.len() + 2], port)
        }
        None => text
            .rsplit_once(':')
            .ok_or_else(|| AddressError::NotHostPort {
                text: text.to_owned(),
            })?,
    };
    if !host.starts_with('[') && host.contains(':') {
        // `tcp:host:22` is somebody's target, `::1:7500` an address without brackets.
        let is_ipv6 = host
            .chars()
            .all(|c| c.is_ascii_hexdigit() || matches!(c, ':' | '.'));
        return Err(if is_ipv6 {
            AddressError::UnbracketedIpv6
        } else {
            AddressError::BadHost {
                host: host.to_owned(),
            }
        });
    }
    Ok((host, parse_port(port, lowest)?))
}

fn parse_port(text: &str, lowest: u16) -> Result<u16, AddressError> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|port| digits && *port >= lowest);
    port.ok_or_else(|| AddressError::BadPort {
        port: text.to_owned(),
        lowest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(text: &str) -> Result<(String, u16), String> {
        parse_server(text)
            .map(|server| (server.host, server.port))
            .map_err(|error| error.to_string())
    }

    fn listen(text: &str) -> Result<String, String> {
        parse_listen(text, Wildcard::BothFamilies)
            .map(|at| at.to_string())
            .map_err(|error| error.to_string())
    }

    fn network(text: &str) -> Result<String, String> {
        let show = |on| match on {
            ListenOn::Tcp(at) => at.to_string(),
            ListenOn::Unix(path) => format!("unix {}", path.display()),
        };
        parse_network_listen(text)
            .map(show)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn servers_are_names_or_addresses_with_a_port() {
        for (text, host, port) in [
            ("192.168.26.129:7500", "192.168.26.129", 7500),
            ("example.net:1", "example.net", 1),
            ("my_host:65535", "my_host", 65535),
            ("[::1]:7500", "::1", 7500),
            ("[fe80::1%eth0]:7500", "fe80::1%eth0", 7500),
        ] {
            assert_eq!(server(text), Ok((host.to_owned(), port)), "{text}");
        }
        for (text, why) in [
            (
                "example.net",
                "\"example.net\" is not HOST:PORT: write both, as in 127.0.0.1:7500",
            ),
            (
                "[::1]",
                "\"[::1]\" is not HOST:PORT: write both, as in 127.0.0.1:7500",
            ),
            (":7500", "\":7500\" has no host: write HOST:7500"),
            ("h:0", "bad port \"0\": write a number from 1 to 65535"),
            (
                "h:65536",
                "bad port \"65536\": write a number from 1 to 65535",
            ),
            ("h:+1", "bad port \"+1\": write a number from 1 to 65535"),
            ("h:", "bad port \"\": write a number from 1 to 65535"),
            (
                "::1:7500",
                "IPv6 addresses need brackets: write [ADDRESS]:PORT, as in [::1]:7500",
            ),
            ("[x]:7500", "\"x\" is not an IPv6 address"),
            ("[::1%]:7500", "\"::1%\" is not an IPv6 address"),
            (
                "https://example.net:7500",
                "\"https://example.net\" is neither a host name nor an address: write HOST:PORT without scheme or path",
            ),
            (
                "a b:7500",
                "\"a b\" is neither a host name nor an address: write HOST:PORT without scheme or path",
            ),
        ] {
            assert_eq!(server(text), Err(why.to_owned()), "{text}");
        }
    }

    #[test]
    fn listeners_take_addresses_and_gos_wildcards() {
        for (text, at) in [
            ("127.0.0.1:6500", "127.0.0.1:6500"),
            ("localhost:6500", "127.0.0.1:6500"),
            ("[::1]:0", "[::1]:0"),
            (":7500", "[::]:7500"),
            ("*:7500", "[::]:7500"),
            ("0.0.0.0:7500", "[::]:7500"),
        ] {
            assert_eq!(listen(text), Ok(at.to_owned()), "{text}");
        }
        let as_written = parse_listen("0.0.0.0:7500", Wildcard::AsWritten).map(|at| at.to_string());
        assert_eq!(as_written, Ok("0.0.0.0:7500".to_owned()));
        assert_eq!(
            listen("example.net:7500"),
            Err("\"example.net\" is not an address of this machine: write a number such as 127.0.0.1 or [::1], or nothing for all".to_owned())
        );
    }

    #[test]
    fn networks_are_those_of_go_that_carry_streams() {
        for (text, at) in [
            ("tcp:127.0.0.1:6500", "127.0.0.1:6500"),
            ("TCP::6500", "[::]:6500"),
            ("tcp:0.0.0.0:6500", "[::]:6500"),
            ("tcp4:0.0.0.0:6500", "0.0.0.0:6500"),
            ("tcp4::6500", "0.0.0.0:6500"),
            ("tcp6:[::1]:6500", "[::1]:6500"),
            ("unix:/run/app.sock", "unix /run/app.sock"),
            ("unix:app.sock", "unix app.sock"),
        ] {
            assert_eq!(network(text), Ok(at.to_owned()), "{text}");
        }
        for (text, why) in [
            (
                "udp:127.0.0.1:6500",
                "unsupported network \"udp\": write tcp:ADDRESS:PORT or unix:/PATH",
            ),
            (
                "127.0.0.1:6500",
                "unsupported network \"127.0.0.1\": write tcp:ADDRESS:PORT or unix:/PATH",
            ),
            (
                "6500",
                "unsupported network \"6500\": write tcp:ADDRESS:PORT or unix:/PATH",
            ),
            (
                "tcp4:[::1]:6500",
                "::1 is not an address of the network tcp4",
            ),
            (
                "tcp6:127.0.0.1:6500",
                "127.0.0.1 is not an address of the network tcp6",
            ),
            ("unix:", "the Unix socket has no path: write unix:/PATH"),
        ] {
            assert_eq!(network(text), Err(why.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_forward_from_a_port_alone_stays_on_this_machine() {
        let tcp = |text: &str| ListenOn::Tcp(text.parse().expect("an address"));
        assert_eq!(parse_forward_listen("2222"), Ok(tcp("127.0.0.1:2222")));
        assert_eq!(
            parse_forward_listen("0.0.0.0:2222"),
            Ok(tcp("0.0.0.0:2222"))
        );
        assert_eq!(parse_forward_listen("*:2222"), Ok(tcp("[::]:2222")));
        assert_eq!(
            parse_forward_listen("unix:/a:b"),
            Ok(ListenOn::Unix("/a:b".into()))
        );
        let bad = AddressError::BadPort {
            port: "ssh".to_owned(),
            lowest: 0,
        };
        assert_eq!(parse_forward_listen("ssh"), Err(bad));
    }
}
