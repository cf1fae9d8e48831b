//! Validation of a link's configuration.

use std::time::Duration;

use super::{Change, Codel, LinkConfig, Outage, Queue, Setting, Stall};
use crate::bursts::GilbertElliott;
use crate::transmitter::MAX_RATE;
use crate::units::{Delay, Rate, Share};

/// Longest delay of any kind. Every real link stays below a minute, so a longer delay is more likely a mistyped unit.
pub const MAX_DELAY: Duration = Duration::from_mins(1);

/// Maximum number of outages, and of changes: one every ten seconds for a day.
pub const MAX_CHANGES: usize = 8640;

/// Length of the packet that a queue must be able to hold if no MTU is set: Ethernet's MTU.
const USUAL_MTU: usize = 1500;

/// The reason for which a configuration is invalid, with the rejected value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A share is below 0, above 1, or not a number.
    #[error("{} of {} is impossible; a share lies between 0% and 100%", .0, Share(*.1))]
    Share(&'static str, f64),
    /// A rate is 0.
    #[error("{0} of 0 lets nothing through; leave it out for no limit, or plan an outage")]
    NoRate(&'static str),
    /// A rate, in bytes per second, exceeds the limit of the arithmetic.
    #[error("{} of {} is too high; the maximum is {}; leave it out for no limit", .0, Rate(*.1), Rate(MAX_RATE))]
    RateTooHigh(&'static str, u64),
    /// The configuration has a rate and a trace.
    #[error("a trace already sets when bytes are sent; give a trace or a rate, not both")]
    RateAndTrace,
    /// A time is so long that it is probably a mistake.
    #[error("{} of {} is too long; the maximum is {}", .0, Delay(*.1), Delay(MAX_DELAY))]
    TooLong(&'static str, Duration),
    /// The queue does not hold the longest packet. The second value is that packet's length with its overhead, in
    /// bytes.
    #[error("a queue of {0} does not hold one packet of {1}B; give at least that")]
    QueueTooSmall(Queue, usize),
    /// Queue management is configured, but no rate is limited, so no packet ever waits.
    #[error("{0} has no effect without a rate, because no packet waits; give a rate too")]
    NothingWaits(&'static str),
    /// A share of packets is reordered, but the extra delay is zero.
    #[error("reordering needs a time by which the picked packets are delayed, such as 5ms")]
    ReorderByNothing,
    /// An extra delay for reordering is set, but the share of packets is zero.
    #[error("reordering by {} needs a share of packets, such as 1%", Delay(*.0))]
    ReorderNone(Duration),
    /// The burst model never leaves the bad state.
    #[error(
        "bursts that never end lose every packet; give the end of a burst a probability above 0"
    )]
    EndlessBurst,
    /// Pauses have no length or never end.
    #[error(
        "pauses of {} every {} make no sense; a pause must be above 0 and shorter than its period, such as 5ms:25ms",
        Delay(.0.lasts),
        Delay(.0.every)
    )]
    Stall(Stall),
    /// The target of `CoDel` is zero or not below its interval.
    #[error(
        "CoDel's target ({}) must be above 0 and below its interval ({}); RFC 8289 has 5ms and 100ms",
        Delay(.0.target),
        Delay(.0.interval)
    )]
    CodelTarget(Codel),
    /// The policer's burst is shorter than the longest packet. The second value is that packet's length with its
    /// overhead, in bytes.
    #[error("a policer's burst of {0}B is smaller than one packet of {1}B; give at least that")]
    PolicerBurst(u64, usize),
    /// An outage does not end after it begins.
    #[error("an outage from {} until {} has no length; it must end after it begins", Delay(.0.from), Delay(.0.until))]
    EmptyOutage(Outage),
    /// The change at this time is listed after a later one.
    #[error("the change at {} is earlier than the one listed before it; sort changes by time", Delay(*.0))]
    ChangesUnordered(Duration),
    /// The list has more outages or changes than the limit.
    #[error("{1} {0} are too many; the maximum is {MAX_CHANGES}")]
    TooMany(&'static str, usize),
}

