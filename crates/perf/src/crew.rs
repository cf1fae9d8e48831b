//! The threads of one end.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::{Builder, scope};
use std::time::{Duration, Instant};

use crate::error::PerfError;
use crate::meter::{Clock, Measured};
use crate::plan::Plan;
use crate::report::THREAD;
use crate::stop::Stop;

/// Between two looks at what has moved.
const LOOK: Duration = Duration::from_millis(250);

/// After so many looks in vain a measurement is over: longer than any outage that is worth measuring. They are
/// counted because a process that was stopped meanwhile has not waited in vain.
const STALLED: u32 = 120;

/// What every thread of one end works with.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) plan: &'a Plan,
    /// The seed of the payload: the measurement's cookie.
    pub(crate) seed: u64,
    pub(crate) clock: &'a Clock,
    /// When the first connection was begun.
    pub(crate) began: Instant,
    pub(crate) stop: &'a Stop,
}

/// Runs `work` on `count` threads, each with its number, until all are done, and tells `watch` what has moved meanwhile.
///
/// The first failure ends all of them.
pub(crate) fn run(
    job: Job<'_>,
    count: u32,
    work: &(dyn Fn(u32) -> Result<Measured, PerfError> + Sync),
    watch: &mut dyn FnMut(u64),
) -> Result<Measured, PerfError> {
    scope(|scope| {
        let (sender, results) = sync_channel(count as usize);
        for index in 0..count {
            let sender = sender.clone();
            let body = move || {
                // Whoever waits for it waits for all.
                if sender.send(work(index)).is_err() {}
            };
            let thread = Builder::new().name(THREAD.to_owned());
            if let Err(source) = thread.spawn_scoped(scope, body) {
                job.stop.raise();
                return Err(PerfError::Io("starting a thread", source));
            }
        }
        drop(sender);
        let mut all = Measured::default();
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
