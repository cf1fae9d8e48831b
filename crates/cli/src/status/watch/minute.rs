//! Counters of the last minute, second by second, and their rate as a line of bars.

use std::time::Duration;

/// Number of seconds that are kept.
const SECONDS: usize = 60;

/// Minimum rate that a full bar stands for, in bytes per second. Otherwise keep-alives would look like a transfer.
const LEAST: f64 = 1000.0;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The counts between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TrafficDelta {
    /// Bytes sent to the tunnel.
    pub(super) sent: f64,
    /// Bytes received from the tunnel.
    pub(super) received: f64,
    /// Packets sent in this time.
    pub(super) packets: f64,
    pub(super) lost: f64,
}

impl std::ops::AddAssign for TrafficDelta {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.packets += other.packets;
        self.lost += other.lost;
    }
}

/// The direction of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrafficDirection {
    Sent,
    Received,
    Both,
}

/// The counters of the latest 60 seconds. Moments are durations since a fixed one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Minute {
    /// The counters of second `n` are at index `n % SECONDS`.
    seconds: [Second; SECONDS],
    newest: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Second {
    /// The share of this second that amounts cover.
    known: f32,
    sent: f32,
    received: f32,
    packets: f32,
    lost: f32,
}

impl Second {
    fn bytes(&self, direction: TrafficDirection) -> f64 {
        f64::from(match direction {
            TrafficDirection::Sent => self.sent,
            TrafficDirection::Received => self.received,
            TrafficDirection::Both => self.sent + self.received,
        })
    }
}

impl Default for Minute {
    fn default() -> Self {
        Self {
            seconds: [Second::default(); SECONDS],
            newest: 0,
        }
    }
}

impl Minute {
    /// Adds `amount`, spread evenly from one moment to another.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "bars have eight heights, and shares are shown with three digits"
    )]
    pub(super) fn add(&mut self, amount: TrafficDelta, from: Duration, to: Duration) {
        let whole = to.saturating_sub(from).as_secs_f64();
        let Some(last) = to.checked_sub(Duration::from_nanos(1)) else {
            return;
        };
        if whole <= 0.0 {
            return;
        }
        let oldest = self.advance(last.as_secs());
        for second in from.as_secs().max(oldest)..=last.as_secs() {
            let begin = from.as_secs_f64().max(second as f64);
            let end = to.as_secs_f64().min((second + 1) as f64);
            let known = (end - begin).max(0.0);
            let share = known / whole;
            let of = &mut self.seconds[at(second)];
            of.known += known as f32;
            of.sent += (amount.sent * share) as f32;
            of.received += (amount.received * share) as f32;
            of.packets += (amount.packets * share) as f32;
            of.lost += (amount.lost * share) as f32;
        }
    }

    /// Makes `second` the newest one if it is later, and clears the seconds after the previous newest. Returns the
    /// oldest second kept.
    fn advance(&mut self, second: u64) -> u64 {
        let kept = SECONDS as u64 - 1;
        let oldest = second.saturating_sub(kept);
        for new in (self.newest + 1).max(oldest)..=second {
            self.seconds[at(new)] = Second::default();
        }
        self.newest = self.newest.max(second);
        self.newest.saturating_sub(kept)
    }

    /// Returns the share of packets lost, or `None` if none were sent.
    pub(super) fn loss(&self) -> Option<f64> {
        let sum = |of: fn(&Second) -> f32| self.seconds.iter().map(of).map(f64::from).sum::<f64>();
        let packets = sum(|second| second.packets);
        (packets > 0.0).then(|| sum(|second| second.lost) / packets)
    }

    /// Returns the highest rate of a second, in bytes per second, or `None` if no second is known.
    pub(super) fn peak(&self, direction: TrafficDirection) -> Option<f64> {
        let seconds = self.seconds.iter();
        let rates = seconds.filter_map(|second| rate([second], direction));
        rates.max_by(f64::total_cmp)
    }

    /// Returns the minute before `end` in at most `columns` bars, scaled to the highest one. A blank stands for a time
    /// without data. All bars cover the same time, and the line moves by whole columns.
    pub(super) fn bars(
        &self,
        direction: TrafficDirection,
        end: Duration,
        columns: usize,
    ) -> String {
        if columns == 0 {
            return String::new();
        }
        let each = SECONDS.div_ceil(columns) as u64;
        let columns = (SECONDS as u64 / each).max(1);
        let end = end.saturating_sub(Duration::from_nanos(1)).as_secs();
        let last = end / each;
        let oldest = self.newest.saturating_sub(SECONDS as u64 - 1);
        let rates = (0..columns).map(|column| {
            let first = (last + 1 + column).checked_sub(columns)? * each;
            let of = first.max(oldest)..(first + each).min(self.newest + 1);
            rate(of.map(|second| &self.seconds[at(second)]), direction)
        });
        let rates: Vec<_> = rates.collect();
        let top = rates.iter().flatten().copied().fold(LEAST, f64::max);
        rates.into_iter().map(|rate| bar(rate, top)).collect()
    }
}

