//! Reads the settings of the compatibility programs.

use std::path::PathBuf;
use std::time::Duration;

use clap::ArgMatches;
use quictun_control::log::without_credentials;
use quictun_trust::settings::{
    Access, CertificateFiles, ClientIdentity, Guard, HeaderTargets, ServerIdentity, ServerTrust,
};
use quictun_tunnel::settings::{
    Address, CarrierChoice, ClientSettings, Forward, ForwardTo, ServerSettings, TokenSource,
    TransportSettings,
};
use quictun_wire::token;

use super::files;
use super::flags::{self, CLIENT, CONTROL_FLAGS, CommandLine, Program, SERVER, TokenSourceKind};
use crate::fault::Fault;
use crate::inputs::Inputs;
use crate::layers::Layers;
use crate::options::{Flag, Maybe};
use crate::values::parse_bool;
use crate::{control, state_dir, transport, tun_flags};

const CA_ALONE: &str = "--ca-file does nothing by itself: add --verify-remote-endpoint";

/// The user's request to a program.
#[derive(Debug)]
pub enum ProgramAction<T> {
    /// Print this text and end.
    Print(String),
    /// Print the version and the commit, and end.
    Version,
    /// Run with these settings.
    Run(ProgramSettings<T>),
}

/// The result of reading flags, environment and files, before a program runs.
#[derive(Debug)]
pub struct ProgramSettings<T> {
    /// The settings that the program runs with.
    pub settings: T,
    /// Warnings to the user, one line each.
    pub warnings: Vec<String>,
    /// The original's start-up lines. They are printed only with `--log-level debug`.
    pub startup: Vec<String>,
}

/// Reads the flags, environment and files of `quictun-client`.
pub fn client(inputs: &Inputs<'_>) -> Result<ProgramAction<ClientSettings>, Fault> {
    read(&CLIENT, inputs, client_settings)
}

/// Reads the flags, environment and files of `quictun-server`.
pub fn server(inputs: &Inputs<'_>) -> Result<ProgramAction<ServerSettings>, Fault> {
    read(&SERVER, inputs, server_settings)
}

