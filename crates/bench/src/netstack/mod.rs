//! `quictun bench netstack`: the speed at which the user-space stack serves ordinary programs, and applications that
//! reach it through calls.
//!
//! Everything happens in a separate network namespace. Kernel sockets run on one core and the stack on another; the
//! kernel's own loopback in the same run is the comparison ([`bulk`], and [`crowd`] for thousands of flows).
//! Alternatively the stack is a separate process, as in the published system ([`calls`]).

mod answering;
mod apart;
mod bulk;
mod calls;
mod crowd;
mod device;
mod flags;
mod in_thread;
mod load;
mod measure;
mod results;
mod service;

pub(crate) use flags::{Invocation, PROGRAM, command, parse};

/// Runs a measurement, or serves one. Returns the text to print.
pub(crate) fn run(asked: &Invocation, say: &dyn Fn(&str)) -> anyhow::Result<String> {
    let options = match asked {
        Invocation::Measure(options) => options,
        Invocation::Serve(setup, core) => {
            return calls::serve(setup, *core).map(|()| String::new());
        }
    };
    let results = measure::all(options, say)?;
    crate::flags::draw(options.svg.as_deref(), || results.svg())?;
    Ok(if options.json {
        results.json()
    } else {
        results.text()
    })
}
