//! The cost of waiting: both sides wait for each other, and neither should use the processor.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use anyhow::Result;
use quictun_ipc::{Executor, WaitPolicy};
use serde_json::{Value, json};

use super::peer::{ServerProcess, statistics};
use crate::machine::cpu_ns;

#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleResult {
    elapsed: Duration,
    client_cpu: Duration,
    server_cpu: Duration,
    /// Number of times that the client's executor slept: once, if nothing woke it.
    sleeps: u64,
}

impl IdleResult {
    pub(crate) fn sentence(&self) -> String {
        format!(
            "\nNothing to do for {:.1} s: the client used {:.3} ms of processor time, the server {:.3} ms; the client slept {} times\n",
            self.elapsed.as_secs_f64(),
            millis(self.client_cpu),
            millis(self.server_cpu),
            self.sleeps,
        )
    }

    pub(crate) fn csv(&self) -> String {
        format!(
            "\nidle_s,client_cpu_ms,server_cpu_ms,client_sleeps\n{:.3},{:.4},{:.4},{}\n",
            self.elapsed.as_secs_f64(),
            millis(self.client_cpu),
            millis(self.server_cpu),
            self.sleeps
        )
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "seconds": self.elapsed.as_secs_f64(),
            "client_cpu_ms": millis(self.client_cpu),
            "server_cpu_ms": millis(self.server_cpu),
            "client_sleeps": self.sleeps,
        })
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

pub(crate) fn measure(cores: [usize; 2], policy: WaitPolicy, time: Duration) -> Result<IdleResult> {
    let (peer, client, mut executor) = ServerProcess::with_client(cores[1], policy, 0)?;
    let server_cpu =
        |executor: &mut Executor| statistics(&client, executor).map(|(_, nanos)| nanos);
    // The first call is discarded, so that work that is done only once does not count.
    server_cpu(&mut executor)?;
    let server_before = server_cpu(&mut executor)?;
    let (before, sleeps, from) = (cpu_ns(), executor.idle_counters().sleeps, Instant::now());
    executor.spawner().spawn(1, alarm(time));
    executor.run();
    let (elapsed, after) = (from.elapsed(), cpu_ns());
    let sleeps = executor.idle_counters().sleeps - sleeps;
    let server_after = server_cpu(&mut executor)?;
    drop(executor);
    drop(client);
    peer.end()?;
    Ok(IdleResult {
        elapsed,
        client_cpu: Duration::from_nanos(after - before),
        server_cpu: Duration::from_nanos(server_after - server_before),
        sleeps,
    })
}

/// Ends after `time`, for which another thread waits.
async fn alarm(time: Duration) {
    let over = Arc::new(AtomicBool::new(false));
    let mut started = false;
    poll_fn(move |context| {
        if over.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        if !std::mem::replace(&mut started, true) {
            let (waker, over) = (context.waker().clone(), over.clone());
            std::thread::spawn(move || {
                let until = Instant::now() + time;
                while let Some(left) = until.checked_duration_since(Instant::now()) {
                    std::thread::park_timeout(left);
                }
                over.store(true, Ordering::Release);
                waker.wake();
            });
        }
        Poll::Pending
    })
    .await;
}