fn read<T>(
    program: &'static Program,
    inputs: &Inputs<'_>,
    settings: impl Fn(&Layers<'_>, &mut Vec<String>) -> Result<T, Fault>,
) -> Result<ProgramAction<T>, Fault> {
    let (matches, mut warnings): (ArgMatches, _) = match program.read(&inputs.args)? {
        CommandLine::Print(text) => return Ok(ProgramAction::Print(text)),
        CommandLine::Version => return Ok(ProgramAction::Version),
        CommandLine::Run { matches, warnings } => (matches, warnings),
    };
    let layers = Layers::new(&program.table, &matches, inputs);
    let wanted = layers.get(&flags::CONFIG)?;
    let file = files::find(program, wanted, inputs, &mut warnings)?;
    let layers = layers.with_file(file);
    let settings = settings(&layers, &mut warnings)?;
    warnings.extend(ignored_options(&layers)?);
    let startup = startup_lines(&layers, inputs);
    Ok(ProgramAction::Run(ProgramSettings {
        settings,
        warnings,
        startup,
    }))
}

/// Returns warnings about options of quic-tun's logging library that have no effect.
fn ignored_options(layers: &Layers<'_>) -> Result<Vec<String>, Fault> {
    let mut ignored_options = Vec::new();
    let mut add =
        |flag: &dyn Flag, why: &str| ignored_options.push(layers.fault(flag, why).to_string());
    let errors = layers.get(&flags::LOG_ERROR_OUTPUT_PATHS)?;
    if errors != ["stderr"] && errors != layers.get(&flags::LOG_OUTPUT_PATHS)? {
        add(
            &flags::LOG_ERROR_OUTPUT_PATHS,
            "nothing is written there: every line goes to --log-output-paths",
        );
    }
    let caller = layers.setting(&flags::LOG_DISABLE_CALLER).items;
    if parse_bool(&caller.concat()) == Some(true) {
        add(
            &flags::LOG_DISABLE_CALLER,
            "has no effect: every line names its place in the source",
        );
    }
    if layers.get(&flags::LOG_NAME)?.is_some() {
        add(&flags::LOG_NAME, "has no effect: no line carries a name");
    }
    Ok(ignored_options)
}

fn client_settings(
    layers: &Layers<'_>,
    warnings: &mut Vec<String>,
) -> Result<ClientSettings, Fault> {
    let Some(server) = layers.get(&flags::SERVER_ENDPOINT)? else {
        let fault = layers.fault(&flags::SERVER_ENDPOINT, "the server to dial is missing");
        return Err(fault
            .next("quictun-client --server-endpoint HOST:7500 --token-source tcp:127.0.0.1:22"));
    };
    let tun = tun_flags::settings(layers)?;
    let has_target =
        layers.get(&flags::TOKEN_SOURCE)?.is_some() || layers.get(&flags::TOKEN)?.is_some();
    let forwards = if tun.is_some() && !has_target {
        Vec::new()
    } else {
        vec![Forward {
            listen: layers.get(&flags::CLIENT_LISTEN_ON)?,
            to: ForwardTo::Source(token_source(layers, warnings)?),
        }]
    };
    Ok(ClientSettings {
        reverse: Vec::new(),
        header_targets: HeaderTargets::default(),
        sends_sources: false,
        tun,
        take_over: false,
        state_dir: None,
        state_dir_is_default: true,
        server: Address::At(server),
        tls_port: None,
        outbound_proxy: None,
        server_addresses: layers.get(&tun_flags::SERVER_ADDRESS)?,
        other_servers: Vec::new(),
        forwards,
        proxy_users: None,
        offer: layers.get(&flags::OFFER)?,
        trust: server_trust(layers, warnings)?,
        identity: ClientIdentity {
            certificate: certificate(layers, &flags::CLIENT_CERT_FILE)?,
            psk_file: None,
        },
        transport: TransportSettings {
            carrier: CarrierChoice::Quic,
            ..transport::settings(layers)?
        },
        control: control::settings(layers, CONTROL_FLAGS)?,
    })
}

fn server_settings(
    layers: &Layers<'_>,
    warnings: &mut Vec<String>,
) -> Result<ServerSettings, Fault> {
    let () = layers.get(&flags::TOKEN_PARSER_PLUGIN)?;
    let token_parser = layers.get(&flags::TOKEN_PARSER_KEY)?;
    let identity = match certificate(layers, &flags::SERVER_CERT_FILE)? {
        Some(files) => ServerIdentity::Files(files),
        None => ServerIdentity::State(state_dir::default(layers.inputs())),
    };
    Ok(ServerSettings {
        clients_in: None,
        header_targets: HeaderTargets::default(),
        listen: layers.get(&flags::SERVER_LISTEN_ON)?,
        listen_tls: Some(Vec::new()),
        https_proxy: false,
        take_over: false,
        identity,
        certificate: None,
        access: access(layers, warnings)?,
        token_parser,
        dial_timeout: layers.get(&transport::DIAL_TIMEOUT)?,
        // quic-tun has no reverse forwards.
        reverse_grace: Duration::ZERO,
        dial_family: layers.get(&transport::IP)?,
        transport: transport::settings(layers)?,
        control: control::settings(layers, CONTROL_FLAGS)?,
    })
}

fn token_source(layers: &Layers<'_>, warnings: &mut Vec<String>) -> Result<TokenSource, Fault> {
    let plugin = layers.get(&flags::TOKEN_SOURCE_PLUGIN)?;
    let given = (
        layers.get(&flags::TOKEN_SOURCE)?,
        layers.get(&flags::TOKEN)?,
    );
    let (flag, text) = match given {
        (Some(_), Some(_)) => {
            return Err(layers.fault(&flags::TOKEN, "given beside token-source: keep one of them"));
        }
        (None, Some(text)) => (&flags::TOKEN, text),
        (Some(text), None) => (&flags::TOKEN_SOURCE, text),
        (None, None) => {
            let fault = layers.fault(&flags::TOKEN_SOURCE, "the target is missing");
            return Err(
                fault.next("--token-source tcp:127.0.0.1:22, as the server's machine sees it")
            );
        }
    };
    let source = match plugin {
        TokenSourceKind::Fixed => TokenSource::Fixed(text),
        TokenSourceKind::File => TokenSource::File(text.into()),
        TokenSourceKind::Http => TokenSource::Http(text),
    };
    match &source {
        TokenSource::Fixed(token) => {
            token::pack(token).map_err(|error| layers.fault(flag, error))?;
        }
        TokenSource::File(path) => {
            if let Err(error) = layers.inputs().files.check_readable(path) {
                warnings.push(format!(
                    "cannot read {}: {error}; connections are refused while this lasts",
                    path.display()
                ));
            }
        }
        TokenSource::Http(url) => check_url(url).map_err(|error| layers.fault(flag, error))?,
    }
    Ok(source)
}

fn check_url(url: &str) -> Result<(), &'static str> {
    let scheme_end = url.split_once("://");
    let rest = scheme_end
        .filter(|(scheme, _)| matches!(*scheme, "http" | "https"))
        .map(|(_, rest)| rest);
    let host_missing =
        rest.is_none_or(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#', ':']));
    if host_missing || url.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("is not a URL: write http://HOST:PORT/PATH or https://HOST/PATH");
    }
    Ok(())
}

