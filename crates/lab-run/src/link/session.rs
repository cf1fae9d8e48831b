//! Runs a command behind a link, for `quictun link shell` and `quictun link run`. This part runs inside the container.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use quictun_args::fault::Fault;
use quictun_args::terminal::say;
use quictun_emu::{AuditSummary, FarSide, Verdict, World, WorldOptions};
use quictun_sys::{CommandRunner, InitProcess, NetNamespace, Rights, WaitOutcome, refusal};

use super::backend::EmulatorAccount;
use super::options::{NearCommand, SessionOptions};
use super::prompt;
use super::report::{self, Report};
use crate::arm::{TCP, UDP, has_open};
use crate::client::sh;

/// The name of the command in messages.
pub const PROGRAM: &str = "quictun link";

/// Time limit for a command at the far side to open a port.
const FAR_TIMEOUT: Duration = Duration::from_secs(5);

/// Time that commands have to end by themselves after a signal.
const GRACE: Duration = Duration::from_secs(2);

/// Runs a session and returns the exit code of its command.
pub fn run(plan: &SessionOptions, inside: InitProcess) -> anyhow::Result<u8> {
    let rights = inside.rights();
    // The first process must be set up before the process has other threads.
    let mut first = CommandRunner::new(inside)?;
    let far = match (&plan.far, rights) {
        (None, Rights::Root) => FarSide::Here,
        _ => FarSide::Own,
    };
    let world = World::build(&WorldOptions {
        far,
        offload: plan.offload,
        mtu: plan.mtu,
        segment_limit: None,
        ..WorldOptions::default()
    })?;
    let emulated = plan.backend.start(&world, plan.emulation())?;
    introduce(plan, &world, far);
    let code = commands(plan, &world, &mut first);
    let ended = first.end_all(GRACE);
    let account = emulated.stop(&world)?;
    let code = code?;
    ended?;
    say(&format!(
        "{PROGRAM}: ended with {code}; {}",
        outcome(&account)
    ));
    if let Some(path) = &plan.json {
        report::write(path, &Report::new(plan, &account, code))?;
    }
    Ok(code)
}

/// Returns a few lines if the emulation was faithful, otherwise all figures.
fn outcome(account: &EmulatorAccount) -> String {
    match account {
        EmulatorAccount::Emulator(audit) if audit.verdict() == Verdict::Ok => {
            AuditSummary(audit).to_string()
        }
        account => format!("account of the link:\n{account}"),
    }
}

fn introduce(plan: &SessionOptions, world: &World, far: FarSide) {
    let [v4, v6] = world.far_addresses();
    let what = match (far, &plan.far) {
        (FarSide::Here, _) => "this machine",
        (FarSide::Own, Some(_)) => "a network of its own, where --far runs",
        (FarSide::Own, None) => {
            "a network of its own: it answers ping; --far COMMAND runs something there"
        }
    };
    say(&format!("{PROGRAM}: the far side is {v4} ({v6}), {what}"));
    let [up, down] = &plan.links;
    if up == down {
        say(&format!("  each way  {up}"));
    } else {
        say(&format!("  up        {up}"));
        say(&format!("  down      {down}"));
    }
    for remark in up.remark().into_iter().chain(down.remark()) {
        say(&format!("{PROGRAM}: warning: {remark}"));
    }
    if matches!(plan.near, NearCommand::Shell(_)) {
        say(&format!(
            "{PROGRAM}: this shell is behind the link until it ends; ${} says what the link is",
            prompt::LINK
        ));
    }
}

fn commands(plan: &SessionOptions, world: &World, first: &mut CommandRunner) -> anyhow::Result<u8> {
    let until = plan.time_limit.map(|limit| Instant::now() + limit);
    if let Some(line) = &plan.far {
        let pid = start(plan, first, world, world.far(), &mut sh(line))?;
        let deadline = Instant::now() + FAR_TIMEOUT;
        let (far, tables) = (world.far(), [TCP, UDP].concat());
        let listens = || has_open(far, &tables, |_| true);
        if !first.wait_until(pid, deadline, || listens().unwrap_or(true))?
            && let WaitOutcome::Exited(code) = first.wait(pid, Some(Instant::now()))?
            && code != 0
        {
            let why = format!("{line:?} ended with {code} before it opened a port");
            return Err(Fault::failure("--far", why).into());
        }
    }
    let mut command = match &plan.near {
        NearCommand::Shell(shell) => {
            let mut command = Command::new(shell);
            let given = |name: &str| std::env::var(name).ok();
            command.envs(prompt::variables(Path::new(shell), given));
            command
        }
        NearCommand::Command(words) => {
            let (program, arguments) = words
                .split_first()
                .context("invariant: a command is not empty")?;
            let mut command = Command::new(program);
            command.args(arguments);
            command
        }
        NearCommand::Line(line) => sh(line),
    };
    let program = command.get_program().to_string_lossy().into_owned();
    let pid = match start(plan, first, world, world.near(), &mut command) {
        Ok(pid) => pid,
        Err(error) => match refusal(&program, &error) {
            Some((code, why)) => {
                say(&format!("{PROGRAM}: {why}"));
                return Ok(code);
            }
            None => return Err(error).with_context(|| format!("cannot start {program}")),
        },
    };
    let outcome = first.wait(pid, until)?;
    if outcome == WaitOutcome::TimedOut {
        say(&format!("{PROGRAM}: --time-limit: ending {program}"));
    }
    Ok(outcome.code())
}

fn start(
    plan: &SessionOptions,
    first: &mut CommandRunner,
    world: &World,
    network: &NetNamespace,
    command: &mut Command,
) -> io::Result<u32> {
    command.env(prompt::LINK, prompt::described(&plan.links));
    for (name, [v4, v6]) in [
        ("QUICTUN_NEAR", world.near_addresses()),
        ("QUICTUN_FAR", world.far_addresses()),
    ] {
        command.env(name, v4.to_string());
        command.env(format!("{name}6"), v6.to_string());
    }
    first.start(network, command)
}
