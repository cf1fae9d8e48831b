//! A transfer that runs until it is stopped, so that a test can disturb it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::application::Application;
use crate::connection::{Connection, Endpoint};
use crate::deadline;
use crate::payload::Payload;

/// The timeout of reads and writes: longer than any outage of a test.
const TIMEOUT: Duration = Duration::from_secs(40);

/// The payload of an endless transfer.
const ENDLESS: Payload = Payload {
    seed: 31,
    bytes: u64::MAX,
};

/// An application that sends on each connection until it is stopped, and counts the bytes sent.
#[derive(Debug)]
pub struct EndlessSource {
    /// The application that sends the data.
    pub application: Application,
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
}

impl EndlessSource {
    /// Listens on a free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// Fails if the socket cannot be created, bound or listened on.
    pub fn new() -> Result<Self> {
        Self::at((Ipv4Addr::LOCALHOST, 0).into())
    }

    /// Listens on the given TCP address.
    ///
    /// # Errors
    ///
    /// Fails if the socket cannot be created, bound or listened on.
    pub fn at(address: SocketAddr) -> Result<Self> {
        let (stop, sent) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (stopped, counted) = (stop.clone(), sent.clone());
        let application = Application::tcp_on(address, move |mut connection: Connection| {
            connection.set_timeout(TIMEOUT)?;
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

    /// Ends all transfers of this source.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns the bytes sent by all connections that have ended.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

/// The receiving end of an endless transfer; verifies every byte.
#[derive(Debug)]
pub struct Transfer {
    progress: Arc<AtomicU64>,
    reader: JoinHandle<Result<u64>>,
}

impl Transfer {
    /// Connects and starts reading.
    ///
    /// # Errors
    ///
    /// Fails if connecting fails.
    pub fn start(forward: &Endpoint) -> Result<Self> {
        let mut connection = forward.connect()?;
        connection.set_timeout(TIMEOUT)?;
        let progress = Arc::<AtomicU64>::default();
        let counted = progress.clone();
        let reader = std::thread::spawn(move || ENDLESS.read_to_any_end(&mut connection, &counted));
        Ok(Self { progress, reader })
    }

    /// Returns the number of bytes received.
    pub fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    /// Waits until `bytes` more bytes have arrived; returns how long that took.
    ///
    /// # Errors
    ///
    /// Fails at the deadline.
    pub fn advance(&self, bytes: u64, within: Duration) -> Result<Duration> {
        let (from, start) = (self.progress(), Instant::now());
        deadline::until("the transfer to make progress", within, || {
            self.progress() >= from + bytes
        })
        .with_context(|| format!("it was at {from} and is at {}", self.progress()))?;
        Ok(start.elapsed())
    }

    /// Stops the source and compares the numbers of sent and received bytes.
    ///
    /// # Errors
    ///
    /// Fails if a byte is wrong or missing.
    pub fn finish(self, source: &EndlessSource) -> Result<()> {
        source.stop();
        let arrived = self
            .reader
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        source.application.outcome(TIMEOUT)?;
        ensure!(
            arrived == source.sent(),
            "{} bytes sent, {arrived} received",
            source.sent()
        );
        Ok(())
    }
}
