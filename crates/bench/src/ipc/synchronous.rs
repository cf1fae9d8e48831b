//! The baselines: each caller is a thread that sleeps until its call is answered.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use quictun_ipc::{Channel, Message, WaitPolicy, connect, cycles};
use rustix::net::{RecvFlags, SendFlags};

use super::peer::{ServerProcess, TIMEOUT};
use super::results::{CallCell, CallSample};
use crate::kind::Kind;
use crate::machine::{bind, pause};

/// Number of calls before the clock starts.
const WARM_UP: u32 = 200;

enum BaselineTransport {
    Shared(Box<Channel>),
    Socket(OwnedFd),
}

impl BaselineTransport {
    /// Makes one call, with one byte in each direction. Returns true if there was an answer.
    fn call(&mut self) -> bool {
        match self {
            Self::Shared(channel) => {
                let pushed = channel.push(Message::default().with_payload(0, 1));
                pushed == Ok(true) && channel.pop_or_sleep().is_some()
            }
            Self::Socket(socket) => {
                let mut byte = [1];
                let sent = rustix::net::send(&*socket, &byte, SendFlags::NOSIGNAL);
                sent == Ok(1)
                    && rustix::net::recv(&*socket, &mut byte, RecvFlags::empty())
                        .is_ok_and(|(n, _)| n == 1)
            }
        }
    }
}

/// Runs a cell `repeats` times, with a thread and a server for each of its callers.
pub(crate) fn measure(
    cell: &CallCell,
    cores: [usize; 2],
    repeats: usize,
    run: Duration,
) -> Result<Vec<CallSample>> {
    let mut ways = Vec::new();
    let mut peers = Vec::new();
    for number in 0..cell.concurrency {
        let (peer, socket) = ServerProcess::start(cell.kind, cores[1], WaitPolicy::Interrupt)?;
        peers.push(peer);
        ways.push(match cell.kind {
            Kind::SeqPacket => BaselineTransport::Socket(socket),
            Kind::Asynchronous | Kind::Futex => {
                BaselineTransport::Shared(Box::new(connect(socket, 0, number as u64, TIMEOUT)?))
            }
        });
    }
    let samples: Result<Vec<CallSample>> = (0..repeats)
        .map(|_| once(&mut ways, cores[0], run))
        .collect();
    drop(ways);
    peers.into_iter().try_for_each(ServerProcess::end)?;
    samples
}

fn once(ways: &mut [BaselineTransport], core: usize, run: Duration) -> Result<CallSample> {
    let (stop, calls, failed) = (
        AtomicBool::new(false),
        AtomicU64::new(0),
        AtomicBool::new(false),
    );
    let callers = ways.len();
    let ready = std::sync::Barrier::new(callers + 1);
    let (mut from, mut elapsed, mut ticks) = (Instant::now(), Duration::ZERO, 0);
    let mut slept = Ok(());
    std::thread::scope(|scope| {
        for way in ways {
            scope.spawn(|| {
                let mut done = 0;
                let mut fine = bind(core).is_ok() && (0..WARM_UP).all(|_| way.call());
                ready.wait();
                while fine && !stop.load(Ordering::Relaxed) {
                    fine = way.call();
                    done += 1;
                }
                failed.fetch_or(!fine, Ordering::Relaxed);
                calls.fetch_add(done, Ordering::Relaxed);
            });
        }
        ready.wait();
        from = Instant::now();
        let start = cycles();
        slept = pause(run);
        stop.store(true, Ordering::Relaxed);
        ticks = cycles() - start;
        elapsed = from.elapsed();
    });
    slept?;
    ensure!(
        !failed.load(Ordering::Relaxed),
        "a server stopped answering"
    );
    Ok(CallSample {
        calls: calls.load(Ordering::Relaxed).max(1),
        ticks,
        elapsed,
        ..CallSample::default()
    })
}
