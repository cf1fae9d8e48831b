//! Whether the peer still answers.
//!
//! The idle timeout decides when a connection is dead; long before that, silence decides that new flows
//! should go elsewhere. While the peer is silent it is asked again every second, because the library's
//! probe timer backs off exponentially: after 30 s of outage its next probe may be 20 s away.

use std::time::{Duration, Instant};

/// Silence after a sign of life was asked for, before the peer counts as unresponsive.
const PATIENCE: Duration = Duration::from_millis(2500);

const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Liveness of one connection.
#[derive(Debug)]
pub struct Liveness {
    keep_alive: Duration,
    heard: Instant,
    asked: Option<Instant>,
    unresponsive: bool,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Fine,
    /// Send a PING.
    Ask,
    /// Send a PING; the peer has just become unresponsive.
    Lost,
}

impl Liveness {
    /// A peer that was heard just now, to be asked after `keep_alive` of silence.
    pub fn new(now: Instant, keep_alive: Duration) -> Self {
        Self {
            keep_alive,
            heard: now,
            asked: None,
            unresponsive: false,
        }
    }

    /// A datagram of the connection arrived; returns whether the peer was unresponsive before.
    pub fn handle_heard(&mut self, now: Instant) -> bool {
        self.heard = now;
        self.asked = None;
        std::mem::take(&mut self.unresponsive)
    }

    /// The caller does not ask the peer: the verdict is taken back.
    pub fn excuse(&mut self) {
        self.unresponsive = false;
    }

    /// Whether the peer has stopped answering.
    pub fn unresponsive(&self) -> bool {
        self.unresponsive
    }

    /// When [`Liveness::handle_timeout`] wants to be called.
    pub fn next_timeout(&self) -> Instant {
        match self.asked {
            None => self.heard + self.keep_alive,
            Some(asked) if asked < self.patience_ends() => {
                (asked + ASK_AGAIN).min(self.patience_ends())
            }
            Some(asked) => asked + ASK_AGAIN,
        }
    }

    fn patience_ends(&self) -> Instant {
        self.heard + self.keep_alive + PATIENCE
    }

    /// Tells the time.
    pub fn handle_timeout(&mut self, now: Instant) -> Verdict {
        if now < self.next_timeout() {
            return Verdict::Fine;
        }
        self.asked = Some(now);
        if !self.unresponsive && now >= self.patience_ends() {
            self.unresponsive = true;
            return Verdict::Lost;
        }
        Verdict::Ask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_asked_for_a_while_before_it_is_given_up() {
        let start = Instant::now();
        let mut liveness = Liveness::new(start, Duration::from_secs(1));
        let mut verdicts = Vec::new();
        while verdicts
            .last()
            .is_none_or(|(_, verdict)| *verdict == Verdict::Ask)
        {
            let at = liveness.next_timeout();
            verdicts.push((at - start, liveness.handle_timeout(at)));
        }
        let ms = Duration::from_millis;
        let asked = [
            (ms(1000), Verdict::Ask),
            (ms(2000), Verdict::Ask),
            (ms(3000), Verdict::Ask),
        ];
        assert_eq!(verdicts[..3], asked);
        assert_eq!(verdicts[3..], [(ms(3500), Verdict::Lost)]);
        assert!(liveness.unresponsive());
        assert!(liveness.handle_heard(start + ms(3600)), "it was");
        assert!(!liveness.unresponsive());
    }
}
