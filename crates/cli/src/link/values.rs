//! Parsers of the flags of `quictun link`.

use std::time::Duration;

use quictun_args::options::InvalidValue;
use quictun_args::values::{parsed, time};
use quictun_lab_run::link::{CheckCell, Load};
use quictun_link::units::{Rate, Share};
use quictun_link::{Change, Codel, Outage, Policer, Queue, Reorder, Setting, Stall, overhead};

/// Largest overhead, in bytes: more than any stack of tunnels adds.
const MAX_OVERHEAD: usize = 1000;

/// The queueing at which the link marks ECN-capable packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ecn {
    /// `CoDel` marks the packets that it would drop otherwise.
    Codel,
    /// A packet is marked if it has waited longer than this.
    Above(Duration),
}

/// Parses a rate. Returns bytes per second.
pub(super) fn rate(text: &str) -> Result<u64, InvalidValue> {
    let Rate(rate) = text.parse()?;
    if rate == 0 {
        Err(format!(
            "`{text}` lets no packet through; leave out the rate for no limit, or use --outage"
        ))?;
    }
    Ok(rate)
}

/// Parses the size of a queue. Returns `None` for the word `auto`.
pub(super) fn queue(text: &str) -> Result<Option<Queue>, InvalidValue> {
    match text {
        "auto" => Ok(None),
        _ => parsed(text).map(Some),
    }
}

pub(super) fn codel(text: &str) -> Result<Codel, InvalidValue> {
    let (target, interval) = pair(text, ':', "5ms:100ms")?;
    Ok(Codel {
        target: time(target)?,
        interval: time(interval)?,
        ecn: false,
    })
}

pub(super) fn stall(text: &str) -> Result<Stall, InvalidValue> {
    let (lasts, every) = pair(text, ':', "5ms:25ms")?;
    Ok(Stall {
        lasts: time(lasts)?,
        every: time(every)?,
    })
}

pub(super) fn ecn(text: &str) -> Result<Ecn, InvalidValue> {
    match text {
        "codel" => Ok(Ecn::Codel),
        _ => time(text).map(Ecn::Above),
    }
}

pub(super) fn change(text: &str) -> Result<Change, InvalidValue> {
    let (at, what) = pair(text, ':', "5s:rate=100mbit")?;
    let (what, value) = pair(what, '=', "5s:rate=100mbit")?;
    let to = match what {
        "rate" => Setting::Rate(Some(rate(value)?)),
        "delay" => Setting::Delay(time(value)?),
        "loss" => Setting::Loss(share(value)?),
        _ => Err(format!("{what:?} cannot change: rate, delay and loss can"))?,
    };
    Ok(Change { at: time(at)?, to })
}

pub(super) fn load(text: &str) -> Result<Load, InvalidValue> {
    let known = [Load::Tunnel, Load::Cubic];
    let found = known.into_iter().find(|load| load.word() == text);
    found.ok_or_else(|| format!("`{text}` is neither tunnel nor cubic").into())
}

pub(super) fn share(text: &str) -> Result<f64, InvalidValue> {
    let Share(share) = text.parse()?;
    if share >= 1.0 && !text.ends_with('%') {
        Err(format!(
            "`{text}` means all packets: write {text}% for one in a hundred, or 100%"
        ))?;
    }
    Ok(share)
}

pub(super) fn mean_burst(text: &str) -> Result<f64, InvalidValue> {
    let packets = text
        .parse()
        .ok()
        .filter(|packets: &f64| *packets >= 1.0 && packets.is_finite());
    packets.ok_or_else(|| {
        format!("{text:?} is not a number of packets: write it like 3 or 4.5").into()
    })
}

pub(super) fn reorder(text: &str) -> Result<Reorder, InvalidValue> {
    let (share, extra) = pair(text, ':', "1%:5ms")?;
    Ok(Reorder {
        share: self::share(share)?,
        extra: time(extra)?,
    })
}

pub(super) fn policer(text: &str) -> Result<Policer, InvalidValue> {
    let (most, burst) = pair(text, ':', "50mbit:64kB")?;
    match burst.parse()? {
        Queue::Bytes(burst) => Ok(Policer {
            rate: rate(most)?,
            burst: u64::try_from(burst).unwrap_or(u64::MAX),
        }),
        Queue::Packets(_) => {
            Err(format!("{burst:?}: a policer counts bytes; write it like 64kB").into())
        }
    }
}

pub(super) fn outage(text: &str) -> Result<Outage, InvalidValue> {
    let (from, length) = pair(text, '+', "10s+2s")?;
    let from = time(from)?;
    let length = time(length)?;
    if length.is_zero() {
        Err(format!("{text:?} is an outage without length"))?;
    }
    Ok(Outage {
        from,
        until: from + length,
    })
}

pub(super) fn bytes_beyond(text: &str) -> Result<usize, InvalidValue> {
    let named = overhead::NAMED.iter().find(|(name, _)| *name == text);
    let bytes = named.map(|(_, bytes)| *bytes).or_else(|| text.parse().ok());
    bytes.filter(|bytes| *bytes <= MAX_OVERHEAD).ok_or_else(|| {
        let names: Vec<_> = overhead::NAMED.iter().map(|(name, _)| *name).collect();
        format!(
            "{text:?} is neither {} nor a number of bytes up to {MAX_OVERHEAD}",
            names.join(", ")
        )
        .into()
    })
}

fn pair<'a>(
    text: &'a str,
    between: char,
    example: &str,
) -> Result<(&'a str, &'a str), InvalidValue> {
    text.split_once(between)
        .ok_or_else(|| format!("{text:?} has no '{between}': write it like {example}").into())
}

/// Parses a link to check, such as `600mbit:20ms:1%`.
pub(super) fn check_cell(text: &str) -> Result<CheckCell, InvalidValue> {
    let parts: Vec<&str> = text.split(':').collect();
    let [rate, round_trip, loss] = parts[..] else {
        return Err(format!("`{text}` is not RATE:RTT:LOSS, such as 600mbit:20ms:1%").into());
    };
    let round_trip = time(round_trip)?;
    let Share(loss) = loss.parse()?;
    let cell = CheckCell {
        rate: self::rate(rate)?,
        round_trip,
        loss,
    };
    cell.link_config()
        .check()
        .map_err(|why| format!("`{text}`: {why}"))?;
    Ok(cell)
}
