//! Measures one cell: creates fresh networks and a link, runs an arm's programs, and collects the figures.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use quictun_emu::{
    Audit, DirectionAudit, EmulatorConfig, Interconnect, Limit, LossUnit, Offload, RunningEmulator,
    Verdict, World, WorldOptions,
};
use quictun_lab::{
    Arm, Cell, DirectionAccount, EmulatedLink, Link, LinkAccount, Metric, Profile, Setup, judge,
    late_limit,
};

use quictun_link::LinkConfig;

use crate::arm::{RIVAL_GENERATOR, RunningArm};
use crate::client::{ChildProgram, Interrupted};
use crate::figures::{counted, enter, figures, settle};
use crate::foreign;
use crate::processors::{Observer, UsageMeter};
use crate::profile::Profiler;
use crate::remote::Remote;
use crate::tally::FrameTally;

pub(crate) struct Measurer {
    pub(crate) observer: Observer,
    /// The far end of a real path. `None` if all programs run on this machine.
    pub(crate) remote: Option<Remote>,
}

impl Measurer {
    /// Measures a cell. A failure makes the cell invalid and is recorded in it. The only error is [`Interrupted`].
    pub(crate) fn measure(&self, arm: &Arm, setup: &Setup, blank: Cell) -> Result<Cell> {
        let mut cell = blank;
        let begin = Instant::now();
        let measured = match &self.remote {
            Some(remote) => remote.cross(&self.observer, arm, &setup.load, &mut cell),
            None => self.attempt(arm, setup, &mut cell, None),
        };
        match measured {
            Ok(()) => {}
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => {
                cell.valid = false;
                cell.flags.push(format!("{error:#}"));
            }
        }
        cell.seconds = begin.elapsed().as_secs_f64();
        Ok(cell)
    }

    /// Profiles the programs of a cell. Discards all figures of this run.
    pub(crate) fn profile(&self, arm: &Arm, setup: &Setup, blank: Cell) -> Result<Vec<Profile>> {
        let mut cell = blank;
        let mut profiler = Profiler::new();
        self.attempt(arm, setup, &mut cell, Some(&mut profiler))?;
        let profiles = profiler.finish(&cell.case, &cell.arm);
        profiles.context("cannot profile programs")
    }

    fn attempt(
        &self,
        arm: &Arm,
        setup: &Setup,
        cell: &mut Cell,
        profiler: Option<&mut Profiler>,
    ) -> Result<()> {
        let world = World::build(&world_plan(&setup.link))?;
        let (mut running, mut foreign) = (None, None);
        if let Link::Emulated(link) = &setup.link {
            if let Some(command) = &link.emulator {
                let started =
                    foreign::start(&world, link, command, cell.seed, &self.observer.waiter);
                foreign = Some(started?);
            } else {
                let started = RunningEmulator::start(&world, plan(link, cell.seed));
                running = Some(started.context("cannot start the emulator")?);
            }
        }
        let tally = FrameTally::open(&world, &setup.link)?;
        let outcome = self.cross(&world, arm, setup, cell, profiler);
        // Record what the link did even if the measurement failed.
        let audit = running
            .map(RunningEmulator::stop)
            .transpose()
            .context("the emulator failed")?;
        let seed = cell.seed;
        let emulated = setup.link.emulated();
        cell.link = audit
            .zip(emulated)
            .map(|(audit, link)| account(&audit, link, seed));
        foreign.as_mut().map(ChildProgram::check).transpose()?;
        // Judge before reporting a failure: if the link stalled, the stall explains the failure, and the cell is worth
        // another attempt.
        let judgement = judge(cell.link.as_ref(), setup.load.mode, cell.steal);
        settle(cell, judgement);
        outcome?;
        let frames = cell.link.as_ref().map(|link| link.up.packets_per_frame);
        cell.metrics
            .extend(frames.map(|packets| (Metric::PacketsPerFrame, packets)));
        cell.metrics
            .extend(tally.figures().context("cannot count frames")?);
        Ok(())
    }

