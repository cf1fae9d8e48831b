//! `quictun bench netstack`: measure, or be the process with the stack.

use anyhow::Context as _;

use super::calls::{self, Setup};
use super::measure;
use super::options::Options;

/// The measurement, or its helper process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Measure.
    Measure(Options),
    /// Be the process with the stack, on a core.
    Serve(Setup, usize),
}

/// Does it. Returns what to print.
pub(crate) fn run(action: &Action, say: &dyn Fn(&str)) -> anyhow::Result<String> {
    match action {
        Action::Measure(options) => {
            let results = measure::all(options, say)?;
            if let Some(path) = &options.svg {
                std::fs::write(path, results.svg())
                    .with_context(|| format!("writing {}", path.display()))?;
            }
            Ok(if options.json {
                results.json()
            } else {
                results.text()
            })
        }
        Action::Serve(setup, core) => calls::serve(setup, *core).map(|()| String::new()),
    }
}
