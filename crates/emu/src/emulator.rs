//! Emulates both directions of a link in real time.

use std::io;
use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

use quictun_link::{Link, LinkConfig};
use quictun_sys::{PacketSocket, SchedulingClass, raise_scheduling_class};

use crate::audit::{Audit, DirectionAudit};
use crate::relay::{Relay, RelayResult};
use crate::schedule::Schedule;
use crate::stop::Stop;

/// The configuration of an emulator.
///
/// The link sees the lengths of IP packets. [`LinkConfig::overhead`] adds the bytes of the wire, for
/// [`LinkConfig::rate`] and for the queue.
#[derive(Clone, Debug)]
pub struct EmulatorConfig {
    /// The direction from the near end to the far end.
    pub up: LinkConfig,
    /// The direction from the far end to the near end.
    pub down: LinkConfig,
    /// Seed of all random events. Each direction derives its own.
    pub seed: u64,
    /// Window for merging segments. Segments of a super-packet that arrive within this time of each other leave as one
    /// frame, when the last of them has arrived. With zero, each segment leaves alone, except those that arrive at
    /// exactly the same time, as they do without a rate.
    pub coalesce: Duration,
    /// Unit to which each loss decision applies.
    pub loss_unit: LossUnit,
}

/// The unit to which each loss decision applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossUnit {
    /// Every packet on the wire.
    #[default]
    Segment,
    /// Every frame that the kernel hands over, up to 64 kB and more. This is what netem does on a sender's own device,
    /// and it is wrong; the option exists to show its effect on measurements.
    Frame,
}

impl LossUnit {
    /// Splits the configuration into the link for segments and the link that decides on the loss of whole frames.
    fn split(self, config: LinkConfig) -> (LinkConfig, Option<LinkConfig>) {
        match self {
            Self::Segment => (config, None),
            Self::Frame => {
                let whole = LinkConfig {
                    loss: config.loss,
                    bursts: config.bursts,
                    ..LinkConfig::default()
                };
                let rest = LinkConfig {
                    loss: 0.0,
                    bursts: None,
                    ..config
                };
                (rest, Some(whole))
            }
        }
    }
}

/// Runs a link between the devices behind two sockets, near and far, until `stop` is used. Packets in flight at that
/// time are lost.
pub fn emulate(ends: &[PacketSocket; 2], plan: EmulatorConfig, stop: &Stop) -> io::Result<Audit> {
    let start = Instant::now();
    let EmulatorConfig {
        up,
        down,
        seed,
        coalesce,
        loss_unit,
    } = plan.clone();
    let run = |direction: usize, config: LinkConfig| {
        let seed = seed.wrapping_mul(2).wrapping_add(direction as u64);
        let (config, whole) = loss_unit.split(config);
        let link = Link::new(config, seed, start);
        let whole = whole.map(|config| Link::new(config, seed, start));
        let schedule = Schedule::new(link, whole, coalesce);
        let sockets = [&ends[direction], &ends[1 - direction]];
        let promptness = prepare_thread();
        Relay::new(sockets, stop, schedule, start).run(promptness)
    };
    let ran = thread::scope(|scope| {
        let other = thread::Builder::new()
            .name("link down".to_owned())
            .spawn_scoped(scope, || run(1, down))?;
        let up = thread::Builder::new()
            .name("link up".to_owned())
            .spawn_scoped(scope, || run(0, up))?;
        let join = |handle: thread::ScopedJoinHandle<'_, RelayResult>| {
            handle
                .join()
                .map_err(|_| io::Error::other("an emulator's thread panicked"))
        };
        io::Result::Ok([join(up)?, join(other)?])
    })?;
    let [mut up, mut down] = ran;
    // Add the drops that neither reading nor sending reports.
    let (near, far) = (ends[0].drops()?, ends[1].drops()?);
    for (ran, from, to) in [(&mut up, near, far), (&mut down, far, near)] {
        ran.counts.unintended.not_read += from.receive_buffer;
        ran.counts.unintended.by_device += from.device_in + to.device_out;
    }
    Ok(Audit {
        up: DirectionAudit::new(&loss_unit.split(plan.up).0, up),
        down: DirectionAudit::new(&loss_unit.split(plan.down).0, down),
    })
}

/// Makes timers fire when due instead of within the default 50 microseconds, and asks the kernel to run the thread at
/// once.
fn prepare_thread() -> SchedulingClass {
    const SLACK_NANOS: NonZeroU64 = NonZeroU64::MIN;
    // If this fails, the emulator is less exact, and its audit shows it.
    rustix::thread::set_current_timer_slack(Some(SLACK_NANOS)).ok();
    raise_scheduling_class()
}
