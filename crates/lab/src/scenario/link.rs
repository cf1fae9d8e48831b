//! A scenario's link: text to configuration.

use std::str::FromStr;
use std::time::Duration;

use quictun_link::units::{Delay, Rate, Share, UnitError};
use quictun_link::{
    GilbertElliott, LinkConfig, NamedLink, Outage, Overrides, Queue, Stall, overhead,
};

use super::raw::{LossUnit, Medium, Offload, RawLink, RawStall, Word};
use super::refused::Refused;

/// What is between the two sides.
#[derive(Clone, Debug, PartialEq)]
pub enum Link {
    /// The loopback device.
    Loopback,
    /// A cable between two networks, or two cables and a router's kernel between them.
    Cable(Cable),
    /// A link that is emulated.
    Emulated(Box<Emulated>),
}

/// What has no limits of its own: whatever the kernel can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cable {
    /// Whether a third network forwards between the two.
    pub routed: bool,
    /// Longest packet, bytes with its IP header.
    pub mtu: u32,
    /// Who cuts streams into packets.
    pub offload: Offload,
    /// How large a piece of a stream the kernel may move as one, beyond 65536 BIG TCP. `None`: as it is.
    pub segment_limit: Option<u32>,
}

/// A link that is emulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Emulated {
    named: Option<NamedLink>,
    said: Said,
    /// Longest packet, bytes with its IP header.
    pub mtu: u32,
    /// Who cuts streams into packets.
    pub offload: Offload,
    /// What loss is drawn for.
    pub loss_unit: LossUnit,
    /// Wire time within which packets are delivered together.
    pub coalesce: Duration,
    /// Somebody else's emulator, for `sh -c`, in place of ours.
    pub emulator: Option<String>,
    /// How large a piece of a stream the kernel may move as one, beyond 65536 BIG TCP. `None`: as it is.
    pub segment_limit: Option<u32>,
}

/// The settings of a scenario for either direction, on top of its named link where there is one.
#[derive(Clone, Debug, PartialEq)]
struct Said {
    overrides: Overrides,
    queue: Option<Queue>,
    outages: Vec<Outage>,
    mtu: usize,
}

impl Emulated {
    /// Up, then down, as `seed` draws them where the link is a named one, and else the same for every seed.
    pub fn ways(&self, seed: u64) -> [LinkConfig; 2] {
        let Some(named) = self.named else {
            let base = LinkConfig {
                overhead: overhead::ETHERNET,
                ..LinkConfig::default()
            };
            let round_trip = 2 * self.said.overrides.delay.unwrap_or_default();
            let way = self.said.way(base, round_trip.max(QUEUE_ROUND_TRIP));
            return [way.clone(), way];
        };
        named
            .ways(seed)
            .map(|base| self.said.way(base, named.queue_time()))
    }
}

impl Said {
    /// One way, whose queue holds as much as is sent in `time` unless it or `base` says otherwise.
    fn way(&self, base: LinkConfig, time: Duration) -> LinkConfig {
        let way = LinkConfig {
            mtu: self.mtu,
            outages: self.outages.clone(),
            ..self.overrides.over(base)
        };
        let queue = match self.queue {
            Some(queue) => queue,
            None if way.rate.is_none() || way.queue != Queue::default() => way.queue,
            None => {
                let worth = way.bandwidth_delay(time);
                Queue::Bytes(worth.max(QUEUE_PACKETS * (way.mtu + way.overhead)))
            }
        };
        LinkConfig { queue, ..way }
    }
}

impl Link {
    /// The emulated one, if it is.
    pub fn emulated(&self) -> Option<&Emulated> {
        match self {
            Self::Emulated(link) => Some(link),
            Self::Loopback | Self::Cable(_) => None,
        }
    }

    /// How large a piece of a stream the kernel may move as one, where that was said.
    pub fn segment_limit(&self) -> Option<u32> {
        match self {
            Self::Emulated(link) => link.segment_limit,
            Self::Cable(cable) => cable.segment_limit,
            Self::Loopback => None,
        }
    }
}

/// Packets that a queue holds at least where nobody says how many: 64 KiB come at once.
const QUEUE_PACKETS: usize = 64;

/// The round trip that a queue is made for at least.
const QUEUE_ROUND_TRIP: Duration = Duration::from_millis(20);

/// Coalescing where nobody says: as a network card with its interrupt moderation.
const COALESCE: Duration = Duration::from_micros(50);

/// Packet size where nobody says.
const MTU: u32 = 1500;

/// What IPv6 demands, and the most of a cable between two networks.
const MTUS: std::ops::RangeInclusive<u32> = 1280..=65_535;

impl RawLink {
    /// The link; what is wrong without a place of its own is wrong at `offset`.
    pub(super) fn link(&self, text: &str, offset: usize) -> Result<Link, Refused> {
        let refuse = |why: &str| Refused::new(text, offset, why);
        let medium = self.medium.unwrap_or(Medium::Link);
        if medium != Medium::Link && self.has_limits() {
            return Err(refuse(
                "only medium = \"link\" has like, rate, delay, loss, queue or outage: take them out, or the medium",
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
                "an emulator by command needs a rate, and is told rate, delay, loss, queue and mtu alone: take out what is beyond",
            ));
        }
        let link = Emulated {
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
        for way in link.ways(0) {
            way.check().map_err(|why| refuse(&why.to_string()))?;
        }
        Ok(Link::Emulated(Box::new(link)))
    }

    /// Whether it says what only an emulated link can do.
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

    /// Whether it says what another emulator is not told.
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

    fn said(&self, text: &str, mtu: u32) -> Result<Said, Refused> {
        let delay = |word: &Option<Word>| Ok(unit(text, word.as_ref())?.map(|Delay(time)| time));
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
        Ok(Said {
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
            outages: outages.collect::<Result<_, Refused>>()?,
            mtu: usize::try_from(mtu).unwrap_or(usize::MAX),
        })
    }
}

fn named(text: &str, word: &Word) -> Result<NamedLink, Refused> {
    let name = word.get_ref();
    let found = NamedLink::ALL.iter().find(|(known, _)| known == name);
    found.map(|(_, named)| *named).ok_or_else(|| {
        let known: Vec<&str> = NamedLink::ALL.iter().map(|(name, _)| *name).collect();
        let known = known.join(", ");
        let why = format!("there is no link like {name:?}; there are {known}");
        Refused::new(text, word.span().start, why)
    })
}

pub(super) fn unit<T: FromStr<Err = UnitError>>(
    text: &str,
    word: Option<&Word>,
) -> Result<Option<T>, Refused> {
    word.map(|word| read(text, word)).transpose()
}

fn read<T: FromStr<Err = UnitError>>(text: &str, word: &Word) -> Result<T, Refused> {
    let value = word.get_ref().parse();
    value.map_err(|why: UnitError| Refused::new(text, word.span().start, why.to_string()))
}
