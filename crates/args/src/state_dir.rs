//! The directory in which a server keeps state across restarts: its key, and secrets that it made. For a client, the
//! directory of the socket at which its successor takes over.

use std::path::PathBuf;

use crate::inputs::Inputs;

/// The directory of the system's service.
pub const SERVICE_STATE: &str = "/var/lib/quictun";

/// Returns the default directory: systemd's `StateDirectory=` first, then the XDG base directories, then
/// `/var/lib/quictun` for a process without a home directory, such as a system service.
pub(crate) fn default(inputs: &Inputs<'_>) -> PathBuf {
    if let Some(dirs) = inputs.variable("STATE_DIRECTORY") {
        // systemd separates several directories by colons. The first belongs to this program.
        return PathBuf::from(dirs.split(':').next().unwrap_or(dirs));
    }
    if let Some(state) = inputs.absolute("XDG_STATE_HOME") {
        return state.join("quictun");
    }
    match inputs.absolute("HOME") {
        Some(home) => home.join(".local/state/quictun"),
        None => PathBuf::from(SERVICE_STATE),
    }
}

/// Returns the default directory of a client: it keeps no state, so the user's directory of sockets suffices, if there is
/// one.
pub(crate) fn of_client(inputs: &Inputs<'_>) -> Option<PathBuf> {
    let runtime = inputs.absolute("XDG_RUNTIME_DIR");
    runtime.map(|directory| directory.join("quictun"))
}

/// Returns the directories at which a command looks for a running server or client: the defaults of both, and that of the
/// system's service.
pub fn of_running(inputs: &Inputs<'_>) -> Vec<PathBuf> {
    let mut all = vec![default(inputs), PathBuf::from(SERVICE_STATE)];
    all.extend(of_client(inputs));
    all.dedup();
    all
}
