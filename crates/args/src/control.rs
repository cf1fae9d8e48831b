//! The HTTP interface and logs, under the names that each program gives them.

use std::net::IpAddr;

use quictun_control::settings::{ControlSettings, HttpListen, LogFormat, LogSettings, Phrases};
use thiserror::Error;

use crate::address::{AddressError, Wildcard, parse_listen};
use crate::fault::Fault;
use crate::layers::{Layers, Origin};

/// Option names of one family of programs.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// Address of the HTTP interface.
    pub http: &'static str,
    /// Mode of its Unix socket.
    pub http_mode: &'static str,
    /// Names that it answers to.
    pub http_name: &'static str,
    /// Meaning of the address `0.0.0.0` in the HTTP interface's setting.
    pub wildcard: Wildcard,
    /// Where logs go.
    pub log_output: &'static str,
    /// The log format for people: a value, not an option.
    pub text_format: &'static str,
    /// How lines about single flows are worded.
    pub phrases: Phrases,
}

/// Reads the settings of the HTTP interface and of logs.
pub fn settings(layers: &Layers<'_>, names: Names) -> Result<ControlSettings, Fault> {
    let mode = layers.value(names.http_mode, parse_mode)?;
    let httpd = layers.value(names.http, |text| parse_http(text, mode, names.wildcard))?;
    let http_names = layers.all(names.http_name, parse_name)?;
    let formats = [
        (names.text_format, LogFormat::Text),
        ("json", LogFormat::Json),
    ];
    Ok(ControlSettings {
        httpd,
        httpd_is_default: layers.setting(names.http).origin == Origin::Default,
        http_names,
        compat_json: layers.switch("compat-json")?,
        confine: !layers.switch("no-confine")?,
        log: LogSettings {
            level: layers.value("log-level", parse_filter)?,
            format: layers.choice("log-format", &formats)?,
            outputs: layers.setting(names.log_output).items,
            phrases: names.phrases,
        },
    })
}

/// Why a setting of the HTTP interface has no meaning. Each message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HttpError {
    /// Neither an address nor a socket.
    #[error(transparent)]
    Address(#[from] AddressError),
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

/// Reads where the HTTP interface listens; `off`: nowhere.
pub fn parse_http(
    text: &str,
    mode: u32,
    wildcard: Wildcard,
) -> Result<Option<HttpListen>, HttpError> {
    if matches!(text, "" | "off") {
        return Ok(None);
    }
    let Some(path) = text.strip_prefix("unix:") else {
        return Ok(Some(HttpListen::Tcp(parse_listen(text, wildcard)?)));
    };
    if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
        return Err(HttpError::Path {
            path: path.to_owned(),
        });
    }
    Ok(Some(HttpListen::Unix {
        path: path.into(),
        mode,
    }))
}

fn parse_mode(text: &str) -> Result<u32, HttpError> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode & !0o777 == 0 => Ok(mode),
        _ => Err(HttpError::Mode {
            mode: text.to_owned(),
        }),
    }
}

/// Reads one name; addresses are answered to anyway.
fn parse_name(text: &str) -> Result<String, HttpError> {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let name = text.trim_end_matches('.');
    if !name.is_empty() && name.bytes().all(letter) && name.parse::<IpAddr>().is_err() {
        return Ok(name.to_ascii_lowercase());
    }
    Err(HttpError::Name {
        name: text.to_owned(),
    })
}

/// Reads a level, or several `TARGET=LEVEL` separated by commas, as a filter that `tracing` understands.
fn parse_filter(text: &str) -> Result<String, String> {
    let parts: Result<Vec<String>, String> = text
        .split(',')
        .map(|part| parse_directive(part.trim()))
        .collect();
    Ok(parts?.join(","))
}

fn parse_directive(text: &str) -> Result<String, String> {
    if let Some((target, level)) = text.split_once('=') {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
        if target.is_empty() || !target.chars().all(plain) {
            return Err(format!(
                "{target:?} is not a log target: write, for instance, quictun_engine=debug"
            ));
        }
        return Ok(format!("{target}={}", parse_level(level)?));
    }
    parse_level(text).map(str::to_owned)
}

fn parse_level(text: &str) -> Result<&'static str, String> {
    match text.to_ascii_lowercase().as_str() {
        "trace" => Ok("trace"),
        "debug" => Ok("debug"),
        "info" => Ok("info"),
        "warn" | "warning" => Ok("warn"),
        // zap's levels above "error" have no counterpart: nothing of ours is that bad.
        "error" | "dpanic" | "panic" | "fatal" => Ok("error"),
        "off" => Ok("off"),
        _ => Err(format!(
            "unknown level {text:?}: choose trace, debug, info, warn, error or off"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_http_interface_is_at_an_address_a_socket_or_nowhere() {
        let at = |text: &str| parse_http(text, 0o660, Wildcard::AsWritten);
        let tcp = |text: &str| Ok(Some(HttpListen::Tcp(text.parse().expect("an address"))));
        assert_eq!(at("off"), Ok(None));
        assert_eq!(at("127.0.0.1:8086"), tcp("127.0.0.1:8086"));
        assert_eq!(at("0.0.0.0:8086"), tcp("0.0.0.0:8086"));
        let both = parse_http("0.0.0.0:8086", 0o600, Wildcard::BothFamilies);
        assert_eq!(both, tcp("[::]:8086"));
        assert_eq!(
            at("unix:/run/q.sock"),
            Ok(Some(HttpListen::Unix {
                path: "/run/q.sock".into(),
                mode: 0o660,
            }))
        );
        for text in ["unix:", "unix:q.sock", "unix:/run/", "unix:/a\0b"] {
            assert!(matches!(at(text), Err(HttpError::Path { .. })), "{text:?}");
        }
    }

    #[test]
    fn a_mode_is_of_base_eight_and_a_name_has_nothing_around_it() {
        assert_eq!(parse_mode("0600"), Ok(0o600));
        assert_eq!(parse_mode("777"), Ok(0o777));
        for text in ["", "0o600", "rw", "0888", "01777", "-1"] {
            assert!(parse_mode(text).is_err(), "{text:?}");
        }
        assert_eq!(
            parse_name("Gateway.Example."),
            Ok("gateway.example".to_owned())
        );
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
            assert_eq!(parse_filter(text), Ok(filter.to_owned()), "{text}");
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
