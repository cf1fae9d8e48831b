//! `quictun status`: how a running server or client is, from its HTTP interface.

use std::path::Path;
use std::process::ExitCode;

use clap::ArgMatches;
use jiff::Timestamp;
use quictun_control::settings::HttpListen;

use crate::ask;
use crate::exit::{self, Failed};
use quictun_args::fault::Fault;
use quictun_args::inputs::Inputs;
use quictun_args::layers::{FileLayer, Layers};
use quictun_args::native::flags;
use quictun_args::options::Flag as _;

mod render;

const PROGRAM: &str = "quictun status";

/// What is asked, and how the answer is shown.
#[derive(Debug)]
pub struct Options {
    at: HttpListen,
    json: bool,
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
    })
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
    let outcome = text(options).map_err(Failed::from);
    let outcome = outcome.and_then(|text| Ok(exit::print(&text)?));
    exit::report(PROGRAM, outcome).into()
}

fn text(options: &Options) -> anyhow::Result<String> {
    let at = &options.at;
    let (status, status_json) = ask::get::<render::Status>(at, "/v1/status")?;
    let (connections, connections_json) = ask::get::<render::Connections>(at, "/v1/connections")?;
    let (tunnels, tunnels_json) = ask::get::<render::Tunnels>(at, "/v1/tunnels")?;
    if options.json {
        let all = serde_json::json!({
            "status": status_json,
            "connections": connections_json["connections"],
            "udp_sockets": connections_json["udp_sockets"],
            "tunnels": tunnels_json["tunnels"],
        });
        return Ok(format!("{all:#}\n"));
    }
    Ok(render::page(
        &status,
        &connections,
        &tunnels,
        Timestamp::now(),
    ))
}
