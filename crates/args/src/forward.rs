//! The command-line syntax of forwards: `LISTEN=TARGET`, and ssh's `[ADDRESS:]PORT:HOST:PORT`.
//!
//! A text with `=` has the native form. A text without `=` is parsed like the argument of `ssh -L`, sockets included,
//! so that any such argument works here.

use quictun_tunnel::settings::{Forward, ForwardTo, ListenOn, Reverse};
use quictun_wire::listening::ListenAddress;
use quictun_wire::target::Target;

use crate::address::parse_forward_listen;
use crate::options::InvalidValue;

/// Parses the value of `-L`.
pub(crate) fn parse(text: &str) -> Result<Forward, InvalidValue> {
    let read = match text.split_once('=') {
        Some((listen, target)) => forward(listen, target),
        None => parse_ssh(text),
    };
    read.map_err(|InvalidValue(why)| InvalidValue(format!("{text:?}: {why}")))
}

/// Parses the value of `-R`: the same syntax as for `-L`, with a listener on the server.
pub(crate) fn parse_reverse(text: &str) -> Result<Reverse, InvalidValue> {
    let Forward { listen, to } = parse(text)?;
    let why = |why: String| InvalidValue(format!("{text:?}: {why}"));
    let listen = match listen {
        ListenOn::Tcp(address) | ListenOn::Transparent(_, address) => ListenAddress::tcp(address),
        ListenOn::Unix(path) => {
            ListenAddress::unix(&path.to_string_lossy()).map_err(|error| why(error.to_string()))?
        }
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

/// Parses `[ADDRESS:]PORT:HOST:PORT`. A path may replace either end.
fn parse_ssh(text: &str) -> Result<Forward, InvalidValue> {
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
    forward(&listen, &target)
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
    use quictun_tunnel::settings::ListenOn;

    use super::*;

    fn read(text: &str) -> Result<String, String> {
        let Forward { listen, to } = parse(text).map_err(|InvalidValue(why)| why)?;
        let listen = match listen {
            ListenOn::Tcp(address) => address.to_string(),
            ListenOn::Unix(path) => format!("unix:{}", path.display()),
            ListenOn::Transparent(..) => return Err("not a forward that a user writes".to_owned()),
        };
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
            ("2222=127.0.0.1:22", "127.0.0.1:2222 tcp:127.0.0.1:22"),
            ("*:80=db:5432", "[::]:80 tcp:db:5432"),
            ("unix:/a:b=unix:/c", "unix:/a:b unix:/c"),
            ("8001:127.0.0.1:22", "127.0.0.1:8001 tcp:127.0.0.1:22"),
            ("8001:db.example:22", "127.0.0.1:8001 tcp:db.example:22"),
            ("8001:[::1]:22", "127.0.0.1:8001 tcp:[::1]:22"),
            ("0.0.0.0:8001:db:22", "0.0.0.0:8001 tcp:db:22"),
            ("localhost:8001:db:22", "127.0.0.1:8001 tcp:db:22"),
            ("[::1]:8001:[::2]:22", "[::1]:8001 tcp:[::2]:22"),
            (":8001:db:22", "[::]:8001 tcp:db:22"),
            ("*:8001:db:22", "[::]:8001 tcp:db:22"),
            ("8001:/run/a.sock", "127.0.0.1:8001 unix:/run/a.sock"),
            ("/run/a.sock:db:22", "unix:/run/a.sock tcp:db:22"),
            ("/run/a:/run/b", "unix:/run/a unix:/run/b"),
        ] {
            assert_eq!(read(text), Ok(means.to_owned()), "{text}");
        }
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
        ] {
            let why = read(text).expect_err(text);
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
