//! The command-line syntax of forwards: `LISTEN=TARGET`, and ssh's `[ADDRESS:]PORT:HOST:PORT`.
//!
//! A text with `=` has the native form. A text without `=` is parsed like the argument of `ssh -L`, sockets included,
//! so that any such argument works here. If both ends name a range of ports, `FIRST-LAST`, the text stands for one
//! forward for each port. A text that begins with `udp:` stands for a forward of datagrams.

use std::ops::RangeInclusive;

use std::net::Ipv4Addr;

use quictun_tunnel::settings::{Forward, ForwardTo, ListenOn, Reverse};
use quictun_wire::listening::ListenAddress;
use quictun_wire::target::{Family, Target};

use crate::address::parse_forward_listen;
use crate::options::InvalidValue;
use crate::values::number;

/// Maximum number of ports in a range: each is a listener of the process. The number is arbitrary, far below the usual
/// limits of descriptors.
const RANGE_MAX: u16 = 1024;

/// Parses the value of `-L`.
pub(crate) fn parse(text: &str) -> Result<Vec<Forward>, InvalidValue> {
    let udp = text.strip_prefix("udp:");
    let rest = udp.unwrap_or(text);
    let read = match rest.split_once('=') {
        Some((listen, target)) => forwards(listen, target),
        None => parse_ssh(rest),
    };
    let read = read.and_then(|read| read.into_iter().map(|it| for_network(udp, it)).collect());
    read.map_err(|InvalidValue(why)| InvalidValue(format!("{text:?}: {why}")))
}

/// Parses the value of `-R`: the same syntax as for `-L`, with a listener on the server.
pub(crate) fn parse_reverse(text: &str) -> Result<Vec<Reverse>, InvalidValue> {
    let forwards = parse(text)?.into_iter();
    forwards.map(|forward| reverse(text, forward)).collect()
}

/// Returns the forward for datagrams if the text says so, and refuses ends of different networks.
fn for_network(udp: Option<&str>, forward: Forward) -> Result<Forward, InvalidValue> {
    let target = match &forward.to {
        ForwardTo::Target(target) => target,
        ForwardTo::Source(_) | ForwardTo::Proxy | ForwardTo::Destination => return Ok(forward),
    };
    let Some(rest) = udp else {
        if target.takes_datagrams() {
            let listen = &forward.listen;
            let why = format!(
                "{listen} takes connections, and {target} takes datagrams: write udp:{listen}={target}"
            );
            return Err(InvalidValue(why));
        }
        return Ok(forward);
    };
    let listen = match forward.listen {
        ListenOn::Tcp(address) => Some(ListenOn::Udp(address)),
        ListenOn::Loopback(port) => Some(ListenOn::Udp((Ipv4Addr::LOCALHOST, port).into())),
        ListenOn::Unix(_)
        | ListenOn::Transparent(..)
        | ListenOn::Udp(_)
        | ListenOn::TransparentUdp(_) => None,
    };
    let target = match target {
        Target::Tcp {
            family: Family::Any,
            host,
            port,
        } => Some(Target::Udp {
            host: host.clone(),
            port: *port,
        }),
        Target::Udp { .. } => Some(target.clone()),
        Target::Tcp { .. } | Target::Unix { .. } => None,
    };
    match (listen, target) {
        (Some(listen), Some(target)) => Ok(Forward {
            listen,
            to: ForwardTo::Target(target),
        }),
        _ => Err(InvalidValue(format!(
            "{rest:?} does not name two UDP ports: write udp:PORT=HOST:PORT, as in udp:5353=10.0.0.1:53"
        ))),
    }
}

fn reverse(text: &str, Forward { listen, to }: Forward) -> Result<Reverse, InvalidValue> {
    let why = |why: String| InvalidValue(format!("{text:?}: {why}"));
    let listen = match listen {
        ListenOn::Tcp(address) | ListenOn::Transparent(_, address) => ListenAddress::tcp(address),
        ListenOn::Loopback(port) => ListenAddress::tcp((Ipv4Addr::LOCALHOST, port).into()),
        ListenOn::Unix(path) => {
            ListenAddress::unix(&path.to_string_lossy()).map_err(|error| why(error.to_string()))?
        }
        ListenOn::Udp(address) | ListenOn::TransparentUdp(address) => ListenAddress::udp(address),
    };
    match to {
        ForwardTo::Target(target) => Ok(Reverse { listen, target }),
        ForwardTo::Proxy | ForwardTo::Source(_) | ForwardTo::Destination => {
            Err(why("a target is missing".to_owned()))
        }
    }
}

fn forward(listen: &str, target: &str) -> Result<Forward, InvalidValue> {
    let listen = parse_forward_listen(listen)?;
    let to = ForwardTo::Target(Target::parse(target)?);
    Ok(Forward { listen, to })
}

