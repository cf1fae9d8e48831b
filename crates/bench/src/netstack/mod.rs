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

pub(crate) use calls::{Setup, serve};
pub(crate) use flags::{Options, PROGRAM, command, parse};

pub(crate) fn run(options: &Options, say: &dyn Fn(&str)) -> anyhow::Result<String> {
    let results = measure::all(options, say)?;
    crate::action::draw(options.svg.as_deref(), || results.svg())?;
    Ok(if options.json {
        results.json()
    } else {
        results.text()
    })
}
