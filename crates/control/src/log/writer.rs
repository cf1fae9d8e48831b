//! The threads that write log lines, one for each output, and their queues.
//!
//! A stalled output delays neither the threads that log nor the other outputs.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use quictun_sys::Signals;
use rustix::process::Signal;
use tracing::Level;

use super::line::{LineFormat, LogFields, LogLine};

/// Longest queue of an output that stalls, lines: seconds of a busy log, and at most a few MiB of ordinary lines.
pub(super) const QUEUE_LINES: usize = 8192;

/// Size of a write up to which lines are gathered when they arrive fast, bytes.
const BATCH_BYTES: usize = 64 * 1024;

/// Pause before the writer tries whether an output that has failed accepts the number of lost lines.
const RETRY_FAILED: Duration = Duration::from_secs(1);

/// Pause before the writer retries an output that accepts nothing now (a non-blocking terminal or pipe).
const RETRY: Duration = Duration::from_millis(10);

/// The sending side of the writers' queues. The writers' threads end when all clones are dropped. It never blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct LogQueue {
    outputs: Arc<[OutputQueue]>,
}

#[derive(Debug)]
struct OutputQueue {
    format: LineFormat,
    sender: SyncSender<Message>,
    /// Number of lines that found the queue full since the writer last checked.
    dropped: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Message {
    Line(Arc<str>),
    /// The writer answers this when everything before it is written.
    Flush(SyncSender<()>),
}

#[derive(Debug)]
pub(super) struct Writer<W> {
    output: W,
    format: LineFormat,
    queue: Receiver<Message>,
    dropped: Arc<AtomicU64>,
    /// Number of lines that the output has not accepted whole since it last accepted any.
    lost: u64,
    /// The output has accepted a part of a line.
    is_torn: bool,
}

/// The output has no reader any more.
#[derive(Debug)]
struct NoReader;

impl LogQueue {
    /// Creates a queue and its writers, which write nothing before they are started.
    pub(super) fn new<W: Write>(outputs: Vec<(W, LineFormat)>) -> (Self, Vec<Writer<W>>) {
        let outputs = outputs.into_iter().map(|(output, format)| {
            let (sender, queue) = sync_channel(QUEUE_LINES);
            let dropped = Arc::<AtomicU64>::default();
            let writer = Writer {
                output,
                format: format.clone(),
                queue,
                dropped: Arc::clone(&dropped),
                lost: 0,
                is_torn: false,
            };
            let output = OutputQueue {
                format,
                sender,
                dropped,
            };
            (output, writer)
        });
        let (outputs, writers): (Vec<_>, _) = outputs.unzip();
        let outputs = outputs.into();
        (Self { outputs }, writers)
    }

    /// Creates a queue whose writers are started.
    #[cfg(test)]
    pub(super) fn start<W>(outputs: Vec<(W, LineFormat)>) -> io::Result<Self>
    where
        W: Write + Send + 'static,
    {
        let (queue, writers) = Self::new(outputs);
        for writer in writers {
            writer.start()?;
        }
        Ok(queue)
    }

