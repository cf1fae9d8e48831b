//! An honest client during an attack: measures how long its flows wait for their first byte.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::victim::Victim;
use quictun_testbed::connection::{Endpoint, TIMEOUT};

/// A flow without an answer after this time counts as failed.
pub const GIVES_UP: Duration = Duration::from_secs(8);

/// The pause between two flows.
const PAUSE: Duration = Duration::from_millis(100);

/// The number of flows of the first client between two new clients.
const FLOWS_A_CLIENT: usize = 8;

/// The service that honest flows received.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceTimes {
    /// Flows that got their byte back.
    pub served: u64,
    /// Flows that did not get their byte back.
    pub failed: u64,
    /// The longest wait of a served flow, in milliseconds.
    pub worst_ms: u64,
}

impl ServiceTimes {
    /// Returns the longest wait for the first byte, in milliseconds. A failed flow counts with [`GIVES_UP`].
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

/// The results of the client that existed before the attack, and of clients that start during it.
#[derive(Debug, Default)]
pub struct HonestClients {
    over: AtomicBool,
    known: Mutex<ServiceTimes>,
    newcomers: Mutex<ServiceTimes>,
}

impl HonestClients {
    /// Sends flows through honest clients until [`HonestClients::stop`].
    ///
    /// # Errors
    ///
    /// Fails if a client does not start.
    pub fn run(&self, victim: &Victim) -> Result<()> {
        for round in 0.. {
            if self.over.load(Ordering::Relaxed) {
                break;
            }
            for turn in 0..FLOWS_A_CLIENT {
                if self.over.load(Ordering::Relaxed) {
                    return Ok(());
                }
                note(&self.known, || first_byte(victim.forward(turn)));
                std::thread::park_timeout(PAUSE);
            }
            // Newcomers begin with the last carrier, which is the one under attack. A client starts even if it cannot
            // reach its server.
            let mut client = victim.client_to(victim.echo(), round + 1)?;
            client.program.silence();
            note(&self.newcomers, || first_byte(&client.forward));
        }
        Ok(())
    }

    /// Ends [`HonestClients::run`] after its current flow.
    pub fn stop(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Returns how the client that existed before the attack was served.
    pub fn known(&self) -> ServiceTimes {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how clients that started during the attack were served.
    pub fn newcomers(&self) -> ServiceTimes {
        *self
            .newcomers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn note(service: &Mutex<ServiceTimes>, flow: impl FnOnce() -> Result<Duration>) {
    let waited = flow();
    service
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .note(&waited);
}

/// Sends one byte to an echo and waits for it; returns the elapsed time.
fn first_byte(forward: &Endpoint) -> Result<Duration> {
    debug_assert!(GIVES_UP < TIMEOUT, "GIVES_UP exceeds TIMEOUT");
    let started = Instant::now();
    let mut connection = forward.connect()?;
    connection.set_timeout(GIVES_UP)?;
    connection.write_all(b"?")?;
    connection.read_exact(&mut [0; 1])?;
    Ok(started.elapsed())
}
