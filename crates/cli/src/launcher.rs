//! Starts `quictun`, which is installed beside this program, under this program's name.
//!
//! All code is in one program. These launchers keep the original's names, also for service managers, scripts and copies
//! of a build directory.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use quictun_args::terminal::say;

/// Replaces this process by `quictun` under this name. Returns only if that fails.
pub(crate) fn launch(name: &str) -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let program = std::env::current_exe().map(|path| path.with_file_name("quictun"));
    let program = program.unwrap_or_else(|_| PathBuf::from("quictun"));
    let error = Command::new(&program).arg0(name).args(arguments).exec();
    let program = program.display();
    say(&format!(
        "{name}: cannot start {program}: {error}\n  try: install quictun in the directory of {name}, which only starts it"
    ));
    ExitCode::FAILURE
}
