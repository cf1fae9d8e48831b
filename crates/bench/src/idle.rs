//! What it costs that nothing happens: both sides wait for each other, and neither should use the processor.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use quictun_ipc::{Client, Message, WaitPolicy, connect};

use super::peer::{Kind, PATIENCE, Peer, STATISTICS, cpu_ns};

/// What two processes used while there was nothing to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle {
    pub(crate) elapsed: Duration,
    pub(crate) client_cpu: Duration,
    pub(crate) server_cpu: Duration,
    /// Times that the client's executor slept: once, if nothing woke it.
    pub(crate) sleeps: u64,
}

/// Has both sides wait for that long.
pub(crate) fn measure(cores: [usize; 2], policy: WaitPolicy, time: Duration) -> Result<Idle> {
    let (peer, socket) = Peer::start(Kind::Asynchronous, cores[1], policy)?;
    let channel = connect(socket, 0, 1, PATIENCE).context("the server of the measurement")?;
    let (client, mut executor) = Client::new(channel, policy);
    let server_cpu = |executor: &mut quictun_ipc::Executor| {
        let (answer, place) = (std::rc::Rc::default(), client.clone());
        let into: std::rc::Rc<std::cell::Cell<Option<u64>>> = std::rc::Rc::clone(&answer);
        executor.spawner().spawn(1, async move {
            let answer = place.call(Message::new(STATISTICS)).await.ok();
            into.set(
                answer.and_then(|answer| answer.bytes().try_into().ok().map(u64::from_le_bytes)),
            );
        });
        executor.run();
        answer.get().context("the server stopped answering")
    };
    // Once for nothing: whatever is done only the first time is done then.
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
    Ok(Idle {
        elapsed,
        client_cpu: Duration::from_nanos(after - before),
        server_cpu: Duration::from_nanos(server_after - server_before),
        sleeps,
    })
}

/// Ends after that time, which another thread waits for.
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
