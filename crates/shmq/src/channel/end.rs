//! The end of a channel: closed by either side, by the death of the peer, or by a violation.

use super::Channel;
use crate::atomic::WaitResult;
use crate::doorbell::Doorbell;
use crate::message::Message;
use crate::peer_watch::PeerWatch;
use crate::ring_pair::{Doorbells, END, Interest};
use crate::violation::{ChannelError, Violation};

/// Limit of consecutive wake-ups without a reason. An honest peer causes one when the local side saw the message
/// before its wake-up arrived.
const EMPTY_WAKES: u32 = 1000;

impl Channel {
    pub(super) fn end_reason(&self) -> ChannelError {
        let why = self.broken.map(ChannelError::from).or(self.leaving);
        why.unwrap_or(ChannelError::Closed)
    }

    /// Ends the channel because the caller found a violation in the peer's messages. Returns the error to report.
    #[cold]
    #[inline(never)]
    pub fn reject(&mut self, violation: Violation) -> ChannelError {
        self.set_over();
        if self.broken.is_none() {
            self.broken = Some(violation);
            self.leave();
        }
        violation.into()
    }

    fn leave(&mut self) {
        self.ring_pair.tx.publish();
        self.ring_pair.doorbells.own().close();
        self.ring_pair.ring(END);
    }

    #[inline]
    pub(super) fn is_dead(&self) -> bool {
        self.leaving.is_none() && self.peer_watch().is_some_and(PeerWatch::died)
    }

    #[inline]
    pub(super) fn has_notice(&self) -> bool {
        self.ring_pair.doorbells.own().is_pending() || self.is_dead()
    }

    /// Reads why the doorbell was rung, and then checks once more for a message. The peer's last ring comes after its
    /// messages.
    #[cold]
    #[inline(never)]
    pub(super) fn pop_last(&mut self) -> Result<Option<Message>, ChannelError> {
        if let Some(violation) = self.broken {
            return Err(violation.into());
        }
        self.take_notice();
        if self.ring_pair.rx.has_message() {
            return Ok(Some(self.ring_pair.take()));
        }
        if let Err(violation) = self.ring_pair.rx.check() {
            return Err(self.reject(violation));
        }
        self.leaving.map_or(Ok(None), Err)
    }

    /// Reads why the doorbell was rung, and records the end of the peer.
    #[cold]
    #[inline(never)]
    pub(super) fn take_notice(&mut self) {
        let Some(why) = departure_reason(self.ring_pair.doorbells.own(), || self.is_dead()) else {
            return;
        };
        // The first reason is the true one: a peer that closes the channel also exits some time later.
        self.leaving = self.leaving.or(Some(why));
        self.set_over();
    }

    /// Marks the channel as over: the peer's messages and its death no longer matter.
    fn set_over(&mut self) {
        self.is_over = true;
        self.peer_watch()
            .into_iter()
            .for_each(PeerWatch::set_noticed);
    }

    #[cold]
    pub(super) fn is_work_at_the_end(&self, interest: Interest) -> bool {
        interest.messages || interest.room || self.has_notice()
    }

    #[cold]
    #[inline(never)]
    pub(super) fn check_for_room(&mut self) -> Result<bool, ChannelError> {
        if self.is_over {
            return Err(self.end_reason());
        }
        self.ring_pair
            .has_room()
            .map_err(|violation| self.reject(violation))
    }

    pub(super) fn note_wake(&mut self, ended: WaitResult) {
        if ended != WaitResult::Woken {
            return;
        }
        self.counters.wakes += 1;
        if self.has_work_for(self.interest) {
            self.empty_wakes = 0;
            return;
        }
        self.counters.empty_wakes += 1;
        // Other threads of this process also cause such wake-ups, if this thread has already seen what they rang for.
        let alarms = self.alarm.rings();
        if std::mem::replace(&mut self.alarms, alarms) != alarms {
            return;
        }
        self.empty_wakes += 1;
        if self.empty_wakes > EMPTY_WAKES {
            self.reject(Violation::EmptyWakes(self.empty_wakes));
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Returns how the peer left, if it did. A peer rings before it closes its socket. The socket is therefore checked
/// first, so that a peer that closes the channel is not taken for dead.
fn departure_reason(bell: &Doorbell, died: impl FnOnce() -> bool) -> Option<ChannelError> {
    let died = died();
    let closed = bell.take() & END != 0;
    if closed {
        return Some(ChannelError::Closed);
    }
    died.then_some(ChannelError::Died)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The peer closes the channel, and then its socket, during the check.
    #[test]
    fn a_peer_that_closes_is_not_reported_dead() {
        let channel = Channel::create(0, 1).expect("open a region");
        let bell = channel.ring_pair.doorbells.own();
        let closes = || {
            bell.ring(END);
            true
        };
        assert_eq!(departure_reason(bell, closes), Some(ChannelError::Closed));
        assert_eq!(
            departure_reason(bell, || false),
            None,
            "the ring was read before"
        );
        assert_eq!(departure_reason(bell, || true), Some(ChannelError::Died));
    }
}