impl LinkConfig {
    /// Checks that every value is possible and that none contradicts another. [`crate::Link::new`] accepts any
    /// configuration and clamps what it cannot use.
    ///
    /// # Errors
    ///
    /// Returns the first value found to be invalid.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_shares()?;
        self.check_times()?;
        self.check_rates()?;
        self.check_queue()?;
        self.check_order()
    }

    /// Returns a remark about a configuration that passes [`check`](Self::check) but has a part without effect: a
    /// policer whose rate exceeds the link's highest rate, so that it limits only bursts.
    pub fn remark(&self) -> Option<String> {
        let changed = self.changes.iter().filter_map(|change| match change.to {
            Setting::Rate(rate) => Some(rate),
            _ => None,
        });
        let rates: Option<Vec<u64>> = [self.rate].into_iter().chain(changed).collect();
        let highest = match &self.trace {
            Some(trace) => trace.mean_rate(),
            None => rates?.into_iter().max()?,
        };
        let policer = self.policer.filter(|policer| policer.rate > highest)?;
        let (policer, rate) = (Rate(policer.rate), Rate(highest));
        Some(format!(
            "a policer of {policer} before a link of {rate} limits only bursts: the link's queue fills first"
        ))
    }

    fn check_shares(&self) -> Result<(), ConfigError> {
        share("a loss", self.loss)?;
        share("duplication", self.duplicate)?;
        share("reordering", self.reorder.share)?;
        for change in &self.changes {
            if let Setting::Loss(loss) = change.to {
                share("a later loss", loss)?;
            }
        }
        let Some(GilbertElliott {
            to_bad,
            to_good,
            loss_good,
            loss_bad,
        }) = self.bursts
        else {
            return Ok(());
        };
        share("a chance to become bad", to_bad)?;
        share("a chance to become good", to_good)?;
        share("a loss in the good state", loss_good)?;
        share("a loss in the bad state", loss_bad)?;
        if to_good <= 0.0 {
            return Err(ConfigError::EndlessBurst);
        }
        Ok(())
    }

    fn check_times(&self) -> Result<(), ConfigError> {
        short("a delay", self.delay)?;
        short("a jitter", self.jitter)?;
        short("a reordering", self.reorder.extra)?;
        for change in &self.changes {
            if let Setting::Delay(delay) = change.to {
                short("a later delay", delay)?;
            }
        }
        if self.reorder.share > 0.0 && self.reorder.extra.is_zero() {
            return Err(ConfigError::ReorderByNothing);
        }
        if self.reorder.share <= 0.0 && !self.reorder.extra.is_zero() {
            return Err(ConfigError::ReorderNone(self.reorder.extra));
        }
        if let Some(stall) = self.stall {
            short("the period of a stall", stall.every)?;
            if stall.lasts.is_zero() || stall.lasts >= stall.every {
                return Err(ConfigError::Stall(stall));
            }
        }
        if let Some(codel) = self.codel {
            short("CoDel's interval", codel.interval)?;
            if codel.target.is_zero() || codel.target >= codel.interval {
                return Err(ConfigError::CodelTarget(codel));
            }
        }
        Ok(())
    }

    fn check_rates(&self) -> Result<(), ConfigError> {
        rate("a rate", self.rate)?;
        let mut changes = false;
        for change in &self.changes {
            if let Setting::Rate(later) = change.to {
                rate("a later rate", later)?;
                changes = true;
            }
        }
        if self.trace.is_some() && (self.rate.is_some() || changes) {
            return Err(ConfigError::RateAndTrace);
        }
        let Some(policer) = self.policer else {
            return Ok(());
        };
        rate("a policer's rate", Some(policer.rate))?;
        let packet = self.longest_packet();
        if policer.burst < packet as u64 {
            return Err(ConfigError::PolicerBurst(policer.burst, packet));
        }
        Ok(())
    }

    fn check_queue(&self) -> Result<(), ConfigError> {
        let packet = self.longest_packet();
        let (Queue::Bytes(holds) | Queue::Packets(holds)) = self.queue;
        let needs = match self.queue {
            Queue::Bytes(_) => packet,
            Queue::Packets(_) => 1,
        };
        if holds < needs {
            return Err(ConfigError::QueueTooSmall(self.queue, packet));
        }
        let limits = |change: &Change| matches!(change.to, Setting::Rate(Some(_)));
        let waits = self.rate.is_some() || self.trace.is_some() || self.changes.iter().any(limits);
        let asked = [
            (self.queue != Queue::default(), "a queue"),
            (self.codel.is_some(), "CoDel"),
            (self.mark_above.is_some(), "marking packets that waited"),
        ];
        match asked.into_iter().find(|(asked, _)| *asked && !waits) {
            Some((_, what)) => Err(ConfigError::NothingWaits(what)),
            None => Ok(()),
        }
    }

    fn check_order(&self) -> Result<(), ConfigError> {
        let lists = [
            ("outages", self.outages.len()),
            ("changes", self.changes.len()),
        ];
        for (what, count) in lists {
            if count > MAX_CHANGES {
                return Err(ConfigError::TooMany(what, count));
            }
        }
        let mut outages = self.outages.iter();
        if let Some(empty) = outages.find(|outage| outage.until <= outage.from) {
            return Err(ConfigError::EmptyOutage(*empty));
        }
        let mut pairs = self.changes.iter().zip(self.changes.iter().skip(1));
        match pairs.find(|(first, second)| second.at < first.at) {
            Some((_, second)) => Err(ConfigError::ChangesUnordered(second.at)),
            None => Ok(()),
        }
    }

    /// Returns the length of the longest packet to be expected, with its overhead.
    fn longest_packet(&self) -> usize {
        self.mtu.min(USUAL_MTU).saturating_add(self.overhead)
    }
}

fn share(what: &'static str, share: f64) -> Result<(), ConfigError> {
    if (0.0..=1.0).contains(&share) {
        Ok(())
    } else {
        Err(ConfigError::Share(what, share))
    }
}

fn short(what: &'static str, time: Duration) -> Result<(), ConfigError> {
    if time <= MAX_DELAY {
        Ok(())
    } else {
        Err(ConfigError::TooLong(what, time))
    }
}

fn rate(what: &'static str, rate: Option<u64>) -> Result<(), ConfigError> {
    match rate {
        Some(0) => Err(ConfigError::NoRate(what)),
        Some(rate) if rate > MAX_RATE => Err(ConfigError::RateTooHigh(what, rate)),
        _ => Ok(()),
    }
}
