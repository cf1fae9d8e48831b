//! A second copy of each datagram of a client's handshake, where its `ClientHello` spans two of them.
//!
//! A post-quantum key share makes the `ClientHello` longer than a datagram. The server can answer only when it has both,
//! so random loss hits the first flight twice as often, and the probe that repeats it comes a second later. Sent twice, a
//! few milliseconds apart, both arrive more often than one alone did before. A duplicate is what networks make
//! themselves, and a peer must put up with it (RFC 9000 section 12.3).
//!
//! Only clients do that. What a server sends to an address that has proven nothing is limited to three times what came
//! from there (RFC 9000 section 8.1), and copies would take part of that.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time from a datagram to its copy: what is lost together is lost within some milliseconds.
const AFTER: Duration = Duration::from_millis(4);

/// Batches of one connection that are sent twice: the first flight, its acknowledgements, and two probes. A handshake
/// that needs more meets an outage, where copies do not help.
const BATCHES_MAX: u32 = 8;

/// Copies that one connection still has to send. A value of type `D` says how a batch is sent.
#[derive(Debug)]
pub struct HandshakeCopies<D> {
    /// Whether the first flight had more than one datagram; `None` before it.
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
    /// A batch of the handshake leaves, in which there are so many datagrams.
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

    /// When [`HandshakeCopies::poll`] wants to be called.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.waiting.front().map(|copy| copy.due)
    }

    /// The batch to be sent again now, put into `buffer`.
    pub fn poll(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<D> {
        let copy = self.waiting.pop_front_if(|copy| copy.due <= now)?;
        *buffer = copy.bytes;
        Some(copy.how)
    }

    /// The handshake is over, or given up: nothing is sent twice from now on.
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
        assert_eq!(copies.poll(now, &mut buffer), None, "not at once");
        let later = copies.next_timeout().expect("there are some");
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
