//! The audit of a run: whether an emulator did what was asked of it.

use std::fmt;
use std::time::Duration;

use quictun_link::{Counters, LinkConfig, LogHistogram, LossAt, Setting};
use quictun_sys::SchedulingClass;

use crate::counts::TrafficCounts;
use crate::interval::{Z_99, Z_9999, to_f64, wilson};
use crate::relay::RelayResult;

/// An emulator's report on its own run.
#[derive(Clone, Debug)]
pub struct Audit {
    /// The direction from the near end to the far end.
    pub up: DirectionAudit,
    /// The direction from the far end to the near end.
    pub down: DirectionAudit,
}

/// An emulator's report on one direction.
#[derive(Clone, Debug)]
pub struct DirectionAudit {
    /// Counts of the traffic that passed.
    pub counts: TrafficCounts,
    /// Counts of the link's decisions.
    pub link: Counters,
    /// Configured share of packets to lose at random. `None` if losses depend on each other or change over time.
    pub loss_asked: Option<f64>,
    /// Share of packets lost: the packets that came in and did not come out, divided by the packets that reached the
    /// place of loss. Drops by queue, `CoDel`, policer, outage and MTU do not count as lost.
    pub loss: f64,
    /// Interval that contains the true share with 99 % confidence, if losses are independent.
    pub loss_interval: [f64; 2],
    /// Distribution of the times that transmitted packets waited in the queue.
    pub waits: LogHistogram,
    /// Distribution of the time by which frames left later than due.
    pub lateness: LogHistogram,
    /// Processor time of the direction's thread, including the kernel's work on its behalf for receivers.
    pub busy: Duration,
    /// Duration of the run.
    pub elapsed: Duration,
    /// Scheduling of the direction's thread, which decides how soon it runs when it has work.
    pub promptness: SchedulingClass,
    transmitted: u64,
    lost: u64,
}

/// The verdict on the validity of a run's results.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The results are valid.
    Ok,
    /// The emulator, and not the link, shaped the results.
    EmulatorLimited(Vec<Limit>),
}

/// A requirement that the emulator did not meet. The `bool` is true for the direction up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Packets were dropped that the link did not drop: the kind of drop, and the count.
    Dropped(bool, &'static str, u64),
    /// One frame in a hundred left later than [`LATE`]; the value is the 99th percentile of lateness.
    Late(bool, Duration),
    /// The loss differs from the configured one by more than chance explains in one of ten thousand runs: configured
    /// and measured share.
    Loss(bool, f64, f64),
    /// A direction's thread used a processor for more than [`BUSY`] of the time; the value is that share.
    Busy(bool, f64),
}

/// Lateness that one frame in a hundred may exceed: a fifth of the shortest delay worth emulating, and ten times what a
/// machine that is not busy needs to wake a thread.
pub const LATE: Duration = Duration::from_micros(500);

/// Share of a processor above which a thread is considered the bottleneck.
pub const BUSY: f64 = 0.95;

/// Duration below which a run says nothing about the load of a thread: most of it is start-up.
const BUSY_AFTER: Duration = Duration::from_millis(100);

/// Number of frames below which the percentile of lateness is not judged: one or two late frames would decide it.
const FRAMES_MIN: u64 = 200;

impl Audit {
    /// Returns whether the results of the run are valid.
    pub fn verdict(&self) -> Verdict {
        let mut limits = self.up.limits(true);
        limits.extend(self.down.limits(false));
        if limits.is_empty() {
            Verdict::Ok
        } else {
            Verdict::EmulatorLimited(limits)
        }
    }
}

impl DirectionAudit {
    pub(crate) fn new(config: &LinkConfig, ran: RelayResult) -> Self {
        let RelayResult { counts, link, .. } = ran;
        // Computed from the packets that came in and went out, not from the link's own claims.
        let by_link = link.sent - link.delivered - link.lost();
        let originals_out = counts.segments_out - counts.copies_out;
        let copies_due = link.duplicated - counts.copies_out;
        let waiting = counts.under_way.saturating_sub(copies_due);
        let passed = counts.segments_in.saturating_sub(by_link + waiting);
        let lost = passed.saturating_sub(originals_out);
        // Loss before the queue also applies to packets that the queue would have dropped.
        let transmitted = match config.loss_at {
            LossAt::Exit => passed,
            LossAt::Entry => counts.segments_in.saturating_sub(waiting),
        };
        Self {
            loss_asked: asked(config),
            loss: to_f64(lost) / to_f64(transmitted.max(1)),
            loss_interval: wilson(lost, transmitted, Z_99),
            counts,
            link,
            waits: ran.waits,
            lateness: ran.lateness,
            busy: ran.busy,
            elapsed: ran.elapsed,
            promptness: ran.promptness,
            transmitted,
            lost,
        }
    }

