//! Coroutines that call: as many as calls are under way at a time.

use std::cell::Cell as Shared;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use quictun_ipc::{Client, Executor, Message, connect, cycles};

use super::cell::{Cell, Sample};
use super::peer::{PATIENCE, Peer, STATISTICS, WORK};
use crate::clocks::cpu_ns;

/// Calls of the run before the first, from which the length of the others follows; the original's number.
const WARM_UP: u64 = 20_480;

/// Calls of a run, at most.
const CALLS_MAX: u64 = 4_000_000;

/// The client of a cell.
struct Caller {
    client: Client,
    executor: Executor,
    load: u32,
    concurrency: usize,
}

/// Runs of the cell.
pub(crate) fn measure(
    cell: &Cell,
    cores: [usize; 2],
    repeats: usize,
    run: Duration,
) -> Result<Vec<Sample>> {
    let (peer, socket) = Peer::start(cell.kind, cores[1], cell.policy)?;
    let channel = connect(socket, 0, 1, PATIENCE).context("the server of the measurement")?;
    let (client, executor) = Client::new(channel, cell.policy);
    let mut caller = Caller {
        client,
        executor,
        load: cell.load,
        concurrency: cell.concurrency,
    };
    let (mut calls, mut elapsed) = (256, Duration::ZERO);
    while elapsed < run / 8 && calls < WARM_UP * 8 {
        calls *= 2;
        elapsed = caller.run(calls)?.elapsed;
    }
    let fits = u128::from(calls) * run.as_nanos() / elapsed.as_nanos().max(1);
    let calls = u64::try_from(fits).unwrap_or(u64::MAX).clamp(64, CALLS_MAX);
    let samples: Result<Vec<Sample>> = (0..repeats).map(|_| caller.run(calls)).collect();
    drop(caller);
    peer.end()?;
    samples
}

impl Caller {
    fn run(&mut self, calls: u64) -> Result<Sample> {
        let (server_before, server_cpu) = self.statistics()?;
        let client_before = self.client.counters().notifications;
        let left = Rc::new(Shared::new(calls));
        let answered = Rc::new(Shared::new(0_u64));
        for _ in 0..self.concurrency {
            let (client, left, answered) = (self.client.clone(), left.clone(), answered.clone());
            let load = self.load;
            self.executor.spawner().spawn(1, async move {
                let Ok(message) = Message::new(WORK).with_sock(load).with_bytes(&[1]) else {
                    return;
                };
                while let Some(rest) = left.get().checked_sub(1) {
                    left.set(rest);
                    match client.call(message).await {
                        Ok(answer) if answer.bytes() == [2] => answered.set(answered.get() + 1),
                        Ok(_) | Err(_) => return,
                    }
                }
            });
        }
        let (client_cpu, from, start) = (cpu_ns(), Instant::now(), cycles());
        self.executor.run();
        let (ticks, elapsed) = (cycles() - start, from.elapsed());
        let client_cpu = cpu_ns() - client_cpu;
        ensure!(
            answered.get() == calls,
            "{} of {calls} calls were answered",
            answered.get()
        );
        let to_server = self.client.counters().notifications - client_before;
        let (to_client, server_cpu_after) = self.statistics()?;
        Ok(Sample {
            calls,
            ticks,
            elapsed,
            to_server,
            to_client: to_client - server_before,
            client_cpu: Duration::from_nanos(client_cpu),
            server_cpu: Duration::from_nanos(server_cpu_after - server_cpu),
        })
    }

    /// Notifications that the server has sent, and nanoseconds that it has run.
    fn statistics(&mut self) -> Result<(u64, u64)> {
        let answer = Rc::new(Shared::new(None));
        let (client, place) = (self.client.clone(), answer.clone());
        self.executor.spawner().spawn(1, async move {
            place.set(client.call(Message::new(STATISTICS)).await.ok());
        });
        self.executor.run();
        let answer = answer.get().context("the server stopped answering")?;
        let bytes = answer
            .bytes()
            .try_into()
            .context("the server's statistics")?;
        Ok((answer.arg(), u64::from_le_bytes(bytes)))
    }
}
