//! What the flags and the plan say about each way of the link.

use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use quictun_lab_run::link::CheckCell;
use quictun_link::units::{Delay, Rate, Share};
use quictun_link::{
    Change, Codel, GilbertElliott, LinkConfig, LossAt, Outage, Policer, Queue, Reorder, Setting,
    Trace, overhead,
};

use quictun_args::fault::Fault;
use quictun_args::layers::Layers;

/// Packets that the queue holds at least where nobody says how many: the largest piece that a sender hands
/// over at once (64 KiB) must fit, or the emulator would lose what a real queue sees packet by packet.
const QUEUE_PACKETS: usize = 64;

/// The round trip that a queue is made for at least: of a short link the queue, not the link, makes the delay.
const QUEUE_ROUND_TRIP: Duration = Duration::from_millis(20);

/// Smallest MTU: IPv6 demands it.
const MIN_MTU: u32 = 1280;

/// Largest MTU of a cable between two namespaces.
const MAX_MTU: u32 = 65_535;

/// Longest overhead: more than every tunnel in a tunnel.
const MAX_OVERHEAD: usize = 1000;

/// A way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

/// Both ways, up and down.
pub(super) fn both(layers: &Layers<'_>) -> Result<[LinkConfig; 2], Fault> {
    let mtu = mtu(layers)?;
    let mut ways = [one(layers, Way::Up, mtu)?, one(layers, Way::Down, mtu)?];
    let round_trip = (ways[0].delay + ways[1].delay).max(QUEUE_ROUND_TRIP);
    for (config, way) in ways.iter_mut().zip([Way::Up, Way::Down]) {
        config.queue = queue(layers, way, config, round_trip, mtu)?;
        config
            .check()
            .map_err(|why| Fault::usage(format!("the link {}", way.word()), why))?;
    }
    Ok(ways)
}

/// The longest packet.
pub(super) fn mtu(layers: &Layers<'_>) -> Result<u32, Fault> {
    layers.number("mtu", MIN_MTU..=MAX_MTU)
}

/// A time, such as `1.5ms`.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let Delay(time) = parse(text)?;
    Ok(time)
}

/// A rate in bytes per second.
pub(super) fn rate(text: &str) -> Result<u64, String> {
    let Rate(rate) = parse(text)?;
    if rate == 0 {
        return Err(format!(
            "`{text}` lets nothing through; leave it out for no limit, or plan an outage"
        ));
    }
    Ok(rate)
}

impl Way {
    fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }

    /// The option for this way alone where somebody gave it, or the one for both.
    fn option(self, layers: &Layers<'_>, both: &'static str) -> &'static str {
        let own = match (both, self) {
            ("rate", Self::Up) => "rate-up",
            ("rate", Self::Down) => "rate-down",
            ("delay", Self::Up) => "delay-up",
            ("delay", Self::Down) => "delay-down",
            ("loss", Self::Up) => "loss-up",
            ("loss", Self::Down) => "loss-down",
            ("queue", Self::Up) => "queue-up",
            ("queue", Self::Down) => "queue-down",
            _ => return both,
        };
        if layers.is_given(own) { own } else { both }
    }
}

fn one(layers: &Layers<'_>, way: Way, mtu: u32) -> Result<LinkConfig, Fault> {
    let option = |both| way.option(layers, both);
    let loss = layers.value(option("loss"), share)?;
    let burst = layers.optional("burst", mean_burst)?;
    let (loss, bursts) = match burst {
        None => (loss, None),
        Some(_) if loss == 0.0 => {
            if !["loss", "loss-up", "loss-down"]
                .iter()
                .any(|name| layers.is_given(name))
            {
                return Err(layers.fault(
                    "burst",
                    "bursts of nothing: say how much is lost, with --loss",
                ));
            }
            (0.0, None)
        }
        Some(burst) => (0.0, Some(GilbertElliott::from_mean(loss, burst))),
    };
    let codel = layers.optional("codel", |text| {
        let (target, interval) = pair(text, ':', "5ms:100ms")?;
        Ok::<_, String>(Codel {
            target: time(target)?,
            interval: time(interval)?,
            ecn: false,
        })
    })?;
    let (codel, mark_above) = marks(layers, codel)?;
    Ok(LinkConfig {
        rate: layers.optional(option("rate"), rate)?,
        trace: trace(layers, way)?,
        overhead: layers.value("overhead", bytes_beyond)?,
        delay: layers.value(option("delay"), time)?,
        jitter: layers.value("jitter", time)?,
        loss,
        bursts,
        loss_at: layers.choice(
            "loss-at",
            &[("exit", LossAt::Exit), ("entry", LossAt::Entry)],
        )?,
        reorder: layers.optional("reorder", reorder)?.unwrap_or_default(),
        duplicate: layers.value("duplicate", share)?,
        codel,
        mark_above,
        policer: layers.optional("policer", policer)?,
        mtu: usize::try_from(mtu).unwrap_or(usize::MAX),
        outages: layers.all("outage", outage)?,
        changes: changes(layers)?,
        ..LinkConfig::default()
    })
}

fn marks(
    layers: &Layers<'_>,
    codel: Option<Codel>,
) -> Result<(Option<Codel>, Option<Duration>), Fault> {
    match (layers.text("ecn").as_deref(), codel) {
        (Some("codel"), Some(codel)) => Ok((Some(Codel { ecn: true, ..codel }), None)),
        (Some("codel"), None) => Err(layers.fault(
            "ecn",
            "there is no CoDel that would drop: add --codel 5ms:100ms",
        )),
        _ => Ok((codel, layers.optional("ecn", time)?)),
    }
}

