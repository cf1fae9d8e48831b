//! The tasks of this repository:
//!
//! * `cargo xtask tidy` makes the checks that no linter makes; `cargo test -p xtask` makes them as well.
//! * `cargo xtask house` reports the size and the structure of the code.
//! * `cargo xtask dependencies` recomputes the facts in `docs/DEPENDENCIES.md`.
//! * `cargo xtask mutate` checks that the tests notice faults.
//! * `cargo xtask pictures` draws the pictures of `docs/ARCHITECTURE.md`.
//! * `cargo xtask dist` builds the packages of a release.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the tasks report on standard output")]

mod dependencies;
mod dist;
mod house;
mod kinds;
mod manifests;
mod mutate;
mod pictures;
mod rules;
mod source;
#[cfg(test)]
mod tests;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["tidy"] => tidy(),
        ["house"] => {
            print!("{}", house::report(&tidy::Tree::read(root())?, root()));
            Ok(ExitCode::SUCCESS)
        }
        ["dependencies"] => {
            let tree = tidy::Tree::read(root())?;
            let document = tree.text("docs/DEPENDENCIES.md");
            let (table, wrong) = dependencies::report(root(), document)?;
            print!("{table}");
            ensure!(
                wrong.is_empty(),
                "docs/DEPENDENCIES.md\n{}",
                wrong.join("\n")
            );
            Ok(ExitCode::SUCCESS)
        }
        ["pictures"] => {
            print!("{}", pictures::run(root())?);
            Ok(ExitCode::SUCCESS)
        }
        ["dist", ref given @ ..] => {
            print!("{}", dist::run(root(), &dist::Options::read(given)?)?);
            Ok(ExitCode::SUCCESS)
        }
        ["mutate", ref given @ ..] => {
            let (only, dry) = mutate::arguments(given)?;
            let all = mutate::run(root(), only, dry)?;
            Ok(ExitCode::from(u8::from(!all)))
        }
        _ => bail!(
            "usage: cargo xtask tidy | house | dependencies | pictures | mutate [PART | --list] | dist [--out DIR] [--target TRIPLE]..."
        ),
    }
}

fn tidy() -> Result<ExitCode> {
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
