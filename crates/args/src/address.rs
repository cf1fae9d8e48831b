//! Parses addresses as people write them: servers to dial, and local addresses to listen on. Each error message says
//! what to write instead.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use quictun_tunnel::settings::{Address, HostPort, ListenOn};
use quictun_wire::srv::ServiceName;
use quictun_wire::target::is_port_range;

use crate::options::InvalidValue;

/// Longest DNS name, bytes (RFC 1035 section 2.3.4).
const MAX_NAME: usize = 253;

/// The meaning of `0.0.0.0` for a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wildcard {
    /// All addresses of both families, as in Go: the same as `[::]`.
    BothFamilies,
    /// The addresses of IPv4 only, as the text says.
    AsWritten,
}

/// The UDP port that `quictun server` listens on and `quictun client` dials if no other is given.
pub const PORT: u16 = 7500;

/// Parses a server to dial: `HOST:PORT`, `ADDRESS:PORT`, `[IPV6]:PORT`.
pub fn parse_server(text: &str) -> Result<HostPort, InvalidValue> {
    server(split_port(text, 1)?)
}

/// Parses a server as [`parse_server`] does, with an optional port: `port` is its default.
pub fn parse_server_at(text: &str, port: u16) -> Result<HostPort, InvalidValue> {
    let is_bare = match text.strip_prefix('[') {
        Some(literal) => literal.ends_with(']'),
        None => !text.contains(':'),
    };
    if is_bare && !text.is_empty() {
        server((text, port))
    } else {
        parse_server(text)
    }
}

/// The prefix of a service name, whose SRV records name servers.
const SERVICE: &str = "srv:";

/// Parses a server as [`parse_server_at`] does, or a service: `srv:DOMAIN`.
pub fn parse_address(text: &str) -> Result<Address, InvalidValue> {
    // A host may be named `srv`, and a port is not a domain.
    let is_port = |name: &str| !name.is_empty() && name.bytes().all(|it| it.is_ascii_digit());
    match text.strip_prefix(SERVICE) {
        Some(name) if !is_port(name) => {
            let why = |error| InvalidValue(format!("{text:?}: {error}"));
            ServiceName::parse(name).map(Address::Service).map_err(why)
        }
        _ => parse_server_at(text, PORT).map(Address::At),
    }
}

fn server((host, port): (&str, u16)) -> Result<HostPort, InvalidValue> {
    if host.is_empty() {
        Err(format!("a host is missing: write HOST:{port}"))?;
    }
    let host = if let Some(literal) = in_brackets(host) {
        let (address, zone) = literal
            .split_once('%')
            .map_or((literal, None), |(address, zone)| (address, Some(zone)));
        if zone.is_some_and(str::is_empty) {
            return Err(bad_ipv6(literal));
        }
        let address = parse_ipv6(address).map_err(|_| bad_ipv6(literal))?;
        check_zone(address, zone)?;
        literal
    } else {
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
        if host.len() > MAX_NAME || host.starts_with(['.', '-']) || !host.chars().all(is_name) {
            return Err(bad_host(host));
        }
        host
    };
    let host = host.to_owned();
    Ok(HostPort { host, port })
}

/// Checks that a link-local address has a zone, which names the device to its link, and that no other address has one.
fn check_zone(address: Ipv6Addr, zone: Option<&str>) -> Result<(), InvalidValue> {
    match (address.is_unicast_link_local(), zone) {
        (true, None) => Err(format!(
            "{address} is a link-local address, which needs the device to its link: write [{address}%DEVICE], as in [{address}%eth0]"
        )
        .into()),
        (false, Some(zone)) => Err(format!(
            "{address} is not a link-local address, and needs no device: leave out %{zone}"
        )
        .into()),
        _ => Ok(()),
    }
}

/// Parses a local address to listen on: `ADDRESS:PORT`, `localhost:PORT`, and `:PORT` or `*:PORT` for all addresses.
pub fn parse_listen(text: &str, wildcard: Wildcard) -> Result<SocketAddr, InvalidValue> {
    let (host, port) = split_port(text, 0)?;
    let address: IpAddr = match (host, in_brackets(host)) {
        ("" | "*", _) => Ipv6Addr::UNSPECIFIED.into(),
        ("localhost", _) => Ipv4Addr::LOCALHOST.into(),
        ("0.0.0.0", _) if wildcard == Wildcard::BothFamilies => Ipv6Addr::UNSPECIFIED.into(),
        (_, Some(literal)) => parse_ipv6(literal)?.into(),
        (_, None) => host.parse().map_err(|_| {
            format!(
                "{host:?} is not an address of this machine: write a number such as 127.0.0.1 or [::1], or nothing for all"
            )
        })?,
    };
    Ok(SocketAddr::new(address, port))
}

