//! What the compatibility programs run with.

use std::path::PathBuf;
use std::str::FromStr as _;

use clap::ArgMatches;
use quictun_control::log::without_credentials;
use quictun_control::settings::Phrases;
use quictun_trust::settings::{
    Access, CertificateFiles, ClientIdentity, Guard, Offer, Pin, ServerIdentity, ServerTrust,
};
use quictun_tunnel::settings::{
    ClientSettings, Forward, ForwardTo, ServerSettings, TokenParser, TokenSource,
};
use quictun_wire::token;

use super::files;
use super::flags::{CLIENT, Line, Program, SERVER};
use crate::address::{Wildcard, parse_listen, parse_network_listen, parse_server};
use crate::control::{self, Names};
use crate::fault::Fault;
use crate::inputs::Inputs;
use crate::layers::{Layers, parse_bool};
use crate::options;
use crate::state_dir;
use crate::transport::{self, Side};
use crate::tun_flags;

const NAMES: Names = Names {
    http: "httpd-listen-on",
    http_mode: "httpd-mode",
    http_name: "httpd-name",
    wildcard: Wildcard::BothFamilies,
    log_output: "log-output-paths",
    text_format: "console",
    phrases: Phrases::Original,
};

const CA_ALONE: &str = "--ca-file does nothing by itself: add --verify-remote-endpoint";

/// What the user asked a program to do.
#[derive(Debug)]
pub enum Asked<T> {
    /// Print this and end.
    Print(String),
    /// Run.
    Run(Ready<T>),
}

/// Everything known before a program runs.
#[derive(Debug)]
pub struct Ready<T> {
    /// What it runs with.
    pub settings: T,
    /// For the user to know, one line each.
    pub warnings: Vec<String>,
    /// The original's start-up lines; for the eyes of `--log-level debug` only.
    pub startup: Vec<String>,
}

/// Reads everything that `quictun-client` is started with.
pub fn client(inputs: &Inputs<'_>) -> Result<Asked<ClientSettings>, Fault> {
    ask(&CLIENT, inputs, client_settings)
}

/// Reads everything that `quictun-server` is started with.
pub fn server(inputs: &Inputs<'_>) -> Result<Asked<ServerSettings>, Fault> {
    ask(&SERVER, inputs, server_settings)
}