fn at(second: u64) -> usize {
    usize::try_from(second % SECONDS as u64).expect("invariant: below SECONDS")
}

fn rate<'a>(
    seconds: impl IntoIterator<Item = &'a Second>,
    direction: TrafficDirection,
) -> Option<f64> {
    let (mut known, mut bytes) = (0.0, 0.0);
    for second in seconds {
        known += f64::from(second.known);
        bytes += second.bytes(direction);
    }
    (known > 0.0).then(|| bytes / known)
}

/// Returns the bar of a rate. The lowest bar stands for a rate of zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the number is from 0 to 6"
)]
fn bar(rate: Option<f64>, top: f64) -> char {
    let Some(rate) = rate else {
        return ' ';
    };
    if rate <= 0.0 {
        return BARS[0];
    }
    // Sums of shares have rounding errors. The subtraction keeps such an error from raising the bar.
    let height = (rate / top * 7.0 - 1e-3).clamp(0.0, 6.0);
    BARS[1 + height as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn bytes(bytes: f64) -> TrafficDelta {
        TrafficDelta {
            sent: bytes / 4.0,
            received: bytes * 0.75,
            ..TrafficDelta::default()
        }
    }

    fn bars(minute: &Minute, end: f64, columns: usize) -> String {
        minute.bars(TrafficDirection::Both, secs(end), columns)
    }

    #[test]
    fn bars_show_known_rates_and_blanks_unknown_ones() {
        let mut minute = Minute::default();
        assert_eq!(bars(&minute, 100.0, 6), " ".repeat(6));
        assert_eq!(minute.peak(TrafficDirection::Both), None);
        for second in 0..8_u32 {
            let from = f64::from(second);
            minute.add(bytes(from * 1e6), secs(from), secs(from + 1.0));
        }
        let all = " ".repeat(52) + "▁▂▃▄▅▆▇█";
        assert_eq!(bars(&minute, 8.0, 60), all);
        assert_eq!(bars(&minute, 8.0, 100), all, "a bar for each second");
        // Two seconds each: 0.5, 2.5, 4.5 and 6.5 MB/s.
        assert_eq!(bars(&minute, 8.0, 30), " ".repeat(26) + "▂▄▆█");
        // Time passes without data.
        assert_eq!(bars(&minute, 10.0, 30), " ".repeat(25) + "▂▄▆█ ");
        for (direction, peak) in [
            (TrafficDirection::Sent, 1.75e6),
            (TrafficDirection::Received, 5.25e6),
            (TrafficDirection::Both, 7e6),
        ] {
            assert!(
                (minute.peak(direction).expect("known") - peak).abs() < 1.0,
                "{direction:?}"
            );
        }
        assert_eq!(bars(&minute, 200.0, 30), " ".repeat(30));
        assert_eq!(bars(&minute, 8.0, 0), "");
    }

    #[test]
    fn an_amount_is_spread_over_its_time_and_forgotten_after_a_minute() {
        let mut minute = Minute::default();
        minute.add(bytes(3e6), secs(0.5), secs(3.5));
        assert_eq!(bars(&minute, 3.5, 60), " ".repeat(56) + "████");
        // A partly known second has the same rate as a whole one.
        assert!((minute.peak(TrafficDirection::Both).expect("known") - 1e6).abs() < 1.0);
        minute.add(bytes(0.0), secs(3.5), secs(62.0));
        let fades = format!("█▅{}", "▁".repeat(58));
        assert_eq!(bars(&minute, 62.0, 60), fades);
        minute.add(bytes(0.0), secs(62.0), secs(1000.0));
        assert_eq!(bars(&minute, 1000.0, 60), "▁".repeat(60));
        // An amount for a past time, or for no time, changes nothing.
        minute.add(bytes(1e9), secs(1.0), secs(2.0));
        minute.add(bytes(1e9), secs(1000.0), secs(1000.0));
        minute.add(bytes(1e9), secs(0.0), secs(0.0));
        assert_eq!(bars(&minute, 1000.0, 60), "▁".repeat(60));
    }

    #[test]
    fn small_rates_get_low_bars_and_loss_covers_the_minute() {
        let mut minute = Minute::default();
        minute.add(bytes(100.0), secs(0.0), secs(1.0));
        assert_eq!(bars(&minute, 1.0, 60).chars().last(), Some('▂'));
        assert_eq!(minute.loss(), None);
        let amount = |packets, lost| TrafficDelta {
            packets,
            lost,
            ..TrafficDelta::default()
        };
        minute.add(amount(100.0, 10.0), secs(1.0), secs(2.0));
        minute.add(amount(300.0, 10.0), secs(2.0), secs(3.0));
        let loss = minute.loss().expect("packets");
        assert!((loss - 0.05).abs() < 1e-6, "{loss}");
        minute.add(amount(10.0, 0.0), secs(90.0), secs(91.0));
        assert_eq!(minute.loss(), Some(0.0));
    }
}
