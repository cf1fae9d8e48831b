//! Decides whether to poll for a while before sleeping.
//!
//! Waking a sleeping thread takes 5 to 10 microseconds, and more in a virtual machine. A request and its answer wake
//! each end of the tunnel twice, so if one byte goes back and forth, most of the time is spent on wake-ups. A worker
//! whose last waits were short therefore polls before it sleeps. The price is a core that stays busy while this goes
//! on. To limit it, the worker yields to other threads, does not poll while it moves bulk data or while no flow moves
//! any, and stops polling after two longer waits.
//!
//! Call [`Spin::note_bulk`] in every turn and [`Spin::note_wait`] after every wait, and [`Spin::budget`] before the
//! next wait.

use std::time::Duration;

/// Polling time before a sleep: about three times what the other end needs to answer.
const BUDGET: Duration = Duration::from_micros(60);

/// Polling would have caught a wait up to this long, if no thread had to be woken.
const SHORT: Duration = Duration::from_micros(90);

/// Number of short waits that start the polling. A long wait subtracts as many.
const START_COUNT: u32 = 4;

/// Cap on the count of short waits: more of them prove nothing.
const COUNT_MAX: u32 = 2 * START_COUNT;

/// Bytes in one turn that identify a bulk transfer.
const BULK: usize = 16 * 1024;

/// The state of the decision. See the module documentation.
#[derive(Debug, Default)]
pub struct Spin {
    /// Count of short waits, less what long ones have subtracted.
    short: u32,
}

impl Spin {
    /// Returns the time to poll before the next sleep.
    pub fn budget(&self) -> Duration {
        if self.short >= START_COUNT {
            BUDGET
        } else {
            Duration::ZERO
        }
    }

    /// Notes how long the last wait took, polling included.
    pub fn note_wait(&mut self, waited: Duration) {
        self.short = if waited <= SHORT {
            (self.short + 1).min(COUNT_MAX)
        } else {
            self.short.saturating_sub(START_COUNT)
        };
    }

    /// Notes how many bytes a turn of the loop moved.
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
        for _ in 0..START_COUNT {
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
    fn rare_requests_do_not_start_polling() {
        let mut spin = Spin::default();
        for _ in 0..100 {
            spin.note_wait(QUICK);
            spin.note_wait(100 * SHORT);
            assert_eq!(spin.budget(), Duration::ZERO);
        }
    }

    #[test]
    fn bulk_data_stops_polling() {
        let mut spin = quick();
        spin.note_bulk(BULK - 1);
        assert_eq!(spin.budget(), BUDGET);
        spin.note_bulk(BULK);
        assert_eq!(spin.budget(), Duration::ZERO);
    }
}
