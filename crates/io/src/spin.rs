//! Whether to look again for a while before going to sleep.
//!
//! Waking a thread that sleeps takes 5 to 10 microseconds, more in a virtual machine, and a request with
//! its answer wakes each end of the tunnel twice: where one byte is passed back and forth, sleeping is
//! most of the time. A worker whose last waits were short therefore polls before it sleeps. The price is a
//! core that stays busy for as long as that goes on: it yields to other threads that want to run, a worker that
//! moves bulk data never polls, and one that has waited for longer twice stops.
//!
//! Tell it of every turn ([`Spin::note_bulk`]) and every wait ([`Spin::note_wait`]), and ask before the
//! next ([`Spin::budget`]).

use std::time::Duration;

/// Polling before a sleep: about three times what it takes the other end to answer.
const BUDGET: Duration = Duration::from_micros(60);

/// A wait up to this long would have been caught by polling, if no thread had to be woken.
const SHORT: Duration = Duration::from_micros(90);

/// Short waits that start the polling, with none too long among them; a long one takes back as many.
const ENOUGH: u32 = 4;

/// Beyond this, more short waits prove nothing.
const MOST: u32 = 2 * ENOUGH;

/// Bytes in one turn that make it a bulk transfer's.
const BULK: usize = 16 * 1024;

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Spin {
    /// Short waits, less what long ones have taken back.
    short: u32,
}

impl Spin {
    /// How long to poll before the next sleep.
    pub fn budget(&self) -> Duration {
        if self.short >= ENOUGH {
            BUDGET
        } else {
            Duration::ZERO
        }
    }

    /// The last wait, polling included, took this long.
    pub fn note_wait(&mut self, waited: Duration) {
        self.short = if waited <= SHORT {
            (self.short + 1).min(MOST)
        } else {
            self.short.saturating_sub(ENOUGH)
        };
    }

    /// A turn of the loop moved this many bytes.
    pub fn note_bulk(&mut self, bytes: usize) {
        if bytes >= BULK {
            self.short = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_micros(30);

    fn quick() -> Spin {
        let mut spin = Spin::default();
        for _ in 0..ENOUGH {
            assert_eq!(spin.budget(), Duration::ZERO);
            spin.note_wait(QUICK);
        }
        assert_eq!(spin.budget(), BUDGET);
        spin
    }

    #[test]
    fn polling_starts_with_short_waits_and_ends_with_two_long_ones() {
        let mut spin = quick();
        for _ in 0..100 {
            spin.note_wait(QUICK);
        }
        spin.note_wait(2 * SHORT);
        assert_eq!(spin.budget(), BUDGET);
        spin.note_wait(2 * SHORT);
        assert_eq!(spin.budget(), Duration::ZERO);
    }

    #[test]
    fn a_request_now_and_then_is_no_reason_to_poll() {
        let mut spin = Spin::default();
        for _ in 0..100 {
            spin.note_wait(QUICK);
            spin.note_wait(100 * SHORT);
            assert_eq!(spin.budget(), Duration::ZERO);
        }
    }

    #[test]
    fn bulk_data_is_no_reason_to_poll() {
        let mut spin = quick();
        spin.note_bulk(BULK - 1);
        assert_eq!(spin.budget(), BUDGET);
        spin.note_bulk(BULK);
        assert_eq!(spin.budget(), Duration::ZERO);
    }
}
