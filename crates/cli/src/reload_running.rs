//! `--reload`: a running server or client reads its configuration again, or is replaced if it is another build.
//!
//! A service manager starts this command with the rights of the service. So the next process can be a child of the
//! command, which goes on when the command ends. If the next process refuses its configuration, or cannot take over, the
//! running one goes on, and this command ends with the exit code of the next one.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use quictun_args::fault::Exit;
use quictun_tunnel::handover::RunningProcess;
use quictun_wire::handover::HandoverKind;

use crate::exit::ProgramError;
use crate::{exit, version};

/// Time between two looks whether the next process has failed.
const INTERVAL: Duration = Duration::from_millis(50);

/// Makes the process with this directory reload, or starts the next one with the arguments of this command.
pub(crate) fn main(kind: HandoverKind, directory: Option<&Path>) -> Result<(), ProgramError> {
    let directory = directory
        .context("--reload needs the directory with the socket of the running process: give --state-dir DIR, as to that process")?;
    let running = RunningProcess::find_one(kind, directory)
        .map_err(|error| ProgramError::Because(error, Exit::RestartNeeded))?;
    if running.program() == version::WITH_COMMIT {
        running.reload().context("cannot send it SIGHUP")?;
        return Ok(exit::print(&format!(
            "the {kind} reads its configuration again; its log says what has changed\n"
        ))?);
    }
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let mut next = Command::new(program)
        .args(std::env::args_os().skip(1).filter(is_for_next))
        .arg("--take-over")
        .env_remove("QUICTUN_RELOAD")
        .stdin(Stdio::null())
        .spawn()
        .context("cannot start the next process")?;
    loop {
        let has_ended = running.wait(Instant::now() + INTERVAL)?;
        if let Some(status) = next.try_wait()? {
            let error = anyhow!(
                "the next process has ended with {status}: it continues no flows, and its log says why; the running one goes on"
            );
            let same = [Exit::Usage, Exit::RestartNeeded];
            let same = same
                .into_iter()
                .find(|&it| status.code() == Some(it as i32));
            return Err(ProgramError::Because(error, same.unwrap_or(Exit::Failure)));
        }
        if has_ended {
            break;
        }
    }
    let (before, now) = (running.program(), version::WITH_COMMIT);
    Ok(exit::print(&format!(
        "quictun {now} continues the flows of quictun {before}\n"
    ))?)
}

/// Returns whether an argument of this command is one of the next process, too.
fn is_for_next(argument: &OsString) -> bool {
    let text = argument.to_str().unwrap_or_default();
    text != "--reload" && !text.starts_with("--reload=")
}
