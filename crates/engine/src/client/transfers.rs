//! Decides which carrier the transfers of one slot use: flows that have moved more than a megabyte.
//!
//! ```text
//!   Quic ── a sign ──► Dialling ── connected ──► Trying ── much faster ──► Tls
//!    ▲                    │                        │                        │
//!    └── cannot connect ──┴────── not faster ──────┴── lossy, slower, late ──┘
//! ```
//!
//! QUIC carries everything at first. Three signs justify a trial of TLS over TCP, on a connection of its own beside that of
//! QUIC. On a short path without loss, the processor limits a fast transfer, and TLS costs less of it. A transfer whose
//! rate has collapsed may be throttled because it uses UDP. So may one that lasts, as a network can throttle UDP from the
//! first byte on. Only a measurement decides: the transfers move to TLS, and stay there if they are faster by a
//! [margin](FASTER). Messages stay on QUIC, where no lost segment holds them up.
//!
//! Each trial that fails, and each return to QUIC, doubles the time until the next trial for the same sign.

mod hold;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use self::hold::{HOLD_MAX, Hold};
use crate::report::{TransferReason, TransfersOverTls};

/// Length of a sample.
const SAMPLE: Duration = Duration::from_millis(100);
const SAMPLES_PER_SECOND: u64 = 10;

/// Age of the previous sample from which on another run of samples begins: there were no transfers meanwhile.
const GAP: Duration = Duration::from_millis(400);

/// Samples that a rate is computed from, and that a collapse is noticed in.
const RUN: usize = 5;
const LONG_RUN: usize = 30;

/// Bytes of a sample from which a transfer counts as fast: a third of a gigabit per second.
const FAST: u64 = 4 << 20;

/// Longest lowest round-trip time of a short path.
const SHORT: Duration = Duration::from_millis(5);

/// The same with small UDP buffers, into which a burst of a round trip does not fit.
const SHORT_IN_SMALL_BUFFERS: Duration = Duration::from_millis(20);

/// One packet of how many may be lost on a clean path, and how many losses raise a doubt. Packets have [`PACKET`] bytes,
/// and [`FEW`] losses prove nothing. A processor that is too slow for QUIC makes packets late, which count as lost, and
/// TCP that is fast enough to fill a queue loses some.
const CLEAN: u64 = 100;
const DOUBTFUL: u64 = 1000;
const PACKET: u64 = 1400;
const FEW: u64 = 3;

/// A rate below this part of the best one has collapsed, if the best one was at least [`BEST_MIN`] bytes in [`RUN`]
/// samples. The best rate counts for [`BEST_KEPT`].
const COLLAPSED: u64 = 4;
const BEST_MIN: u64 = 128 << 10;
const BEST_KEPT: Duration = Duration::from_mins(1);

/// Time after which a transfer that lasts gets a trial. Each of these trials that fails doubles it, up to an hour.
const LASTS: Duration = Duration::from_secs(30);
const DOUBLINGS: u32 = 7;

/// Time that TCP gets to find its rate. It may lose packets meanwhile.
const SETTLE: Duration = Duration::from_millis(300);

/// Length of a trial: at most this, and at least [`RUN`] samples and [`TRIAL_BYTES`].
const TRIAL: Duration = Duration::from_secs(3);
const TRIAL_BYTES: u64 = 4 << 20;

/// Age from which on a trial ends as soon as TLS has less than half of the rate of QUIC.
const HOPELESS: Duration = Duration::from_millis(1300);

/// Rates at which TLS keeps the transfers, in percent of the rate of QUIC. A throttle is worth naming from twice on.
const FASTER: u64 = 110;
const UNTHROTTLED: u64 = 200;

/// Rate of TLS at which the transfers return, in percent of the rate of QUIC.
const SLOWER: u64 = 90;

/// Time until the next trial after one that showed nothing, because a transfer ended.
const AFTER_VOID: Duration = Duration::from_secs(2);

/// Time after which QUIC is measured again on a network that has throttled it. Each repetition doubles it.
const THROTTLED: Duration = Duration::from_mins(10);

/// One measurement on the connection that carries the transfers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    /// Bytes of flows that moved, in both directions.
    pub(super) bytes: u64,
    /// Packets that were lost. Over TCP, those that arrived out of order count, too.
    pub(super) lost: u64,
    /// The lowest round-trip time.
    pub(super) min_rtt: Duration,
    /// The UDP socket has small buffers.
    pub(super) small_buffers: bool,
    /// A transfer has ended.
    pub(super) ended: bool,
}