    /// Returns the share of the run during which the direction's thread used a processor.
    pub fn busy_share(&self) -> f64 {
        self.busy.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9)
    }

    fn limits(&self, up: bool) -> Vec<Limit> {
        let dropped = self.counts.unintended.named();
        let dropped = dropped.into_iter().filter(|(_, count)| *count > 0);
        let mut limits: Vec<Limit> = dropped
            .map(|(what, count)| Limit::Dropped(up, what, count))
            .collect();
        let p99 = self.lateness.quantile(0.99);
        if p99 > LATE && self.lateness.count() >= FRAMES_MIN {
            limits.push(Limit::Late(up, p99));
        }
        let [low, high] = wilson(self.lost, self.transmitted, Z_9999);
        if let Some(asked) = self
            .loss_asked
            .filter(|asked| !(low..=high).contains(asked))
        {
            limits.push(Limit::Loss(up, asked, self.loss));
        }
        if self.busy_share() > BUSY && self.elapsed >= BUSY_AFTER {
            limits.push(Limit::Busy(up, self.busy_share()));
        }
        limits
    }
}

/// Returns the configured share of losses if packets are lost independently of each other and of time. Otherwise the
/// interval around the measured share is meaningless.
fn asked(config: &LinkConfig) -> Option<f64> {
    let changes = config
        .changes
        .iter()
        .any(|change| matches!(change.to, Setting::Loss(_)));
    (config.bursts.is_none() && !changes).then_some(config.loss)
}

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "up    {}", self.up)?;
        writeln!(f, "down  {}", self.down)?;
        write!(f, "verdict: {}", self.verdict())
    }
}

impl fmt::Display for DirectionAudit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TrafficCounts {
            frames_in,
            segments_in,
            bytes_in,
            frames_out,
            segments_out,
            bytes_out,
            ..
        } = self.counts;
        let per_frame = to_f64(segments_in) / to_f64(frames_in.max(1));
        writeln!(
            f,
            "in  {segments_in} packets ({per_frame:.1} a frame), {bytes_in} bytes"
        )?;
        let per_frame = to_f64(segments_out) / to_f64(frames_out.max(1));
        writeln!(
            f,
            "      out {segments_out} packets ({per_frame:.1} a frame), {bytes_out} bytes"
        )?;
        let [low, high] = self.loss_interval.map(|share| share * 100.0);
        write!(
            f,
            "      loss {:.3} %, true within {low:.3}..{high:.3} %",
            self.loss * 100.0
        )?;
        if let Some(asked) = self.loss_asked {
            write!(f, ", asked {:.3} %", asked * 100.0)?;
        }
        write_drops(f, &self.link)?;
        writeln!(f)?;
        let waited = |q| millis(self.waits.quantile(q));
        writeln!(
            f,
            "      queued p50 {:.1} ms, p95 {:.1} ms, at most {:.1} ms",
            waited(0.5),
            waited(0.95),
            millis(self.waits.max()),
        )?;
        let late = |q| micros(self.lateness.quantile(q));
        let max = micros(self.lateness.max());
        writeln!(
            f,
            "      late by p50 {:.0} us, p99 {:.0} us, at most {max:.0} us",
            late(0.5),
            late(0.99),
        )?;
        write!(
            f,
            "      busy {:.2} s of {:.2} s ({:.0} %), {}",
            self.busy.as_secs_f64(),
            self.elapsed.as_secs_f64(),
            self.busy_share() * 100.0,
            match self.promptness {
                SchedulingClass::RealTime => "real-time",
                SchedulingClass::ShortSlice => "short time slices",
                SchedulingClass::Usual => "usual scheduling",
            }
        )
    }
}

/// Writes the counts of packets that the link dropped for reasons other than loss, and leaves out zeros.
pub(crate) fn write_drops(f: &mut fmt::Formatter<'_>, link: &Counters) -> fmt::Result {
    for (what, count) in [
        ("queue", link.queue_full),
        ("CoDel", link.codel),
        ("policer", link.policer),
        ("outage", link.outage),
        ("too long", link.too_long),
    ] {
        if count > 0 {
            write!(f, ", {what} {count}")?;
        }
    }
    Ok(())
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::EmulatorLimited(limits) = self else {
            return f.write_str("ok");
        };
        f.write_str("emulator-limited")?;
        for (index, limit) in limits.iter().enumerate() {
            f.write_str(if index == 0 { ": " } else { "; " })?;
            limit.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name_of = |up| if up { "up" } else { "down" };
        match *self {
            Self::Dropped(up, what, count) => write!(f, "{count} {what} ({})", name_of(up)),
            Self::Late(up, p99) => {
                write!(f, "p99 of lateness {:.0} us ({})", micros(p99), name_of(up))
            }
            Self::Loss(up, asked, found) => {
                let [asked, found] = [asked, found].map(|share| share * 100.0);
                write!(f, "loss {found:.3} %, asked {asked:.3} % ({})", name_of(up))
            }
            Self::Busy(up, share) => {
                let percent = share * 100.0;
                write!(f, "{percent:.0} % of a processor used ({})", name_of(up))
            }
        }
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
#[expect(
    clippy::float_cmp,
    reason = "quotients of the same small numbers are equal bit for bit"
)]
mod tests {
    use super::*;
    use quictun_link::{Change, GilbertElliott, Link};

