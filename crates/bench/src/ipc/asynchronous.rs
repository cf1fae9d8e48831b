//! Asynchronous calls from coroutines: there are as many coroutines as calls in flight.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use quictun_ipc::{Client, Executor, Message, cycles};

use super::peer::{ServerProcess, WORK, statistics};
use super::results::{CallCell, CallSample};
use crate::machine::cpu_ns;

/// The original's number of warm-up calls. Here the warm-up doubles its calls until it takes an eighth of a run, or
/// exceeds eight times this number. Its speed sets the length of the measured runs.
const WARM_UP: u64 = 20_480;

const CALLS_MAX: u64 = 4_000_000;

struct Caller {
    client: Client,
    executor: Executor,
    load: u32,
    concurrency: usize,
}

pub(crate) fn measure(
    cell: &CallCell,
    cores: [usize; 2],
    repeats: usize,
    run: Duration,
) -> Result<Vec<CallSample>> {
    let (peer, client, executor) = ServerProcess::with_client(cores[1], cell.policy, 0)?;
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
    let samples: Result<Vec<CallSample>> = (0..repeats).map(|_| caller.run(calls)).collect();
    drop(caller);
    peer.end()?;
    samples
}

impl Caller {
    fn run(&mut self, calls: u64) -> Result<CallSample> {
        let (server_before, server_cpu) = statistics(&self.client, &mut self.executor)?;
        let client_before = self.client.counters().notifications;
        let left = Rc::new(Cell::new(calls));
        let answered = Rc::new(Cell::new(0_u64));
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
        let (to_client, server_cpu_after) = statistics(&self.client, &mut self.executor)?;
        Ok(CallSample {
            calls,
            ticks,
            elapsed,
            to_server,
            to_client: to_client - server_before,
            client_cpu: Duration::from_nanos(client_cpu),
            server_cpu: Duration::from_nanos(server_cpu_after - server_cpu),
        })
    }
}