/// Parses an address as [`parse_listen`] does, or a port alone, which means that port on all addresses.
pub fn parse_listen_or_port(text: &str) -> Result<SocketAddr, InvalidValue> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(SocketAddr::new(
            Ipv6Addr::UNSPECIFIED.into(),
            parse_port(text, 0)?,
        ));
    }
    parse_listen(text, Wildcard::AsWritten)
}

/// Parses quic-tun's `NETWORK:ADDRESS` of a local listener: `tcp:127.0.0.1:6500` or `unix:/run/app.sock`.
pub fn parse_network_listen(text: &str) -> Result<ListenOn, InvalidValue> {
    let unsupported = |network: &str| {
        format!("unsupported network {network:?}: write tcp:ADDRESS:PORT or unix:/PATH")
    };
    let (network, address) = text.split_once(':').ok_or_else(|| unsupported(text))?;
    let network = network.to_ascii_lowercase();
    let address = match network.as_str() {
        "unix" => return socket(address),
        "tcp" | "tcp6" => parse_listen(address, Wildcard::BothFamilies)?,
        "tcp4" if address.starts_with([':', '*']) => SocketAddr::new(
            Ipv4Addr::UNSPECIFIED.into(),
            parse_listen(address, Wildcard::AsWritten)?.port(),
        ),
        "tcp4" => parse_listen(address, Wildcard::AsWritten)?,
        _ => Err(unsupported(&network))?,
    };
    let ip = address.ip();
    if (network == "tcp4" && ip.is_ipv6()) || (network == "tcp6" && ip.is_ipv4()) {
        Err(format!("{ip} is not an address of the network {network}"))?;
    }
    Ok(ListenOn::Tcp(address))
}

/// Parses the left side of a native forward: `PORT`, `ADDRESS:PORT`, `unix:/PATH`. A port alone is on 127.0.0.1 and
/// `::1`.
pub fn parse_forward_listen(text: &str) -> Result<ListenOn, InvalidValue> {
    if let Some(path) = text.strip_prefix("unix:") {
        return socket(path);
    }
    Ok(if text.contains(':') {
        ListenOn::Tcp(parse_listen(text, Wildcard::AsWritten)?)
    } else {
        ListenOn::Loopback(parse_port(text, 0)?)
    })
}

fn socket(path: &str) -> Result<ListenOn, InvalidValue> {
    if path.is_empty() {
        Err("the Unix socket has no path: write unix:/PATH")?;
    }
    Ok(ListenOn::Unix(path.into()))
}

/// Splits a text at its port. `lowest` is 1 for an address to dial, and 0 for a listener, where it means the system's
/// choice.
fn split_port(text: &str, lowest: u16) -> Result<(&str, u16), InvalidValue> {
    let missing = || format!("{text:?} is not HOST:PORT: write both, as in 127.0.0.1:7500");
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((literal, rest)) => {
            let port = rest.strip_prefix(':').ok_or_else(missing)?;
            (&text[..literal.len() + 2], port)
        }
        None => text.rsplit_once(':').ok_or_else(missing)?,
    };
    if !host.starts_with('[') && host.contains(':') {
        // `tcp:host:22` is a target, `::1:7500` an address without brackets.
        let is_ipv6 = host
            .chars()
            .all(|c| c.is_ascii_hexdigit() || matches!(c, ':' | '.'));
        return Err(if is_ipv6 {
            "IPv6 addresses need brackets: write [ADDRESS]:PORT, as in [::1]:7500".into()
        } else {
            bad_host(host)
        });
    }
    Ok((host, parse_port(port, lowest)?))
}

fn parse_port(text: &str, lowest: u16) -> Result<u16, InvalidValue> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|port| digits && *port >= lowest);
    port.ok_or_else(|| {
        let no_range = if is_port_range(text) {
            "one port is needed here, not a range: "
        } else {
            ""
        };
        format!("bad port {text:?}: {no_range}write a number from {lowest} to 65535").into()
    })
}

fn in_brackets(host: &str) -> Option<&str> {
    let literal = host.strip_prefix('[')?;
    Some(literal.strip_suffix(']').unwrap_or(literal))
}

fn parse_ipv6(literal: &str) -> Result<Ipv6Addr, InvalidValue> {
    literal.parse().map_err(|_| bad_ipv6(literal))
}

