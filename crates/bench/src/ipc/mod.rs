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

pub(crate) use flags::{Invocation, PROGRAM, command, parse};

/// Runs a measurement, or serves one. Returns the text to print.
pub(crate) fn run(asked: &Invocation, say: &dyn Fn(&str)) -> anyhow::Result<String> {
    let options = match asked {
        Invocation::Measure(options) => options,
        Invocation::Serve(part) => return serve::run(part).map(|()| String::new()),
    };
    let results = measure::all(options, say)?;
    crate::flags::draw(options.svg.as_deref(), || chart::draw(&results))?;
    Ok(if options.json {
        report::json(&results)
    } else if options.csv {
        report::csv(&results)
    } else {
        report::table(&results)
    })
}
