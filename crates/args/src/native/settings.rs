//! What `quictun server` and `quictun client` run with.

use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use quictun_control::settings::Phrases;
use quictun_trust::settings::{
    Access, CertificateFiles, ClientIdentity, ClientProof, NamedClient, Offer, Pin, ServerIdentity,
    ServerTrust, TargetRule,
};
use quictun_tunnel::settings::{ClientSettings, Forward, ForwardTo, ServerSettings, TokenParser};
use quictun_wire::target::Target;

use super::file::{ClientTable, Texts};
use crate::address::{Wildcard, parse_forward_listen, parse_listen, parse_server};
use crate::control::{self, Names};
use crate::fault::Fault;
use crate::layers::{Layers, check_readable};
use crate::state_dir;
use crate::transport::{self, Side};
use crate::tun_flags;

const NAMES: Names = Names {
    http: "http",
    http_mode: "http-mode",
    http_name: "http-name",
    wildcard: Wildcard::AsWritten,
    log_output: "log-output",
    text_format: "text",
    phrases: Phrases::Own,
};

/// The client that `--allow` speaks of.
pub const DEFAULT_CLIENT: &str = "default";

/// What a server runs with.
#[derive(Debug)]
pub struct Server {
    /// What it runs with.
    pub settings: ServerSettings,
    /// Secret of the default client, to be made before the server runs.
    pub make_psk: Option<PathBuf>,
    /// For the user to know, one line each.
    pub warnings: Vec<String>,
}

/// Reads a server's settings. `file` is the path of the configuration file and its `[[client]]` tables.
pub fn server(layers: &Layers<'_>, file: Option<(&Path, &[ClientTable])>) -> Result<Server, Fault> {
    let state_dir = layers
        .text("state-dir")
        .map_or_else(|| state_dir::default(layers.inputs()), PathBuf::from);
    let identity = match certificate(layers)? {
        Some(files) => ServerIdentity::Files(files),
        None => ServerIdentity::State(state_dir.clone()),
    };
    let ca = layers.readable_file("ca")?;
    let mut clients = Vec::new();
    if let Some((path, tables)) = file {
        for table in tables {
            clients.push(named_client(layers, path, table, ca.is_some())?);
        }
    }
    let make_psk = allow_default(layers, &state_dir, &mut clients);
    let warnings = idle_clients(&clients);
    let settings = ServerSettings {
        listen: layers.value("listen", |text| parse_listen(text, Wildcard::AsWritten))?,
        identity,
        access: Access::Named { clients, ca },
        token_parser: TokenParser::Cleartext,
        dial_timeout: transport::duration(layers, "dial-timeout", "100ms", "1h")?,
        transport: transport::settings(layers, Side::Server)?,
        control: control::settings(layers, NAMES)?,
    };
    Ok(Server {
        settings,
        make_psk,
        warnings,
    })
}

/// Reads a client's settings.
pub fn client(layers: &Layers<'_>) -> Result<ClientSettings, Fault> {
    if layers.text("server").is_none() {
        let fault = layers.fault("server", "the server to dial is missing");
        return Err(
            fault.next("quictun client --server HOST:7500 --pin sha256:... -L 2222=127.0.0.1:22")
        );
    }
    let offers = [
        ("native", Offer::Native),
        ("compat", Offer::Compat),
        ("both", Offer::Both),
    ];
    let offer = layers.choice("offer", &offers)?;
    let psk_file = layers.readable_file("psk-file")?;
    if psk_file.is_some() && offer == Offer::Compat {
        return Err(layers.fault(
            "psk-file",
            "quic-tun's protocol carries no proof of a secret: offer native or both",
        ));
    }
    let tun = tun_flags::settings(layers)?;
    Ok(ClientSettings {
        server: layers.value("server", parse_server)?,
        server_addresses: tun_flags::server_addresses(layers)?,
        forwards: forwards(layers, tun.is_some())?,
        tun,
        offer,
        trust: server_trust(layers)?,
        identity: ClientIdentity {
            certificate: certificate(layers)?,
            psk_file,
        },
        transport: transport::settings(layers, Side::Client)?,
        control: control::settings(layers, NAMES)?,
    })
}

fn named_client(
    layers: &Layers<'_>,
    path: &Path,
    table: &ClientTable,
    has_ca: bool,
) -> Result<NamedClient, Fault> {
    let what = format!("{}: client {:?}", path.display(), table.name);
    let mut proofs = Vec::new();
    let Texts(keys) = &table.key;
    for key in keys {
        proofs.push(ClientProof::Pin(
            Pin::from_str(key).map_err(|error| Fault::usage(&what, error))?,
        ));
    }
    if let Some(psk_file) = &table.psk_file {
        check_readable(layers.inputs().files, &what, psk_file)?;
        proofs.push(ClientProof::PskFile(psk_file.clone()));
    }
    if table.certificate {
        if !has_ca {
            return Err(Fault::usage(
                what,
                "certificate = true needs the authorities that vouch for clients: add ca",
            ));
        }
        proofs.push(ClientProof::CertificateName);
    }
    if proofs.is_empty() {
        return Err(Fault::usage(
            what,
            "has no way to prove who it is: add key, psk_file or certificate = true",
        ));
    }
    let allow = table.allow.iter().cloned().map(TargetRule).collect();
    Ok(NamedClient {
        name: table.name.clone(),
        proofs,
        allow,
    })
}

