//! Both directions of a link, in real time.

use std::io;
use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

use quictun_link::{Link, LinkConfig};
use quictun_sys::{PacketSocket, Promptness, be_prompt};

use crate::audit::{Audit, DirectionAudit};
use crate::relay::{Ran, Relay};
use crate::schedule::Schedule;
use crate::stop::Stop;

/// What is emulated.
///
/// Lengths that the link sees are those of IP packets; [`LinkConfig::overhead`] adds what the wire does, as
/// [`LinkConfig::rate`] and the queue count it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// From the near end to the far end.
    pub up: LinkConfig,
    /// From the far end to the near end.
    pub down: LinkConfig,
    /// What accidents follow from; the directions have accidents of their own.
    pub seed: u64,
    /// Segments of a super-packet that arrive within this time of each other leave as one, when the last of them has
    /// arrived. Zero: each leaves alone, but those that arrive at the very same time, as where there is no rate, together.
    pub coalesce: Duration,
    /// What loss is drawn for.
    pub loss_unit: LossUnit,
}

/// What loss is drawn for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossUnit {
    /// Every packet of the wire.
    #[default]
    Segment,
    /// Whatever the kernel hands over as one, up to 64 kB and more: as netem does on a sender's own device, and
    /// wrong. To show what it does to measurements.
    Frame,
}

impl LossUnit {
    /// The link for segments, and the loss for whole frames.
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

/// Runs a link between the devices behind two sockets, the near and the far, until told to stop. What is under way then
/// is lost.
pub fn emulate(ends: &[PacketSocket; 2], plan: Plan, stop: &Stop) -> io::Result<Audit> {
    let start = Instant::now();
    let Plan {
        up,
        down,
        seed,
        coalesce,
        loss_unit,
    } = plan.clone();
    let run = |way: usize, config: LinkConfig| {
        let seed = seed.wrapping_mul(2).wrapping_add(way as u64);
        let (config, whole) = loss_unit.split(config);
        let link = Link::new(config, seed, start);
        let whole = whole.map(|config| Link::new(config, seed, start));
        let schedule = Schedule::new(link, whole, coalesce);
        let sockets = [&ends[way], &ends[1 - way]];
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
        let join = |handle: thread::ScopedJoinHandle<'_, Ran>| {
            handle
                .join()
                .map_err(|_| io::Error::other("an emulator's thread panicked"))
        };
        io::Result::Ok([join(up)?, join(other)?])
    })?;
    let [mut up, mut down] = ran;
    // What neither reading nor sending tells.
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

/// Timers fire when they are due, not within the usual 50 microseconds, and the thread runs when they do.
fn prepare_thread() -> Promptness {
    const SLACK_NANOS: NonZeroU64 = NonZeroU64::MIN;
    // Without it the emulator is less exact, which its audit shows.
    rustix::thread::set_current_timer_slack(Some(SLACK_NANOS)).ok();
    be_prompt()
}
