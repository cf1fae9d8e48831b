//! How a channel ends: by either side, by a peer's death, or by what no honest peer does.

use super::Channel;
use crate::atomic::Ended;
use crate::doorbell::Doorbell;
use crate::message::Message;
use crate::peer_watch::PeerWatch;
use crate::ring_pair::{BYE, Doorbells, Wants};
use crate::violation::{ChannelError, Violation};

/// Wake-ups in a row for which there is no reason. Honest peers cause one now and then, where we saw the message before the
/// wake-up for it came.
const EMPTY_WAKES: u32 = 1000;

impl Channel {
    pub(super) fn why_over(&self) -> ChannelError {
        let why = self.broken.map(ChannelError::from).or(self.leaving);
        why.unwrap_or(ChannelError::Closed)
    }

    /// Ends the channel for what the user of its messages has found out about the peer.
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
        self.ring_pair.ring(BYE);
    }

    #[inline]
    pub(super) fn is_dead(&self) -> bool {
        self.leaving.is_none() && self.peer_watch().is_some_and(PeerWatch::died)
    }

    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.ring_pair.doorbells.own().is_pending() || self.is_dead()
    }

    /// Looks at why the doorbell was rung, and then once more for a message: what the peer did last comes after its messages.
    #[cold]
    #[inline(never)]
    pub(super) fn pop_last(&mut self) -> Result<Option<Message>, ChannelError> {
        if let Some(violation) = self.broken {
            return Err(violation.into());
        }
        self.take_notice();
        if self.ring_pair.rx.is_there() {
            return Ok(Some(self.ring_pair.take()));
        }
        if let Err(violation) = self.ring_pair.rx.check() {
            return Err(self.reject(violation));
        }
        self.leaving.map_or(Ok(None), Err)
    }

    /// Takes why the doorbell was rung, and notes the peer's end.
    #[cold]
    #[inline(never)]
    pub(super) fn take_notice(&mut self) {
        let Some(why) = why_left(self.ring_pair.doorbells.own(), || self.is_dead()) else {
            return;
        };
        // The first reason is the true one: a peer that closes the channel ends, too, some time.
        self.leaving = self.leaving.or(Some(why));
        self.set_over();
    }

    /// Nothing more is to be heard of the peer, nor of its end.
    fn set_over(&mut self) {
        self.is_over = true;
        self.peer_watch()
            .into_iter()
            .for_each(PeerWatch::set_noticed);
    }

    #[cold]
    pub(super) fn is_work_at_the_end(&self, wants: Wants) -> bool {
        wants.messages || wants.room || self.has_news()
    }

    #[cold]
    #[inline(never)]
    pub(super) fn look_for_room(&mut self) -> Result<bool, ChannelError> {
        if self.is_over {
            return Err(self.why_over());
        }
        self.ring_pair
            .has_room()
            .map_err(|violation| self.reject(violation))
    }

    pub(super) fn note_wake(&mut self, ended: Ended) {
        if ended != Ended::Woken {
            return;
        }
        self.counters.wakes += 1;
        if self.has_work_for(self.wants) {
            self.empty_wakes = 0;
            return;
        }
        self.counters.empty_wakes += 1;
        // Our own threads wake us also where we have seen by ourselves what they had for us.
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

/// How the peer left, if it did. It rings before its socket is closed: so that who closes the channel is not taken for dead,
/// the socket is looked at first.
fn why_left(bell: &Doorbell, died: impl FnOnce() -> bool) -> Option<ChannelError> {
    let died = died();
    let closed = bell.take() & BYE != 0;
    if closed {
        return Some(ChannelError::Closed);
    }
    died.then_some(ChannelError::Died)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The peer closes the channel, and its socket, while we look.
    #[test]
    fn who_closes_the_channel_is_not_taken_for_dead() {
        let channel = Channel::create(0, 1).expect("a region");
        let bell = channel.ring_pair.doorbells.own();
        let closes = || {
            bell.ring(BYE);
            true
        };
        assert_eq!(why_left(bell, closes), Some(ChannelError::Closed));
        assert_eq!(why_left(bell, || false), None, "it has been taken");
        assert_eq!(why_left(bell, || true), Some(ChannelError::Died));
    }
}
