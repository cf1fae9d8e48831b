//! Formats lines for people: a time, a level, the message, and fields as `key=value`.
//!
//! ```text
//! 12:00:00 WARN  the server does not answer server=192.0.2.1:7500
//! 2026-08-01T12:00:00.123+02:00 WARN the server does not answer server=192.0.2.1:7500
//! <4>the server does not answer server=192.0.2.1:7500
//! ```
//!
//! The first form is for a terminal, in colours if it supports them. The second is for files and pipes. The third is
//! for the journal, which adds the time itself and reads the level from the leading number (`sd-daemon(3)`). Keys are
//! in lower case with underscores, and quic-tun's keys get shorter names. A value with spaces or quotes is quoted and
//! escaped as in JSON. If a line is wider than the terminal, each field gets a row. The message and the rows are broken
//! between words.

use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::io::IsTerminal;
use std::os::fd::AsFd;

use jiff::tz::TimeZone;
use serde_json::Value;
use tracing::Level;

use super::line::LogLine;
use super::text::{without_credentials, write_json_string, write_message};
use crate::terminal;

/// Switches colours off after a coloured part.
const RESET: &str = "\u{1b}[0m";

/// Indentation of a field's row, in columns: the row begins below the message.
const INDENT: usize = "12:00:00 ERROR ".len();

/// Makes keys faint, because they matter less than values.
const FAINT: &str = "\u{1b}[2m";

/// The kind of output on which a person reads the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// A terminal, with its width and its use of colours.
    Terminal {
        /// True if lines have colours.
        colours: bool,
        /// The width of the terminal, columns.
        columns: usize,
    },
    /// The journal of systemd.
    Journal,
    /// A file, or a pipe to another program.
    File,
}

impl Style {
    /// Determines the style of a standard stream from the stream and from `NO_COLOR`, `TERM` and `JOURNAL_STREAM`.
    pub(super) fn of_stream(
        stream: &(impl AsFd + IsTerminal),
        variable: impl Fn(&str) -> Option<std::ffi::OsString>,
    ) -> Self {
        let is =
            |name: &str, text: &str| variable(name).is_some_and(|value| value == OsStr::new(text));
        if let Some(columns) = terminal::columns(stream) {
            let refused = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
            let colours = !refused && !is("TERM", "dumb");
            return Self::Terminal { colours, columns };
        }
        let journal = rustix::fs::fstat(stream).is_ok_and(|found| {
            is(
                "JOURNAL_STREAM",
                &format!("{}:{}", found.st_dev, found.st_ino),
            )
        });
        if journal { Self::Journal } else { Self::File }
    }
}

pub(super) fn write(
    line: &LogLine<'_>,
    style: Style,
    zone: &TimeZone,
    out: &mut String,
) -> fmt::Result {
    let at = line.at.to_zoned(zone.clone());
    let start = out.len();
    match style {
        Style::Terminal { .. } => {
            write!(
                out,
                "{} {:5} ",
                at.strftime("%H:%M:%S"),
                line.level.as_str()
            )?;
        }
        Style::Journal => write!(out, "<{}>", priority(line.level))?,
        Style::File => {
            let at = at.strftime("%Y-%m-%dT%H:%M:%S%.3f%:z");
            write!(out, "{at} {} ", line.level)?;
        }
    }
    let mut message = String::new();
    write_message(&mut message, &without_credentials(line.message))?;
    let fields = fields(line)?;
    if let Style::Terminal { colours, columns } = style {
        let width: usize = fields
            .iter()
            .map(|(key, value)| key.len() + value.len() + 2)
            .sum();
        let paint = if colours { faint } else { plain };
        terminal::push_broken(out, &message, INDENT, INDENT, columns);
        if INDENT + message.len() + width <= columns {
            for (key, value) in fields {
                write!(out, " {}{value}", paint(&format!("{key}=")))?;
            }
        } else {
            let longest = fields.iter().map(|(key, _)| key.len()).max();
            for (key, value) in &fields {
                write_row(key, value, longest.unwrap_or_default(), columns, paint, out)?;
            }
        }
        if colours {
            let level = start + "12:00:00 ".len()..start + INDENT - 1;
            let painted = format!("{}{}{RESET}", colour(line.level), &out[level.clone()]);
            out.replace_range(level, &painted);
        }
        return Ok(());
    }
    out.push_str(&message);
    for (key, value) in fields {
        write!(out, " {key}={value}")?;
    }
    Ok(())
}

fn fields(line: &LogLine<'_>) -> Result<Vec<(String, String)>, fmt::Error> {
    let pair = |(name, value): &(&'static str, Value)| {
        let mut text = String::new();
        write_value(&mut text, value)?;
        Ok((key(name), text))
    };
    line.fields.iter().map(pair).collect()
}

/// Writes a field in a row below the message, and breaks its value between words.
fn write_row(
    key: &str,
    value: &str,
    longest: usize,
    columns: usize,
    paint: fn(&str) -> String,
    out: &mut String,
) -> fmt::Result {
    let key_width = longest + 1;
    write!(
        out,
        "\n{:INDENT$}{}",
        "",
        paint(&format!("{key:key_width$}"))
    )?;
    let begin = INDENT + key_width;
    terminal::push_broken(out, value, begin, begin, columns);
    Ok(())
}

fn faint(text: &str) -> String {
    format!("{FAINT}{text}{RESET}")
}

fn plain(text: &str) -> String {
    text.to_owned()
}

/// Returns the name under which people see a field. JSON and console lines keep quic-tun's names.
fn key(name: &str) -> String {
    match name {
        "Server-Endpoint-Addr" => "server".to_owned(),
        "Client-Endpoint-Addr" => "from".to_owned(),
        "Client-App-Addr" => "application".to_owned(),
        "Server-App-Addr" => "dialled".to_owned(),
        "Stream-ID" => "stream".to_owned(),
        "listen address" => "listen".to_owned(),
        _ => name.to_ascii_lowercase().replace([' ', '-'], "_"),
    }
}

fn write_value(out: &mut String, value: &Value) -> fmt::Result {
    let is_bare = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '=');
    match value {
        Value::String(text) if !text.is_empty() && text.chars().all(is_bare) => {
            out.push_str(text);
            Ok(())
        }
        Value::String(text) => write_json_string(out, text),
        other => write!(out, "{other}"),
    }
}

fn colour(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\u{1b}[1;31m",
        Level::WARN => "\u{1b}[33m",
        Level::INFO => "\u{1b}[32m",
        Level::DEBUG => "\u{1b}[34m",
        Level::TRACE => "\u{1b}[35m",
    }
}

/// Returns the severity of a level in syslog (RFC 5424 section 6.2.1).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}