fn bad_ipv6(literal: &str) -> InvalidValue {
    format!("{literal:?} is not an IPv6 address").into()
}

fn bad_host(host: &str) -> InvalidValue {
    format!(
        "{host:?} is neither a host name nor an address: write HOST:PORT without scheme or path"
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(text: &str) -> Result<(String, u16), String> {
        parse_server(text)
            .map(|server| (server.host, server.port))
            .map_err(|InvalidValue(why)| why)
    }

    fn listen(text: &str) -> Result<String, String> {
        parse_listen(text, Wildcard::BothFamilies)
            .map(|at| at.to_string())
            .map_err(|InvalidValue(why)| why)
    }

    fn network(text: &str) -> Result<String, String> {
        let show = |on| match on {
            ListenOn::Tcp(at) => at.to_string(),
            ListenOn::Unix(path) => format!("unix {}", path.display()),
            ListenOn::Loopback(_)
            | ListenOn::Transparent(..)
            | ListenOn::Udp(_)
            | ListenOn::TransparentUdp(_) => "no network".to_owned(),
        };
        parse_network_listen(text)
            .map(show)
            .map_err(|InvalidValue(why)| why)
    }

    #[test]
    fn an_address_is_a_server_or_a_service() {
        let shown = |text| {
            let address = parse_address(text).map_err(|InvalidValue(why)| why);
            address.map(|address| (address.to_string(), address.at().is_some()))
        };
        for (text, expected, is_server) in [
            ("example.com", "example.com:7500", true),
            ("srv.example.com", "srv.example.com:7500", true),
            ("srv:7501", "srv:7501", true),
            ("srv:example.com", "srv:example.com", false),
            (
                "srv:_quictun._udp.example.com",
                "srv:_quictun._udp.example.com",
                false,
            ),
        ] {
            assert_eq!(shown(text), Ok((expected.to_owned(), is_server)), "{text}");
        }
        assert_eq!(
            shown("srv:example.com:7500"),
            Err("\"srv:example.com:7500\": a service has no port, its records name those of its servers: write srv:DOMAIN".to_owned())
        );
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
            (":7500", "a host is missing: write HOST:7500"),
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
                "[fe80::1]:7500",
                "fe80::1 is a link-local address, which needs the device to its link: write [fe80::1%DEVICE], as in [fe80::1%eth0]",
            ),
            (
                "[2001:db8::1%eth0]:7500",
                "2001:db8::1 is not a link-local address, and needs no device: leave out %eth0",
            ),
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
    fn a_server_may_leave_its_port_to_the_default_and_a_listener_its_address() {
        for (text, host, port) in [
            ("example.net", "example.net", PORT),
            ("192.0.2.7", "192.0.2.7", PORT),
            ("[2001:db8::7]", "2001:db8::7", PORT),
            ("example.net:443", "example.net", 443),
            ("[::1]:443", "::1", 443),
        ] {
            let server = parse_server_at(text, PORT).expect(text);
            assert_eq!((server.host.as_str(), server.port), (host, port), "{text}");
        }
        for text in ["", ":7500", "h:", "::1", "https://h", "a b", "[x]"] {
            assert!(parse_server_at(text, PORT).is_err(), "{text}");
        }
        for (text, at) in [("7505", "[::]:7505"), ("127.0.0.1:7505", "127.0.0.1:7505")] {
            let address = parse_listen_or_port(text).expect(text);
            assert_eq!(address.to_string(), at);
        }
        for text in ["", "70000", "127.0.0.1", "+1"] {
            assert!(parse_listen_or_port(text).is_err(), "{text}");
        }
    }

    #[test]
    fn listeners_accept_addresses_and_the_wildcards_of_go() {
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
        let as_written = parse_listen("0.0.0.0:7500", Wildcard::AsWritten).expect("an address");
        assert_eq!(as_written.to_string(), "0.0.0.0:7500");
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
        for (text, at) in [
            ("2222", ListenOn::Loopback(2222)),
            ("127.0.0.1:2222", tcp("127.0.0.1:2222")),
            ("0.0.0.0:2222", tcp("0.0.0.0:2222")),
            ("*:2222", tcp("[::]:2222")),
            ("unix:/a:b", ListenOn::Unix("/a:b".into())),
        ] {
            assert_eq!(parse_forward_listen(text).expect(text), at);
        }
        let InvalidValue(why) = parse_forward_listen("ssh").expect_err("no number");
        assert_eq!(why, "bad port \"ssh\": write a number from 0 to 65535");
    }
}
