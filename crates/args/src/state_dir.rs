//! Where a server keeps what must survive a restart: its key, and secrets it made.

use std::path::PathBuf;

use crate::inputs::Inputs;

/// The directory where none is given: systemd's `StateDirectory=` first, then the XDG base directories, and
/// `/var/lib/quictun` for a process without a home, as system services are.
pub(crate) fn default(inputs: &Inputs<'_>) -> PathBuf {
    if let Some(dirs) = inputs.variable("STATE_DIRECTORY") {
        // systemd separates several by colons; the first is ours.
        return PathBuf::from(dirs.split(':').next().unwrap_or(dirs));
    }
    // Relative paths in XDG variables are invalid and to be ignored (XDG base directory specification).
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
