//! A process is killed, or refuses, at each step of a hand-over (docs/HANDOVER.md): its flows continue in the process that
//! lives, or are reset. No flow is served by both processes, and no byte is lost silently.
//!
//! A relay between both processes stops them at the step: see [`Relay`].

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use quictun_testbed::application::{Application, served_within};
use quictun_testbed::connection::{Endpoint, is_reset};
use quictun_testbed::isolation::with_programs;
use quictun_testbed::program::Program;
use quictun_testbed::transfer::{EndlessSource, Transfer};
use quictun_testbed::tunnel::{START, forwards_of};
use rustix::process::Signal;

use crate::client_hand_over::{FORWARDS, UpgradedClient};
use crate::hand_over::{FREE, GOES_ON, Heartbeat, SOME, SOON, TAKEN, UP, UpgradedTunnel};
use crate::hand_over_relay::{Action, HandoverStep, Relay, Victim, run_if_relay};

/// A tunnel of which one side hands over.
trait Upgraded: Sized {
    /// The start of a process.
    const UP: &str;

    fn new() -> Result<Self>;

    fn socket(&self) -> PathBuf;

    fn running(&mut self) -> &mut Program;

    /// Starts a process that takes over, with these additional arguments.
    fn next(&self, more: &[&str]) -> Result<Program>;

    /// Starts a process after the death of all earlier ones.
    fn again(&self) -> Result<Program>;

    /// Returns the forwards to the source and to the echo, given the process that runs.
    fn forwards(&self, running: Option<&Program>) -> Result<[Endpoint; 2]>;

    fn applications(&self) -> (&EndlessSource, &Application);
}

impl Upgraded for UpgradedTunnel {
    const UP: &str = UP;

    fn new() -> Result<Self> {
        Self::new("2")
    }

    fn socket(&self) -> PathBuf {
        self.socket()
    }

    fn running(&mut self) -> &mut Program {
        &mut self.server
    }

    fn next(&self, more: &[&str]) -> Result<Program> {
        Self::start(&self.home, FREE, "2", &[&["--take-over"], more].concat())
    }

    fn again(&self) -> Result<Program> {
        Self::start(&self.home, &self.address, "1", &[])
    }

    fn forwards(&self, _: Option<&Program>) -> Result<[Endpoint; 2]> {
        Ok(<[_; 2]>::try_from(self.client.forwards(2)?).expect("two"))
    }

    fn applications(&self) -> (&EndlessSource, &Application) {
        (&self.source, &self.echo)
    }
}

impl Upgraded for UpgradedClient {
    const UP: &str = "Client endpoint start up successful";

    fn new() -> Result<Self> {
        // The targets of a dead client learn of its death after these times.
        Self::new(&["--idle-timeout", "5s", "--bond-ttl", "5s"])
    }

    fn socket(&self) -> PathBuf {
        self.socket()
    }

    fn running(&mut self) -> &mut Program {
        &mut self.client.program
    }

    fn next(&self, more: &[&str]) -> Result<Program> {
        Program::start("next client", self.command()?.arg("--take-over").args(more))
    }

    fn again(&self) -> Result<Program> {
        Program::start("client again", &mut self.command()?)
    }

    fn forwards(&self, running: Option<&Program>) -> Result<[Endpoint; 2]> {
        let running = running.unwrap_or(&self.client.program);
        let [source, echo, _] = <[_; 3]>::try_from(forwards_of(running, FORWARDS)?).expect("three");
        Ok([source, echo])
    }

    fn applications(&self) -> (&EndlessSource, &Application) {
        (&self.source, &self.echo)
    }
}

/// The process in which flows continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Survivor {
    Old,
    New,
    Neither,
}

impl Survivor {
    fn of(step: HandoverStep, victim: Victim) -> Self {
        match victim {
            Victim::New if step < HandoverStep::Released => Self::Old,
            // The new process has everything that it needs.
            Victim::Old if step >= HandoverStep::State => Self::New,
            _ => Self::Neither,
        }
    }
}

/// The flows of a tunnel whose process hands over.
struct Flows {
    transfer: Transfer,
    heart: Heartbeat,
}

