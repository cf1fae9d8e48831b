//! The running process that a command asks, from `--http`, the environment, or `control.http` in a configuration file.

use std::path::Path;

use clap::ArgMatches;
use quictun_args::fault::Fault;
use quictun_args::inputs::Inputs;
use quictun_args::layers::{FileLayer, Layers};
use quictun_args::native::flags;
use quictun_args::options::{Flag as _, Table};
use quictun_control::settings::HttpListen;

/// Returns the address of the HTTP interface, and the settings of the command, whose flags are in `table`.
pub(crate) fn asked<'a>(
    table: &'static Table,
    matches: &'a ArgMatches,
    inputs: &'a Inputs<'a>,
) -> Result<(HttpListen, Layers<'a>), Fault> {
    let mut layers = Layers::new(table, matches, inputs);
    if let Some(path) = layers.get(&flags::ASKED_CONFIG)? {
        layers = layers.with_file(Some(file(&path, inputs)?));
    }
    let Some(at) = layers.get(&flags::ASKED_HTTP)? else {
        let fault = layers.fault(
            &flags::ASKED_HTTP,
            "the HTTP interface is off, so the process cannot be asked",
        );
        return Err(fault.next("set control.http and restart, or name another address with --http"));
    };
    Ok((at, layers))
}

/// Returns the only key that matters in the file of either side, `control.http`.
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
