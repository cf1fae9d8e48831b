//! The running process that a command asks: its HTTP interface or its state directory, from a flag, the environment, or a
//! configuration file.

use std::path::{Path, PathBuf};

use clap::ArgMatches;
use quictun_args::fault::Fault;
use quictun_args::inputs::Inputs;
use quictun_args::layers::{FileLayer, Layers};
use quictun_args::native::flags;
use quictun_args::options::{Flag as _, Table};
use quictun_args::state_dir;
use quictun_control::settings::HttpListen;

/// Returns the address of the HTTP interface, and the settings of the command, whose flags are in `table`.
pub(crate) fn asked<'a>(
    table: &'static Table,
    matches: &'a ArgMatches,
    inputs: &'a Inputs<'a>,
) -> Result<(HttpListen, Layers<'a>), Fault> {
    let layers = layers(table, matches, inputs)?;
    let Some(at) = layers.get(&flags::ASKED_HTTP)? else {
        let fault = layers.fault(
            &flags::ASKED_HTTP,
            "the HTTP interface is off, so the process cannot be asked",
        );
        return Err(fault.next("set control.http and restart, or name another address with --http"));
    };
    Ok((at, layers))
}

/// Returns the directories that may have the socket of the process.
pub(crate) fn directories(
    table: &'static Table,
    matches: &ArgMatches,
    inputs: &Inputs<'_>,
) -> Result<Vec<PathBuf>, Fault> {
    let named = layers(table, matches, inputs)?.get(&flags::ASKED_STATE_DIR)?;
    Ok(named.map_or_else(|| state_dir::of_running(inputs), |named| vec![named]))
}

fn layers<'a>(
    table: &'static Table,
    matches: &'a ArgMatches,
    inputs: &'a Inputs<'a>,
) -> Result<Layers<'a>, Fault> {
    let mut layers = Layers::new(table, matches, inputs);
    if let Some(path) = layers.get(&flags::ASKED_CONFIG)? {
        layers = layers.with_file(Some(file(&path, inputs)?));
    }
    Ok(layers)
}

/// Returns the only keys that matter in the file of either side: `control.http`, and `state_dir` of a client or
/// `identity.state_dir` of a server.
fn file(path: &Path, inputs: &Inputs<'_>) -> Result<FileLayer, Fault> {
    let table: toml::Table = quictun_args::file::parse(path, inputs)?;
    let text = |value: Option<&toml::Value>| value?.as_str().map(str::to_owned);
    let within = |section: &str, key: &str| text(table.get(section)?.get(key));
    let state_dir = within("identity", "state_dir").or_else(|| text(table.get("state_dir")));
    let mut layer = FileLayer {
        path: path.to_owned(),
        ..FileLayer::default()
    };
    for (flag, name, value) in [
        (
            flags::ASKED_HTTP.spec(),
            "control.http",
            within("control", "http"),
        ),
        (flags::ASKED_STATE_DIR.spec(), "state_dir", state_dir),
    ] {
        if let Some(value) = value {
            layer
                .values
                .insert(flag.name, (name.to_owned(), vec![value]));
        }
    }
    Ok(layer)
}
