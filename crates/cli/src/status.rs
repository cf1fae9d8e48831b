//! `quictun status`: shows the state of a running server or client, as its HTTP interface reports it.

use std::process::ExitCode;

use clap::ArgMatches;
use jiff::Timestamp;
use quictun_control::log::printable_json;
use quictun_control::settings::HttpListen;

use crate::exit::{self, ProgramError};
use crate::which_process;
use quictun_args::fault::{Exit, Fault};
use quictun_args::inputs::Inputs;
use quictun_args::layers::{Layers, Origin};
use quictun_args::native::flags;

use watch::WatchOptions;

mod answers;
mod cells;
mod quantities;
mod render;
mod watch;

const PROGRAM: &str = "quictun status";

/// The process to ask, and the form of the answer.
#[derive(Debug)]
pub struct Options {
    at: HttpListen,
    json: bool,
    watch: Option<WatchOptions>,
}

/// Reads the flags, the environment, and `control.http` in the configuration file of either side.
pub(crate) fn parse(matches: &ArgMatches, inputs: &Inputs<'_>) -> Result<Options, Fault> {
    let (at, layers) = which_process::asked(&flags::STATUS, matches, inputs)?;
    Ok(Options {
        at,
        json: matches.get_flag("json"),
        watch: watch(&layers, matches.get_flag("watch"))?,
    })
}

/// Returns the settings of `--watch`, or `None` without that flag.
fn watch(layers: &Layers<'_>, asked: bool) -> Result<Option<WatchOptions>, Fault> {
    let interval = layers.get(&flags::WATCH_INTERVAL)?;
    if !asked {
        let given = layers.setting(&flags::WATCH_INTERVAL).origin == Origin::Flag;
        let fault = || layers.fault(&flags::WATCH_INTERVAL, "needs --watch");
        return if given { Err(fault()) } else { Ok(None) };
    }
    let variable = |name| layers.inputs().variable(name);
    Ok(Some(WatchOptions {
        interval,
        colour: variable("NO_COLOR").is_none(),
        addressable: variable("TERM").is_some_and(|name| name != "dumb"),
    }))
}

pub(crate) fn main(options: &Options) -> ExitCode {
    let outcome = match options.watch {
        Some(watch) => watch::main(&options.at, options.json, watch),
        None => once(options).map(|()| Exit::Ok).map_err(ProgramError::from),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(failed) => exit::report(PROGRAM, Err(failed)).into(),
    }
}

fn once(options: &Options) -> anyhow::Result<()> {
    let text = if options.json {
        printable_json(&format!("{:#}\n", answers::ask_json(&options.at)?))
    } else {
        render::page(&answers::ask(&options.at)?, Timestamp::now())
    };
    Ok(exit::print(&text)?)
}
