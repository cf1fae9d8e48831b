//! The running process that a command asks: `--http`, the environment, and `control.http` in a configuration file.

use std::path::Path;

use clap::ArgMatches;
use quictun_args::fault::Fault;
use quictun_args::inputs::Inputs;
use quictun_args::layers::{FileLayer, Layers};
use quictun_args::native::flags;
use quictun_args::options::{Flag as _, Table};
use quictun_control::settings::HttpListen;

/// The address of its HTTP interface, and the settings of the command, whose flags are in `table`.
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
            "the HTTP interface is off: there is nothing to ask",
        );
        return Err(fault.next("set control.http and restart, or name another with --http"));
    };
    Ok((at, layers))
}

/// The one key of the file that says where to ask, of whichever side it is.
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