/// The task of the caller after a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferStep {
    /// Leave the transfers where they are.
    Stay,
    /// Connect over TLS, and call [`Transfers::handle_connected`] or [`Transfers::handle_failed`].
    Connect,
    /// The transfers have proven faster over TLS, and stay there.
    Keep(TransfersOverTls),
    /// Move the transfers back to QUIC. The reason is given if they had been [kept](Self::Keep).
    Return(Option<TransferReason>),
}

#[derive(Debug)]
pub(super) struct Transfers {
    phase: TransferPhase,
    /// Samples of the transfers as they are carried now, the latest ones up to [`LONG_RUN`].
    run: VecDeque<Sample>,
    sampled: Option<Instant>,
    /// The largest number of bytes in [`RUN`] samples over QUIC, and its time.
    best: Option<(u64, Instant)>,
    /// Begins when a connection over TLS cannot be made, or is lost.
    unreachable: Hold,
    /// Each begins when TLS was not faster in a trial for its sign.
    fast: Hold,
    collapsed: Hold,
    /// Number of trials for a lasting transfer that failed, and the time since which transfers have gone on over QUIC.
    lasting: u32,
    since: Option<Instant>,
    /// End of the pause after a trial that showed nothing.
    void_until: Option<Instant>,
    throttled: Duration,
}

#[derive(Clone, Copy, Debug)]
enum TransferPhase {
    Quic,
    Dialling(Trial),
    Trying(Trial, Instant),
    /// Kept until the time, if there is one.
    Tls(TransfersOverTls, Option<Instant>),
}

/// The sign that has caused a trial, and the rate of QUIC in bytes per second.
#[derive(Clone, Copy, Debug)]
struct Trial {
    sign: Sign,
    quic: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    Fast,
    Collapsed,
    Lasting,
}

impl Transfers {
    pub(super) fn new() -> Self {
        Self {
            phase: TransferPhase::Quic,
            run: VecDeque::new(),
            sampled: None,
            best: None,
            unreachable: Hold::default(),
            fast: Hold::default(),
            collapsed: Hold::default(),
            lasting: 0,
            since: None,
            void_until: None,
            throttled: THROTTLED,
        }
    }

