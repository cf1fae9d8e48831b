//! The settings of each direction of the link, from the flags and the plan.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quictun_args::fault::Fault;
use quictun_args::layers::Layers;
use quictun_args::options::shape::Shape;
use quictun_args::options::{Maybe, One, Opt};
use quictun_link::{
    Change, Codel, GilbertElliott, LinkConfig, NamedLink, Overrides, Queue, Setting, Trace,
};

use super::flags;
use super::values::Ecn;

/// Packets of MTU size that an `auto` queue holds at least. The largest piece that a sender hands over at once (64 KiB)
/// must fit. Otherwise the emulator would drop packets of it that a real queue would see one by one.
const QUEUE_PACKETS: usize = 64;

/// Minimum round-trip time that an `auto` queue is sized for. On a short link, the queue dominates the delay.
const QUEUE_ROUND_TRIP: Duration = Duration::from_millis(20);

struct DirectionFlags {
    word: &'static str,
    rate: &'static Maybe<u64>,
    delay: &'static One<Duration>,
    loss: &'static One<f64>,
    queue: &'static One<Option<Queue>>,
    trace: &'static Maybe<PathBuf>,
}

static DIRECTIONS: [DirectionFlags; 2] = [
    DirectionFlags {
        word: "up",
        rate: &flags::RATE_UP,
        delay: &flags::DELAY_UP,
        loss: &flags::LOSS_UP,
        queue: &flags::QUEUE_UP,
        trace: &flags::TRACE_UP,
    },
    DirectionFlags {
        word: "down",
        rate: &flags::RATE_DOWN,
        delay: &flags::DELAY_DOWN,
        loss: &flags::LOSS_DOWN,
        queue: &flags::QUEUE_DOWN,
        trace: &flags::TRACE_DOWN,
    },
];

pub(super) fn both(layers: &Layers<'_>) -> Result<[LinkConfig; 2], Fault> {
    let named = layers.get(&flags::LIKE)?;
    let seed = layers.get(&flags::SEED)?;
    let [up, down] = named.map_or_else(Default::default, |named| named.directions(seed).map(Some));
    let [up, down] = [
        one(layers, &DIRECTIONS[0], up.as_ref())?,
        one(layers, &DIRECTIONS[1], down.as_ref())?,
    ];
    let round_trip = (up.delay + down.delay).max(QUEUE_ROUND_TRIP);
    let mut directions = [up, down];
    for (config, direction) in directions.iter_mut().zip(&DIRECTIONS) {
        config.queue = queue(layers, direction, config, named, round_trip)?;
        config
            .check()
            .map_err(|why| Fault::usage(format!("the link {}", direction.word), why))?;
    }
    Ok(directions)
}

/// Returns the option for one direction if it is given, else the option for both.
fn either<'a, T, S>(layers: &Layers<'_>, own: &'a Opt<T, S>, both: &'a Opt<T, S>) -> &'a Opt<T, S>
where
    T: Clone + PartialEq + Sync,
    S: Shape,
{
    if layers.is_given(own) { own } else { both }
}

/// Returns the configuration of one direction: its flags, and the settings of its named link where flags are missing.
fn one(
    layers: &Layers<'_>,
    direction: &DirectionFlags,
    named: Option<&LinkConfig>,
) -> Result<LinkConfig, Fault> {
    let base = named.cloned().unwrap_or(LinkConfig {
        overhead: layers.get(&flags::OVERHEAD)?,
        ..LinkConfig::default()
    });
    let said = Overrides {
        rate: layers.get(either(layers, direction.rate, &flags::RATE))?,
        trace: trace(layers, direction.trace)?,
        overhead: layers.given(&flags::OVERHEAD)?,
        delay: layers.given(either(layers, direction.delay, &flags::DELAY))?,
        jitter: layers.given(&flags::JITTER)?,
        stall: layers.get(&flags::STALL)?,
        loss: loss(layers, direction)?,
        changes: layers.get(&flags::CHANGE)?,
    };
    let rates = |changes: &[Change]| {
        changes
            .iter()
            .any(|change| matches!(change.to, Setting::Rate(_)))
    };
    if named.is_some() && !said.sets_rate() && rates(&said.changes) {
        let why =
            "the rate of a named link changes by itself: give --rate too, from which it changes";
        return Err(layers.fault(&flags::CHANGE, why));
    }
    let (codel, mark_above) = marks(layers)?;
    let mtu = layers.get(&flags::MTU)?;
    Ok(LinkConfig {
        loss_at: layers.get(&flags::LOSS_AT)?,
        reorder: layers.get(&flags::REORDER)?.unwrap_or_default(),
        duplicate: layers.get(&flags::DUPLICATE)?,
        codel,
        mark_above,
        policer: layers.get(&flags::POLICER)?,
        mtu: usize::try_from(mtu).unwrap_or(usize::MAX),
        outages: layers.get(&flags::OUTAGE)?,
        ..said.over(base)
    })
}

