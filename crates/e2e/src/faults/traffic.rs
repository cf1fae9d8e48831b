//! Traffic that compares every byte while a tunnel is disturbed, and the time that /healthz takes meanwhile.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::storm::Random;
use quictun_testbed::application::through_echo;
use quictun_testbed::connection::Endpoint;
use quictun_testbed::machine::Machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::rest;

/// Flows that begin and end all the time, at once.
const SHORT_FLOWS: u64 = 2;

/// Largest payload of such a flow, bytes.
const SHORT_MAX: u64 = 100_000;

/// Pause of the long flow between two blocks, and of each short flow: the traffic must not fill a busy machine.
const PAUSE: Duration = Duration::from_millis(10);

/// Size of a block of the long flow, bytes.
const BLOCK: usize = 32 * 1024;

/// Longest silence of a flow: longer than any disturbance.
const SILENCE: Duration = Duration::from_secs(90);

/// Pause between two requests for /healthz.
const HEALTH_PAUSE: Duration = Duration::from_millis(50);

/// The outcome of flows, all of whose bytes were compared.
#[derive(Debug, Default)]
pub struct TrafficReport {
    flows: AtomicU64,
    bytes: AtomicU64,
    failures: Mutex<Vec<String>>,
    slowest_us: AtomicU64,
    stop: AtomicBool,
}

impl TrafficReport {
    /// Returns the number of flows that were whole.
    pub fn flows(&self) -> u64 {
        self.flows.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that were sent, and that came back.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the time of the slowest answer of /healthz.
    pub fn slowest(&self) -> Duration {
        Duration::from_micros(self.slowest_us.load(Ordering::Relaxed))
    }

    /// Ends the traffic: flows that are open finish.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Fails if a flow was lost, or a request for /healthz.
    pub(crate) fn check(&self) -> Result<()> {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        match failures.first() {
            Some(first) => bail!("{} failures, the first: {first}", failures.len()),
            None => Ok(()),
        }
    }

    fn note(&self, what: &str, done: Result<u64>) {
        match done {
            Ok(bytes) => {
                self.flows.fetch_add(1, Ordering::Relaxed);
                self.bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            Err(error) => self.fail(format!("{what}: {error:#}")),
        }
    }

    fn fail(&self, what: String) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.push(what);
    }

    /// Carries flows to the echo at `echo`, and asks for /healthz at `healths`, until [`TrafficReport::stop`].
    pub(crate) fn run(
        &self,
        near: &Machine,
        echo: &Endpoint,
        healths: &[(&Machine, SocketAddr)],
        seed: u64,
    ) {
        std::thread::scope(|scope| {
            scope.spawn(|| self.note("the long flow", near.within(|| self.long_flow(echo))));
            for number in 0..SHORT_FLOWS {
                let mut random = Random::new(seed.wrapping_add(number));
                scope.spawn(move || {
                    while !self.is_over() {
                        let payload = Payload::new(random.below(1 << 32), random.below(SHORT_MAX));
                        let done = near.within(|| through_echo(echo, payload));
                        self.note("a short flow", done.map(|()| payload.bytes));
                        std::thread::park_timeout(PAUSE);
                    }
                });
            }
            for (machine, address) in healths {
                scope.spawn(move || {
                    let asked = machine.within(|| self.ask_health(*address));
                    if let Err(error) = asked {
                        self.fail(format!("/healthz at {address}: {error:#}"));
                    }
                });
            }
        });
    }

    /// Sends on one connection until the end, and compares what comes back.
    fn long_flow(&self, echo: &Endpoint) -> Result<u64> {
        let payload = Payload::new(77, u64::MAX);
        let mut connection = echo.connect()?;
        connection.set_timeout(SILENCE)?;
        let mut writing = connection.try_clone()?;
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || -> Result<u64> {
                let (mut sent, mut block) = (0, vec![0; BLOCK]);
                while !self.is_over() {
                    payload.fill(sent, &mut block);
                    writing.write_all(&block)?;
                    sent += block.len() as u64;
                    std::thread::park_timeout(PAUSE);
                }
                writing.finish()?;
                Ok(sent)
            });
            let received = payload.read_to_any_end(&mut connection, &AtomicU64::new(0));
            let sent = writer
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let (received, sent) = (received.context("receiving")?, sent.context("sending")?);
            ensure!(received == sent, "{sent} bytes sent, {received} received");
            Ok(sent)
        })
    }

    fn ask_health(&self, address: SocketAddr) -> Result<()> {
        while !self.is_over() {
            let start = Instant::now();
            let answer = rest::get(address, "/healthz")?;
            ensure!(answer.status == 200, "{answer:?}");
            let took = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.slowest_us.fetch_max(took, Ordering::Relaxed);
            std::thread::park_timeout(HEALTH_PAUSE);
        }
        Ok(())
    }
}