    /// Builds the audit of a run with 1000 packets in and `link.delivered` packets out.
    fn audit(config: &LinkConfig, link: Counters) -> DirectionAudit {
        let counts = TrafficCounts {
            segments_in: 1000,
            segments_out: link.delivered,
            ..TrafficCounts::default()
        };
        let ran = RelayResult {
            counts,
            link,
            waits: LogHistogram::default(),
            lateness: LogHistogram::default(),
            busy: Duration::ZERO,
            elapsed: Duration::from_secs(1),
            promptness: SchedulingClass::Usual,
        };
        DirectionAudit::new(config, ran)
    }

    fn counters(queue_full: u64, random: u64, burst: u64) -> Counters {
        Counters {
            sent: 1000,
            delivered: 1000 - queue_full - random - burst,
            queue_full,
            random,
            burst,
            ..Counters::default()
        }
    }

    #[test]
    fn burst_loss_counts_but_is_not_checked_against_an_interval() {
        let config = LinkConfig {
            bursts: Some(GilbertElliott::from_mean(0.05, 8.0)),
            ..LinkConfig::default()
        };
        let audit = audit(&config, counters(100, 0, 90));
        assert_eq!((audit.loss, audit.loss_asked), (0.1, None));
        assert_eq!(audit.limits(true), []);
    }

    #[test]
    fn varying_loss_is_not_checked_against_an_interval() {
        let config = LinkConfig {
            changes: vec![Change {
                at: Duration::from_secs(5),
                to: Setting::Loss(0.5),
            }],
            ..LinkConfig::default()
        };
        let audit = audit(&config, counters(0, 300, 0));
        assert_eq!((audit.loss, audit.loss_asked), (0.3, None));
    }

    #[test]
    fn a_thread_that_has_just_started_is_not_a_bottleneck() {
        let mut audit = audit(&LinkConfig::default(), counters(0, 0, 0));
        audit.busy = 2 * BUSY_AFTER;
        for (elapsed, limits) in [(BUSY_AFTER, 1), (BUSY_AFTER / 2, 0)] {
            audit.elapsed = elapsed;
            assert_eq!(audit.limits(true).len(), limits, "{elapsed:?}");
        }
    }

    #[test]
    fn the_lateness_of_a_short_run_is_checked_too() {
        let mut audit = audit(&LinkConfig::default(), counters(0, 0, 0));
        for late in 0..FRAMES_MIN {
            let late_ms = if late % 10 == 0 { 160 } else { 0 };
            audit.lateness.record(Duration::from_millis(late_ms));
        }
        let limits = audit.limits(true);
        assert!(matches!(limits[..], [Limit::Late(true, _)]), "{limits:?}");
    }

    // One packet takes a millisecond, so of a hundred that come at once, the last one waits for 99 ms.
    #[test]
    fn the_times_of_a_known_queue_are_printed() {
        let config = LinkConfig {
            rate: Some(1_000_000),
            ..LinkConfig::default()
        };
        let start = std::time::Instant::now();
        let mut link = Link::new(config.clone(), 1, start);
        for _ in 0..100 {
            link.send(start, 1000);
        }
        let mut audit = audit(&config, link.counters());
        audit.waits = link.waits().clone();
        let text = audit.to_string();
        // The exact quantiles are 49 and 94 ms, and a bucket of the histogram is up to 2.1 ms wide there.
        assert!(
            text.contains("queued p50 49.3 ms, p95 94.4 ms, at most 99.0 ms"),
            "{text}"
        );
    }

    #[test]
    fn loss_after_the_queue_is_a_share_of_queued_packets_and_loss_before_it_of_all() {
        let mut config = LinkConfig {
            loss: 0.1,
            ..LinkConfig::default()
        };
        assert_eq!(audit(&config, counters(500, 50, 0)).loss, 0.1);
        config.loss_at = LossAt::Entry;
        assert_eq!(audit(&config, counters(500, 100, 0)).loss, 0.1);
    }
}
