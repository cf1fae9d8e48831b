//! Writes logs to stdout, stderr or files, with one line for each event.
//!
//! The program calls [`init`] once and keeps the [`LogGuard`] until it ends. All other code logs with `tracing`'s
//! macros: a constant message, and values in fields (`tracing::info!("Stream-ID" = 4, "Tunnel closed")`). The fields of
//! the spans around an event precede its own fields, outermost span first. If two fields have the same name, the inner
//! one counts.
//!
//! The module `people` describes the lines for people. Console lines have the columns of the original's encoder, so
//! that users' searches keep working. JSON lines have `ts`, `level`, `caller`, `msg`, and the fields:
//!
//! ```text
//! 2026-08-01 12:00:00.000\tINFO\ttunnel/server.rs:30\tTunnel closed\t{"Stream-ID": 4}
//! {"ts":"2026-08-01T10:00:00.000000Z","level":"info","caller":"tunnel/server.rs:30","msg":"Tunnel
//! closed","Stream-ID":4}
//! ```
//!
//! All formats escape characters that could forge a line or change its look: control characters, line separators,
//! bidirectional controls and characters without a shape. URLs are written without user names and passwords.
//! [`Untrusted`] wraps text that a peer could shape, and bounds its length.
//!
//! A thread that logs never waits. Lines pass through bounded queues to one thread for each output. If an output stalls
//! and its queue is full, lines are dropped and counted, and the count is logged. An output without a reader is
//! abandoned.

pub(crate) mod filter;
mod layer;
mod line;
mod output;
mod people;
mod text;
mod writer;

#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::tz::TimeZone;
use tracing::Subscriber;
use tracing_subscriber::layer::SubscriberExt;

use crate::settings::LogSettings;
use layer::LogLayer;
use line::LineFormat;
use output::Output;
use writer::{LogQueue, Writer};

pub use filter::{LogFilter, LogFilterError};
pub use output::{LogError, LogFiles, files};
pub use text::{Untrusted, printable, printable_json, shown_url, without_credentials};

/// Longest time that the start and the end of the program, and a panic, wait until all lines are written.
const FLUSH_DEADLINE: Duration = Duration::from_secs(1);

/// Writes the queued lines when it is dropped, for at most a second. The program keeps it until it ends.
#[must_use = "lines that are still queued are lost without it"]
#[derive(Debug, Default)]
pub struct LogGuard {
    queue: LogQueue,
    files: LogFiles,
    /// The writers that [`LogGuard::start`] has not started yet.
    writers: Vec<Writer<Output>>,
}

/// Opens the outputs of `settings`, and queues for them all lines that this process logs, panics included.
///
/// The lines are written after [`LogGuard::start`] has been called, or when the guard is dropped. Until then no thread
/// runs.
///
/// # Errors
///
/// Returns [`LogError`] if an output cannot be opened, or if logs are set up already. Nothing is set up then.
pub fn init(settings: &LogSettings) -> Result<LogGuard, LogError> {
    let (subscriber, guard) = build(settings, &local_zone())?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Again)?;
    let only_files = files(&settings.outputs).count() == settings.outputs.len();
    log_panics(guard.queue.clone(), only_files);
    Ok(guard)
}

/// Returns the time zone of this machine, or UTC if it has none.
pub(crate) fn local_zone() -> TimeZone {
    let zone = TimeZone::system();
    if zone.is_unknown() {
        TimeZone::UTC
    } else {
        zone
    }
}

fn build(
    settings: &LogSettings,
    zone: &TimeZone,
) -> Result<(impl Subscriber + Send + Sync + use<>, LogGuard), LogError> {
    let outputs = settings
        .outputs
        .iter()
        .map(|output| Output::open(output))
        .collect::<Result<Vec<_>, _>>()?;
    let files = LogFiles::of(&outputs);
    let outputs = outputs.into_iter().map(|output| {
        let format = LineFormat::new(settings.format, output.style(), zone.clone());
        (output, format)
    });
    let (queue, writers) = LogQueue::new(outputs.collect());
    let layer = LogLayer::new(jiff::Timestamp::now, queue.clone());
    Ok((
        tracing_subscriber::registry()
            .with(settings.level.0.clone())
            .with(layer),
        LogGuard {
            queue,
            files,
            writers,
        },
    ))
}

/// Logs panics, and waits until the line is written, because the process may be about to end. If the outputs are
/// `only_files`, the panic is also printed on stderr.
fn log_panics(queue: LogQueue, only_files: bool) {
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

impl LogGuard {
    /// Starts a thread for each output, and waits until the lines that were queued before are written. So warnings about
    /// the start precede what the program itself prints.
    pub fn start(&mut self) -> Result<(), LogError> {
        self.start_threads()?;
        self.queue.flush(FLUSH_DEADLINE);
        Ok(())
    }

    fn start_threads(&mut self) -> Result<(), LogError> {
        let mut writers = self.writers.drain(..);
        writers.try_for_each(|writer| writer.start().map_err(LogError::Thread))
    }

    /// Returns the files that logs are written to.
    pub fn files(&self) -> &LogFiles {
        &self.files
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        // If the writer's thread cannot start, the process can neither write nor report the failure.
        self.start_threads().ok();
        self.queue.flush(FLUSH_DEADLINE);
    }
}
