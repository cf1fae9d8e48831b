//! `quictun man`.

use std::path::Path;

use anyhow::Context as _;
use quictun_args::manual;

use crate::{exit, native};

/// Writes all pages into a directory, which is made where it is missing.
pub fn write_pages(dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir)
        .with_context(|| format!("making the directory {}", dir.display()))?;
    for (name, text) in manual::pages(native::command()) {
        let path = dir.join(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        exit::print(&format!("{}\n", path.display()))?;
    }
    Ok(())
}