fn queue(
    layers: &Layers<'_>,
    way: Way,
    config: &LinkConfig,
    round_trip: Duration,
    mtu: u32,
) -> Result<Queue, Fault> {
    let name = way.option(layers, "queue");
    if layers.text(name).as_deref() != Some("auto") {
        return layers.value(name, parse);
    }
    let rate = config
        .rate
        .or(config.trace.as_ref().map(|trace| trace.mean_rate()));
    let Some(rate) = rate else {
        return Ok(Queue::default());
    };
    let packet = usize::try_from(mtu).unwrap_or(usize::MAX) + config.overhead;
    let worth = u128::from(rate) * round_trip.as_nanos() / 1_000_000_000;
    let worth = usize::try_from(worth).unwrap_or(usize::MAX);
    Ok(Queue::Bytes(worth.max(QUEUE_PACKETS * packet)))
}

fn trace(layers: &Layers<'_>, way: Way) -> Result<Option<Arc<Trace>>, Fault> {
    let name = match way {
        Way::Up => "trace-up",
        Way::Down => "trace-down",
    };
    let Some(path) = layers.text(name) else {
        return Ok(None);
    };
    let text = layers
        .inputs()
        .files
        .read(Path::new(&path))
        .map_err(|error| {
            let what = layers.fault(name, "").what;
            Fault::failure(what, format!("cannot read {path}: {error}"))
        })?;
    let trace = Trace::parse(&text).map_err(|why| layers.fault(name, format!("{path}: {why}")))?;
    Ok(Some(Arc::new(trace)))
}

fn changes(layers: &Layers<'_>) -> Result<Vec<Change>, Fault> {
    let mut changes = layers.all("change", |text| {
        let (at, what) = pair(text, ':', "5s:rate=100mbit")?;
        let (what, value) = pair(what, '=', "5s:rate=100mbit")?;
        let to = match what {
            "rate" => Setting::Rate(Some(rate(value)?)),
            "delay" => Setting::Delay(time(value)?),
            "loss" => Setting::Loss(share(value)?),
            _ => return Err(format!("{what:?} cannot change: rate, delay and loss can")),
        };
        Ok::<_, String>(Change { at: time(at)?, to })
    })?;
    changes.sort_by_key(|change| change.at);
    Ok(changes)
}

/// A part of all packets.
fn share(text: &str) -> Result<f64, String> {
    let Share(share) = parse(text)?;
    if share >= 1.0 && !text.ends_with('%') {
        return Err(format!(
            "`{text}` is all packets: write {text}% for one in a hundred, or 100%"
        ));
    }
    Ok(share)
}

fn mean_burst(text: &str) -> Result<f64, String> {
    let packets = text
        .parse()
        .ok()
        .filter(|packets: &f64| *packets >= 1.0 && packets.is_finite());
    packets.ok_or_else(|| format!("{text:?} is not a number of packets: write it like 3 or 4.5"))
}

fn reorder(text: &str) -> Result<Reorder, String> {
    let (share, extra) = pair(text, ':', "1%:5ms")?;
    Ok(Reorder {
        share: self::share(share)?,
        extra: time(extra)?,
    })
}

fn policer(text: &str) -> Result<Policer, String> {
    let (most, burst) = pair(text, ':', "50mbit:64kB")?;
    match parse::<Queue>(burst)? {
        Queue::Bytes(burst) => Ok(Policer {
            rate: rate(most)?,
            burst: u64::try_from(burst).unwrap_or(u64::MAX),
        }),
        Queue::Packets(_) => Err(format!(
            "{burst:?}: a policer counts bytes; write it like 64kB"
        )),
    }
}

fn outage(text: &str) -> Result<Outage, String> {
    let (from, length) = pair(text, '+', "10s+2s")?;
    let from = time(from)?;
    let length = time(length)?;
    if length.is_zero() {
        return Err(format!("{text:?} is an outage of no length"));
    }
    Ok(Outage {
        from,
        until: from + length,
    })
}

fn bytes_beyond(text: &str) -> Result<usize, String> {
    let named = overhead::NAMED.iter().find(|(name, _)| *name == text);
    let bytes = named.map(|(_, bytes)| *bytes).or_else(|| text.parse().ok());
    bytes.filter(|bytes| *bytes <= MAX_OVERHEAD).ok_or_else(|| {
        let names: Vec<_> = overhead::NAMED.iter().map(|(name, _)| *name).collect();
        format!(
            "{text:?} is neither {} nor a number of bytes up to {MAX_OVERHEAD}",
            names.join(", ")
        )
    })
}

fn pair<'a>(text: &'a str, between: char, example: &str) -> Result<(&'a str, &'a str), String> {
    text.split_once(between)
        .ok_or_else(|| format!("{text:?} has no '{between}': write it like {example}"))
}

fn parse<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|why: T::Err| why.to_string())
}

/// A link to check, such as `600mbit:20ms:1%`.
pub(super) fn check_cell(text: &str) -> Result<CheckCell, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let [rate, round_trip, loss] = parts[..] else {
        return Err(format!(
            "`{text}` is not RATE:RTT:LOSS, such as 600mbit:20ms:1%"
        ));
    };
    let round_trip = time(round_trip)?;
    let Share(loss) = parse(loss)?;
    let cell = CheckCell {
        rate: self::rate(rate)?,
        round_trip,
        loss,
    };
    cell.way()
        .check()
        .map_err(|why| format!("`{text}`: {why}"))?;
    Ok(cell)
}
