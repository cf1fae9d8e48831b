//! Where the HTTP interface listens, and what is logged where.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::log::filter::LogFilter;

/// REST, metrics and logs.
#[derive(Clone, Debug, Default)]
pub struct ControlSettings {
    /// Where the HTTP interface listens; `None`: off.
    pub httpd: Option<HttpListen>,
    /// `httpd` was not chosen by the user: where it is taken, go on without it and say so.
    pub httpd_is_default: bool,
    /// Names in `Host` headers that the HTTP interface answers to, beside addresses and `localhost`.
    pub http_names: Vec<String>,
    /// Keep the original's two misspellings in SPICE properties.
    pub compat_json: bool,
    /// Give up rights, files and system calls once everything listens.
    pub confine: bool,
    /// Tells a person at a terminal in a few lines what has started, in place of the log lines about it.
    pub banner: Option<fn(&str)>,
    /// Logs.
    pub log: LogSettings,
}

/// Where the HTTP interface listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpListen {
    /// TCP address.
    Tcp(SocketAddr),
    /// Unix stream socket; a stale socket file is replaced.
    Unix {
        /// Its path.
        path: PathBuf,
        /// Permissions of the socket: who may connect.
        mode: u32,
    },
}

impl std::fmt::Display for HttpListen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix { path, .. } => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Logs.
#[derive(Clone, Debug, Default)]
pub struct LogSettings {
    /// Which lines are logged: `info`, `debug`, `quictun_engine=trace`.
    pub level: LogFilter,
    /// For people, as quic-tun's or JSON.
    pub format: LogFormat,
    /// `stdout`, `stderr` or file paths.
    pub outputs: Vec<String>,
    /// How lines about single flows are worded.
    pub phrases: Phrases,
}

/// How lines about single flows are worded, and at which level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phrases {
    /// One line at the end of each flow; its other lines are at debug level.
    #[default]
    Own,
    /// quic-tun's: several lines for each flow at info level, word for word.
    Original,
}

/// Log line formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people, at a terminal, in the journal or in a file.
    #[default]
    Text,
    /// quic-tun's, for scripts that search its lines: columns, and fields as JSON.
    Console,
    /// One JSON object a line.
    Json,
}
