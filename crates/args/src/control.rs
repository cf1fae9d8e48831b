//! The HTTP interface and logs, under the names that each program gives them.

use std::net::IpAddr;

use quictun_control::settings::{ControlSettings, HttpListen, LogFormat, LogSettings, Phrases};
use thiserror::Error;

use crate::address::{Wildcard, parse_listen};
use crate::fault::Fault;
use crate::layers::Layers;
use crate::options;
use crate::options::{Many, One, Switch, Why};
use crate::values::switch;

options! {
    pub(crate) COMPAT_JSON: Switch = "compat-json" "BOOL", by switch, key "control.compat_json";
        "Keep quic-tun's misspellings in /tunnels (webdev, unknow)"
    pub(crate) NO_CONFINE: Switch = "no-confine" "BOOL", by switch;
        "Keep all rights, files and system calls: for debugging only"
    pub(crate) LOG_LEVEL: One<String> = "log-level" "LEVEL", by parse_filter, words &["trace", "debug", "info", "warn", "error", "off"], default "info", key "log.level";
        "trace, debug, info, warn, error, off; also MODULE=LEVEL,..."
}

/// The options that have a name of their own in each family of programs.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// Address of the HTTP interface.
    pub http: &'static One<Option<HttpListen>>,
    /// Mode of its Unix socket.
    pub http_mode: &'static One<u32>,
    /// Names that it answers to.
    pub http_name: &'static Many<String>,
    /// Text or JSON.
    pub log_format: &'static One<LogFormat>,
    /// Where logs go.
    pub log_output: &'static Many<String>,
    /// How lines about single flows are worded.
    pub phrases: Phrases,
}

/// Reads the settings of the HTTP interface and of logs.
pub fn settings(layers: &Layers<'_>, names: Names) -> Result<ControlSettings, Fault> {
    let socket_mode = layers.get(names.http_mode)?;
    let mut httpd = layers.get(names.http)?;
    if let Some(HttpListen::Unix { mode, .. }) = &mut httpd {
        *mode = socket_mode;
    }
    Ok(ControlSettings {
        httpd,
        httpd_is_default: !layers.is_given(names.http),
        http_names: layers.get(names.http_name)?,
        compat_json: layers.get(&COMPAT_JSON)?,
        confine: !layers.get(&NO_CONFINE)?,
        log: LogSettings {
            level: layers.get(&LOG_LEVEL)?,
            format: layers.get(names.log_format)?,
            outputs: layers.get(names.log_output)?,
            phrases: names.phrases,
        },
    })
}

/// Why a setting of the HTTP interface has no meaning. Each message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
enum HttpError {
    /// `unix:` and a path that is none.
    #[error("{path:?} is no path of a socket: write unix:/PATH, as in unix:/run/quictun/http.sock")]
    Path {
        /// The text behind `unix:`.
        path: String,
    },
    /// A mode that is no number of eight, or has more than permissions in it.
    #[error(
        "{mode:?} is no mode of a socket: write 0600 for its owner, 0660 for its group as well, or 0666"
    )]
    Mode {
        /// As given.
        mode: String,
    },
    /// A name that cannot stand in a `Host` header.
    #[error(
        "{name:?} is no host name: write it without scheme, port and path, as in gateway.example"
    )]
    Name {
        /// As given.
        name: String,
    },
}

/// Reads where the HTTP interface listens; `off`: nowhere. A socket has mode 0 until its own option is read.
pub(crate) fn parse_http(text: &str, wildcard: Wildcard) -> Result<Option<HttpListen>, Why> {
    if matches!(text, "" | "off") {
        return Ok(None);
    }
    let Some(path) = text.strip_prefix("unix:") else {
        return Ok(Some(HttpListen::Tcp(parse_listen(text, wildcard)?)));
    };
    if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
        let path = path.to_owned();
        Err(HttpError::Path { path })?;
    }
    let (path, mode) = (path.into(), 0);
    Ok(Some(HttpListen::Unix { path, mode }))
}

/// Reads the permissions of a socket.
pub(crate) fn parse_mode(text: &str) -> Result<u32, Why> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode & !0o777 == 0 => Ok(mode),
        _ => {
            let mode = text.to_owned();
            Err(HttpError::Mode { mode }.into())
        }
    }
}