/// Gives the default client the rules of `--allow`; says which secret has to be made for it.
fn allow_default(
    layers: &Layers<'_>,
    state_dir: &Path,
    clients: &mut Vec<NamedClient>,
) -> Option<PathBuf> {
    let allow: Vec<TargetRule> = layers
        .setting("allow")
        .items
        .into_iter()
        .map(TargetRule)
        .collect();
    if allow.is_empty() {
        return None;
    }
    if let Some(client) = clients
        .iter_mut()
        .find(|client| client.name == DEFAULT_CLIENT)
    {
        client.allow = allow;
        return None;
    }
    let psk = state_dir.join("client.psk");
    let proofs = vec![ClientProof::PskFile(psk.clone())];
    clients.push(NamedClient {
        name: DEFAULT_CLIENT.to_owned(),
        proofs,
        allow,
    });
    Some(psk)
}

/// Clients without rules beside others that have some. Where none has any, the server itself says so.
fn idle_clients(clients: &[NamedClient]) -> Vec<String> {
    if clients.iter().all(|client| client.allow.is_empty()) {
        return Vec::new();
    }
    let idle = clients.iter().filter(|client| client.allow.is_empty());
    idle.map(|client| {
        format!(
            "client {:?} may reach nothing: give it allow = [\"HOST:PORT\"]",
            client.name
        )
    })
    .collect()
}

fn forwards(layers: &Layers<'_>, tun: bool) -> Result<Vec<Forward>, Fault> {
    let forwards = layers.all("forward", parse_forward)?;
    if forwards.is_empty() && !tun {
        let fault = layers.fault("forward", "there is nothing to forward");
        return Err(fault.next(
            "-L 2222=127.0.0.1:22, or a [[forward]] table in the configuration file; or --tun",
        ));
    }
    for (n, forward) in forwards.iter().enumerate() {
        // Port 0 is a port of its own each time.
        let again = |other: &Forward| other.listen == forward.listen && !is_any_port(forward);
        if forwards.iter().skip(n + 1).any(again) {
            let text = layers.setting("forward").items.swap_remove(n);
            let listen = text.split('=').next().unwrap_or(&text);
            return Err(layers.fault(
                "forward",
                format!("two forwards listen on {listen}: keep one of them"),
            ));
        }
    }
    Ok(forwards)
}

fn is_any_port(forward: &Forward) -> bool {
    matches!(&forward.listen, quictun_tunnel::settings::ListenOn::Tcp(at) if at.port() == 0)
}

fn parse_forward(text: &str) -> Result<Forward, String> {
    let in_forward = |why: String| format!("{text:?}: {why}");
    let missing = || {
        in_forward(
            "no '=' between listener and target: write LISTEN=TARGET, as in 2222=127.0.0.1:22"
                .to_owned(),
        )
    };
    let (listen, target) = text.split_once('=').ok_or_else(missing)?;
    let listen = parse_forward_listen(listen).map_err(|error| in_forward(error.to_string()))?;
    let target = Target::parse(target).map_err(|error| in_forward(error.to_string()))?;
    Ok(Forward {
        listen,
        to: ForwardTo::Target(target),
    })
}

fn server_trust(layers: &Layers<'_>) -> Result<ServerTrust, Fault> {
    let pins = layers.all("pin", Pin::from_str)?;
    let ca = match layers.text("ca").as_deref() {
        Some("system") => Some(None),
        _ => layers.readable_file("ca")?.map(Some),
    };
    match (pins.is_empty(), ca) {
        (false, None) => Ok(ServerTrust::Pins(pins)),
        (true, Some(ca)) => Ok(ServerTrust::Authorities(ca)),
        (false, Some(_)) => Err(layers.fault(
            "pin",
            "contradicts ca: a pinned server needs no authority; keep one of them",
        )),
        (true, None) => {
            let fault = layers.fault("pin", "nothing says how to recognise the server");
            Err(fault.next(
                "--pin sha256:..., as the server prints it at start, or --ca FILE, or --ca system",
            ))
        }
    }
}

fn certificate(layers: &Layers<'_>) -> Result<Option<CertificateFiles>, Fault> {
    match (layers.readable_file("cert")?, layers.readable_file("key")?) {
        (Some(cert), Some(key)) => Ok(Some(CertificateFiles { cert, key })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(layers.fault("cert", "needs its private key: add key")),
        (None, Some(_)) => Err(layers.fault("key", "needs its certificate: add cert")),
    }
}
