//! The threads that write log lines, one for each output, and their queues.
//!
//! A stalled output delays neither the threads that log nor the other outputs.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tracing::Level;

use super::line::{LineFormat, LogFields, LogLine};

/// Longest queue of an output that stalls, lines: seconds of a busy log, and at most a few MiB of ordinary lines.
pub(super) const QUEUE_LINES: usize = 8192;

/// Size of a write up to which lines are gathered when they arrive fast, bytes.
const BATCH_BYTES: usize = 64 * 1024;

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
}

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
        let mut batch = String::new();
        while let Ok(first) = self.queue.recv() {
            let mut waiting = Vec::new();
            let mut next = Some(first);
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
            batch.extend(self.dropped_line());
            if !write(&mut self.output, batch.as_bytes()) {
                return;
            }
            batch.clear();
            for done in waiting {
                // The thread that requested the flush may have stopped waiting.
                done.try_send(()).ok();
            }
        }
    }

    fn dropped_line(&self) -> Option<String> {
        let lines = self.dropped.swap(0, Ordering::Relaxed);
        (lines > 0).then(|| {
            let mut fields = LogFields::default();
            fields.set("lines", lines.into());
            self.format.write(&LogLine {
                at: Timestamp::now(),
                level: Level::WARN,
                caller: "control/log/writer.rs".to_owned(),
                message: "Log lines were dropped: an output is too slow",
                fields: &fields,
            })
        })
    }
}

/// Writes whole lines. Returns false if the output has no reader any more. If the disk is full, the lines are lost and
/// the output is kept, because there may be room later.
fn write(output: &mut impl Write, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match output.write(bytes) {
            Ok(0) => return true,
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::park_timeout(RETRY);
            }
            Err(error) => return error.kind() != io::ErrorKind::BrokenPipe,
        }
    }
    true
}
