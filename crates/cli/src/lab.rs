//! `quictun lab`, a command with exit codes of its own.

use std::process::ExitCode;

use quictun_lab_run::PROGRAM;
pub use quictun_lab_run::{Action, flags, parse};

use crate::exit::{self, ProgramError};

/// Runs the action and returns its exit code.
pub fn main(action: Action) -> ExitCode {
    code(PROGRAM, quictun_lab_run::run(action))
}

/// Returns the exit code of a program that defines its own codes, and prints a failure.
pub(crate) fn code(program: &str, outcome: anyhow::Result<u8>) -> ExitCode {
    exit::code(program, outcome.map_err(ProgramError::of_measuring))
}
