//! A histogram of durations with fixed bounds.

use std::time::Duration;

/// Limit for the bounds of a histogram. Each bound is one more line of every scrape.
const BOUNDS_MAX: usize = 18;

/// Counts durations in classes of length. The bounds are fixed, so that the histograms of workers can be added.
#[derive(Clone, Copy, Debug)]
pub struct Histogram {
    bounds: &'static [Duration],
    /// The durations up to the bound with the same index and above the previous bound. The last count is that of
    /// durations above all bounds.
    counts: [u64; BOUNDS_MAX + 1],
    sum: Duration,
}

impl Histogram {
    /// Creates an empty histogram. `bounds` must ascend.
    ///
    /// # Panics
    ///
    /// Panics if there are more than 18 bounds.
    pub const fn new(bounds: &'static [Duration]) -> Self {
        assert!(bounds.len() <= BOUNDS_MAX, "too many bounds");
        Self {
            bounds,
            counts: [0; BOUNDS_MAX + 1],
            sum: Duration::ZERO,
        }
    }

    /// Counts one duration in its class.
    pub fn note(&mut self, duration: Duration) {
        let place = self.bounds.partition_point(|&bound| bound < duration);
        self.counts[place] += 1;
        self.sum = self.sum.saturating_add(duration);
    }

    /// Adds the counts of another histogram with the same bounds.
    pub fn add(&mut self, other: &Self) {
        debug_assert_eq!(self.bounds, other.bounds);
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// Returns each bound with the number of durations up to it.
    pub fn up_to(&self) -> impl Iterator<Item = (Duration, u64)> {
        let mut below = 0;
        self.bounds
            .iter()
            .zip(self.counts)
            .map(move |(&bound, count)| {
                below += count;
                (bound, below)
            })
    }

    /// Returns the lowest bound that at least this share of all durations does not exceed. `None` if there are no
    /// durations, or no bound is high enough.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a count"
    )]
    pub fn within(&self, share: f64) -> Option<Duration> {
        let wanted = (self.count() as f64 * share).ceil() as u64;
        let mut bounds = self.up_to().filter(|_| wanted > 0);
        bounds
            .find(|(_, count)| *count >= wanted)
            .map(|(bound, _)| bound)
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all durations.
    pub fn sum(&self) -> Duration {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    static BOUNDS: [Duration; 2] = [MS, Duration::from_millis(5)];

    fn of(durations: &[Duration]) -> Histogram {
        let mut histogram = Histogram::new(&BOUNDS);
        for &duration in durations {
            histogram.note(duration);
        }
        histogram
    }

    fn counts(histogram: &Histogram) -> (Vec<u64>, u64, Duration) {
        let up_to = histogram.up_to().map(|(_, count)| count);
        (up_to.collect(), histogram.count(), histogram.sum())
    }

    #[test]
    fn a_duration_at_a_bound_counts_below_it() {
        let nanosecond = Duration::from_nanos(1);
        assert_eq!(counts(&of(&[])), (vec![0, 0], 0, Duration::ZERO));
        assert_eq!(counts(&of(&[MS])), (vec![1, 1], 1, MS));
        let above = MS + nanosecond;
        assert_eq!(counts(&of(&[above])), (vec![0, 1], 1, above));
        let longest = BOUNDS[1] + nanosecond;
        assert_eq!(counts(&of(&[longest])), (vec![0, 0], 1, longest));
    }

    #[test]
    fn a_quantile_is_a_bound() {
        let all = of(&[MS, MS, 2 * MS, 10 * MS]);
        let within = [0.5, 0.51, 0.75, 0.76].map(|share| all.within(share));
        assert_eq!(within, [Some(MS), Some(5 * MS), Some(5 * MS), None]);
        assert_eq!(of(&[]).within(0.5), None);
    }

    #[test]
    fn workers_are_added() {
        let mut all = of(&[MS, 10 * MS]);
        all.add(&of(&[Duration::ZERO, 2 * MS, 10 * MS]));
        assert_eq!(counts(&all), (vec![2, 3], 5, 23 * MS));
    }

    #[test]
    fn a_sum_of_durations_saturates() {
        let mut all = of(&[Duration::MAX, MS]);
        all.add(&of(&[Duration::MAX]));
        assert_eq!(counts(&all), (vec![1, 1], 3, Duration::MAX));
    }
}
