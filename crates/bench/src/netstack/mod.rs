//! `quictun bench netstack`: how fast the user-space stack serves ordinary programs, and applications that reach it through
//! calls.
//!
//! Everything happens in a network of its own: kernel sockets on one core, the stack on another, and for comparison the
//! kernel's own loopback in the same run ([`bulk`], and of thousands of flows [`crowd`]); or the stack in a process of its own, as in the published system
//! ([`calls`]).

mod answering;
mod apart;
mod bulk;
mod calls;
mod crowd;
mod device;
mod duty;
mod flags;
mod in_thread;
mod load;
mod measure;
mod results;

pub(crate) use flags::{Asked, PROGRAM, command, parse};

/// Measures, or serves a measurement. Returns what to print.
pub(crate) fn run(asked: &Asked, say: &dyn Fn(&str)) -> anyhow::Result<String> {
    let options = match asked {
        Asked::Measure(options) => options,
        Asked::Serve(setup, core) => return calls::serve(setup, *core).map(|()| String::new()),
    };
    let results = measure::all(options, say)?;
    crate::flags::draw(options.svg.as_deref(), || results.svg())?;
    Ok(if options.json {
        results.json()
    } else {
        results.text()
    })
}
