//! `quictun server` and `quictun client`: their flags, TOML files and settings.
//!
//! [`commands`] and [`flags`] define the command line, and [`file`] the TOML files. [`settings`] turns both into the
//! settings that the programs run with, and [`print`] shows them.

use std::path::{Path, PathBuf};

use clap::ArgMatches;
use quictun_tunnel::outbound_proxy::OutboundProxy;
use quictun_tunnel::settings::{CarrierChoice, ClientSettings};
use quictun_wire::target::Target;

use crate::fault::Fault;
use crate::inputs::Inputs;
use crate::layers::Layers;
use crate::outbound_proxy::outbound_proxy;
use crate::programs::QUICTUN;
use crate::{transport, variables};
use settings::{Client, Server};

mod certificate;
pub mod commands;
pub mod enrolled;
mod file;
pub mod flags;
pub mod limits;
mod named_client;
mod print;
mod servers;
pub mod settings;

/// The remaining work of `quictun config`.
#[derive(Debug)]
pub enum ConfigTask {
    /// Print this text; nothing else remains to be done.
    Print(String),
    /// Check the parts of a server's file that need access to the disk.
    Server(PathBuf, Server),
    /// Check the parts of a client's file that need access to the disk.
    Client(PathBuf, ClientSettings),
}

/// Reads the arguments of `quictun server`.
pub fn read_server(matches: &ArgMatches, inputs: &Inputs<'_>) -> Result<Server, Fault> {
    server_layers(matches, None, inputs).map(|(_, server)| server)
}

/// Reads the arguments of `quictun client`.
pub fn read_client(matches: &ArgMatches, inputs: &Inputs<'_>) -> Result<Client, Fault> {
    let (layers, settings) = client_layers(matches, None, inputs)?;
    Ok(Client {
        settings,
        restart_settings: layers.restart_settings(),
        reload: settings::reload(&layers)?,
    })
}

/// Reads the arguments of `quictun connect`: a target, or a host and a port. Programs that run a command instead of
/// connecting themselves pass host and port.
pub fn read_connect(
    matches: &ArgMatches,
    inputs: &Inputs<'_>,
) -> Result<(ClientSettings, Target), Fault> {
    let mut layers = Layers::new(&flags::CONNECT, matches, inputs);
    if let Some(path) = config_path(&layers, None)? {
        layers = layers.with_file(Some(file::client(&path, inputs)?));
    }
    let text = |name| matches.get_one::<String>(name).map(String::as_str);
    let (target, port) = (text("target").unwrap_or_default(), text("port"));
    let target = match port {
        None => target.to_owned(),
        Some(port) if target.contains(':') && !target.starts_with('[') => {
            format!("[{target}]:{port}")
        }
        Some(port) => format!("{target}:{port}"),
    };
    let parsed = Target::parse(&target);
    let target = parsed.map_err(|error| Fault::usage("connect", error))?;
    if target.takes_datagrams() {
        let why = "standard input has no datagrams: use -L udp:PORT=HOST:PORT of quictun client";
        return Err(Fault::usage("connect", why));
    }
    Ok((settings::connect(&layers)?, target))
}

/// Reads the carriers that `quictun join` may use, and the proxy through which TLS leads to the server.
pub fn read_join(
    matches: &ArgMatches,
    inputs: &Inputs<'_>,
) -> Result<(CarrierChoice, Option<OutboundProxy>), Fault> {
    let layers = Layers::new(&flags::JOIN, matches, inputs);
    let carrier = layers.get(&transport::CARRIER)?;
    Ok((carrier, outbound_proxy(&layers, carrier, false)?))
}

/// Reads the proxy through which `quictun doctor` tries the way to a server.
pub fn read_doctor(
    matches: &ArgMatches,
    inputs: &Inputs<'_>,
) -> Result<Option<OutboundProxy>, Fault> {
    let layers = Layers::new(&flags::DOCTOR, matches, inputs);
    outbound_proxy(&layers, CarrierChoice::Auto, false)
}

/// Reads the settings of `quictun client` with these arguments.
pub fn client_of(words: &[String], inputs: &Inputs<'_>) -> Result<ClientSettings, Fault> {
    read_client(&matches_of("client", words)?, inputs).map(|client| client.settings)
}

