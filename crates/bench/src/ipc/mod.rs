//! Calls between two processes, asynchronous and synchronous, on one core and on two.

mod asynchronous;
mod chart;
mod flags;
mod idle;
mod measure;
mod payload;
pub(crate) mod peer;
mod published;
mod report;
mod results;
mod serve;
pub(crate) mod synchronous;
mod syscalls;

pub(crate) use flags::{Options, PROGRAM, Part, command, parse};
pub(crate) use serve::run as serve;

pub(crate) fn run(options: &Options, say: &dyn Fn(&str)) -> anyhow::Result<String> {
    let results = measure::all(options, say)?;
    crate::action::draw(options.svg.as_deref(), || chart::draw(&results))?;
    Ok(if options.json {
        report::json(&results)
    } else if options.csv {
        report::csv(&results)
    } else {
        report::table(&results)
    })
}
