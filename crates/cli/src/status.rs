//! `quictun status`: how a running server or client is, from its HTTP interface.

use std::path::Path;
use std::process::ExitCode;

use clap::ArgMatches;
use jiff::Timestamp;
use quictun_control::settings::HttpListen;

use crate::exit::{self, Failed};
use quictun_args::fault::{Exit, Fault};
use quictun_args::inputs::Inputs;
use quictun_args::layers::{FileLayer, Layers, Origin};
use quictun_args::native::flags;
use quictun_args::options::Flag as _;

use watch::Watch;

mod answers;
mod cells;
mod quantities;
mod render;
mod watch;

const PROGRAM: &str = "quictun status";

/// What is asked, and how the answer is shown.
#[derive(Debug)]
pub struct Options {
    at: HttpListen,
    json: bool,
    watch: Option<Watch>,
}

/// Reads the flags, the environment, and `control.http` in the configuration file, of whichever side it is.
pub(crate) fn parse(matches: &ArgMatches, inputs: &Inputs<'_>) -> Result<Options, Fault> {
    let mut layers = Layers::new(&flags::STATUS, matches, inputs);
    if let Some(path) = layers.get(&flags::ASKED_CONFIG)? {
        layers = layers.with_file(Some(file(&path, inputs)?));
    }
    let at = layers.get(&flags::ASKED_HTTP)?;
    let Some(at) = at else {
        let fault = layers.fault(
            &flags::ASKED_HTTP,
            "the HTTP interface is off: there is nothing to ask",
        );
        return Err(fault.next("set control.http and restart, or name another with --http"));
    };
    Ok(Options {
        at,
        json: matches.get_flag("json"),
        watch: watch(&layers, matches.get_flag("watch"))?,
    })
}

/// How to watch, where that is asked for.
fn watch(layers: &Layers<'_>, asked: bool) -> Result<Option<Watch>, Fault> {
    let interval = layers.get(&flags::WATCH_INTERVAL)?;
    if !asked {
        let given = layers.setting(&flags::WATCH_INTERVAL).origin == Origin::Flag;
        let fault = || layers.fault(&flags::WATCH_INTERVAL, "is for --watch");
        return if given { Err(fault()) } else { Ok(None) };
    }
    let variable = |name| layers.inputs().variable(name);
    Ok(Some(Watch {
        interval,
        colour: variable("NO_COLOR").is_none(),
        addressable: variable("TERM").is_some_and(|name| name != "dumb"),
    }))
}

/// The one key of the file that says where to ask.
fn file(path: &Path, inputs: &Inputs<'_>) -> Result<FileLayer, Fault> {
    let table: toml::Table = quictun_args::file::parse(path, inputs)?;
    let http = table
        .get("control")
        .and_then(|control| control.get("http"))
        .and_then(toml::Value::as_str);
    let mut layer = FileLayer {
        path: path.to_owned(),
        ..FileLayer::default()
    };
    if let Some(http) = http {
        let value = ("control.http".to_owned(), vec![http.to_owned()]);
        layer.values.insert(flags::ASKED_HTTP.spec().name, value);
    }
    Ok(layer)
}

pub(crate) fn main(options: &Options) -> ExitCode {
    let outcome = match options.watch {
        Some(watch) => watch::main(&options.at, options.json, watch),
        None => once(options).map(|()| Exit::Ok).map_err(Failed::from),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(failed) => exit::report(PROGRAM, Err(failed)).into(),
    }
}

fn once(options: &Options) -> anyhow::Result<()> {
    let text = if options.json {
        format!("{:#}\n", answers::ask_json(&options.at)?)
    } else {
        render::page(&answers::ask(&options.at)?, Timestamp::now())
    };
    Ok(exit::print(&text)?)
}