    fn cross(
        &self,
        world: &World,
        arm: &Arm,
        setup: &Setup,
        cell: &mut Cell,
        mut profiler: Option<&mut Profiler>,
    ) -> Result<()> {
        let load = &setup.load;
        let mut ready = RunningArm::new(world, &setup.link, arm, load, &self.observer.waiter)?;
        let begin = Instant::now();
        let rival = ready.rival(load)?;
        let streams = ready.streams(arm, load)?;
        let client = ready.client(arm, load)?;
        let mut watch = UsageMeter::new(ready.groups(&client), &self.observer.host);
        let ended = client.wait_end(&self.observer.waiter, load.time_limit, || {
            watch.read();
            if let Some(profiler) = &mut profiler {
                profiler.look(watch.threads());
            }
            ready.check()
        })?;
        let end = Instant::now();
        let outcome = figures("the client", &ended, ready.generator, load)?;
        let (from, until) = counted(load, begin, end);
        let mut rates = Vec::new();
        for (direction, stream) in streams.into_iter().enumerate() {
            let Some(stream) = stream else { continue };
            let load = load.stream_beside(direction == 1);
            let ended =
                stream.wait_end(&self.observer.waiter, load.time_limit, || ready.check())?;
            let mut beside = figures("the background stream", &ended, ready.generator, &load)?;
            let rate = beside.metrics.remove(&Metric::ReceiverMbitPerS);
            let metric = [Metric::BackgroundUpMbitPerS, Metric::BackgroundDownMbitPerS][direction];
            rates.extend(rate.map(|rate| (metric, rate)));
        }
        enter(cell, outcome, watch.usage(from, until), load);
        cell.metrics.extend(rates);
        if let Some((rival, load)) = rival.zip(load.rival_stream()) {
            let waiter = &self.observer.waiter;
            let ended = rival.wait_end(waiter, load.time_limit, || ready.check())?;
            let outcome = figures("the rival", &ended, RIVAL_GENERATOR, &load)?;
            let rate = outcome.metrics.get(&Metric::ReceiverMbitPerS);
            let rate = rate.context("the rival reported no rate")?;
            let shares = shares(&cell.metrics, *rate);
            cell.metrics.extend(shares);
        }
        ready.stop()
    }
}

/// Returns the rate of the rival, and the measured stream's share of both rates.
fn shares(metrics: &BTreeMap<Metric, f64>, rival: f64) -> Vec<(Metric, f64)> {
    let streams = [
        Metric::BackgroundUpMbitPerS,
        Metric::BackgroundDownMbitPerS,
        Metric::ReceiverMbitPerS,
    ];
    let own = streams.iter().find_map(|stream| metrics.get(stream));
    let both = own.map(|own| own + rival).filter(|both| *both > 0.0);
    let share = own.zip(both).map(|(own, both)| own / both * 100.0);
    let mut shares = vec![(Metric::RivalMbitPerS, rival)];
    shares.extend(share.map(|share| (Metric::SharePercent, share)));
    shares
}

fn world_plan(link: &Link) -> WorldOptions {
    let usual = WorldOptions::default();
    let (offload, mtu, between) = match link {
        Link::Loopback => return usual,
        Link::Emulated(link) if link.emulator.is_some() => {
            (link.offload, link.mtu, Interconnect::Nothing)
        }
        Link::Emulated(link) => (link.offload, link.mtu, Interconnect::Emulator),
        Link::Cable(cable) if cable.routed => (cable.offload, cable.mtu, Interconnect::Router),
        Link::Cable(cable) => (cable.offload, cable.mtu, Interconnect::Cable),
    };
    WorldOptions {
        offload: match offload {
            quictun_lab::Offload::Full => Offload::Full,
            quictun_lab::Offload::Receive => Offload::Receive,
            quictun_lab::Offload::None => Offload::None,
        },
        mtu,
        segment_limit: link.segment_limit(),
        between,
        ..usual
    }
}

fn plan(link: &EmulatedLink, seed: u64) -> EmulatorConfig {
    let [up, down] = link.directions(seed);
    EmulatorConfig {
        up,
        down,
        seed,
        coalesce: link.coalesce,
        loss_unit: match link.loss_unit {
            quictun_lab::LossUnit::Packet => LossUnit::Segment,
            quictun_lab::LossUnit::SuperPacket => LossUnit::Frame,
        },
    }
}

fn account(audit: &Audit, link: &EmulatedLink, seed: u64) -> LinkAccount {
    let limits = match audit.verdict() {
        Verdict::Ok => Vec::new(),
        Verdict::EmulatorLimited(limits) => limits,
    };
    // Packets of one super-packet are lost together, so the confidence interval for independent losses does not apply.
    let together = link.loss_unit == quictun_lab::LossUnit::SuperPacket;
    let faults = limits.iter().filter(|limit| match limit {
        Limit::Late { .. } => false,
        Limit::Loss { .. } => !together,
        Limit::Dropped { .. } | Limit::Busy { .. } => true,
    });
    let configs = link.directions(seed);
    let limit = late_limit(&configs);
    let direction = |audit: &DirectionAudit, config: &LinkConfig| DirectionAccount {
        loss_asked: if together {
            Some(config.loss)
        } else {
            audit.loss_asked
        },
        ..direction(audit, limit)
    };
    LinkAccount {
        faults: faults.map(ToString::to_string).collect(),
        up: direction(&audit.up, &configs[0]),
        down: direction(&audit.down, &configs[1]),
    }
}

#[expect(clippy::cast_precision_loss, reason = "packets of an hour")]
fn direction(audit: &DirectionAudit, late: Duration) -> DirectionAccount {
    let counts = &audit.counts;
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    DirectionAccount {
        packets: counts.segments_in,
        packets_per_frame: counts.segments_in as f64 / counts.frames_in.max(1) as f64,
        loss_asked: audit.loss_asked,
        loss: audit.loss,
        queue_drops: audit.link.queue_full,
        unintended_drops: counts.unintended.total(),
        late_p99_us: us(audit.lateness.quantile(0.99)),
        late_limit_us: us(late),
        late_share: audit.lateness.share_beyond(late),
        busy: audit.busy_share(),
    }
}
