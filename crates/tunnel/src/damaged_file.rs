//! Files of the state directory that cannot be understood.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Renames a damaged file, so that the next write does not replace it. The new name contains the time, so it is unique.
/// Returns that name, or `None` if the file stays.
pub(crate) fn set_aside(path: &Path) -> Option<String> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".damaged-{}", since.unwrap_or_default().as_secs()));
    let aside = PathBuf::from(aside);
    let kept = std::fs::rename(path, &aside).is_ok();
    kept.then(|| aside.display().to_string())
}