/// Returns the forward between two ends, or one for each port if both ends name a range.
fn forwards(listen: &str, target: &str) -> Result<Vec<Forward>, InvalidValue> {
    let (from, to) = match (port_range(listen)?, port_range(target)?) {
        (None, None) => return Ok(vec![forward(listen, target)?]),
        (Some(from), Some(to)) if from.ports.len() == to.ports.len() => (from, to),
        (from, to) => {
            let count = |range: Option<PortRange<'_>>| match range.map_or(1, |it| it.ports.len()) {
                1 => "1 port".to_owned(),
                ports => format!("{ports} ports"),
            };
            let (from, to) = (count(from), count(to));
            return Err(InvalidValue(format!(
                "{listen} has {from} and {target} has {to}: write two ranges of the same length, as in 8000-8010=10.0.0.5:9000-9010"
            )));
        }
    };
    let pairs = from.texts().zip(to.texts());
    pairs.map(|(from, to)| forward(&from, &to)).collect()
}

/// A range of ports at the end of an address.
struct PortRange<'a> {
    /// The text before the ports.
    address: &'a str,
    ports: RangeInclusive<u16>,
}

impl PortRange<'_> {
    fn texts(&self) -> impl Iterator<Item = String> {
        self.ports
            .clone()
            .map(|port| format!("{}{port}", self.address))
    }
}

/// Returns the range at the end of an address, or `None` if the address has no range.
fn port_range(text: &str) -> Result<Option<PortRange<'_>>, InvalidValue> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    let (address, ports) = text.split_at(text.rfind(':').map_or(0, |colon| colon + 1));
    let range = ports.split_once('-');
    let range = range.filter(|(first, last)| is_number(first) && is_number(last));
    let Some((first, last)) = range.filter(|_| !text.starts_with("unix:")) else {
        return Ok(None);
    };
    let port = |text| number(text, 1..=u16::MAX);
    let (first, last) = (port(first)?, port(last)?);
    if last < first {
        return Err(InvalidValue(format!(
            "the range {ports} ends before it begins: write {last}-{first}"
        )));
    }
    if last - first >= RANGE_MAX {
        return Err(InvalidValue(format!(
            "the range {ports} has more than {RANGE_MAX} ports: write several ranges"
        )));
    }
    let ports = first..=last;
    Ok(Some(PortRange { address, ports }))
}

/// Parses `[ADDRESS:]PORT:HOST:PORT`. A path may replace either end.
fn parse_ssh(text: &str) -> Result<Vec<Forward>, InvalidValue> {
    let fields = fields(text);
    let is_path = |field: &str| field.starts_with('/');
    let (listen, target) = match fields[..] {
        [socket, path] if is_path(socket) && is_path(path) => (unix(socket), unix(path)),
        [socket, host, port] if is_path(socket) => (unix(socket), format!("tcp:{host}:{port}")),
        [port, path] if is_path(path) => (port.to_owned(), unix(path)),
        [address, port, path] if is_path(path) => (format!("{address}:{port}"), unix(path)),
        [port, host, to] => (port.to_owned(), format!("tcp:{host}:{to}")),
        [address, port, host, to] => (format!("{address}:{port}"), format!("tcp:{host}:{to}")),
        _ => Err("write LISTEN=TARGET, as in 2222=127.0.0.1:22, or as for ssh, 2222:127.0.0.1:22")?,
    };
    forwards(&listen, &target)
}

fn unix(path: &str) -> String {
    format!("unix:{path}")
}

