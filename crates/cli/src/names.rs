//! The names that this program is started under, and what it is under each.

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use crate::{compat, native, netstackd};

/// The program, from the arguments to the exit code.
pub fn main() -> ExitCode {
    let name = std::env::args_os().next().unwrap_or_default();
    match Path::new(&name).file_name().and_then(OsStr::to_str) {
        Some(quictun_stackd::netstackd::NAME) => netstackd::main(),
        Some("quictun-server") => named(c"quictun-server", compat::server_main),
        Some("quictun-client") => named(c"quictun-client", compat::client_main),
        _ => native::main(),
    }
}

/// Takes the name for the lists of processes, too: `pkill quictun-server` works as with the original.
fn named(name: &std::ffi::CStr, main: fn() -> ExitCode) -> ExitCode {
    if rustix::thread::set_name(name).is_err() {
        // A name for people only: the process works as well without it.
    }
    main()
}
