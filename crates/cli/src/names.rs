//! The names under which this program can be started, and the program that each name selects.

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use crate::{compat, native, netstackd};

/// Runs the program that the name selects, from its arguments to its exit code.
pub fn main() -> ExitCode {
    let name = std::env::args_os().next().unwrap_or_default();
    match Path::new(&name).file_name().and_then(OsStr::to_str) {
        Some(quictun_stackd::netstackd::NAME) => netstackd::main(),
        Some("quictun-server") => named(c"quictun-server", compat::server_main),
        Some("quictun-client") => named(c"quictun-client", compat::client_main),
        _ => native::main(),
    }
}

/// Also sets the thread's name, for lists of processes: `pkill quictun-server` works as with the original.
fn named(name: &std::ffi::CStr, main: fn() -> ExitCode) -> ExitCode {
    if rustix::thread::set_name(name).is_err() {
        // The name only helps people; the process works without it.
    }
    main()
}
