//! `quictun lab`, which has exit codes of its own.

use std::process::ExitCode;

use quictun_lab_run::PROGRAM;
pub use quictun_lab_run::{Action, flags, parse};

use crate::exit::{self, Failed};

/// Does it, and ends with its exit code.
pub fn main(action: Action) -> ExitCode {
    code(PROGRAM, quictun_lab_run::run(action))
}

/// The exit code of a program that has codes of its own; what went wrong is told.
pub(crate) fn code(program: &str, outcome: anyhow::Result<u8>) -> ExitCode {
    exit::code(program, outcome.map_err(Failed::of_measuring))
}