/// Reads one name; addresses are answered to anyway.
pub(crate) fn parse_name(text: &str) -> Result<String, Why> {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let name = text.trim_end_matches('.');
    if !name.is_empty() && name.bytes().all(letter) && name.parse::<IpAddr>().is_err() {
        return Ok(name.to_ascii_lowercase());
    }
    let name = text.to_owned();
    Err(HttpError::Name { name }.into())
}

/// Reads a level, or several `TARGET=LEVEL` separated by commas, as a filter that `tracing` understands.
fn parse_filter(text: &str) -> Result<String, Why> {
    let parts: Result<Vec<String>, Why> = text
        .split(',')
        .map(|part| parse_directive(part.trim()))
        .collect();
    Ok(parts?.join(","))
}

fn parse_directive(text: &str) -> Result<String, Why> {
    if let Some((target, level)) = text.split_once('=') {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
        if target.is_empty() || !target.chars().all(plain) {
            Err(format!(
                "{target:?} is not a log target: write, for instance, quictun_engine=debug"
            ))?;
        }
        return Ok(format!("{target}={}", parse_level(level)?));
    }
    parse_level(text).map(str::to_owned)
}

fn parse_level(text: &str) -> Result<&'static str, Why> {
    match text.to_ascii_lowercase().as_str() {
        "trace" => Ok("trace"),
        "debug" => Ok("debug"),
        "info" => Ok("info"),
        "warn" | "warning" => Ok("warn"),
        // zap's levels above "error" have no counterpart: nothing of ours is that bad.
        "error" | "dpanic" | "panic" | "fatal" => Ok("error"),
        "off" => Ok("off"),
        _ => Err(
            format!("unknown level {text:?}: choose trace, debug, info, warn, error or off").into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_http_interface_is_at_an_address_a_socket_or_nowhere() {
        let at = |text: &str| parse_http(text, Wildcard::AsWritten).map_err(|Why(why)| why);
        let tcp = |text: &str| Ok(Some(HttpListen::Tcp(text.parse().expect("an address"))));
        assert_eq!(at("off"), Ok(None));
        assert_eq!(at("127.0.0.1:8086"), tcp("127.0.0.1:8086"));
        assert_eq!(at("0.0.0.0:8086"), tcp("0.0.0.0:8086"));
        let both = parse_http("0.0.0.0:8086", Wildcard::BothFamilies);
        assert_eq!(both.map_err(|Why(why)| why), tcp("[::]:8086"));
        let (path, mode) = ("/run/q.sock".into(), 0);
        let socket = Ok(Some(HttpListen::Unix { path, mode }));
        assert_eq!(at("unix:/run/q.sock"), socket);
        for text in ["unix:", "unix:q.sock", "unix:/run/", "unix:/a\0b"] {
            let why = at(text).expect_err(text);
            assert!(why.contains("is no path of a socket"), "{text:?}");
        }
    }

    #[test]
    fn a_mode_is_of_base_eight_and_a_name_has_nothing_around_it() {
        assert_eq!(parse_mode("0600").expect("a mode"), 0o600);
        assert_eq!(parse_mode("777").expect("a mode"), 0o777);
        for text in ["", "0o600", "rw", "0888", "01777", "-1"] {
            assert!(parse_mode(text).is_err(), "{text:?}");
        }
        let name = parse_name("Gateway.Example.").expect("a name");
        assert_eq!(name, "gateway.example");
        for text in [
            "gateway.example:80",
            "http://gateway.example",
            "127.0.0.1",
            "a b",
            ".",
            "",
        ] {
            assert!(parse_name(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn levels_are_those_of_zap_and_filters_those_of_tracing() {
        for (text, filter) in [
            ("info", "info"),
            ("INFO", "info"),
            ("warning", "warn"),
            ("fatal", "error"),
            ("off", "off"),
            ("warn, quictun_engine=TRACE", "warn,quictun_engine=trace"),
            ("quictun_control::rest=debug", "quictun_control::rest=debug"),
        ] {
            assert_eq!(parse_filter(text).expect(text), filter);
        }
        for text in [
            "",
            "verbose",
            "info,",
            "=debug",
            "a b=info",
            "a=b=info",
            "quictun_engine",
        ] {
            assert!(parse_filter(text).is_err(), "{text}");
        }
    }
}
