//! An honest client beside an attack: how long its flows wait for their first byte.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::ground::Ground;
use quictun_testbed::connection::{Endpoint, PATIENCE};

/// A flow that has no answer after this is not served.
pub const GIVES_UP: Duration = Duration::from_secs(8);

/// Between two flows.
const PAUSE: Duration = Duration::from_millis(100);

/// Flows of the client that was there first, until a new client is tried.
const FLOWS_A_CLIENT: usize = 8;

/// How flows were served.
#[derive(Clone, Copy, Debug, Default)]
pub struct Service {
    /// Flows that had their byte back.
    pub served: u64,
    /// Flows that had not.
    pub failed: u64,
    /// The longest wait of one that was served, milliseconds.
    pub worst_ms: u64,
}

impl Service {
    /// The longest wait for the first byte, a flow without one counted as given up.
    pub fn longest_ms(&self) -> u64 {
        let given_up = u64::try_from(GIVES_UP.as_millis()).unwrap_or(u64::MAX);
        if self.failed > 0 {
            given_up.max(self.worst_ms)
        } else {
            self.worst_ms
        }
    }

    fn note(&mut self, waited: &Result<Duration>) {
        match waited {
            Ok(waited) => {
                self.served += 1;
                let waited = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                self.worst_ms = self.worst_ms.max(waited);
            }
            Err(_) => self.failed += 1,
        }
    }
}

/// Both clients: the one that was there before the attack, and those that come during it.
#[derive(Debug, Default)]
pub struct Honest {
    over: AtomicBool,
    known: Mutex<Service>,
    newcomers: Mutex<Service>,
}

impl Honest {
    /// Has flows served until [`Honest::stop`].
    ///
    /// # Errors
    ///
    /// Where a client does not start.
    pub fn run(&self, ground: &Ground) -> Result<()> {
        while !self.over.load(Ordering::Relaxed) {
            for _ in 0..FLOWS_A_CLIENT {
                if self.over.load(Ordering::Relaxed) {
                    return Ok(());
                }
                note(&self.known, || first_byte(ground.forward()));
                std::thread::park_timeout(PAUSE);
            }
            // A client that cannot reach its server starts all the same.
            let mut client = ground.client_to(ground.echo())?;
            client.program.hush();
            note(&self.newcomers, || first_byte(&client.forward));
        }
        Ok(())
    }

    /// Ends [`Honest::run`] after its flow of now.
    pub fn stop(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// How the client that was there before was served.
    pub fn known(&self) -> Service {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How clients that came during the attack were served.
    pub fn newcomers(&self) -> Service {
        *self
            .newcomers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn note(service: &Mutex<Service>, flow: impl FnOnce() -> Result<Duration>) {
    let waited = flow();
    service
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .note(&waited);
}

/// One byte to an echo and back.
fn first_byte(forward: &Endpoint) -> Result<Duration> {
    debug_assert!(GIVES_UP < PATIENCE, "connections are more patient");
    let started = Instant::now();
    let mut connection = forward.connect()?;
    connection.set_patience(GIVES_UP)?;
    connection.write_all(b"?")?;
    connection.read_exact(&mut [0; 1])?;
    Ok(started.elapsed())
}
