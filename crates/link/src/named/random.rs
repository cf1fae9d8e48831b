//! Random numbers for named links. All operations use integers or are exactly rounded, so every machine draws the same.

use crate::draw::{Draws, Purpose};
use crate::trace::{OPPORTUNITY_BYTES, Trace};

/// A sequence of random numbers.
#[derive(Debug)]
pub(super) struct RandomStream {
    draws: Draws,
    purpose: Purpose,
    drawn: u64,
}

impl RandomStream {
    pub(super) fn new(seed: u64, purpose: Purpose) -> Self {
        Self {
            draws: Draws::new(seed),
            purpose,
            drawn: 0,
        }
    }

    /// Draws a number from `low` to `high`, both included.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        self.drawn += 1;
        let span = high.saturating_sub(low).saturating_add(1);
        low + self.draws.below(self.drawn, self.purpose, span)
    }

    /// Picks one of `items`, which must not be empty.
    pub(super) fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        let last = (items.len() as u64).saturating_sub(1);
        let at = usize::try_from(self.between(0, last)).unwrap_or(0);
        items[at]
    }

    /// Draws a number that is nearly normal with mean 0 and standard deviation 1: a sum of twelve uniform numbers, less
    /// its mean.
    fn normal(&mut self) -> f64 {
        const BITS: u32 = 32;
        let sum: u64 = (0..12).map(|_| self.between(0, (1 << BITS) - 1)).sum();
        exact(sum) / exact(1 << BITS) - 6.0
    }
}

/// A rate that varies around its median and returns to it: its logarithm is an autoregressive walk.
#[derive(Debug)]
pub(super) struct RateWalk {
    median: u64,
    /// Standard deviation of the rate's logarithm.
    spread: f64,
    /// Share of the distance from the median that one step keeps.
    keeps: f64,
    distance: f64,
}

impl RateWalk {
    pub(super) fn new(median: u64, spread: f64, keeps: f64, stream: &mut RandomStream) -> Self {
        Self {
            median,
            spread,
            keeps,
            distance: stream.normal(),
        }
    }

    /// Returns the rate of the next step.
    pub(super) fn step(&mut self, stream: &mut RandomStream) -> u64 {
        let innovation = (1.0 - self.keeps * self.keeps).sqrt();
        self.distance = self.keeps * self.distance + innovation * stream.normal();
        whole(exact(self.median) * exp(self.spread * self.distance))
    }
}

/// Builds a trace from grants.
#[derive(Debug, Default)]
pub(super) struct Grants {
    at_ms: Vec<u32>,
    /// Bytes that are due, times a thousand.
    due: u64,
}

impl Grants {
    /// Adds the bytes of one millisecond at `rate`, in bytes per second.
    pub(super) fn earn(&mut self, rate: u64) {
        self.due += rate;
    }

    /// Schedules all bytes that are due to be sent at `at_ms`.
    pub(super) fn grant(&mut self, at_ms: u32) {
        const DUE: u64 = OPPORTUNITY_BYTES * 1000;
        let count = usize::try_from(self.due / DUE).unwrap_or(0);
        self.at_ms.extend(std::iter::repeat_n(at_ms, count));
        self.due %= DUE;
    }

    /// Returns the trace, which repeats after `period_ms`.
    pub(super) fn trace(mut self, period_ms: u32) -> Trace {
        if self.at_ms.last() != Some(&period_ms) {
            self.at_ms.push(period_ms);
        }
        Trace::repeating(self.at_ms)
    }
}

/// Computes the exponential function to one part in a thousand, for numbers near 0. The library's function differs
/// between machines.
fn exp(number: f64) -> f64 {
    const SQUARINGS: u32 = 12;
    let root = 1.0 + number / exact(1 << SQUARINGS);
    (0..SQUARINGS).fold(root, |power, _| power * power)
}

#[expect(clippy::cast_precision_loss, reason = "below 53 bits")]
fn exact(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate: positive, and far below 64 bits"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_that_of_the_library_to_one_part_in_a_thousand() {
        for number in -20..=20 {
            let number = f64::from(number) / 10.0;
            let error = exp(number) / number.exp() - 1.0;
            assert!(error.abs() < 1e-3, "exp({number}): {error}");
        }
    }

    #[test]
    fn normal_numbers_have_their_mean_and_deviation() {
        let mut stream = RandomStream::new(1, Purpose::NamedUp);
        let numbers: Vec<f64> = (0..20_000).map(|_| stream.normal()).collect();
        let mean = numbers.iter().sum::<f64>() / 20_000.0;
        let square = numbers.iter().map(|number| number * number).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03, "{mean}");
        assert!((0.95..1.05).contains(&square), "{square}");
    }

    #[test]
    fn a_range_has_both_its_ends() {
        let mut stream = RandomStream::new(1, Purpose::NamedUp);
        let mut seen = [0; 3];
        for _ in 0..300 {
            seen[usize::try_from(stream.between(5, 7) - 5).expect("5, 6 or 7")] += 1;
        }
        assert!(seen.iter().all(|&count| count > 50), "{seen:?}");
    }
}