impl Flows {
    fn open<T: Upgraded>(tunnel: &T) -> Result<Self> {
        let [source, echo] = tunnel.forwards(None)?;
        let transfer = Transfer::start(&source)?;
        transfer.advance(1 << 18, SOON)?;
        let heart = Heartbeat::new(&echo)?;
        let mut flows = Self { transfer, heart };
        flows.beat()?;
        Ok(flows)
    }

    fn beat(&mut self) -> Result<()> {
        let end = Instant::now() + Duration::from_millis(50);
        self.heart.beat_until(end)
    }

    fn go_on(&mut self) -> Result<()> {
        self.transfer.advance(1 << 18, SOON)?;
        self.beat()
    }

    /// Ends them. Every byte has arrived.
    fn finish<T: Upgraded>(mut self, tunnel: &T, running: Option<&Program>) -> Result<()> {
        self.go_on().context("the flows do not go on")?;
        let (source, _) = tunnel.applications();
        serves_anew(&tunnel.forwards(running)?)?;
        self.transfer.finish(source)
    }

    /// Expects a reset at both ends of each flow.
    fn expect_reset(mut self, echo: &Application, source: &EndlessSource) -> Result<()> {
        let seen = self.beat();
        ensure!(seen.as_ref().is_err_and(is_reset), "{seen:?}");
        let seen = self.transfer.finish(source);
        ensure!(seen.as_ref().is_err_and(is_reset), "transfer: {seen:?}");
        let seen = echo.outcome(2 * SOON);
        ensure!(seen.as_ref().is_err_and(is_reset), "target: {seen:?}");
        Ok(())
    }
}

/// Waits until a new flow passes. One that finds a connection of a process that has died is reset.
fn serves_anew([_, echo]: &[Endpoint; 2]) -> Result<()> {
    served_within(echo, SOME, SOON).map(drop)
}

/// Kills a process at each step, in a new tunnel each time.
fn walk<T: Upgraded>(test: &str, victim: Victim) -> Result<()> {
    if run_if_relay()? {
        return Ok(());
    }
    with_steps(test, |test| {
        for step in HandoverStep::ALL {
            let killed = kill_at::<T>(test, step, victim);
            killed.with_context(|| format!("{victim:?} at {step:?}"))?;
        }
        Ok(())
    })
}

/// A new process that refuses at a step.
struct Refusal {
    step: HandoverStep,
    action: Action,
    /// The error of the new process.
    says: &'static str,
}

impl Refusal {
    /// From the first step to the last one.
    const ALL: [Self; 5] = [
        Self {
            step: HandoverStep::Hello,
            action: Action::OtherVersion,
            says: "of the state, and the new process reads 2",
        },
        Self {
            step: HandoverStep::Accept,
            action: Action::OtherVersion,
            says: "is not understood: restart it instead",
        },
        Self {
            step: HandoverStep::Sockets,
            action: Action::OtherDescriptor,
            says: "its state cannot be taken over",
        },
        Self {
            step: HandoverStep::Flows,
            action: Action::OtherDescriptor,
            says: "its state cannot be taken over: a descriptor is not a socket",
        },
        Self {
            step: HandoverStep::State,
            action: Action::OtherVersion,
            says: "the state is not understood: its format has version 2",
        },
    ];
}

/// Lets a new process refuse at each step, in the same tunnel.
fn refuse_all<T: Upgraded>(test: &str) -> Result<()> {
    if run_if_relay()? {
        return Ok(());
    }
    with_steps(test, |test| {
        let mut tunnel = T::new()?;
        let mut flows = Flows::open(&tunnel)?;
        for Refusal { step, action, says } in Refusal::ALL {
            let relay = Relay::start(test, &tunnel.socket(), step, action)?;
            let mut next = tunnel.next(&[])?;
            let ended = next.wait_end(START)?;
            ensure!(!ended.success(), "{step:?}: it started");
            let errors = next.count(says);
            ensure!(errors == 1, "{step:?}: {:?}", next.lines());
            relay.finish()?;
            flows.go_on().with_context(|| format!("{step:?}"))?;
        }
        let ended = tunnel.running().ended()?;
        ensure!(ended.is_none(), "the old process: {ended:?}");
        let refused = tunnel.running().count(GOES_ON);
        ensure!(refused > 0, "{:?}", tunnel.running().lines());
        flows.finish(&tunnel, None)
    })
}

