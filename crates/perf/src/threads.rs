//! The threads of one end of a measurement.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::{Builder, scope};
use std::time::{Duration, Instant};

use crate::error::PerfError;
use crate::meter::{Clock, Measurement};
use crate::plan::Plan;
use crate::report::THREAD;
use crate::stop::Stop;

/// Time between two checks of the number of bytes moved.
const LOOK: Duration = Duration::from_millis(250);

/// Number of checks without progress after which a measurement fails: longer than any outage worth measuring. Checks
/// are counted, not time, so that a process that was suspended meanwhile does not fail.
const STALLED: u32 = 120;

/// The context shared by every thread of one end.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) plan: &'a Plan,
    /// Seed of the payload: the measurement's cookie.
    pub(crate) seed: u64,
    pub(crate) clock: &'a Clock,
    /// Time at which the first connection was started.
    pub(crate) began: Instant,
    pub(crate) stop: &'a Stop,
}

/// Runs `work` on `count` threads, each with its number, until all are done, and reports the progress to `watch`
/// meanwhile.
///
/// The first failure stops all threads.
pub(crate) fn run(
    job: Job<'_>,
    count: u32,
    work: &(dyn Fn(u32) -> Result<Measurement, PerfError> + Sync),
    watch: &mut dyn FnMut(u64),
) -> Result<Measurement, PerfError> {
    scope(|scope| {
        let (sender, results) = sync_channel(count as usize);
        for index in 0..count {
            let sender = sender.clone();
            let body = move || {
                // The send fails only if the receiver returned early after a failure; the result is then not needed.
                if sender.send(work(index)).is_err() {}
            };
            let thread = Builder::new().name(THREAD.to_owned());
            if let Err(source) = thread.spawn_scoped(scope, body) {
                job.stop.raise();
                return Err(PerfError::Io("cannot start a thread", source));
            }
        }
        drop(sender);
        let mut all = Measurement::default();
        let mut fault = None;
        let (mut seen, mut in_vain) = (0, 0);
        loop {
            match results.recv_timeout(LOOK) {
                Ok(Ok(measured)) => all.merge(measured),
                Ok(Err(error)) => {
                    job.stop.raise();
                    fault.get_or_insert(error);
                }
                Err(RecvTimeoutError::Disconnected) => return fault.map_or(Ok(all), Err),
                Err(RecvTimeoutError::Timeout) => in_vain += 1,
            }
            let moved = job.clock.moved();
            watch(moved);
            if moved != seen {
                (seen, in_vain) = (moved, 0);
            } else if in_vain >= STALLED {
                job.stop.raise();
                let seconds = (LOOK * STALLED).as_secs();
                fault.get_or_insert(PerfError::Stalled(seconds));
            }
        }
    })
}