    /// Queues a line, which `write` formats once for each format in use. If a queue is full, counts the line as
    /// dropped.
    pub(super) fn push(&self, write: impl Fn(&LineFormat) -> String) {
        let mut written: Option<(&LineFormat, Arc<str>)> = None;
        for output in self.outputs.iter() {
            let line = match &written {
                Some((format, line)) if **format == output.format => Arc::clone(line),
                _ => write(&output.format).into(),
            };
            written = Some((&output.format, Arc::clone(&line)));
            if let Err(TrySendError::Full(_)) = output.sender.try_send(Message::Line(line)) {
                // Only the count matters, and no other memory depends on it.
                output.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Waits until everything that is queued has been written, but at most until `deadline` has passed.
    pub(super) fn flush(&self, deadline: Duration) {
        let end = Instant::now() + deadline;
        let waits: Vec<_> = self
            .outputs
            .iter()
            .filter_map(|output| output.request_flush(end))
            .collect();
        for wait in waits {
            // If the writer is late or has ended, nothing more can be done.
            wait.recv_timeout(end.saturating_duration_since(Instant::now()))
                .ok();
        }
    }
}

impl OutputQueue {
    fn request_flush(&self, end: Instant) -> Option<Receiver<()>> {
        let (done, wait) = sync_channel(1);
        let mut message = Message::Flush(done);
        loop {
            match self.sender.try_send(message) {
                Ok(()) => return Some(wait),
                Err(TrySendError::Full(back)) if Instant::now() < end => message = back,
                Err(_) => return None,
            }
            std::thread::park_timeout(RETRY);
        }
    }
}

impl<W: Write + Send + 'static> Writer<W> {
    pub(super) fn start(self) -> io::Result<()> {
        let thread = std::thread::Builder::new().name("quictun-log".to_owned());
        thread.spawn(|| self.run()).map(drop)
    }
}

impl<W: Write> Writer<W> {
    fn run(mut self) {
        // A file that may grow no further (RLIMIT_FSIZE) is an error like a full disk, and no reason to end. If the
        // signal cannot be blocked, it ends the process as the system does by default.
        Signals::hold(&[Signal::XFSZ]).ok();
        while let Some((batch, waiting)) = self.next_batch() {
            if self.write(&batch).is_err() {
                return;
            }
            for done in waiting {
                // The thread that requested the flush may have stopped waiting.
                done.try_send(()).ok();
            }
        }
    }

    /// Waits for lines, and gathers those that are queued. The batch is empty if it is time to try again to write the
    /// number of lost lines. Returns `None` when nothing more will come.
    fn next_batch(&self) -> Option<(String, Vec<SyncSender<()>>)> {
        let (mut batch, mut waiting) = (String::new(), Vec::new());
        let first = match self.lost {
            0 => self.queue.recv().ok(),
            _ => match self.queue.recv_timeout(RETRY_FAILED) {
                Err(RecvTimeoutError::Timeout) => return Some((batch, waiting)),
                message => message.ok(),
            },
        };
        let mut next = Some(first?);
        while let Some(message) = next {
            match message {
                Message::Line(line) => batch.push_str(&line),
                Message::Flush(done) => waiting.push(done),
            }
            next = if batch.len() < BATCH_BYTES {
                self.queue.try_recv().ok()
            } else {
                None
            };
        }
        match self.dropped.swap(0, Ordering::Relaxed) {
            0 => {}
            lines => batch
                .push_str(&self.count_line(lines, "Log lines were dropped: an output is too slow")),
        }
        Some((batch, waiting))
    }

    /// Writes lines, and before them the number of those that were lost.
    fn write(&mut self, lines: &str) -> Result<(), NoReader> {
        if self.lost > 0 {
            // The rest of a torn line is lost, and the next line must not continue it.
            let end = if self.is_torn { "\n" } else { "" };
            let count = self.count_line(
                self.lost,
                "Log lines lost: the output accepted no data, as on a full disk",
            );
            let count = format!("{end}{count}");
            if self.write_part(&count)? == count.len() {
                self.lost = 0;
            }
        }
        let written = match self.lost {
            0 => self.write_part(lines)?,
            _ => 0,
        };
        let lost = &lines.as_bytes()[written..];
        self.lost += lost.split(|byte| *byte == b'\n').skip(1).count() as u64;
        Ok(())
    }

    /// Writes as much of whole lines as the output accepts. If the disk is full, the rest is lost and the output is kept,
    /// because there may be room later.
    fn write_part(&mut self, lines: &str) -> Result<usize, NoReader> {
        let bytes = lines.as_bytes();
        let mut end = 0;
        while end < bytes.len() {
            match self.output.write(&bytes[end..]) {
                Ok(0) => break,
                Ok(written) => {
                    end += written;
                    self.is_torn = bytes[end - 1] != b'\n';
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::park_timeout(RETRY);
                }
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(NoReader),
                Err(_) => break,
            }
        }
        Ok(end)
    }

    fn count_line(&self, lines: u64, message: &str) -> String {
        let mut fields = LogFields::default();
        fields.set("lines", lines.into());
        self.format.write(&LogLine {
            at: Timestamp::now(),
            level: Level::WARN,
            caller: "control/log/writer.rs".to_owned(),
            message,
            fields: &fields,
        })
    }
}
