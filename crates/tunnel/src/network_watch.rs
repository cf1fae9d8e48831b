//! Notices that the routes or addresses of this machine have changed, or that it has slept, and notifies the workers. A
//! client's workers probe the server at once, since their timers would take seconds. Both sides forget which addresses of
//! targets did not answer.
//!
//! [`NetworkWatch::open`] must run before the process is confined, and [`NetworkWatch::run`] within the runtime.

use std::future::pending;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use quictun_engine::report::Side;
use quictun_sys::{ClockReading, RouteWatch, SleepWatch};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tracing::{debug, info, warn};

use crate::mailbox::{Mailbox, Message, PendingChange};

/// Pause after the workers were notified. A network comes up in many small changes, and the last one is reported too.
/// With probes more often than every 200 ms, a far server would get a second probe before its answer to the first one
/// has arrived.
const PAUSE: Duration = Duration::from_millis(200);

/// The kernel's notifications about the network and about sleep.
#[derive(Debug)]
pub(crate) struct NetworkWatch {
    side: Side,
    /// The notifications about routes and addresses, or `None` if this system has none.
    routes: Option<RouteWatch>,
    sleep: SleepWatch,
}

impl NetworkWatch {
    /// Starts to listen for changes in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// Returns an error if the system has no timers.
    pub(crate) fn open(side: Side) -> io::Result<Self> {
        let routes = RouteWatch::open();
        if let (Err(cause), Side::Client) = (&routes, side) {
            warn!(target: "quictun", %cause, "this system does not report changes of the network: a new path to the server is found later");
        }
        Ok(Self {
            side,
            routes: routes.ok(),
            sleep: SleepWatch::open(ClockReading::now())?,
        })
    }

    /// Notifies the workers of each change, at most once in [`PAUSE`], and of the last change in any case. Returns only
    /// if the system stops reporting changes.
    pub(crate) async fn run(self, mailboxes: Vec<Mailbox>) {
        let side = self.side;
        let ended = self.notify_changes(ChangeNotifier::new(mailboxes)).await;
        if let (Err(cause), Side::Client) = (ended, side) {
            warn!(target: "quictun", %cause, "this system no longer reports changes of the network: a new path to the server is found later");
        }
    }

    #[expect(
        deprecated,
        reason = "the newer one is unsafe, for types that are not as honest about their descriptor as these"
    )]
    async fn notify_changes(self, mut notifier: ChangeNotifier) -> io::Result<()> {
        let readable = |routes| AsyncFd::with_interest(routes, Interest::READABLE);
        let mut routes = self.routes.map(readable).transpose()?;
        let mut sleep = AsyncFd::with_interest(self.sleep, Interest::READABLE)?;
        loop {
            let slept = tokio::select! {
                changed = change(routes.as_mut()) => {
                    changed?;
                    sleep.get_mut().take_sleep(ClockReading::now())
                }
                slept = nap(&mut sleep) => Some(slept?),
            };
            match (self.side, slept) {
                (Side::Client, Some(slept)) => {
                    let slept_s = slept.as_secs();
                    info!(target: "quictun", slept_s, "this machine has slept: asking the server at once");
                }
                (Side::Client, None) => {
                    debug!(target: "quictun", "the network has changed: asking the server at once");
                }
                (Side::Server, _) => debug!(target: "quictun", "the network has changed"),
            }
            notifier.notify(Message::NetworkChanged);
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Waits for a change of the network. Cancel safe: no change is lost.
async fn change(routes: Option<&mut AsyncFd<RouteWatch>>) -> io::Result<()> {
    let Some(routes) = routes else {
        return pending().await;
    };
    loop {
        let mut ready = routes.readable_mut().await?;
        if ready.get_inner_mut().drain()? {
            // The socket may hold more notifications, so it stays marked as readable.
            return Ok(());
        }
        ready.clear_ready();
    }
}

/// Waits until this machine has slept. Cancel safe: no sleep is lost.
async fn nap(sleep: &mut AsyncFd<SleepWatch>) -> io::Result<Duration> {
    loop {
        let mut ready = sleep.readable_mut().await?;
        let slept = ready.get_inner_mut().take_sleep(ClockReading::now());
        ready.clear_ready();
        if let Some(slept) = slept {
            return Ok(slept);
        }
    }
}

/// All workers, each with the change that it has not taken yet.
pub(crate) struct ChangeNotifier(Vec<(Mailbox, Weak<()>)>);

impl ChangeNotifier {
    pub(crate) fn new(mailboxes: Vec<Mailbox>) -> Self {
        let workers = mailboxes.into_iter().map(|mailbox| (mailbox, Weak::new()));
        Self(workers.collect())
    }

    /// Leaves a message for each worker that does not have one of this kind. The worker looks at the network's state
    /// only when it takes the message, so one message stands for all changes until then.
    pub(crate) fn notify<M: Into<Message>>(&mut self, message: impl Fn(PendingChange) -> M) {
        for (mailbox, pending_change) in &mut self.0 {
            if pending_change.strong_count() == 0 {
                let pending = PendingChange::default();
                *pending_change = Arc::downgrade(&pending);
                mailbox.send(message(pending));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::{Inbox, InboxItem, mailbox};

    fn taken(inbox: &mut Inbox) -> Vec<InboxItem> {
        inbox.begin_turn();
        std::iter::from_fn(|| inbox.receive()).collect()
    }

    #[test]
    fn a_worker_has_at_most_one_pending_change() {
        let (mailbox, mut inbox) = mailbox(1 << 20).expect("a mailbox");
        let mut notifier = ChangeNotifier::new(vec![mailbox]);
        for _ in 0..10_000 {
            notifier.notify(Message::NetworkChanged);
        }
        assert_eq!(taken(&mut inbox).len(), 1);
        notifier.notify(Message::NetworkChanged);
        let mail = taken(&mut inbox);
        assert!(
            matches!(mail[..], [InboxItem::Message(Message::NetworkChanged(_))]),
            "{mail:?}"
        );
        // The message is taken, but not yet acted upon.
        notifier.notify(Message::NetworkChanged);
        assert_eq!(taken(&mut inbox).len(), 0);
        drop(mail);
        notifier.notify(Message::NetworkChanged);
        assert_eq!(taken(&mut inbox).len(), 1);
    }
}
