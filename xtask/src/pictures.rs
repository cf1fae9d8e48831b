//! Implements `cargo xtask pictures`: draws the pictures of `docs/ARCHITECTURE.md`.
//!
//! Each picture is a file of this module. A test fails if a committed picture differs from what its file draws.

mod bond;
mod byte;
mod canvas;
mod floors;
mod processes;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

/// The directory of the pictures.
const DIRECTORY: &str = "docs/architecture";

/// Returns the file name and the SVG of each picture.
fn all() -> [(&'static str, String); 4] {
    [
        ("processes.svg", processes::draw()),
        ("byte.svg", byte::draw()),
        ("bond.svg", bond::draw()),
        ("crates.svg", floors::draw()),
    ]
}

/// Writes all pictures, and returns a line for each that has changed.
pub(crate) fn run(root: &Path) -> Result<String> {
    let mut changed = String::new();
    for (name, drawn) in all() {
        let path = root.join(DIRECTORY).join(name);
        if std::fs::read_to_string(&path).is_ok_and(|before| before == drawn) {
            continue;
        }
        std::fs::write(&path, drawn).with_context(|| format!("writing {}", path.display()))?;
        writeln!(changed, "{DIRECTORY}/{name}")?;
    }
    Ok(changed)
}
