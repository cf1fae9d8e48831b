//! The kernel's own emulation in place of ours, where it has one: netem for delay and loss, TBF for rate and queue.
//!
//! A bridge joins the router's two devices, and each device treats what leaves it. It takes less of the processor than
//! an emulator of ours ([`emulate`](crate::emulate)), and it is what others measure with. It cannot do all that a [`LinkConfig`] can
//! say; loss strikes before delay, and delay comes before rate and queue; a super-packet is lost as one, so that
//! [`Offload::None`](crate::Offload::None) belongs to it; and it does not say how late packets were, so that there is
//! no verdict.

use std::fmt;
use std::io;
use std::time::Duration;

use quictun_link::{LinkConfig, Queue, Reorder};
use quictun_sys::{Discipline, Netem, Network, TokenBucket};

use crate::world::{ROUTER_FAR, ROUTER_NEAR, World};

#[cfg(test)]
mod tests;

const BRIDGE: &str = "link";

/// What the kernel counts of a packet that is not in its IP packet, and can count beyond, bytes.
const ETHERNET_HEADER: usize = 14;

/// What goes at once after a pause, as time at the full rate: as long as timers may take.
const BURST: Duration = Duration::from_millis(1);

/// Packets that may be on their way for the delay: a second of 10 Gbit/s.
const UNDER_WAY: u32 = 1 << 20;

/// A link that the kernel emulates. It ends with the world.
#[derive(Debug)]
pub struct KernelLink(());

/// Why the kernel does not emulate a link.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// No discipline that we use does this.
    #[error("the kernel's netem and TBF have no {0}")]
    NotThere(&'static str),
    /// This kernel was built without it, or may not load it: its name, the kernel's switch for it, and the module.
    #[error("this kernel has no {0} (CONFIG_{1}; as root, `modprobe {2}` may load it)")]
    Missing(&'static str, &'static str, &'static str),
    /// The system refused a step.
    #[error("{0}: {1}")]
    Step(&'static str, #[source] io::Error),
}

/// What the kernel has to say of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelAudit {
    /// From the near end to the far end.
    pub up: Vec<Discipline>,
    /// From the far end to the near end.
    pub down: Vec<Discipline>,
}

#[derive(Debug, PartialEq)]
struct Disciplines {
    netem: Option<Netem>,
    bucket: Option<TokenBucket>,
}

impl KernelLink {
    /// Whether the kernel's disciplines can do what a way asks for, if the kernel has them.
    pub fn check(way: &LinkConfig) -> Result<(), KernelError> {
        disciplines(way, 0).map(|_| ())
    }

    /// Has the kernel emulate the link in the world's router. The seed decides what is lost, from Linux 6.6 on. After
    /// an error the world is of no use any more.
    pub fn start(world: &World, ways: [&LinkConfig; 2], seed: u64) -> Result<Self, KernelError> {
        let [up, down] = ways;
        let up = disciplines(up, seed)?;
        let down = disciplines(down, seed.wrapping_add(1))?;
        let router = world.router();
        router
            .within(|| Network::open()?.add_bridge(BRIDGE, &[ROUTER_NEAR, ROUTER_FAR]))
            .map_err(|source| match source.kind() {
                io::ErrorKind::Unsupported => KernelError::Missing("bridge", "BRIDGE", "bridge"),
                _ => KernelError::Step("joining the router's devices", source),
            })?;
        // What leaves the router's far end goes up.
        for (device, asked) in [(ROUTER_FAR, up), (ROUTER_NEAR, down)] {
            let shape =
                |netem, bucket| router.within(|| Network::open()?.shape(device, netem, bucket));
            shape(asked.netem.as_ref(), asked.bucket.as_ref()).map_err(|source| {
                if source.kind() != io::ErrorKind::NotFound {
                    let step = "giving the router's devices their disciplines";
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

    /// What the kernel has to say, until now.
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

fn disciplines(way: &LinkConfig, seed: u64) -> Result<Disciplines, KernelError> {
    let not_there = [
        ("trace", way.trace.is_some()),
        ("jitter that keeps the order", !way.jitter.is_zero()),
        ("stalls", way.stall.is_some()),
        ("loss in such bursts", way.bursts.is_some()),
        (
            "late packets of this kind",
            way.reorder != Reorder::default(),
        ),
        ("CoDel", way.codel.is_some()),
        ("marks by waiting time", way.mark_above.is_some()),
        ("policer", way.policer.is_some()),
        ("planned outages", !way.outages.is_empty()),
        ("planned changes", !way.changes.is_empty()),
        (
            "overhead of less than Ethernet's header, 14 bytes",
            way.rate.is_some() && way.overhead < ETHERNET_HEADER,
        ),
    ];
    if let Some((what, _)) = not_there.into_iter().find(|(_, asked)| *asked) {
        return Err(KernelError::NotThere(what));
    }
    let impaired = !way.delay.is_zero() || way.loss > 0.0 || way.duplicate > 0.0;
    Ok(Disciplines {
        netem: impaired.then_some(Netem {
            delay: way.delay,
            loss: way.loss,
            duplicate: way.duplicate,
            limit: UNDER_WAY,
            seed,
        }),
        bucket: way.rate.map(|rate| bucket(way, rate)),
    })
}

fn bucket(way: &LinkConfig, rate: u64) -> TokenBucket {
    let packet = way.mtu.saturating_add(way.overhead);
    let burst = u128::from(rate) * BURST.as_nanos() / 1_000_000_000;
    let burst = usize::try_from(burst).unwrap_or(usize::MAX);
    let limit = match way.queue {
        Queue::Bytes(bytes) => bytes,
        // TBF counts bytes.
        Queue::Packets(packets) => packets.saturating_mul(packet),
    };
    let bytes = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    TokenBucket {
        rate,
        overhead: u16::try_from(way.overhead - ETHERNET_HEADER).unwrap_or(u16::MAX),
        // One packet always goes; two let the timer be late for one.
        burst: bytes(burst.max(packet.saturating_mul(2))),
        limit: bytes(limit.max(packet)),
    }
}

impl fmt::Display for KernelAudit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (way, disciplines) in [("up  ", &self.up), ("down", &self.down)] {
            if disciplines.is_empty() {
                writeln!(f, "{way}  as fast as the machine")?;
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
                    "{way}  {kind}: {packets} packets ({bytes} bytes) left, {dropped} dropped"
                )?;
            }
        }
        f.write_str("verdict: none, the kernel does not say how late packets were")
    }
}
