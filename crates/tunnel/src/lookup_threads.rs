//! The threads on which the C library looks names up.
//!
//! In a confined process they may read more files than the other threads: `/etc`, where a new list of name servers or
//! hosts appears, and the directories that it may point to. In return they are not root
//! ([`confinement::enter_lookups`]). All code that needs these files while the process runs uses [`run`].
//!
//! The threads inherit their rights from the first one. [`start`] makes it before the process is confined. In a process
//! without it, [`run`] uses the threads of tokio.

use std::io;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use quictun_trust::confinement;
use tokio::sync::oneshot;

/// Length of the queue of the first thread. It only starts threads, so it takes an entry in microseconds.
const QUEUE: usize = 1024;

type Job = Box<dyn FnOnce() + Send>;

static FIRST: OnceLock<SyncSender<Job>> = OnceLock::new();

/// Starts the first thread, which gives up its other rights. Call it once, before the process is confined.
///
/// # Errors
///
/// Returns the system's error if there can be no more threads.
pub(crate) fn start() -> io::Result<()> {
    let (sender, jobs) = sync_channel::<Job>(QUEUE);
    let (ready, is_ready) = sync_channel::<()>(1);
    let first = thread::Builder::new().name("lookups".to_owned());
    first.spawn(move || {
        confinement::enter_lookups();
        drop(ready);
        start_each(&jobs);
    })?;
    // Fails as soon as the thread is confined, which drops the sender.
    is_ready.recv().ok();
    // A second call leaves its thread without work.
    FIRST.set(sender).ok();
    Ok(())
}

fn start_each(jobs: &Receiver<Job>) {
    for job in jobs {
        let lookup = thread::Builder::new().name("lookup".to_owned());
        // Without a thread the job is dropped, and its caller sees that.
        if lookup.spawn(job).is_err() {}
    }
}

/// Runs `work` on a thread that may block. Returns `None` if there can be no more threads. The caller bounds the number
/// of threads. Must be called within the tokio runtime.
///
/// # Cancel safety
///
/// If the future is dropped, the work continues, and its result is dropped.
pub(crate) async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let Some(first) = FIRST.get() else {
        return tokio::task::spawn_blocking(work).await.ok();
    };
    let (answer, answered) = oneshot::channel();
    let job = move || {
        // An error means that the answer is no longer wanted.
        if answer.send(work()).is_err() {}
    };
    first.try_send(Box::new(job)).ok()?;
    answered.await.ok()
}
