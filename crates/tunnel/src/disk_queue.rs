//! Calls that wait for a disk, or for the keeper: on threads that may block, and never on the control thread.
//!
//! Calls of one queue run one after the other, in the order in which they were made. So a disk that hangs holds one
//! thread of the runtime for each queue, however many calls wait. The queues are those of the keeper, which do not wait
//! for one another either.

use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};

/// Calls that wait for one another.
#[derive(Debug)]
pub(crate) struct DiskQueue(Semaphore);

/// Reading the configuration, and listeners for clients.
pub(crate) static RULES: DiskQueue = DiskQueue::new();

/// Reading the files of tokens.
pub(crate) static FILES: DiskQueue = DiskQueue::new();

/// Opening log files again.
pub(crate) static LOGS: DiskQueue = DiskQueue::new();

/// Storing clients that join, and the usage of clients.
pub(crate) static STORE: DiskQueue = DiskQueue::new();

impl DiskQueue {
    const fn new() -> Self {
        Self(Semaphore::const_new(1))
    }

    /// Runs `call` in its turn. The only error is a panic of `call`.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, a call that has begun runs to its end, and others wait for it.
    pub(crate) async fn run<T: Send + 'static>(
        &'static self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        // The semaphore is never closed.
        let turn = self.0.acquire().await;
        spawn_blocking(move || {
            let _turn = turn;
            call()
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_delays_its_queue_only_also_if_its_caller_has_gone() {
        static QUEUE: DiskQueue = DiskQueue::new();
        static OTHER: DiskQueue = DiskQueue::new();
        let (goes_on, hangs) = channel::<()>();
        let mut first = Box::pin(QUEUE.run(move || hangs.recv().is_ok()));
        let mut second = Box::pin(QUEUE.run(|| 2));
        assert!(once(&mut first).await.is_none(), "the call hangs");
        drop(first);
        assert!(once(&mut second).await.is_none());
        assert_eq!(OTHER.run(|| 3).await.expect("no panic"), 3);
        assert!(once(&mut second).await.is_none());
        goes_on.send(()).expect("the first call still runs");
        assert_eq!(second.await.expect("no panic"), 2);
    }

    /// Polls a future once.
    async fn once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        tokio::select! {
            biased;
            done = future => Some(done),
            () = std::future::ready(()) => None,
        }
    }
}