fn server_trust(layers: &Layers<'_>, warnings: &mut Vec<String>) -> Result<ServerTrust, Fault> {
    let pins = layers.get(&flags::PIN)?;
    let ca = layers.readable(&flags::SERVER_AUTHORITIES)?;
    let verify = layers.get(&flags::VERIFY_SERVER)?;
    let skip = layers.given(&flags::INSECURE_SKIP_VERIFY)?;
    if verify && skip == Some(true) {
        return Err(layers.fault(
            &flags::INSECURE_SKIP_VERIFY,
            "contradicts verify-remote-endpoint: keep one of them",
        ));
    }
    if !pins.is_empty() {
        if verify {
            let why = "contradicts verify-remote-endpoint: a pinned server needs no authority; keep one of them";
            return Err(layers.fault(&flags::PIN, why));
        }
        return Ok(ServerTrust::Pins(pins));
    }
    if verify || skip == Some(false) {
        return Ok(ServerTrust::Authorities(ca));
    }
    if ca.is_some() {
        warnings.push(CA_ALONE.to_owned());
    }
    Ok(ServerTrust::Insecure)
}

fn access(layers: &Layers<'_>, warnings: &mut Vec<String>) -> Result<Access, Fault> {
    let ca = layers.readable(&flags::CLIENT_AUTHORITIES)?;
    let verify = [&flags::VERIFY_CLIENTS, &flags::VERIFY_CLIENT];
    let verify = verify
        .into_iter()
        .find_map(|switch| match layers.get(switch) {
            Ok(false) => None,
            Ok(true) => Some(Ok(switch)),
            Err(fault) => Some(Err(fault)),
        });
    let guard = Guard {
        allow_unix: layers.get(&flags::ALLOW_UNIX)?,
        allow_link_local: layers.get(&flags::ALLOW_LINK_LOCAL)?,
    };
    match (verify.transpose()?, ca) {
        (Some(switch), None) => {
            let fault = layers.fault(switch, "needs the certificate authorities of clients");
            Err(fault.next(format!("--{} --ca-file FILE", switch.spec().name)))
        }
        (Some(_), ca) => Ok(Access::Open { ca, guard }),
        (None, ca) => {
            if ca.is_some() {
                warnings.push(CA_ALONE.to_owned());
            }
            Ok(Access::Open { ca: None, guard })
        }
    }
}

fn certificate(
    layers: &Layers<'_>,
    cert: &Maybe<PathBuf>,
) -> Result<Option<CertificateFiles>, Fault> {
    layers.certificate(
        (cert, "--cert-file FILE"),
        (&flags::KEY_FILE, "--key-file FILE"),
    )
}

/// Returns the lines that the original prints at every start.
fn startup_lines(layers: &Layers<'_>, inputs: &Inputs<'_>) -> Vec<String> {
    let mut settings: Vec<(&str, String)> = layers
        .options()
        .map(|option| {
            let value = layers.setting(option).items.join(",");
            (option.spec().name, without_credentials(&value).into_owned())
        })
        .collect();
    settings.sort_unstable();
    let mut lines = vec![format!("WorkingDir: {}", inputs.cwd.display())];
    lines.extend(
        settings
            .iter()
            .map(|(name, value)| format!("FLAG: --{name}={value:?}")),
    );
    lines.push("==> Configuration items:".to_owned());
    lines.extend(
        settings
            .iter()
            .map(|(name, value)| format!("{name}: {value}")),
    );
    lines
}
