//! Files that a test leaves where the environment names a directory for them.

use std::path::PathBuf;

use crate::transcript::Transcript;

/// Environment variable that names the directory.
pub(crate) const VARIABLE: &str = "QUICTUN_EVIDENCE";

/// The directory, if one is named.
pub(crate) fn directory() -> Option<PathBuf> {
    let directory = std::env::var_os(VARIABLE)?;
    (!directory.is_empty()).then(|| directory.into())
}

/// Writes transcript and packets of one run; a later run of the same test and seed replaces them.
pub(crate) fn leave(test: &str, seed: u64, transcript: &Transcript, pcapng: &[u8]) {
    let Some(directory) = directory() else {
        return;
    };
    let name = format!("{}-{seed}", test.replace("::", "-"));
    let text = transcript.to_string();
    for (ending, bytes) in [("txt", text.as_bytes()), ("pcapng", pcapng)] {
        let path = directory.join(format!("{name}.{ending}"));
        // Not being able to write must not hide why the test has failed.
        drop(std::fs::write(path, bytes));
    }
}
