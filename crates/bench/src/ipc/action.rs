//! `quictun bench ipc`: measure, or be the server of a measurement.

use anyhow::Context as _;

use super::options::{Options, Part};
use super::{chart, measure, report, serve};

/// The measurement, or its helper process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Measure.
    Measure(Options),
    /// Be the server.
    Serve(Part),
}

/// Does it. Returns what to print.
pub(crate) fn run(action: &Action, say: &dyn Fn(&str)) -> anyhow::Result<String> {
    match action {
        Action::Measure(options) => measure(options, say),
        Action::Serve(part) => serve::run(part).map(|()| String::new()),
    }
}

fn measure(options: &Options, say: &dyn Fn(&str)) -> anyhow::Result<String> {
    let results = measure::all(options, say)?;
    if let Some(path) = &options.svg {
        std::fs::write(path, chart::draw(&results))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(if options.json {
        report::json(&results)
    } else if options.csv {
        report::csv(&results)
    } else {
        report::table(&results)
    })
}
