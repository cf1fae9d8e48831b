//! Settings of the HTTP interface and the logs.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::log::filter::LogFilter;

/// Settings of the HTTP interface, metrics and logs.
#[derive(Clone, Debug, Default)]
pub struct ControlSettings {
    /// Address of the HTTP interface, or `None` if it is off.
    pub httpd: Option<HttpListen>,
    /// True if the user has not chosen `httpd`. If that address cannot be bound, the program warns and continues
    /// without it.
    pub httpd_is_default: bool,
    /// Names in `Host` headers that the HTTP interface accepts, beside addresses and `localhost`.
    pub http_names: Vec<String>,
    /// True to keep the original's two misspellings in SPICE properties.
    pub compat_json: bool,
    /// True to drop rights, files and system calls once everything listens.
    pub confine: bool,
    /// Prints a few lines about the start to a user's terminal. They replace the log lines about the start.
    pub banner: Option<fn(&str)>,
    /// The version of the program and its commit, by which a reload recognizes another build. Empty if they are not known.
    pub program: &'static str,
    /// Settings of the logs.
    pub log: LogSettings,
}

/// The address of the HTTP interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpListen {
    /// A TCP listener at this address.
    Tcp(SocketAddr),
    /// A Unix stream socket. A stale socket file is replaced.
    Unix {
        /// Path of the socket.
        path: PathBuf,
        /// Permissions of the socket, which decide who may connect.
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

/// Settings of the logs.
#[derive(Clone, Debug, Default)]
pub struct LogSettings {
    /// The lines that are logged, by level: `info`, `debug`, `quictun_engine=trace`.
    pub level: LogFilter,
    /// The format of a line.
    pub format: LogFormat,
    /// The outputs: `stdout`, `stderr` or file paths.
    pub outputs: Vec<String>,
    /// The wording of lines about single flows.
    pub phrases: Phrases,
}

/// The wording and the level of lines about single flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phrases {
    /// One line at the end of each flow at info level or above; other lines about it are at debug level.
    #[default]
    Own,
    /// quic-tun's wording: several lines for each flow at info level, word for word.
    Original,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people: at a terminal, in the journal or in a file.
    #[default]
    Text,
    /// quic-tun's columns, with fields as JSON, for scripts that search for its lines.
    Console,
    /// One JSON object on each line.
    Json,
}
