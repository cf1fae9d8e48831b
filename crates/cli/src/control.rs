//! The HTTP interface and logs, under the names that each program gives them.

use quictun_tunnel::settings::{ControlSettings, LogFormat, LogSettings, Phrases};

use crate::address::{Wildcard, parse_listen};
use crate::exit::Fault;
use crate::layers::{Layers, Origin};

/// Option names of one family of programs.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// Address of the HTTP interface.
    pub http: &'static str,
    /// Where logs go.
    pub log_output: &'static str,
    /// The log format for people: a value, not an option.
    pub text_format: &'static str,
    /// How lines about single flows are worded.
    pub phrases: Phrases,
}

/// Reads the settings of the HTTP interface and of logs.
pub fn settings(layers: &Layers<'_>, names: Names) -> Result<ControlSettings, Fault> {
    let httpd = layers.value(names.http, |text| match text {
        "" | "off" => Ok(None),
        _ => parse_listen(text, Wildcard::BothFamilies).map(Some),
    })?;
    let formats = [
        (names.text_format, LogFormat::Text),
        ("json", LogFormat::Json),
    ];
    Ok(ControlSettings {
        httpd,
        httpd_is_default: layers.setting(names.http).origin == Origin::Default,
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
    fn levels_are_those_of_zap_and_filters_those_of_tracing() {
        for (text, filter) in [
            ("info", "info"),
            ("INFO", "info"),
            ("warning", "warn"),
            ("fatal", "error"),
            ("off", "off"),
            ("warn, quictun_engine=TRACE", "warn,quictun_engine=trace"),
            ("quictun_tunnel::rest=debug", "quictun_tunnel::rest=debug"),
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
