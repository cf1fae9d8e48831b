//! A transfer that runs until told to stop, so that things can happen under it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::application::Application;
use crate::connection::{Connection, Endpoint};
use crate::deadline;
use crate::payload::Payload;

/// Long enough for any outage of a test.
const PATIENCE: Duration = Duration::from_secs(40);

/// What an endless application sends.
const ENDLESS: Payload = Payload {
    seed: 31,
    bytes: u64::MAX,
};

/// An application that sends to each connection until told to stop, and counts what it sent.
#[derive(Debug)]
pub struct Source {
    /// Where it listens.
    pub application: Application,
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
}

impl Source {
    /// Listens on a free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// The system's answer.
    pub fn new() -> Result<Self> {
        let (stop, sent) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (stopped, counted) = (stop.clone(), sent.clone());
        let application = Application::tcp(move |mut connection: Connection| {
            connection.set_patience(PATIENCE)?;
            let bytes = ENDLESS.write_until(&mut connection, &stopped)?;
            counted.fetch_add(bytes, Ordering::Relaxed);
            connection.finish()
        })?;
        Ok(Self {
            application,
            stop,
            sent,
        })
    }

    /// Ends all transfers.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Bytes sent by the connections that have ended.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

/// The receiving end of an endless transfer; every byte is verified.
#[derive(Debug)]
pub struct Transfer {
    progress: Arc<AtomicU64>,
    reader: JoinHandle<Result<u64>>,
}

impl Transfer {
    /// Connects and begins to read.
    ///
    /// # Errors
    ///
    /// Where connecting fails.
    pub fn start(forward: &Endpoint) -> Result<Self> {
        let mut connection = forward.connect()?;
        connection.set_patience(PATIENCE)?;
        let progress = Arc::<AtomicU64>::default();
        let counted = progress.clone();
        let reader = std::thread::spawn(move || ENDLESS.read_to_any_end(&mut connection, &counted));
        Ok(Self { progress, reader })
    }

    /// Bytes that have arrived.
    pub fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    /// Waits until so many more bytes have arrived; returns how long that took.
    ///
    /// # Errors
    ///
    /// At the deadline.
    pub fn advance(&self, bytes: u64, within: Duration) -> Result<Duration> {
        let (from, start) = (self.progress(), Instant::now());
        deadline::until("the transfer to go on", within, || {
            self.progress() >= from + bytes
        })
        .with_context(|| format!("it was at {from} and is at {}", self.progress()))?;
        Ok(start.elapsed())
    }

    /// Ends the source and compares what left with what arrived.
    ///
    /// # Errors
    ///
    /// Where a byte is wrong or missing.
    pub fn finish(self, source: &Source) -> Result<()> {
        source.stop();
        let arrived = self
            .reader
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        source.application.outcome(PATIENCE)?;
        ensure!(
            arrived == source.sent(),
            "{} bytes left, {arrived} arrived",
            source.sent()
        );
        Ok(())
    }
}
