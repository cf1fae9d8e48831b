//! `quictun drain`: a running server or client ends once its flows have ended.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::ArgMatches;
use quictun_args::fault::Fault;
use quictun_args::inputs::Inputs;
use quictun_args::native::flags;
use quictun_tunnel::handover::RunningProcess;
use quictun_wire::handover::exchange::FlowFates;
use serde_json::json;

use crate::{exit, which_process};

/// Time between two looks at the flows.
const INTERVAL: Duration = Duration::from_secs(1);

/// The options of the command.
#[derive(Debug)]
pub struct Options {
    directories: Vec<PathBuf>,
    dry_run: bool,
    wait: bool,
    json: bool,
}

/// Reads the options, and the directories that may have the socket of the process.
pub(crate) fn parse(matches: &ArgMatches, inputs: &Inputs<'_>) -> Result<Options, Fault> {
    let options = Options {
        directories: which_process::directories(&flags::DRAIN, matches, inputs)?,
        dry_run: matches.get_flag("dry-run"),
        wait: matches.get_flag("wait"),
        json: matches.get_flag("json"),
    };
    if options.dry_run && options.wait {
        let fault = Fault::usage("--dry-run", "it changes nothing, so --wait would not end");
        return Err(fault.next("leave out one of them"));
    }
    Ok(options)
}

/// Sends the request, prints the flows that it concerns, and waits if that is wanted.
pub(crate) fn main(options: &Options) -> anyhow::Result<()> {
    let (process, mut fates) = RunningProcess::find(&options.directories)?;
    if !options.dry_run {
        fates = process.drain()?;
    }
    let kind = process.kind().to_string();
    let text = if options.json {
        json(&kind, options, fates)
    } else if options.dry_run {
        cost(&kind, fates)
    } else {
        begun(&kind, fates)
    };
    exit::print(&text)?;
    if !options.wait {
        return Ok(());
    }
    let mut open = all(fates);
    while !process.wait(Instant::now() + INTERVAL)? {
        // A process that has just ended gives no answer, and the next wait returns at once.
        let left = process.fates().map_or(open, all);
        if left != open && !options.json {
            exit::say(&format!("{} open", flows(left)));
        }
        open = left;
    }
    if !options.json {
        exit::print(&format!("the {kind} has ended\n"))?;
    }
    Ok(())
}

fn all(fates: FlowFates) -> u64 {
    fates.continuing + fates.reset
}

fn flows(number: u64) -> String {
    match number {
        1 => "1 flow is".to_owned(),
        _ => format!("{number} flows are"),
    }
}

fn cost(kind: &str, fates: FlowFates) -> String {
    let FlowFates { continuing, reset } = fates;
    let open = flows(all(fates));
    format!(
        "{open} open at the {kind}\n\
         a take-over would continue {continuing} and reset {reset} (`quictun status` says why)\n\
         a stop would reset each that is open when the time of --drain is over\n"
    )
}

fn begun(kind: &str, fates: FlowFates) -> String {
    let open = flows(all(fates));
    format!("the {kind} drains, and ends with its last flow; {open} open\n")
}

fn json(kind: &str, options: &Options, FlowFates { continuing, reset }: FlowFates) -> String {
    let object = json!({
        "process": kind,
        "draining": !options.dry_run,
        "continuing": continuing,
        "reset": reset,
    });
    format!("{object}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_what_each_end_costs() {
        let fates = |continuing, reset| FlowFates { continuing, reset };
        let cost = cost("server", fates(10, 2));
        assert!(cost.starts_with("12 flows are open at the server\n"));
        assert!(cost.contains("would continue 10 and reset 2 "), "{cost}");
        assert!(begun("client", fates(0, 1)).ends_with("; 1 flow is open\n"));
    }
}