/// Splits the text at colons outside of brackets.
fn fields(text: &str) -> Vec<&str> {
    let mut inside = false;
    text.split(|c| {
        inside = (inside || c == '[') && c != ']';
        c == ':' && !inside
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        let forwards = parse(text).map_err(|InvalidValue(why)| why)?;
        let shown = forwards
            .into_iter()
            .map(show)
            .collect::<Result<Vec<_>, _>>();
        Ok(shown?.join(", "))
    }

    fn show(Forward { listen, to }: Forward) -> Result<String, String> {
        match to {
            ForwardTo::Target(target) => Ok(format!("{listen} {target}")),
            ForwardTo::Source(_) | ForwardTo::Proxy | ForwardTo::Destination => {
                Err("a forward leads to a target".to_owned())
            }
        }
    }

    #[test]
    fn a_forward_is_written_like_a_target_or_like_in_ssh() {
        for (text, means) in [
            ("2222=127.0.0.1:22", "2222 tcp:127.0.0.1:22"),
            ("*:80=db:5432", "[::]:80 tcp:db:5432"),
            ("unix:/a:b=unix:/c", "unix:/a:b unix:/c"),
            ("8001:127.0.0.1:22", "8001 tcp:127.0.0.1:22"),
            ("8001:db.example:22", "8001 tcp:db.example:22"),
            ("8001:[::1]:22", "8001 tcp:[::1]:22"),
            ("0.0.0.0:8001:db:22", "0.0.0.0:8001 tcp:db:22"),
            ("localhost:8001:db:22", "127.0.0.1:8001 tcp:db:22"),
            ("[::1]:8001:[::2]:22", "[::1]:8001 tcp:[::2]:22"),
            (":8001:db:22", "[::]:8001 tcp:db:22"),
            ("*:8001:db:22", "[::]:8001 tcp:db:22"),
            ("udp:53=10.0.0.1:5353", "udp:127.0.0.1:53 udp:10.0.0.1:5353"),
            ("udp:[::1]:53=udp:db:5353", "udp:[::1]:53 udp:db:5353"),
            ("udp:53:10.0.0.1:5353", "udp:127.0.0.1:53 udp:10.0.0.1:5353"),
            ("udp:*:53:[::2]:5353", "udp:[::]:53 udp:[::2]:5353"),
            ("8001:/run/a.sock", "8001 unix:/run/a.sock"),
            ("/run/a.sock:db:22", "unix:/run/a.sock tcp:db:22"),
            ("/run/a:/run/b", "unix:/run/a unix:/run/b"),
        ] {
            assert_eq!(read(text), Ok(means.to_owned()), "{text}");
        }
    }

    #[test]
    fn two_ranges_of_ports_are_one_forward_for_each_port() {
        for (text, means) in [
            (
                "8000-8002=10.0.0.5:9000-9002",
                "8000 tcp:10.0.0.5:9000, 8001 tcp:10.0.0.5:9001, 8002 tcp:10.0.0.5:9002",
            ),
            (
                "[::1]:80-81:my-db-1:90-91",
                "[::1]:80 tcp:my-db-1:90, [::1]:81 tcp:my-db-1:91",
            ),
            ("*:65535-65535=tcp4:db:1-1", "[::]:65535 tcp4:db:1"),
            ("unix:/a:1-2=unix:/b:3-4", "unix:/a:1-2 unix:/b:3-4"),
            ("8000=db-1-2:90", "8000 tcp:db-1-2:90"),
        ] {
            assert_eq!(read(text), Ok(means.to_owned()), "{text}");
        }
        let widest = parse("1-1024=db:1-1024").map(|forwards| forwards.len());
        assert!(matches!(widest, Ok(1024)), "{widest:?}");
        for (text, part) in [
            (
                "8000-8010=db:9000-9009",
                "8000-8010 has 11 ports and db:9000-9009 has 10 ports",
            ),
            ("8000-8010=db:9000", "has 11 ports and db:9000 has 1 port"),
            ("8000=db:9000-9001", "8000 has 1 port and"),
            ("8000-8001=unix:/s", "has 1 port"),
            (
                "8010-8000=db:9000-9010",
                "ends before it begins: write 8000-8010",
            ),
            ("1-1025=db:1-1025", "more than 1024 ports"),
            ("0-1=db:1-2", "1 to 65535"),
            ("65535-65536=db:1-2", "1 to 65535"),
        ] {
            let why = read(text).expect_err(text);
            assert!(why.contains(part), "{text}: {why}");
        }
        let reverse = parse_reverse("8000-8001=db:90-91").expect("two ranges");
        let listen: Vec<String> = reverse.iter().map(|it| it.listen.to_string()).collect();
        assert_eq!(listen, ["tcp:127.0.0.1:8000", "tcp:127.0.0.1:8001"]);
        let reverse = parse_reverse("udp:*:53=db:5353").expect("two UDP ports");
        let [Reverse { listen, target }] = &reverse[..] else {
            panic!("one forward: {reverse:?}");
        };
        let ends = (listen.to_string(), target.to_string());
        assert_eq!(ends, ("udp:[::]:53".to_owned(), "udp:db:5353".to_owned()));
    }

    #[test]
    fn a_malformed_forward_is_refused_with_how_to_write_it() {
        for text in ["", "8001", "db:22", "1:2:3:4:5", "8001:db", "[::1:22"] {
            let why = read(text).expect_err(text);
            assert!(why.contains("2222=127.0.0.1:22"), "{text}: {why}");
        }
        for (text, part) in [
            ("ssh:db:22", "bad port \"ssh\""),
            ("8001:db:ssh", "bad port \"ssh\""),
            ("elsewhere:8001:db:22", "not an address of this machine"),
            ("8001::22", "no host"),
            ("=db:22", "bad port \"\""),
            ("2222=", "the target is empty"),
            ("53=udp:db:53", "write udp:53=udp:db:53"),
            ("udp:53=tcp4:db:53", "two UDP ports"),
            ("udp:/run/a.sock:db:53", "two UDP ports"),
        ] {
            let why = read(text).expect_err(text);
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