fn ask<T>(
    program: &'static Program,
    inputs: &Inputs<'_>,
    settings: impl Fn(&Layers<'_>, &mut Vec<String>) -> Result<T, Fault>,
) -> Result<Asked<T>, Fault> {
    let (matches, mut warnings): (ArgMatches, _) = match program.read(&inputs.args)? {
        Line::Print(text) => return Ok(Asked::Print(text)),
        Line::Run { matches, warnings } => (matches, warnings),
    };
    let flags = options::given(&matches, program.sections);
    let layers = Layers::new(program.sections, flags, inputs, program.prefix);
    let file = files::find(
        program,
        layers.text("config").map(PathBuf::from),
        inputs,
        &mut warnings,
    )?;
    let layers = layers.with_file(file);
    let settings = settings(&layers, &mut warnings)?;
    warnings.extend(missed(&layers));
    let startup = startup_lines(&layers, inputs);
    Ok(Asked::Run(Ready {
        settings,
        warnings,
        startup,
    }))
}

/// What somebody may wait for in vain who sets up quic-tun's logging library.
fn missed(layers: &Layers<'_>) -> Vec<String> {
    let given = |name: &str| layers.setting(name).items.join(",");
    let mut missed = Vec::new();
    let mut miss = |name: &str, why: &str| missed.push(layers.fault(name, why).to_string());
    let errors = given("log-error-output-paths");
    if errors != "stderr" && errors != given("log-output-paths") {
        miss(
            "log-error-output-paths",
            "nothing is written there: every line goes to --log-output-paths",
        );
    }
    if parse_bool(&given("log-disable-caller")) == Some(true) {
        miss(
            "log-disable-caller",
            "has no effect: every line names its place in the source",
        );
    }
    if !given("log-name").is_empty() {
        miss("log-name", "has no effect: no line carries a name");
    }
    missed
}

fn client_settings(
    layers: &Layers<'_>,
    warnings: &mut Vec<String>,
) -> Result<ClientSettings, Fault> {
    if layers.text("server-endpoint").is_none() {
        let fault = layers.fault("server-endpoint", "the server to dial is missing");
        return Err(fault
            .next("quictun-client --server-endpoint HOST:7500 --token-source tcp:127.0.0.1:22"));
    }
    let offers = [
        ("both", Offer::Both),
        ("native", Offer::Native),
        ("compat", Offer::Compat),
    ];
    let tun = tun_flags::settings(layers)?;
    let has_target = layers.text("token-source").is_some() || layers.text("token").is_some();
    let forwards = if tun.is_some() && !has_target {
        Vec::new()
    } else {
        vec![Forward {
            listen: layers.value("listen-on", parse_network_listen)?,
            to: ForwardTo::Source(token_source(layers, warnings)?),
        }]
    };
    Ok(ClientSettings {
        tun,
        server: layers.value("server-endpoint", parse_server)?,
        server_addresses: tun_flags::server_addresses(layers)?,
        forwards,
        offer: layers.choice("offer", &offers)?,
        trust: server_trust(layers, warnings)?,
        identity: ClientIdentity {
            certificate: certificate(layers)?,
            psk_file: None,
        },
        transport: transport::settings(layers, Side::Client)?,
        control: control::settings(layers, NAMES)?,
    })
}

fn server_settings(
    layers: &Layers<'_>,
    warnings: &mut Vec<String>,
) -> Result<ServerSettings, Fault> {
    layers.choice("token-parser-plugin", &[("Cleartext", ())])?;
    let keys = [
        ("base64", TokenParser::Base64),
        ("", TokenParser::Cleartext),
    ];
    let token_parser = layers.choice("token-parser-key", &keys)?;
    let identity = match certificate(layers)? {
        Some(files) => ServerIdentity::Files(files),
        None => ServerIdentity::State(state_dir::default(layers.inputs())),
    };
    Ok(ServerSettings {
        listen: layers.value("listen-on", |text| {
            parse_listen(text, Wildcard::BothFamilies)
        })?,
        identity,
        access: access(layers, warnings)?,
        token_parser,
        dial_timeout: transport::duration(layers, "dial-timeout", "100ms", "1h")?,
        transport: transport::settings(layers, Side::Server)?,
        control: control::settings(layers, NAMES)?,
    })
}

fn token_source(layers: &Layers<'_>, warnings: &mut Vec<String>) -> Result<TokenSource, Fault> {
    type Plugin = fn(String) -> TokenSource;
    let plugins: [(&str, Plugin); 3] = [
        ("Fixed", TokenSource::Fixed),
        ("File", |path| TokenSource::File(path.into())),
        ("Http", TokenSource::Http),
    ];
    let plugin = layers.choice("token-source-plugin", &plugins)?;
    let name = match (layers.text("token-source"), layers.text("token")) {
        (Some(_), Some(_)) => {
            return Err(layers.fault("token", "given beside token-source: keep one of them"));
        }
        (None, Some(_)) => "token",
        (Some(_), None) => "token-source",
        (None, None) => {
            let fault = layers.fault("token-source", "the target is missing");
            return Err(
                fault.next("--token-source tcp:127.0.0.1:22, as the server's machine sees it")
            );
        }
    };
    let source = plugin(layers.text(name).unwrap_or_default());
    match &source {
        TokenSource::Fixed(token) => {
            token::pack(token).map_err(|error| layers.fault(name, error))?;
        }
        TokenSource::File(path) => {
            if let Err(error) = layers.inputs().files.check_readable(path) {
                warnings.push(format!(
                    "cannot read {}: {error}; connections are refused while this lasts",
                    path.display()
                ));
            }
        }
        TokenSource::Http(url) => check_url(url).map_err(|error| layers.fault(name, error))?,
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
    let pins = layers.all("pin", Pin::from_str)?;
    let ca = layers.readable_file("ca-file")?;
    let verify = layers.switch("verify-remote-endpoint")?;
    let skip = layers
        .is_given("insecure-skip-verify")
        .then(|| layers.switch("insecure-skip-verify"))
        .transpose()?;
    if verify && skip == Some(true) {
        return Err(layers.fault(
            "insecure-skip-verify",
            "contradicts verify-remote-endpoint: keep one of them",
        ));
    }
    if !pins.is_empty() {
        if verify {
            let why = "contradicts verify-remote-endpoint: a pinned server needs no authority; keep one of them";
            return Err(layers.fault("pin", why));
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
    let ca = layers.readable_file("ca-file")?;
    let verify = ["verify-remote-endpoint", "verify-client"];
    let verify = verify
        .into_iter()
        .find_map(|name| match layers.switch(name) {
            Ok(false) => None,
            Ok(true) => Some(Ok(name)),
            Err(fault) => Some(Err(fault)),
        });
    let guard = Guard {
        allow_unix: layers.switch("allow-unix")?,
        allow_link_local: layers.switch("allow-link-local")?,
    };
    match (verify.transpose()?, ca) {
        (Some(name), None) => {
            let fault = layers.fault(name, "needs the authorities that vouch for clients");
            Err(fault.next(format!("--{name} --ca-file FILE")))
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

fn certificate(layers: &Layers<'_>) -> Result<Option<CertificateFiles>, Fault> {
    match (
        layers.readable_file("cert-file")?,
        layers.readable_file("key-file")?,
    ) {
        (Some(cert), Some(key)) => Ok(Some(CertificateFiles { cert, key })),
        (None, None) => Ok(None),
        (Some(_), None) => {
            Err(layers.fault("cert-file", "needs its private key: add --key-file FILE"))
        }
        (None, Some(_)) => {
            Err(layers.fault("key-file", "needs its certificate: add --cert-file FILE"))
        }
    }
}

/// The lines that the original prints at every start.
fn startup_lines(layers: &Layers<'_>, inputs: &Inputs<'_>) -> Vec<String> {
    let mut settings: Vec<(&str, String)> = layers
        .options()
        .map(|option| {
            let value = layers.setting(option.name).items.join(",");
            (option.name, without_credentials(&value).into_owned())
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
