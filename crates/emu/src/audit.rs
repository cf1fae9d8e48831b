//! Whether an emulator did what was asked of it.

use std::fmt;
use std::time::Duration;

use quictun_link::{Counters, Histogram, LinkConfig, LossAt, Setting};
use quictun_sys::Promptness;

use crate::counts::Counts;
use crate::interval::{Z_99, Z_9999, to_f64, wilson};
use crate::relay::Ran;

/// What an emulator has to say of a run of its own.
#[derive(Clone, Debug)]
pub struct Audit {
    /// From the near end to the far end.
    pub up: DirectionAudit,
    /// From the far end to the near end.
    pub down: DirectionAudit,
}

/// What an emulator has to say of one direction.
#[derive(Clone, Debug)]
pub struct DirectionAudit {
    /// What passed.
    pub counts: Counts,
    /// What the link decided.
    pub link: Counters,
    /// Share of packets that were to be lost at random; `None` where losses depend on each other, or were to change.
    pub loss_asked: Option<f64>,
    /// Share that was lost of those that were transmitted: what came in and did not come out, for whatever reason but
    /// queue, policer, outage and MTU.
    pub loss: f64,
    /// Interval that holds the true share with 99 %, if losses are independent.
    pub loss_interval: [f64; 2],
    /// How much later than due frames left.
    pub lateness: Histogram,
    /// Processor time of the direction's thread, with what the kernel did in its name for receivers.
    pub busy: Duration,
    /// How long it ran.
    pub elapsed: Duration,
    /// How soon its thread ran when there was something to do.
    pub promptness: Promptness,
    transmitted: u64,
    lost: u64,
}

/// Whether a run can be believed.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It can.
    Ok,
    /// The emulator, and not the link, shaped what was measured.
    EmulatorLimited(Vec<Limit>),
}

/// What an emulator fell short in, and whether on the way up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// So many packets of a kind were dropped that the link did not drop.
    Dropped(bool, &'static str, u64),
    /// One in a hundred frames left later than [`LATE`]; what 99 % did not exceed.
    Late(bool, Duration),
    /// A loss that the asked one explains in fewer than one of ten thousand runs; as asked and as found.
    Loss(bool, f64, f64),
    /// A direction's thread had a processor for more than [`BUSY`] of the time; for this share.
    Busy(bool, f64),
}

/// Lateness that one frame in a hundred may have: a fifth of the shortest delay that is worth emulating, and ten times
/// what a machine that is not busy needs to wake a thread.
pub const LATE: Duration = Duration::from_micros(500);

/// Share of a processor beyond which a thread is the bottleneck.
pub const BUSY: f64 = 0.95;

/// A run that is shorter says nothing of how busy a thread is: it has begun, and little else.
const BUSY_AFTER: Duration = Duration::from_millis(100);

/// Frames without which a percentile says nothing: of fewer, a single late one would be one in a hundred.
const FRAMES_MIN: u64 = 200;

impl Audit {
    /// Whether the run can be believed.
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
    pub(crate) fn new(config: &LinkConfig, ran: Ran) -> Self {
        let Ran { counts, link, .. } = ran;
        // From what came in and went out, not from what the link says that it did.
        let by_link = link.sent - link.delivered - link.lost();
        let originals_out = counts.segments_out - counts.copies_out;
        let copies_due = link.duplicated - counts.copies_out;
        let waiting = counts.under_way.saturating_sub(copies_due);
        let passed = counts.segments_in.saturating_sub(by_link + waiting);
        let lost = passed.saturating_sub(originals_out);
        // Loss in front of the queue meets what the queue would have dropped, too.
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
            lateness: ran.lateness,
            busy: ran.busy,
            elapsed: ran.elapsed,
            promptness: ran.promptness,
            transmitted,
            lost,
        }
    }

    /// Share of the time that the direction's thread had a processor.
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

/// The share that should be lost, if packets are lost independently of each other and of time: only then does
/// the interval around what was found say anything.
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
        let Counts {
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
                Promptness::RealTime => "real-time",
                Promptness::ShortSlice => "short time slices",
                Promptness::Usual => "usual scheduling",
            }
        )
    }
}

/// Packets that the link dropped for a reason other than loss, where there are any.
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
        let way = |up| if up { "up" } else { "down" };
        match *self {
            Self::Dropped(up, what, count) => write!(f, "{count} {what} ({})", way(up)),
            Self::Late(up, p99) => {
                write!(f, "p99 of lateness {:.0} us ({})", micros(p99), way(up))
            }
            Self::Loss(up, asked, found) => {
                let [asked, found] = [asked, found].map(|share| share * 100.0);
                write!(f, "loss {found:.3} % for {asked:.3} % ({})", way(up))
            }
            Self::Busy(up, share) => {
                let percent = share * 100.0;
                write!(f, "{percent:.0} % of a processor used ({})", way(up))
            }
        }
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
#[expect(
    clippy::float_cmp,
    reason = "quotients of small numbers, divided alike"
)]
mod tests {
    use super::*;
    use quictun_link::{Change, GilbertElliott};

    /// 1000 packets came, and as many as are left over left.
    fn audit(config: &LinkConfig, link: Counters) -> DirectionAudit {
        let counts = Counts {
            segments_in: 1000,
            segments_out: link.delivered,
            ..Counts::default()
        };
        let ran = Ran {
            counts,
            link,
            lateness: Histogram::default(),
            busy: Duration::ZERO,
            elapsed: Duration::from_secs(1),
            promptness: Promptness::Usual,
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
    fn bursts_count_as_loss_and_are_held_to_no_interval() {
        let config = LinkConfig {
            bursts: Some(GilbertElliott::from_mean(0.05, 8.0)),
            ..LinkConfig::default()
        };
        let audit = audit(&config, counters(100, 0, 90));
        assert_eq!((audit.loss, audit.loss_asked), (0.1, None));
        assert_eq!(audit.limits(true), []);
    }

    #[test]
    fn loss_that_changes_is_held_to_no_interval() {
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
    fn a_thread_that_has_only_begun_is_no_bottleneck() {
        let mut audit = audit(&LinkConfig::default(), counters(0, 0, 0));
        audit.busy = 2 * BUSY_AFTER;
        for (elapsed, limits) in [(BUSY_AFTER, 1), (BUSY_AFTER / 2, 0)] {
            audit.elapsed = elapsed;
            assert_eq!(audit.limits(true).len(), limits, "{elapsed:?}");
        }
    }

    #[test]
    fn a_run_of_few_frames_is_held_to_their_times_too() {
        let mut audit = audit(&LinkConfig::default(), counters(0, 0, 0));
        for late in 0..FRAMES_MIN {
            let late_ms = if late % 10 == 0 { 160 } else { 0 };
            audit.lateness.record(Duration::from_millis(late_ms));
        }
        let limits = audit.limits(true);
        assert!(matches!(limits[..], [Limit::Late(true, _)]), "{limits:?}");
    }

    #[test]
    fn loss_behind_the_queue_is_a_share_of_what_passed_it_and_in_front_of_all() {
        let mut config = LinkConfig {
            loss: 0.1,
            ..LinkConfig::default()
        };
        assert_eq!(audit(&config, counters(500, 50, 0)).loss, 0.1);
        config.loss_at = LossAt::Entry;
        assert_eq!(audit(&config, counters(500, 100, 0)).loss, 0.1);
    }
}
