//! Uses the kernel's own emulation in place of [`emulate`](crate::emulate): netem for delay and loss, TBF for rate and
//! queue.
//!
//! A bridge joins the router's two devices, and each device shapes the packets that leave it. This uses less processor
//! time than the emulator in this crate, and other people measure with it. The limits:
//! * It does not support every setting of a [`LinkConfig`].
//! * Loss applies before delay, and delay before rate and queue.
//! * A super-packet is lost as one, so use [`Offload::None`](crate::Offload::None).
//! * The kernel does not report how late packets were, so there is no verdict.

use std::fmt;
use std::io;
use std::time::Duration;

use quictun_link::{LinkConfig, Queue, Reorder};
use quictun_sys::{Discipline, Netem, Network, TokenBucket};

use crate::world::{ROUTER_FAR, ROUTER_NEAR, World};

#[cfg(test)]
mod tests;

const BRIDGE: &str = "link";

/// Bytes that the kernel counts for each packet in addition to its IP packet. TBF can add more, but not subtract.
const ETHERNET_HEADER: usize = 14;

/// Burst allowed after a pause, as time at the full rate: as long as a timer may take.
const BURST: Duration = Duration::from_millis(1);

/// Maximum number of packets that netem delays at once: a second of 10 Gbit/s.
const UNDER_WAY: u32 = 1 << 20;

/// A link that the kernel emulates. It ends with the world.
#[derive(Debug)]
pub struct KernelLink(());

/// The reason for which the kernel cannot emulate a link.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The queueing disciplines in use do not support this setting.
    #[error("the kernel's netem and TBF do not support {0}")]
    NotThere(&'static str),
    /// This kernel was built without a part, or may not load it: the part's name, its kernel option, and its module.
    #[error("this kernel has no {0} (CONFIG_{1}; as root, `modprobe {2}` may load it)")]
    Missing(&'static str, &'static str, &'static str),
    /// The system refused a step. The text names the step.
    #[error("{0}: {1}")]
    Step(&'static str, #[source] io::Error),
}

/// The kernel's counters of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelAudit {
    /// The direction from the near end to the far end.
    pub up: Vec<Discipline>,
    /// The direction from the far end to the near end.
    pub down: Vec<Discipline>,
}

#[derive(Debug, PartialEq)]
struct Disciplines {
    netem: Option<Netem>,
    bucket: Option<TokenBucket>,
}

impl KernelLink {
    /// Checks that the kernel's disciplines support the configuration of a direction, provided that the kernel has
    /// them.
    pub fn check(config: &LinkConfig) -> Result<(), KernelError> {
        disciplines(config, 0).map(|_| ())
    }

    /// Makes the kernel emulate the link in the world's router. From Linux 6.6 on, the seed decides which packets are
    /// lost. After an error, the world is unusable.
    pub fn start(world: &World, configs: [&LinkConfig; 2], seed: u64) -> Result<Self, KernelError> {
        let [up, down] = configs;
        let up = disciplines(up, seed)?;
        let down = disciplines(down, seed.wrapping_add(1))?;
        let router = world.router();
        router
            .within(|| Network::open()?.add_bridge(BRIDGE, &[ROUTER_NEAR, ROUTER_FAR]))
            .map_err(|source| match source.kind() {
                io::ErrorKind::Unsupported => KernelError::Missing("bridge", "BRIDGE", "bridge"),
                _ => KernelError::Step("cannot bridge the router's devices", source),
            })?;
        // Packets that leave through the router's far device go up.
        for (device, asked) in [(ROUTER_FAR, up), (ROUTER_NEAR, down)] {
            let shape =
                |netem, bucket| router.within(|| Network::open()?.shape(device, netem, bucket));
            shape(asked.netem.as_ref(), asked.bucket.as_ref()).map_err(|source| {
                if source.kind() != io::ErrorKind::NotFound {
                    let step = "cannot set the router's disciplines";
                    return KernelError::Step(step, source);
                }
                match asked.netem {
                    Some(_) => KernelError::Missing("netem", "NET_SCH_NETEM", "sch_netem"),
                    None => KernelError::Missing("TBF", "NET_SCH_TBF", "sch_tbf"),
                }
            })?;
        }
        Ok(Self(()))
    }

    /// Reads the kernel's counters so far.
    pub fn audit(&self, world: &World) -> io::Result<KernelAudit> {
        let ask = |device| {
            world
                .router()
                .within(|| Network::open()?.disciplines(device))
        };
        Ok(KernelAudit {
            up: ask(ROUTER_FAR)?,
            down: ask(ROUTER_NEAR)?,
        })
    }
}

fn disciplines(config: &LinkConfig, seed: u64) -> Result<Disciplines, KernelError> {
    let not_there = [
        ("traces", config.trace.is_some()),
        ("jitter that keeps the order", !config.jitter.is_zero()),
        ("stalls", config.stall.is_some()),
        ("this model of burst loss", config.bursts.is_some()),
        (
            "reordering by extra delay",
            config.reorder != Reorder::default(),
        ),
        ("CoDel", config.codel.is_some()),
        ("marking by waiting time", config.mark_above.is_some()),
        ("policers", config.policer.is_some()),
        ("planned outages", !config.outages.is_empty()),
        ("planned changes", !config.changes.is_empty()),
        (
            "overhead below that of Ethernet's header, 14 bytes",
            config.rate.is_some() && config.overhead < ETHERNET_HEADER,
        ),
    ];
    if let Some((what, _)) = not_there.into_iter().find(|(_, asked)| *asked) {
        return Err(KernelError::NotThere(what));
    }
    let impaired = !config.delay.is_zero() || config.loss > 0.0 || config.duplicate > 0.0;
    Ok(Disciplines {
        netem: impaired.then_some(Netem {
            delay: config.delay,
            loss: config.loss,
            duplicate: config.duplicate,
            limit: UNDER_WAY,
            seed,
        }),
        bucket: config.rate.map(|rate| bucket(config, rate)),
    })
}

fn bucket(config: &LinkConfig, rate: u64) -> TokenBucket {
    let packet = config.mtu.saturating_add(config.overhead);
    let burst = u128::from(rate) * BURST.as_nanos() / 1_000_000_000;
    let burst = usize::try_from(burst).unwrap_or(usize::MAX);
    let limit = match config.queue {
        Queue::Bytes(bytes) => bytes,
        // TBF limits its queue in bytes.
        Queue::Packets(packets) => packets.saturating_mul(packet),
    };
    let bytes = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    TokenBucket {
        rate,
        overhead: u16::try_from(config.overhead - ETHERNET_HEADER).unwrap_or(u16::MAX),
        // A burst of one packet is enough to send at all; two allow the timer to be one packet late.
        burst: bytes(burst.max(packet.saturating_mul(2))),
        limit: bytes(limit.max(packet)),
    }
}

impl fmt::Display for KernelAudit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (direction, disciplines) in [("up  ", &self.up), ("down", &self.down)] {
            if disciplines.is_empty() {
                writeln!(f, "{direction}  not limited, as fast as the machine")?;
            }
            for Discipline {
                kind,
                bytes,
                packets,
                dropped,
            } in disciplines
            {
                writeln!(
                    f,
                    "{direction}  {kind}: {packets} packets ({bytes} bytes) left, {dropped} dropped"
                )?;
            }
        }
        f.write_str("verdict: none, because the kernel does not report how late packets were")
    }
}