    /// Returns the time since the previous sample, if another one is due. The transfers cause the turns in which this is
    /// asked, so it needs no timer.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Duration> {
        let since = *self.sampled.get_or_insert(now);
        let due = now >= since + SAMPLE;
        if due {
            self.sampled = Some(now);
        }
        due.then(|| now - since)
    }

    /// Returns whether a connection over TLS failed so recently that none is tried.
    pub(super) fn is_held(&self, now: Instant) -> bool {
        !self.unreachable.is_over(now)
    }

    /// Returns whether transfers belong on the connection over TLS.
    pub(super) fn uses_tls(&self) -> bool {
        matches!(
            self.phase,
            TransferPhase::Trying(..) | TransferPhase::Tls(..)
        )
    }

    pub(super) fn over_tls(&self) -> Option<TransfersOverTls> {
        match self.phase {
            TransferPhase::Tls(kept, _) => Some(kept),
            TransferPhase::Quic | TransferPhase::Dialling(_) | TransferPhase::Trying(..) => None,
        }
    }

    /// Ends a run of samples.
    pub(super) fn rest(&mut self) {
        self.run.clear();
        self.since = None;
    }

    /// Handles what was measured since the previous sample, which ended `span` ago.
    pub(super) fn handle_sample(
        &mut self,
        now: Instant,
        span: Duration,
        sample: Sample,
    ) -> TransferStep {
        if span > GAP {
            self.rest();
            return TransferStep::Stay;
        }
        // Turns are not exactly a sample apart.
        let bytes = scaled(sample.bytes, span);
        if self.run.len() == LONG_RUN {
            self.run.pop_front();
        }
        self.run.push_back(Sample { bytes, ..sample });
        match self.phase {
            TransferPhase::Quic => self.judge_quic(now),
            TransferPhase::Dialling(_) => TransferStep::Stay,
            TransferPhase::Trying(trial, since) => self.judge_trial(now, trial, since),
            TransferPhase::Tls(kept, until) => self.judge_tls(now, kept, until),
        }
    }

    /// Handles the connection over TLS that [`TransferStep::Connect`] has asked for. Returns whether the transfers move to it.
    pub(super) fn handle_connected(&mut self, now: Instant) -> bool {
        let TransferPhase::Dialling(trial) = self.phase else {
            return false;
        };
        self.phase = TransferPhase::Trying(trial, now);
        self.run.clear();
        self.unreachable = Hold::default();
        true
    }

    /// Handles another network, of which nothing is known. If the last one has throttled QUIC, QUIC is measured again.
    pub(super) fn handle_network_change(&mut self, now: Instant) {
        (self.unreachable, self.fast) = (Hold::default(), Hold::default());
        (self.collapsed, self.lasting) = (Hold::default(), 0);
        (self.best, self.throttled) = (None, THROTTLED);
        self.rest();
        if let TransferPhase::Tls(_, Some(until)) = &mut self.phase {
            *until = now;
        }
    }

    /// Handles the close of the connection over TLS after a time without transfers.
    pub(super) fn handle_closed(&mut self) {
        if matches!(
            self.phase,
            TransferPhase::Dialling(_) | TransferPhase::Trying(..)
        ) {
            self.phase = TransferPhase::Quic;
        }
    }

    /// Handles the failure or the loss of the connection over TLS.
    pub(super) fn handle_failed(&mut self, now: Instant) {
        self.unreachable.begin(now);
        self.stay_on_quic();
    }

    fn judge_quic(&mut self, now: Instant) -> TransferStep {
        let since = *self.since.get_or_insert(now);
        let Some(recent) = self.recent(RUN) else {
            return TransferStep::Stay;
        };
        let outdated = |&(best, at): &(u64, Instant)| recent > best || now > at + BEST_KEPT;
        if self.best.as_ref().is_none_or(outdated) {
            self.best = Some((recent, now));
        }
        if self.is_held(now) || self.void_until.is_some_and(|until| now < until) {
            return TransferStep::Stay;
        }
        let (sign, is_due) = if self.is_fast() {
            (Sign::Fast, self.fast.is_over(now))
        } else if self.has_collapsed() {
            (Sign::Collapsed, self.collapsed.is_over(now))
        } else {
            (Sign::Lasting, self.has_lasted(now, since))
        };
        if !is_due {
            return TransferStep::Stay;
        }
        let quic = per_second(recent, RUN);
        self.since = None;
        self.phase = TransferPhase::Dialling(Trial { sign, quic });
        TransferStep::Connect
    }

    /// Returns whether a transfer is fast on a short path without loss.
    fn is_fast(&self) -> bool {
        let mut latest = self.run.iter().rev().take(RUN);
        latest.all(|sample| {
            let short = if sample.small_buffers {
                SHORT_IN_SMALL_BUFFERS
            } else {
                SHORT
            };
            sample.bytes >= FAST && sample.min_rtt <= short
        }) && self.is_clean(CLEAN)
    }

    fn has_collapsed(&self) -> bool {
        let (Some(bytes), Some((best, _))) = (self.recent(LONG_RUN), self.best) else {
            return false;
        };
        let expected = best * (LONG_RUN / RUN) as u64;
        self.goes_on() && best >= BEST_MIN && bytes < expected / COLLAPSED
    }

    /// Returns whether transfers have gone on over QUIC for so long that TLS deserves a trial.
    fn has_lasted(&self, now: Instant, since: Instant) -> bool {
        self.goes_on() && now >= since + LASTS * 2u32.pow(self.lasting)
    }

    /// Returns whether something moved in each third of the latest samples. A transfer that rests has not collapsed.
    fn goes_on(&self) -> bool {
        let mut parts = (0..LONG_RUN).step_by(LONG_RUN / 3);
        parts.all(|from| {
            let part = self.run.iter().skip(from).take(LONG_RUN / 3);
            part.map(|sample| sample.bytes).sum::<u64>() > 0
        })
    }

    fn judge_trial(&mut self, now: Instant, trial: Trial, since: Instant) -> TransferStep {
        let Trial { sign, quic } = trial;
        let ended = self.run.iter().any(|sample| sample.ended);
        if now < since + SETTLE && !ended {
            self.run.clear();
            return TransferStep::Stay;
        }
        if sign == Sign::Fast && !self.is_clean(CLEAN) {
            return self.lose_trial(now, sign);
        }
        let bytes: u64 = self.run.iter().map(|sample| sample.bytes).sum();
        let tls = per_second(bytes, self.run.len());
        let (needed, reason, until) = match sign {
            Sign::Fast => (FASTER, TransferReason::Cheaper, None),
            Sign::Collapsed | Sign::Lasting => {
                let until = now + self.throttled;
                (UNTHROTTLED, TransferReason::Throttled, Some(until))
            }
        };
        let is_faster = self.run.len() >= RUN && tls >= quic * needed / 100;
        if ended && !is_faster {
            // The samples show the end of a transfer, not the speed of the carrier.
            self.void_until = Some(now + AFTER_VOID);
            self.stay_on_quic();
            return TransferStep::Return(None);
        }
        let hopeless = now >= since + HOPELESS
            && (self.recent(RUN)).is_some_and(|recent| per_second(recent, RUN) < quic / 2);
        let enough = ended || bytes >= TRIAL_BYTES || now >= since + TRIAL;
        if !hopeless && (self.run.len() < RUN || !enough) {
            return TransferStep::Stay;
        }
        if hopeless || !is_faster {
            return self.lose_trial(now, sign);
        }
        let kept = TransfersOverTls { reason, quic, tls };
        self.phase = TransferPhase::Tls(kept, until);
        self.run.clear();
        TransferStep::Keep(kept)
    }

    /// Ends a trial in which TLS was not faster.
    fn lose_trial(&mut self, now: Instant, sign: Sign) -> TransferStep {
        match sign {
            Sign::Fast => self.fast.begin(now),
            Sign::Collapsed => self.collapsed.begin(now),
            Sign::Lasting => self.lasting = (self.lasting + 1).min(DOUBLINGS),
        }
        self.stay_on_quic();
        TransferStep::Return(None)
    }

    fn judge_tls(
        &mut self,
        now: Instant,
        kept: TransfersOverTls,
        until: Option<Instant>,
    ) -> TransferStep {
        if until.is_some_and(|until| now >= until) {
            // QUIC is measured against this rate.
            self.best = Some((in_samples(kept.tls, RUN), now));
            self.throttled = (self.throttled * 2).min(HOLD_MAX);
            self.phase = TransferPhase::Quic;
            self.run.clear();
            return TransferStep::Return(Some(TransferReason::TriedAgain));
        }
        if kept.reason == TransferReason::Throttled {
            return TransferStep::Stay;
        }
        // Where packets are lost, TLS must go on to prove that it is faster. Without loss, the processor may have had other
        // work for a moment, which QUIC would have felt as well.
        let (reason, samples, needed) = if self.is_clean(DOUBTFUL) {
            (TransferReason::Slower, LONG_RUN, SLOWER)
        } else {
            (TransferReason::Loss, RUN, FASTER)
        };
        let Some(recent) = self.recent(samples) else {
            return TransferStep::Stay;
        };
        if per_second(recent, samples) >= kept.quic * needed / 100 && self.is_clean(CLEAN) {
            return TransferStep::Stay;
        }
        self.fast.begin(now);
        self.stay_on_quic();
        TransferStep::Return(Some(reason))
    }

    fn stay_on_quic(&mut self) {
        self.phase = TransferPhase::Quic;
        self.run.clear();
    }

    /// Returns the bytes of the latest samples, if there are as many.
    fn recent(&self, samples: usize) -> Option<u64> {
        let latest = self.run.iter().rev().take(samples);
        (self.run.len() >= samples).then(|| latest.map(|sample| sample.bytes).sum())
    }

    /// Returns whether hardly anything was lost in the latest samples: less than one packet in `one_of`.
    fn is_clean(&self, one_of: u64) -> bool {
        let latest = self.run.iter().rev().take(RUN);
        let (lost, bytes) = latest.fold((0, 0), |(lost, bytes), sample| {
            (lost + sample.lost, bytes + sample.bytes)
        });
        lost < FEW || lost * one_of * PACKET < bytes
    }
}

/// Returns the bytes of a whole sample, for one that took `span`.
fn scaled(bytes: u64, span: Duration) -> u64 {
    let span = u64::try_from(span.as_micros()).unwrap_or(u64::MAX).max(1);
    let scaled = u128::from(bytes) * SAMPLE.as_micros() / u128::from(span);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Returns the rate in bytes per second that moves `bytes` in this number of samples.
fn per_second(bytes: u64, samples: usize) -> u64 {
    bytes.saturating_mul(SAMPLES_PER_SECOND) / (samples as u64).max(1)
}

/// Returns the bytes that a rate in bytes per second moves in this number of samples.
fn in_samples(rate: u64, samples: usize) -> u64 {
    rate / SAMPLES_PER_SECOND * samples as u64
}

#[cfg(test)]
mod tests;
