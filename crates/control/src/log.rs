//! Logs: one event, one line, to stdout, stderr or files.
//!
//! The program calls [`init`] once and keeps the [`Guard`] until it ends. Everything else logs with `tracing`'s
//! macros: a constant message, values in fields (`tracing::info!("Stream-ID" = 4, "Tunnel closed")`). Fields of the
//! spans around an event are written before its own, outermost first; of two with one name the inner one counts.
//!
//! Text lines have the columns of the original's console encoder, so that people's greps work on; JSON lines
//! have `ts`, `level`, `caller`, `msg`, and the fields:
//!
//! ```text
//! 2026-08-01 12:00:00.000\tINFO\ttunnel/server.rs:30\tTunnel closed\t{"Stream-ID": 4}
//! {"ts":"2026-08-01T10:00:00.000000Z","level":"info","caller":"tunnel/server.rs:30","msg":"Tunnel closed","Stream-ID":4}
//! ```
//!
//! In both, characters that could forge a line or its look are escaped: control characters, line separators,
//! bidirectional controls and characters without a shape. URLs are written without user names and passwords. Text that
//! a peer could shape is wrapped in [`Foreign`], which bounds it.
//!
//! Whoever logs never waits: lines go through bounded queues to a thread for each output. When an output stalls
//! and its queue is full, lines are dropped, counted, and the count is logged. An output that is closed is let go.

mod layer;
mod line;
mod output;
mod text;
mod writer;

#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use jiff::tz::TimeZone;
use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;

use crate::settings::LogSettings;
use layer::LogLayer;
use line::Format;
use output::Output;
use writer::{Queue, Writer};

pub use output::LogFiles;
pub use output::files;
pub use text::without_credentials;
pub use text::{Foreign, shown_url};

/// How long the end of the program, and a panic, wait for lines to be written.
const FLUSH_DEADLINE: Duration = Duration::from_secs(1);

/// Why logs could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The level is none.
    #[error(
        "log level {level:?}: {reason}; write trace, debug, info, warn, error, off, or a filter as in info,quictun_engine=debug"
    )]
    BadLevel {
        /// As given.
        level: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An output cannot be opened.
    #[error("cannot open log output {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// No thread for the writer.
    #[error("cannot start the log thread: {0}")]
    Thread(#[source] io::Error),
    /// [`init`] was called before.
    #[error("logs are set up already")]
    Again,
}

/// Writes what is queued when dropped, for at most a second. Keep it until the program ends.
#[must_use = "lines that are still queued are lost without it"]
#[derive(Debug)]
pub struct Guard {
    queue: Queue,
    files: LogFiles,
    /// Until they are started.
    writers: Vec<Writer<Output>>,
}

/// Opens the outputs of `settings`, and queues for them everything that is logged in this process, panics included.
///
/// The lines are written once [`Guard::start`] has been called, or the guard is dropped: until then there is no thread.
///
/// # Errors
///
/// [`LogError`] names the setting and the remedy. Nothing is set up then.
pub fn init(settings: &LogSettings) -> Result<Guard, LogError> {
    let (subscriber, guard) = build(settings, local_zone())?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Again)?;
    let only_files = !settings
        .outputs
        .iter()
        .any(|output| output == "stdout" || output == "stderr");
    log_panics(guard.queue.clone(), only_files);
    Ok(guard)
}

/// The zone of this machine; UTC where it has none.
pub fn local_zone() -> TimeZone {
    let zone = TimeZone::system();
    if zone.is_unknown() {
        TimeZone::UTC
    } else {
        zone
    }
}

fn build(
    settings: &LogSettings,
    zone: TimeZone,
) -> Result<(impl Subscriber + Send + Sync + use<>, Guard), LogError> {
    let filter = filter(&settings.level)?;
    let outputs = settings
        .outputs
        .iter()
        .map(|output| Output::open(output))
        .collect::<Result<Vec<_>, _>>()?;
    let files = LogFiles::of(&outputs);
    let format = Format::new(settings.format, zone);
    let (queue, writers) = Queue::new(outputs, &format);
    let layer = LogLayer::new(format, jiff::Timestamp::now, queue.clone());
    Ok((
        tracing_subscriber::registry().with(filter).with(layer),
        Guard {
            queue,
            files,
            writers,
        },
    ))
}

/// Parses a level or filter. The original's `dpanic`, `panic` and `fatal` are `error`.
fn filter(level: &str) -> Result<EnvFilter, LogError> {
    let bad = |reason: String| LogError::BadLevel {
        level: level.to_owned(),
        reason,
    };
    let lower = level.trim().to_ascii_lowercase();
    if matches!(lower.as_str(), "dpanic" | "panic" | "fatal") {
        return Ok(EnvFilter::new("error"));
    }
    // A lone word that is no level would be taken for a module, and silence everything else.
    let is_level = matches!(
        lower.as_str(),
        "trace" | "debug" | "info" | "warn" | "error" | "off"
    );
    if !is_level && lower.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(bad("there is no such level".to_owned()));
    }
    EnvFilter::builder()
        .parse(if is_level { &lower } else { level })
        .map_err(|error| bad(error.to_string()))
}

/// Logs panics, and waits for the line, since the process may be about to end. Where the outputs are `only_files`
/// the panic goes to stderr as well.
fn log_panics(queue: Queue, only_files: bool) {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let thread = std::thread::current();
        let backtrace = std::backtrace::Backtrace::capture();
        let backtrace = (backtrace.status() == std::backtrace::BacktraceStatus::Captured)
            .then(|| backtrace.to_string());
        tracing::error!(
            panic = info.payload_as_str().unwrap_or("(no message)"),
            location = info.location().map(ToString::to_string),
            thread = thread.name().unwrap_or("(unnamed)"),
            backtrace,
            "Panic: this is a bug in quictun, please report it"
        );
        queue.flush(FLUSH_DEADLINE);
        if only_files {
            default(info);
        }
    }));
}

impl Guard {
    /// Starts a thread for each output.
    ///
    /// # Errors
    ///
    /// Where the system gives no thread.
    pub fn start(&mut self) -> Result<(), LogError> {
        let mut writers = self.writers.drain(..);
        writers.try_for_each(|writer| writer.start().map_err(LogError::Thread))
    }

    /// The files that are written to.
    pub fn files(&self) -> &LogFiles {
        &self.files
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.start().is_err() {
            // Then nothing can be written any more.
        }
        self.queue.flush(FLUSH_DEADLINE);
    }
}
