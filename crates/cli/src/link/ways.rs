//! What the flags and the plan say about each way of the link.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quictun_args::fault::Fault;
use quictun_args::layers::Layers;
use quictun_args::options::shape::Shape;
use quictun_args::options::{Maybe, One, Opt};
use quictun_link::{Codel, GilbertElliott, LinkConfig, Queue, Trace};

use super::flags;
use super::values::Ecn;

/// Packets that the queue holds at least where nobody says how many: the largest piece that a sender hands
/// over at once (64 KiB) must fit, or the emulator would lose what a real queue sees packet by packet.
const QUEUE_PACKETS: usize = 64;

/// The round trip that a queue is made for at least: of a short link the queue, not the link, makes the delay.
const QUEUE_ROUND_TRIP: Duration = Duration::from_millis(20);

struct Way {
    word: &'static str,
    rate: &'static Maybe<u64>,
    delay: &'static One<Duration>,
    loss: &'static One<f64>,
    queue: &'static One<Option<Queue>>,
    trace: &'static Maybe<PathBuf>,
}

static WAYS: [Way; 2] = [
    Way {
        word: "up",
        rate: &flags::RATE_UP,
        delay: &flags::DELAY_UP,
        loss: &flags::LOSS_UP,
        queue: &flags::QUEUE_UP,
        trace: &flags::TRACE_UP,
    },
    Way {
        word: "down",
        rate: &flags::RATE_DOWN,
        delay: &flags::DELAY_DOWN,
        loss: &flags::LOSS_DOWN,
        queue: &flags::QUEUE_DOWN,
        trace: &flags::TRACE_DOWN,
    },
];

pub(super) fn both(layers: &Layers<'_>) -> Result<[LinkConfig; 2], Fault> {
    let mtu = layers.get(&flags::MTU)?;
    let mut ways = [one(layers, &WAYS[0], mtu)?, one(layers, &WAYS[1], mtu)?];
    let round_trip = (ways[0].delay + ways[1].delay).max(QUEUE_ROUND_TRIP);
    for (config, way) in ways.iter_mut().zip(&WAYS) {
        config.queue = queue(layers, way, config, round_trip, mtu)?;
        config
            .check()
            .map_err(|why| Fault::usage(format!("the link {}", way.word), why))?;
    }
    Ok(ways)
}

/// The value of the option for one way alone where it is given, or of the one for both.
fn either<T: Clone + PartialEq + Sync, S: Shape>(
    layers: &Layers<'_>,
    own: &Opt<T, S>,
    both: &Opt<T, S>,
) -> Result<S::Of<T>, Fault> {
    layers.get(if layers.is_given(own) { own } else { both })
}

fn one(layers: &Layers<'_>, way: &Way, mtu: u32) -> Result<LinkConfig, Fault> {
    let loss = either(layers, way.loss, &flags::LOSS)?;
    let (loss, bursts) = match layers.get(&flags::BURST)? {
        None => (loss, None),
        Some(_) if loss == 0.0 => {
            let losses = [&flags::LOSS, &flags::LOSS_UP, &flags::LOSS_DOWN];
            if !losses.into_iter().any(|loss| layers.is_given(loss)) {
                return Err(layers.fault(
                    &flags::BURST,
                    "bursts of nothing: say how much is lost, with --loss",
                ));
            }
            (0.0, None)
        }
        Some(burst) => (0.0, Some(GilbertElliott::from_mean(loss, burst))),
    };
    let (codel, mark_above) = marks(layers)?;
    Ok(LinkConfig {
        rate: either(layers, way.rate, &flags::RATE)?,
        trace: trace(layers, way.trace)?,
        overhead: layers.get(&flags::OVERHEAD)?,
        delay: either(layers, way.delay, &flags::DELAY)?,
        jitter: layers.get(&flags::JITTER)?,
        stall: layers.get(&flags::STALL)?,
        loss,
        bursts,
        loss_at: layers.get(&flags::LOSS_AT)?,
        reorder: layers.get(&flags::REORDER)?.unwrap_or_default(),
        duplicate: layers.get(&flags::DUPLICATE)?,
        codel,
        mark_above,
        policer: layers.get(&flags::POLICER)?,
        mtu: usize::try_from(mtu).unwrap_or(usize::MAX),
        outages: layers.get(&flags::OUTAGE)?,
        changes: {
            let mut changes = layers.get(&flags::CHANGE)?;
            changes.sort_by_key(|change| change.at);
            changes
        },
        ..LinkConfig::default()
    })
}

fn marks(layers: &Layers<'_>) -> Result<(Option<Codel>, Option<Duration>), Fault> {
    match (layers.get(&flags::ECN)?, layers.get(&flags::CODEL)?) {
        (Some(Ecn::Codel), Some(codel)) => Ok((Some(Codel { ecn: true, ..codel }), None)),
        (Some(Ecn::Codel), None) => Err(layers.fault(
            &flags::ECN,
            "there is no CoDel that would drop: add --codel 5ms:100ms",
        )),
        (Some(Ecn::Above(wait)), codel) => Ok((codel, Some(wait))),
        (None, codel) => Ok((codel, None)),
    }
}

fn queue(
    layers: &Layers<'_>,
    way: &Way,
    config: &LinkConfig,
    round_trip: Duration,
    mtu: u32,
) -> Result<Queue, Fault> {
    if let Some(queue) = either(layers, way.queue, &flags::QUEUE)? {
        return Ok(queue);
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