/// Reads the settings of `quictun server` with these arguments.
pub fn server_of(words: &[String], inputs: &Inputs<'_>) -> Result<Server, Fault> {
    read_server(&matches_of("server", words)?, inputs)
}

/// Reads the arguments of `quictun config`.
pub fn config(matches: &ArgMatches, inputs: &Inputs<'_>) -> Result<ConfigTask, Fault> {
    let (command, matches) = matches
        .subcommand()
        .expect("invariant: clap requires a command");
    let side = if matches.contains_id("server") {
        "server"
    } else {
        "client"
    };
    let file = path(matches, side).expect("invariant: clap requires one of the two");
    let flags: Vec<String> = matches
        .get_many("flags")
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    let matches = matches_of(side, &flags)?;
    if side == "server" {
        let (layers, server) = server_layers(&matches, Some(&file), inputs)?;
        return Ok(match command {
            "check" => ConfigTask::Server(file, server),
            _ => ConfigTask::Print(print::server(&layers, &server)),
        });
    }
    let (layers, client) = client_layers(&matches, Some(&file), inputs)?;
    Ok(match command {
        "check" => ConfigTask::Client(file, client),
        _ => ConfigTask::Print(print::client(&layers, &client)),
    })
}

/// Returns warnings about environment variables that look like misspelt settings of the server or client that these
/// arguments start.
pub fn misspelt_variables(inputs: &Inputs<'_>) -> Vec<String> {
    let all = [
        &flags::SERVER,
        &flags::CLIENT,
        &flags::CONNECT,
        &flags::JOIN,
        &flags::DOCTOR,
        &flags::STATUS,
        &flags::RECONNECT,
        &flags::DRAIN,
    ];
    match inputs.args.get(1).and_then(|word| word.to_str()) {
        Some("server") => variables::misspelt(&flags::SERVER, &all, inputs),
        Some("client") => variables::misspelt(&flags::CLIENT, &all, inputs),
        _ => Vec::new(),
    }
}

/// Parses the arguments of a server or client without starting it.
fn matches_of(side: &str, words: &[String]) -> Result<ArgMatches, Fault> {
    let line = [QUICTUN, side].into_iter().map(str::to_owned);
    let mut matches = commands::program()
        .subcommands(commands::ends())
        .try_get_matches_from(line.chain(words.iter().cloned()))
        .map_err(|error| Fault::from_clap(&format!("{QUICTUN} {side}"), &error))?;
    let (_, matches) = matches
        .remove_subcommand()
        .expect("invariant: the command line has a subcommand");
    Ok(matches)
}

fn server_layers<'a>(
    matches: &ArgMatches,
    file: Option<&Path>,
    inputs: &'a Inputs<'a>,
) -> Result<(Layers<'a>, Server), Fault> {
    let layers = Layers::new(&flags::SERVER, matches, inputs);
    let Some(path) = config_path(&layers, file)? else {
        let server = settings::server(&layers, None, None)?;
        return Ok((layers, server));
    };
    let read = file::server(&path, inputs)?;
    let clients = read.extra.unwrap_or_default();
    let layers = layers.with_file(Some(read.layer));
    let server = settings::server(&layers, Some((&path, &clients)), file)?;
    Ok((layers, server))
}

fn client_layers<'a>(
    matches: &ArgMatches,
    file: Option<&Path>,
    inputs: &'a Inputs<'a>,
) -> Result<(Layers<'a>, ClientSettings), Fault> {
    let mut layers = Layers::new(&flags::CLIENT, matches, inputs);
    if let Some(path) = config_path(&layers, file)? {
        layers = layers.with_file(Some(file::client(&path, inputs)?));
    }
    let client = settings::client(&layers)?;
    Ok((layers, client))
}

fn config_path(layers: &Layers<'_>, file: Option<&Path>) -> Result<Option<PathBuf>, Fault> {
    match (file, layers.get(&flags::CONFIG)?) {
        (Some(_), Some(_)) => Err(layers.fault(
            &flags::CONFIG,
            "the file is given already: take this one away",
        )),
        (Some(file), None) => Ok(Some(file.to_owned())),
        (None, config) => Ok(config),
    }
}

/// Returns the path in an argument.
pub fn path(matches: &ArgMatches, name: &str) -> Option<PathBuf> {
    matches.get_one::<String>(name).map(PathBuf::from)
}
