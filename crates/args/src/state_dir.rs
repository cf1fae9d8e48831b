//! The directory in which a server keeps state across restarts: its key, and secrets that it made.

use std::path::PathBuf;

use crate::inputs::Inputs;

/// Returns the default directory: systemd's `StateDirectory=` first, then the XDG base directories, then
/// `/var/lib/quictun` for a process without a home directory, such as a system service.
pub(crate) fn default(inputs: &Inputs<'_>) -> PathBuf {
    if let Some(dirs) = inputs.variable("STATE_DIRECTORY") {
        // systemd separates several directories by colons. The first belongs to this program.
        return PathBuf::from(dirs.split(':').next().unwrap_or(dirs));
    }
    // A relative path in an XDG variable is invalid and must be ignored (XDG base directory specification).
    let absolute = |name| {
        inputs
            .variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    if let Some(state) = absolute("XDG_STATE_HOME") {
        return state.join("quictun");
    }
    match absolute("HOME") {
        Some(home) => home.join(".local/state/quictun"),
        None => PathBuf::from("/var/lib/quictun"),
    }
}