/// Returns the loss if it is given: independent, or in bursts.
fn loss(
    layers: &Layers<'_>,
    direction: &DirectionFlags,
) -> Result<Option<(f64, Option<GilbertElliott>)>, Fault> {
    let loss = layers.given(either(layers, direction.loss, &flags::LOSS))?;
    let Some(burst) = layers.get(&flags::BURST)? else {
        return Ok(loss.map(|loss| (loss, None)));
    };
    let losses = [&flags::LOSS, &flags::LOSS_UP, &flags::LOSS_DOWN];
    if !losses.into_iter().any(|loss| layers.is_given(loss)) {
        return Err(layers.fault(
            &flags::BURST,
            "bursts need a loss: set its share with --loss",
        ));
    }
    let bursts = |loss| (loss > 0.0).then(|| GilbertElliott::from_mean(loss, burst));
    Ok(loss.map(|loss| (0.0, bursts(loss))))
}

fn marks(layers: &Layers<'_>) -> Result<(Option<Codel>, Option<Duration>), Fault> {
    match (layers.get(&flags::ECN)?, layers.get(&flags::CODEL)?) {
        (Some(Ecn::Codel), Some(codel)) => Ok((Some(Codel { ecn: true, ..codel }), None)),
        (Some(Ecn::Codel), None) => Err(layers.fault(
            &flags::ECN,
            "no CoDel is configured that could mark: add --codel 5ms:100ms",
        )),
        (Some(Ecn::Above(wait)), codel) => Ok((codel, Some(wait))),
        (None, codel) => Ok((codel, None)),
    }
}

/// Returns the queue of the flag. Without it, returns the named link's queue for the direction's rate, or one that
/// holds a round trip's bytes.
fn queue(
    layers: &Layers<'_>,
    direction: &DirectionFlags,
    config: &LinkConfig,
    named: Option<NamedLink>,
    round_trip: Duration,
) -> Result<Queue, Fault> {
    let time = match (
        layers.given(either(layers, direction.queue, &flags::QUEUE))?,
        named,
    ) {
        (Some(Some(queue)), _) => return Ok(queue),
        (Some(None), _) | (None, None) => round_trip,
        (None, Some(_)) if config.queue != Queue::default() => return Ok(config.queue),
        (None, Some(named)) => named.queue_time(),
    };
    if config.rate.is_none() && config.trace.is_none() {
        return Ok(Queue::default());
    }
    let packet = config.mtu + config.overhead;
    let holds = config.bandwidth_delay(time).max(QUEUE_PACKETS * packet);
    Ok(Queue::Bytes(holds))
}

fn trace(layers: &Layers<'_>, option: &Maybe<PathBuf>) -> Result<Option<Arc<Trace>>, Fault> {
    let Some(path) = layers.get(option)? else {
        return Ok(None);
    };
    let shown = path.display();
    let text = layers.inputs().files.read(&path).map_err(|error| {
        Fault::failure(layers.what(option), format!("cannot read {shown}: {error}"))
    })?;
    let trace =
        Trace::parse(&text).map_err(|why| layers.fault(option, format!("{shown}: {why}")))?;
    Ok(Some(Arc::new(trace)))
}
