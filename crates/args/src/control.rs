//! The options of the HTTP interface and of logs, under each program's names for them.

use std::net::IpAddr;

use quictun_control::log::LogFilter;
use quictun_control::settings::{ControlSettings, HttpListen, LogFormat, LogSettings, Phrases};

use crate::address::{Wildcard, parse_listen};
use crate::fault::Fault;
use crate::layers::Layers;
use crate::options;
use crate::options::{InvalidValue, Many, One, Switch};
use crate::values::{parsed, switch};

options! {
    pub(crate) COMPAT_JSON: Switch = "compat-json" "BOOL", by switch, key "control.compat_json";
        "Keep quic-tun's misspellings in /tunnels (webdev, unknow)"
    pub(crate) NO_CONFINE: Switch = "no-confine" "BOOL", by switch;
        "Run without confinement, with all privileges, files and system calls; for debugging only"
    pub(crate) LOG_LEVEL: One<LogFilter> = "log-level" "LEVEL", by parsed, words &["trace", "debug", "info", "warn", "error", "off"], default "info", key "log.level";
        "trace, debug, info, warn, error, off; also MODULE=LEVEL,..."
}

/// The options whose names differ between the families of programs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ControlFlags {
    pub(crate) http: &'static One<Option<HttpListen>>,
    pub(crate) http_mode: &'static One<u32>,
    pub(crate) http_name: &'static Many<String>,
    pub(crate) log_format: &'static One<LogFormat>,
    pub(crate) log_output: &'static Many<String>,
    pub(crate) verbosity: Option<Verbosity>,
    pub(crate) phrases: Phrases,
}

/// The short flags for two log levels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verbosity {
    pub(crate) more: &'static Switch,
    pub(crate) less: &'static Switch,
}

pub(crate) fn settings(layers: &Layers<'_>, names: ControlFlags) -> Result<ControlSettings, Fault> {
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
        banner: None,
        program: "",
        log: LogSettings {
            level: level(layers, names.verbosity)?,
            format: layers.get(names.log_format)?,
            outputs: layers.get(names.log_output)?,
            phrases: names.phrases,
        },
    })
}

/// Returns the log level: that of a short flag if given, else that of the option.
fn level(layers: &Layers<'_>, verbosity: Option<Verbosity>) -> Result<LogFilter, Fault> {
    match short_level(layers, verbosity)? {
        Some((_, word)) => Ok(word.parse().expect("invariant: a level")),
        None => layers.get(&LOG_LEVEL),
    }
}

/// Returns the short flag that is set, and the log level it selects.
pub(crate) fn short_level(
    layers: &Layers<'_>,
    verbosity: Option<Verbosity>,
) -> Result<Option<(&'static Switch, &'static str)>, Fault> {
    let Some(Verbosity { more, less }) = verbosity else {
        return Ok(None);
    };
    match (layers.get(more)?, layers.get(less)?) {
        (false, false) => Ok(None),
        (true, false) => Ok(Some((more, "debug"))),
        (false, true) => Ok(Some((less, "warn"))),
        (true, true) => Err(layers.fault(less, "does not go with --verbose")),
    }
}

/// Parses the address of the HTTP interface. `off` disables the interface. A Unix socket gets mode 0 here; its own
/// option sets the mode later.
pub(crate) fn parse_http(
    text: &str,
    wildcard: Wildcard,
) -> Result<Option<HttpListen>, InvalidValue> {
    if matches!(text, "" | "off") {
        return Ok(None);
    }
    let Some(path) = text.strip_prefix("unix:") else {
        return Ok(Some(HttpListen::Tcp(parse_listen(text, wildcard)?)));
    };
    if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
        Err(format!(
            "{path:?} is not a socket path: write unix:/PATH, as in unix:/run/quictun/http.sock"
        ))?;
    }
    let (path, mode) = (path.into(), 0);
    Ok(Some(HttpListen::Unix { path, mode }))
}

pub(crate) fn parse_mode(text: &str) -> Result<u32, InvalidValue> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode & !0o777 == 0 => Ok(mode),
        _ => Err(format!(
            "{text:?} is not a socket mode: write 0600 for its owner, 0660 for its group as well, or 0666"
        )
        .into()),
    }
}

/// Parses one host name. Addresses are refused, because the interface answers to them without this option.
pub(crate) fn parse_name(text: &str) -> Result<String, InvalidValue> {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let name = text.trim_end_matches('.');
    if !name.is_empty() && name.bytes().all(letter) && name.parse::<IpAddr>().is_err() {
        return Ok(name.to_ascii_lowercase());
    }
    Err(format!(
        "{text:?} is not a host name: write it without scheme, port and path, as in gateway.example"
    )
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_http_interface_is_at_an_address_a_socket_or_nowhere() {
        let at =
            |text: &str| parse_http(text, Wildcard::AsWritten).map_err(|InvalidValue(why)| why);
        let tcp = |text: &str| Ok(Some(HttpListen::Tcp(text.parse().expect("an address"))));
        assert_eq!(at("off"), Ok(None));
        assert_eq!(at("127.0.0.1:8086"), tcp("127.0.0.1:8086"));
        assert_eq!(at("0.0.0.0:8086"), tcp("0.0.0.0:8086"));
        let both = parse_http("0.0.0.0:8086", Wildcard::BothFamilies);
        assert_eq!(both.map_err(|InvalidValue(why)| why), tcp("[::]:8086"));
        let (path, mode) = ("/run/q.sock".into(), 0);
        let socket = Ok(Some(HttpListen::Unix { path, mode }));
        assert_eq!(at("unix:/run/q.sock"), socket);
        for text in ["unix:", "unix:q.sock", "unix:/run/", "unix:/a\0b"] {
            let why = at(text).expect_err(text);
            assert!(why.contains("is not a socket path"), "{text:?}");
        }
    }

    #[test]
    fn a_socket_mode_is_octal_and_a_host_name_stands_alone() {
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
}
