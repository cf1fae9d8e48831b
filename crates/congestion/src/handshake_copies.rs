//! Sends a second copy of each datagram of a client's handshake, if its `ClientHello` spans two datagrams.
//!
//! A post-quantum key share makes the `ClientHello` longer than one datagram. The server can answer only when it has
//! received both datagrams, so random loss hits the first flight twice as often, and the probe that repeats the
//! flight leaves only a second later. With two copies, a few milliseconds apart, both datagrams arrive more often
//! than a single datagram would without copies. Networks create duplicates themselves, so a peer must accept them
//! (RFC 9000 section 12.3).
//!
//! Only clients send copies. A server may send to an unvalidated address at most three times what it received from
//! there (RFC 9000 section 8.1), and copies would use up part of that limit.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Delay from a datagram to its copy. Packets lost in one burst are lost within a few milliseconds.
const AFTER: Duration = Duration::from_millis(4);

/// Maximum number of batches that one connection sends twice: the first flight, its acknowledgements, and two probes.
/// A handshake that needs more batches meets an outage, and copies do not help then.
const BATCHES_MAX: u32 = 8;

/// The copies that one connection still has to send. A value of type `D` describes how a batch is sent.
#[derive(Debug)]
pub struct HandshakeCopies<D> {
    /// True if the first flight had more than one datagram; `None` before the first flight.
    wanted: Option<bool>,
    kept: u32,
    waiting: VecDeque<Batch<D>>,
}

#[derive(Debug)]
struct Batch<D> {
    due: Instant,
    how: D,
    bytes: Vec<u8>,
}

impl<D> Default for HandshakeCopies<D> {
    fn default() -> Self {
        Self {
            wanted: None,
            kept: 0,
            waiting: VecDeque::new(),
        }
    }
}

impl<D> HandshakeCopies<D> {
    /// Records that a batch of the handshake was sent, which contains this number of `datagrams`.
    pub fn handle_sent(&mut self, now: Instant, how: D, datagrams: usize, bytes: &[u8]) {
        let wanted = *self.wanted.get_or_insert(datagrams > 1);
        if !wanted || self.kept == BATCHES_MAX {
            return;
        }
        self.kept += 1;
        self.waiting.push_back(Batch {
            due: now + AFTER,
            how,
            bytes: bytes.to_vec(),
        });
    }

    /// Returns the time at which [`HandshakeCopies::poll`] should be called.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.waiting.front().map(|copy| copy.due)
    }

    /// Writes the batch that is due for a second transmission into `buffer`, and returns how to send it.
    pub fn poll(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<D> {
        let copy = self.waiting.pop_front_if(|copy| copy.due <= now)?;
        *buffer = copy.bytes;
        Some(copy.how)
    }

    /// Drops all copies and disables further ones. Call this when the handshake has completed or failed.
    pub fn end(&mut self) {
        self.wanted = Some(false);
        self.waiting = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_flight_of_one_datagram_is_not_copied_nor_is_what_follows() {
        let now = Instant::now();
        let mut copies = HandshakeCopies::default();
        copies.handle_sent(now, 1200, 1, &[1; 1200]);
        copies.handle_sent(now, 2400, 2, &[2; 2400]);
        assert_eq!(copies.next_timeout(), None);
    }

    #[test]
    fn a_first_flight_of_two_datagrams_and_what_follows_are_sent_twice_up_to_the_limit() {
        let now = Instant::now();
        let mut copies = HandshakeCopies::default();
        copies.handle_sent(now, 2400, 2, &[0; 2400]);
        for number in 1..10 {
            copies.handle_sent(now, 1200, 1, &[number; 1200]);
        }
        let mut buffer = Vec::new();
        assert_eq!(copies.poll(now, &mut buffer), None, "too early");
        let later = copies.next_timeout().expect("copies are waiting");
        assert_eq!(copies.poll(later, &mut buffer), Some(2400));
        assert_eq!(buffer, [0; 2400]);
        for number in 1..8 {
            assert_eq!(copies.poll(later, &mut buffer), Some(1200));
            assert_eq!(buffer, [number; 1200]);
        }
        assert_eq!(copies.poll(later, &mut buffer), None);
    }

    #[test]
    fn nothing_is_copied_after_the_handshake() {
        let now = Instant::now();
        let mut copies = HandshakeCopies::default();
        copies.handle_sent(now, 2400, 2, &[0; 2400]);
        copies.end();
        assert_eq!(copies.poll(now + AFTER, &mut Vec::new()), None);
        copies.handle_sent(now, 2400, 2, &[0; 2400]);
        assert_eq!(copies.next_timeout(), None);
    }
}
