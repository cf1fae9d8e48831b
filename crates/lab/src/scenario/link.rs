//! Converts the text of a scenario's link to its configuration.

use std::str::FromStr;
use std::time::Duration;

use quictun_link::units::{Delay, Rate, Share, UnitError};
use quictun_link::{
    GilbertElliott, LinkConfig, NamedLink, Outage, Overrides, Queue, Stall, overhead,
};

use super::error::ScenarioError;
use super::raw::{LossUnit, Medium, Offload, RawLink, RawStall, SpannedText};

/// The network between the two sides.
#[derive(Clone, Debug, PartialEq)]
pub enum Link {
    /// The loopback device, without a link.
    Loopback,
    /// A cable between two networks, or two cables with a forwarding kernel between them.
    Cable(Cable),
    /// A link that the emulator emulates.
    Emulated(Box<EmulatedLink>),
}

/// A connection without limits of its own: the kernel alone limits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cable {
    /// True if a third network forwards packets between the two.
    pub routed: bool,
    /// Maximum packet size in bytes, including the IP header.
    pub mtu: u32,
    /// The component that segments streams into packets.
    pub offload: Offload,
    /// Maximum size of a segment that the kernel processes as one, in bytes. More than 65536 enables BIG TCP. `None`
    /// keeps the kernel's default.
    pub segment_limit: Option<u32>,
}

/// The settings of an emulated link.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulatedLink {
    named: Option<NamedLink>,
    said: LinkOverrides,
    /// Maximum packet size in bytes, including the IP header.
    pub mtu: u32,
    /// The component that segments streams into packets.
    pub offload: Offload,
    /// The unit that random loss applies to.
    pub loss_unit: LossUnit,
    /// Packets whose transmission times lie within this period are delivered together.
    pub coalesce: Duration,
    /// Command line of another emulator, which `sh -c` runs in place of the built-in one.
    pub emulator: Option<String>,
    /// Maximum size of a segment that the kernel processes as one, in bytes. More than 65536 enables BIG TCP. `None`
    /// keeps the kernel's default.
    pub segment_limit: Option<u32>,
}

/// Settings of a scenario for both directions. They override those of the named link, if there is one.
#[derive(Clone, Debug, PartialEq)]
struct LinkOverrides {
    overrides: Overrides,
    queue: Option<Queue>,
    outages: Vec<Outage>,
    mtu: usize,
}

impl EmulatedLink {
    /// Returns the configuration of the upward and the downward direction. For a named link it is drawn from `seed`;
    /// otherwise it is the same for every seed.
    pub fn directions(&self, seed: u64) -> [LinkConfig; 2] {
        let Some(named) = self.named else {
            let base = LinkConfig {
                overhead: overhead::ETHERNET,
                ..LinkConfig::default()
            };
            let round_trip = 2 * self.said.overrides.delay.unwrap_or_default();
            let link_config = self
                .said
                .link_config(base, round_trip.max(QUEUE_ROUND_TRIP));
            return [link_config.clone(), link_config];
        };
        named
            .directions(seed)
            .map(|base| self.said.link_config(base, named.queue_time()))
    }
}

impl LinkOverrides {
    /// Returns the configuration of one direction. Unless the settings or `base` specify a queue, the queue holds what
    /// the link sends in `time`.
    fn link_config(&self, base: LinkConfig, time: Duration) -> LinkConfig {
        let link_config = LinkConfig {
            mtu: self.mtu,
            outages: self.outages.clone(),
            ..self.overrides.over(base)
        };
        let queue = match self.queue {
            Some(queue) => queue,
            None if link_config.rate.is_none() || link_config.queue != Queue::default() => {
                link_config.queue
            }
            None => {
                let worth = link_config.bandwidth_delay(time);
                Queue::Bytes(worth.max(QUEUE_PACKETS * (link_config.mtu + link_config.overhead)))
            }
        };
        LinkConfig {
            queue,
            ..link_config
        }
    }
}

impl Link {
    /// Returns the emulated link. `None` for the loopback device and cables.
    pub fn emulated(&self) -> Option<&EmulatedLink> {
        match self {
            Self::Emulated(link) => Some(link),
            Self::Loopback | Self::Cable(_) => None,
        }
    }

    /// Returns the maximum size of a segment that the kernel processes as one, if the scenario sets it.
    pub fn segment_limit(&self) -> Option<u32> {
        match self {
            Self::Emulated(link) => link.segment_limit,
            Self::Cable(cable) => cable.segment_limit,
            Self::Loopback => None,
        }
    }
}

/// Minimum size of a default queue, in packets: a sender can hand over 64 KiB at once.
const QUEUE_PACKETS: usize = 64;

/// Minimum round-trip time that a default queue is sized for.
const QUEUE_ROUND_TRIP: Duration = Duration::from_millis(20);

/// Default period of coalescing: like a network card with interrupt moderation.
const COALESCE: Duration = Duration::from_micros(50);

/// Default packet size, in bytes.
const MTU: u32 = 1500;

/// Allowed packet sizes in bytes: the minimum of IPv6, and the maximum of a cable between two networks.
const MTUS: std::ops::RangeInclusive<u32> = 1280..=65_535;