fn with_steps(test: &str, body: impl FnOnce(&str) -> Result<()>) -> Result<()> {
    let test = format!("hand_over_steps::{test}");
    with_programs(|| body(&test))
}

fn kill_at<T: Upgraded>(test: &str, step: HandoverStep, victim: Victim) -> Result<()> {
    let mut tunnel = T::new()?;
    let flows = Flows::open(&tunnel)?;
    let mut relay = Relay::start(test, &tunnel.socket(), step, Action::HoldFor(victim))?;
    let mut next = tunnel.next(&[])?;
    relay.holds()?;
    if victim != Victim::Old {
        next.signal(Signal::KILL)?;
    }
    // The old process ends by itself once it has sent its last message.
    if victim != Victim::New && tunnel.running().ended()?.is_none() {
        tunnel.running().signal(Signal::KILL)?;
    }
    relay.finish()?;
    let survivor = Survivor::of(step, victim);
    if survivor != Survivor::Old {
        let status = tunnel.running().wait_end(SOON)?;
        ensure!(victim != Victim::New || status.success(), "{status}");
    }
    if survivor != Survivor::New {
        ensure!(!next.wait_end(SOON)?.success(), "{:?}", next.lines());
    }
    match survivor {
        Survivor::Old => {
            flows.finish(&tunnel, None)?;
            let ended = tunnel.running().ended()?;
            ensure!(ended.is_none(), "the old process: {ended:?}");
        }
        Survivor::New => {
            next.wait_for(T::UP, START)?;
            ensure!(next.has_printed(TAKEN), "{:?}", next.lines());
            flows.finish(&tunnel, Some(&next))?;
        }
        Survivor::Neither => {
            let mut again = tunnel.again()?;
            again.wait_for(T::UP, START)?;
            let (source, target) = tunnel.applications();
            flows.expect_reset(target, source)?;
            serves_anew(&tunnel.forwards(Some(&again))?)?;
        }
    }
    Ok(())
}

#[test]
fn flows_of_a_server_that_dies_at_any_step_continue_or_are_reset() -> Result<()> {
    let test = "flows_of_a_server_that_dies_at_any_step_continue_or_are_reset";
    walk::<UpgradedTunnel>(test, Victim::Old)
}

#[test]
fn flows_continue_or_are_reset_if_a_servers_successor_dies_at_any_step() -> Result<()> {
    let test = "flows_continue_or_are_reset_if_a_servers_successor_dies_at_any_step";
    walk::<UpgradedTunnel>(test, Victim::New)
}

#[test]
fn flows_are_reset_if_a_server_and_its_successor_die_at_any_step() -> Result<()> {
    let test = "flows_are_reset_if_a_server_and_its_successor_die_at_any_step";
    walk::<UpgradedTunnel>(test, Victim::Both)
}

#[test]
fn flows_of_a_client_that_dies_at_any_step_continue_or_are_reset() -> Result<()> {
    let test = "flows_of_a_client_that_dies_at_any_step_continue_or_are_reset";
    walk::<UpgradedClient>(test, Victim::Old)
}

#[test]
fn flows_continue_or_are_reset_if_a_clients_successor_dies_at_any_step() -> Result<()> {
    let test = "flows_continue_or_are_reset_if_a_clients_successor_dies_at_any_step";
    walk::<UpgradedClient>(test, Victim::New)
}

#[test]
fn a_server_goes_on_if_its_successor_refuses_at_any_step() -> Result<()> {
    refuse_all::<UpgradedTunnel>("a_server_goes_on_if_its_successor_refuses_at_any_step")
}

#[test]
fn a_client_goes_on_if_its_successor_refuses_at_any_step() -> Result<()> {
    refuse_all::<UpgradedClient>("a_client_goes_on_if_its_successor_refuses_at_any_step")
}
