//! Formats one event as one line: for people ([`super::people`]), in quic-tun's columns, or as JSON.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Level, Metadata};

use super::people::{self, Style};
use super::text::{without_credentials, write_json_string, write_message};
use crate::settings::LogFormat;

/// Longest text of one value, bytes. Longer text is cut and ends with an ellipsis. A token has at most 1024 bytes.
const MAX_VALUE: usize = 8 * 1024;

/// Keys of JSON lines that fields may not use.
const RESERVED: [&str; 4] = ["ts", "level", "caller", "msg"];

/// The format of the lines of one output.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LineFormat {
    kind: LogFormat,
    /// The style of text lines for people.
    style: Style,
    /// The time zone of text lines. JSON lines use UTC.
    zone: TimeZone,
}

/// Fields in the order in which their names first appeared. A later value replaces an earlier one of the same name.
#[derive(Clone, Debug, Default)]
pub(super) struct LogFields(Vec<(&'static str, Value)>);

#[derive(Debug)]
pub(super) struct LogLine<'a> {
    pub(super) at: Timestamp,
    pub(super) level: Level,
    pub(super) caller: String,
    pub(super) message: &'a str,
    pub(super) fields: &'a LogFields,
}

impl LineFormat {
    pub(super) fn new(kind: LogFormat, style: Style, zone: TimeZone) -> Self {
        Self { kind, style, zone }
    }

    pub(super) fn write(&self, line: &LogLine<'_>) -> String {
        let mut out = String::with_capacity(256);
        match self.kind {
            LogFormat::Text => people::write(line, self.style, &self.zone, &mut out),
            LogFormat::Console => self.write_columns(line, &mut out),
            LogFormat::Json => write_json(line, &mut out),
        }
        .expect("invariant: writing to a String does not fail");
        out.push('\n');
        out
    }

    fn write_columns(&self, line: &LogLine<'_>, out: &mut String) -> fmt::Result {
        let at = line.at.to_zoned(self.zone.clone());
        write!(
            out,
            "{}\t{}\t{}\t",
            at.strftime("%Y-%m-%d %H:%M:%S%.3f"),
            line.level,
            line.caller
        )?;
        write_message(out, &without_credentials(line.message))?;
        if line.fields.0.is_empty() {
            return Ok(());
        }
        out.push_str("\t{");
        for (at, (name, value)) in line.fields.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            out.push_str(separator);
            write_json_string(out, name)?;
            out.push_str(": ");
            write_value(out, value)?;
        }
        out.push('}');
        Ok(())
    }
}

fn write_json(line: &LogLine<'_>, out: &mut String) -> fmt::Result {
    let level = line.level.as_str().to_ascii_lowercase();
    write!(
        out,
        r#"{{"ts":"{:.6}","level":"{level}","caller":"#,
        line.at
    )?;
    write_json_string(out, &line.caller)?;
    out.push_str(r#","msg":"#);
    write_json_string(out, &without_credentials(line.message))?;
    for (name, value) in &line.fields.0 {
        let suffix = if RESERVED.contains(name) { "_" } else { "" };
        out.push(',');
        write_json_string(out, &format!("{name}{suffix}"))?;
        out.push(':');
        write_value(out, value)?;
    }
    out.push('}');
    Ok(())
}

/// Writes a field's value as JSON, also in console lines.
fn write_value(out: &mut String, value: &Value) -> fmt::Result {
    match value {
        Value::String(text) => write_json_string(out, text),
        other => write!(out, "{other}"),
    }
}

/// Returns the origin of an event: `tunnel/server.rs:30` for code of this repository, and the log target for other
/// code.
pub(super) fn caller(metadata: &Metadata<'_>) -> String {
    match metadata
        .file()
        .and_then(|file| file.strip_prefix("crates/"))
    {
        Some(file) => format!(
            "{}:{}",
            file.replacen("/src/", "/", 1),
            metadata.line().unwrap_or(0)
        ),
        None => metadata.target().to_owned(),
    }
}

impl LogFields {
    pub(super) fn iter(&self) -> impl Iterator<Item = &(&'static str, Value)> {
        self.0.iter()
    }

    pub(super) fn extend(&mut self, other: &Self) {
        for (name, value) in &other.0 {
            self.set(name, value.clone());
        }
    }

    pub(super) fn take_message(&mut self) -> Option<String> {
        let at = self.0.iter().position(|(name, _)| *name == "message")?;
        match self.0.remove(at).1 {
            Value::String(text) => Some(text),
            other => Some(other.to_string()),
        }
    }

    pub(super) fn set(&mut self, name: &'static str, value: Value) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }

    fn set_text(&mut self, field: &Field, text: String) {
        let mut text = match without_credentials(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(shown) => shown,
        };
        if text.len() > MAX_VALUE {
            text.truncate(text.floor_char_boundary(MAX_VALUE));
            text.push('…');
        }
        self.set(field.name(), Value::String(text));
    }
}

impl Visit for LogFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set_text(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set_text(field, value.to_owned());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut text = value.to_string();
        let mut cause = value.source();
        while let Some(error) = cause {
            let error_text = error.to_string();
            // The text of many errors already ends with the text of their source.
            if !text.ends_with(&error_text) {
                text.push_str(": ");
                text.push_str(&error_text);
            }
            cause = error.source();
        }
        self.set_text(field, text);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.name(), value.into());
    }

    /// Records infinity and NaN as `null`, because JSON has no numbers for them.
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field.name(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), value.into());
    }
}