impl RawLink {
    /// Converts to a link. An error without a position of its own is reported at `offset`.
    pub(super) fn link(&self, text: &str, offset: usize) -> Result<Link, ScenarioError> {
        let refuse = |why: &str| ScenarioError::new(text, offset, why);
        let medium = self.medium.unwrap_or(Medium::Link);
        if medium != Medium::Link && self.has_limits() {
            return Err(refuse(
                "only medium = \"link\" supports like, rate, delay, loss, queue or outage: remove them, or the medium",
            ));
        }
        if medium == Medium::Loopback {
            return Ok(Link::Loopback);
        }
        let mtu = self.mtu.unwrap_or(MTU);
        if !MTUS.contains(&mtu) {
            return Err(refuse(&format!(
                "an MTU of {mtu} bytes: from 1280 to 65535 are possible"
            )));
        }
        if medium != Medium::Link {
            return Ok(Link::Cable(Cable {
                routed: medium == Medium::Router,
                mtu,
                offload: self.offload.unwrap_or_default(),
                segment_limit: self.segment_limit,
            }));
        }
        if self.emulator.is_some() && (self.rate.is_none() || self.is_special()) {
            return Err(refuse(
                "an emulator by command needs a rate, and gets only rate, delay, loss, queue and mtu: remove the other settings",
            ));
        }
        let link = EmulatedLink {
            named: self
                .like
                .as_ref()
                .map(|word| named(text, word))
                .transpose()?,
            said: self.said(text, mtu)?,
            mtu,
            offload: self.offload.unwrap_or_default(),
            loss_unit: self.loss_unit.unwrap_or_default(),
            coalesce: unit(text, self.coalesce.as_ref())?.map_or(COALESCE, |Delay(time)| time),
            segment_limit: self.segment_limit,
            emulator: self.emulator.clone(),
        };
        for link_config in link.directions(0) {
            link_config
                .check()
                .map_err(|why| refuse(&why.to_string()))?;
        }
        Ok(Link::Emulated(Box::new(link)))
    }

    /// Returns true if any setting needs an emulated link.
    fn has_limits(&self) -> bool {
        let words = [
            &self.like,
            &self.rate,
            &self.delay,
            &self.jitter,
            &self.loss,
            &self.queue,
            &self.coalesce,
        ];
        words.iter().any(|word| word.is_some())
            || self.stall.is_some()
            || self.burst.is_some()
            || self.outage.is_some()
            || self.loss_unit.is_some()
            || self.emulator.is_some()
    }

    /// Returns true if any setting is not passed to an external emulator.
    fn is_special(&self) -> bool {
        self.like.is_some()
            || self.jitter.is_some()
            || self.stall.is_some()
            || self.burst.is_some()
            || self.outage.is_some()
            || self.loss_unit.is_some()
            || self.coalesce.is_some()
            || self.segment_limit.is_some()
    }

    fn said(&self, text: &str, mtu: u32) -> Result<LinkOverrides, ScenarioError> {
        let delay =
            |word: &Option<SpannedText>| Ok(unit(text, word.as_ref())?.map(|Delay(time)| time));
        let loss = unit(text, self.loss.as_ref())?.map(|Share(share)| share);
        let outages = self.outage.iter().flatten().map(|outage| {
            let from: Delay = read(text, &outage.at)?;
            let length: Delay = read(text, &outage.length)?;
            Ok(Outage {
                from: from.0,
                until: from.0 + length.0,
            })
        });
        let stall = |stall: &RawStall| {
            let lasts: Delay = read(text, &stall.length)?;
            let every: Delay = read(text, &stall.every)?;
            Ok(Stall {
                lasts: lasts.0,
                every: every.0,
            })
        };
        Ok(LinkOverrides {
            overrides: Overrides {
                rate: unit(text, self.rate.as_ref())?.map(|Rate(rate)| rate),
                delay: delay(&self.delay)?,
                jitter: delay(&self.jitter)?,
                stall: self.stall.as_ref().map(stall).transpose()?,
                loss: loss.map(|loss| match self.burst.filter(|_| loss > 0.0) {
                    Some(burst) => (0.0, Some(GilbertElliott::from_mean(loss, burst))),
                    None => (loss, None),
                }),
                ..Overrides::default()
            },
            queue: unit(text, self.queue.as_ref())?,
            outages: outages.collect::<Result<_, ScenarioError>>()?,
            mtu: usize::try_from(mtu).unwrap_or(usize::MAX),
        })
    }
}

fn named(text: &str, word: &SpannedText) -> Result<NamedLink, ScenarioError> {
    let name = word.get_ref();
    let found = NamedLink::ALL.iter().find(|(known, _)| known == name);
    found.map(|(_, named)| *named).ok_or_else(|| {
        let known: Vec<&str> = NamedLink::ALL.iter().map(|(name, _)| *name).collect();
        let known = known.join(", ");
        let why = format!("there is no link like {name:?}; there are {known}");
        ScenarioError::new(text, word.span().start, why)
    })
}

pub(super) fn unit<T: FromStr<Err = UnitError>>(
    text: &str,
    word: Option<&SpannedText>,
) -> Result<Option<T>, ScenarioError> {
    word.map(|word| read(text, word)).transpose()
}

fn read<T: FromStr<Err = UnitError>>(text: &str, word: &SpannedText) -> Result<T, ScenarioError> {
    let value = word.get_ref().parse();
    value.map_err(|why: UnitError| ScenarioError::new(text, word.span().start, why.to_string()))
}
