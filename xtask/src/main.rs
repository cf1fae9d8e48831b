//! Checks of this repository that no linter makes: `cargo xtask tidy`, or `cargo test -p xtask`.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a program that reports")]

mod kinds;
mod manifests;
mod rules;
mod source;
#[cfg(test)]
mod tests;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, ensure};

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    ensure!(arguments == ["tidy"], "usage: cargo xtask tidy");
    let found = tidy::findings(&tidy::Tree::read(root())?);
    for finding in &found {
        println!("{finding}");
    }
    let failed = found.iter().any(|finding| !finding.warning);
    Ok(ExitCode::from(u8::from(failed)))
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
