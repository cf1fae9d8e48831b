//! Reads the settings of `quictun server` and `quictun client`.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use quictun_trust::settings::{
    Access, ClientIdentity, ClientLimits, ClientProof, HeaderTargets, ListenRule, NamedClient,
    Offer, ServerIdentity, ServerTrust, TargetRule,
};
use quictun_tunnel::settings::{
    CARRIER_LISTENERS_MAX, CarrierChoice, ClientSettings, Forward, ForwardTo, ListenOn, Reverse,
    ServerSettings, TokenParser, TransportSettings,
};
use quictun_tunnel::transparent::{self, DivertMethod};

use super::certificate::certificate;
use super::enrolled::{self, EnrolledClient};
use super::file::ClientTable;
use super::named_client::{LISTEN_RULE, TARGET_RULE, named_client, rules_of};
use super::{flags, servers};
use crate::control;
use crate::fault::{Exit, Fault};
use crate::layers::{Layers, Origin, RestartSettings};
use crate::outbound_proxy::outbound_proxy;
use crate::{state_dir, transport, tun_flags};

/// The name of the client to which `--allow` applies.
pub(super) const DEFAULT_CLIENT: &str = "default";

/// The result of reading a server's flags, environment and files.
#[derive(Debug)]
pub struct Server {
    /// The settings that the server runs with.
    pub settings: ServerSettings,
    /// The settings that only a restart changes.
    pub restart_settings: RestartSettings,
    /// File with the secret of the default client, to be made before the server runs.
    pub make_psk: Option<PathBuf>,
    /// Warnings to the user, one line each.
    pub warnings: Vec<String>,
    /// The directory with the server's key, and with the clients that are invited or have joined.
    pub state_dir: PathBuf,
    /// Clients that have joined by an invitation.
    pub enrolled: Vec<EnrolledClient>,
    /// The running server is to reload, and nothing else is to start.
    pub reload: bool,
}

/// The result of reading a client's flags, environment and file.
#[derive(Debug)]
pub struct Client {
    /// The settings that the client runs with.
    pub settings: ClientSettings,
    /// The settings that only a restart changes.
    pub restart_settings: RestartSettings,
    /// The running client is to reload, and nothing else is to start.
    pub reload: bool,
}

/// Reads a server's settings. `file` is the path of the configuration file and its `[[client]]` tables. `checked` is a
/// file that is only checked; an error about a rule names it.
pub(super) fn server(
    layers: &Layers<'_>,
    file: Option<(&Path, &[ClientTable])>,
    checked: Option<&Path>,
) -> Result<Server, Fault> {
    let state_dir = layers.get(&flags::STATE_DIR)?;
    let state_dir = state_dir.unwrap_or_else(|| state_dir::default(layers.inputs()));
    let identity =
        match layers.certificate((&flags::SERVER_CERT, "cert"), (&flags::SERVER_KEY, "key"))? {
            Some(files) => ServerIdentity::Files(files),
            None => ServerIdentity::State(state_dir.clone()),
        };
    let ca = layers.readable(&flags::SERVER_CA)?;
    let mut clients = Vec::new();
    if let Some((path, tables)) = file {
        for table in tables {
            clients.push(named_client(layers, path, table, ca.is_some(), checked)?);
        }
    }
    let allow = layers.get(&flags::ALLOW)?;
    let allow = rules_of(TARGET_RULE, DEFAULT_CLIENT, &allow, checked)?;
    let listen = layers.get(&flags::LISTEN_FOR)?;
    let listen = rules_of(LISTEN_RULE, DEFAULT_CLIENT, &listen, checked)?;
    let make_psk = allow_default(allow, listen, &state_dir, &mut clients);
    let (mut enrolled, mut left_out) = (Vec::new(), Vec::new());
    for (file, client) in enrolled::read(layers, &state_dir, ca.is_some(), checked)? {
        // The author of the table may not know of the client that joined. Meanwhile all other clients must be served.
        if clients.iter().any(|known| known.name == client.name) {
            left_out.push(file.omission_warning());
            continue;
        }
        enrolled.push(file);
        clients.push(client);
    }
    let mut warnings = idle_clients(&clients);
    warnings.append(&mut left_out);
    let https_proxy = layers.get(&flags::HTTPS_PROXY)?;
    let settings = ServerSettings {
        listen: layers.get(&flags::LISTEN)?,
        listen_tls: listen_tls(layers)?,
        https_proxy,
        take_over: layers.get(&flags::TAKE_OVER)?,
        identity,
        certificate: certificate(layers, https_proxy)?,
        access: Access::Named { clients, ca },
        clients_in: Some(state_dir.clone()),
        header_targets: HeaderTargets::new(layers.get(&flags::PROXY_PROTOCOL)?),
        token_parser: TokenParser::Cleartext,
        dial_timeout: layers.get(&transport::DIAL_TIMEOUT)?,
        reverse_grace: layers.get(&flags::REVERSE_GRACE)?,
        dial_family: layers.get(&transport::IP)?,
        transport: transport::settings(layers)?,
        control: control::settings(layers, flags::CONTROL_FLAGS)?,
    };
    Ok(Server {
        settings,
        restart_settings: layers.restart_settings(),
        make_psk,
        warnings,
        state_dir,
        enrolled,
        reload: reload(layers)?,
    })
}

/// Returns whether the running process is to reload.
pub(super) fn reload(layers: &Layers<'_>) -> Result<bool, Fault> {
    let reload = layers.get(&flags::RELOAD)?;
    if reload && layers.get(&flags::TAKE_OVER)? {
        let why = "it takes over by itself from another build: leave out --take-over";
        return Err(layers.fault(&flags::RELOAD, why));
    }
    Ok(reload)
}

/// Reads the settings of a client that listens.
pub(super) fn client(layers: &Layers<'_>) -> Result<ClientSettings, Fault> {
    let client = dialler(layers)?;
    let nothing = client.forwards.is_empty() && client.reverse.is_empty();
    if nothing && client.tun.is_none() {
        let fault = layers.fault(&flags::FORWARD, "there is nothing to forward");
        return Err(fault.next(
            "-L 2222:127.0.0.1:22, or a [[forward]] table in the configuration file; or -D 1080; or -R; or --tun",
        ));
    }
    // The last check: an upgrade of a package learns by the exit code whether a restart would end the client.
    if client.tun.is_some() && layers.get(&flags::RELOAD)? {
        let why = "no other process takes over a device: send the client SIGHUP, or restart it for another build";
        return Err(Fault {
            exit: Exit::RestartNeeded,
            ..layers.fault(&flags::RELOAD, why)
        });
    }
    Ok(client)
}

/// Reads the settings of a client for one flow. It has no listeners and no HTTP interface of its own.
pub(super) fn connect(layers: &Layers<'_>) -> Result<ClientSettings, Fault> {
    let mut client = dialler(layers)?;
    (client.transport.connections, client.transport.workers) = (1, 1);
    (client.control.httpd, client.state_dir) = (None, None);
    let level = layers.setting(&control::LOG_LEVEL).origin;
    let is_asked = matches!(level, Origin::Flag | Origin::Environment(_));
    if !is_asked && !layers.get(&flags::VERBOSE)? {
        // Standard error belongs to another program, which prints the last message itself.
        client.control.log.level = "error".parse().expect("invariant: a level");
    }
    Ok(client)
}

fn dialler(layers: &Layers<'_>) -> Result<ClientSettings, Fault> {
    let addresses = servers::addresses(layers)?;
    let offer = layers.get(&flags::OFFER)?;
    let psk_file = layers.readable(&flags::PSK_FILE)?;
    if psk_file.is_some() && offer == Offer::Compat {
        return Err(layers.fault(
            &flags::PSK_FILE,
            "quic-tun's protocol carries no proof of a secret: offer native or both",
        ));
    }
    let tun = tun_flags::settings(layers)?;
    if tun.is_some() && addresses.len() > 1 {
        return Err(layers.fault(
            &flags::SERVER_TO_DIAL,
            "a device carries packets to one server: keep one of them",
        ));
    }
    let take_over = layers.get(&flags::TAKE_OVER)?;
    if take_over && tun.is_some() {
        return Err(layers.fault(
            &flags::TAKE_OVER,
            "flows of a device end with its network stack: restart the client without this flag",
        ));
    }
    let is_service = addresses.iter().any(|address| address.at().is_none());
    if tun.is_some() && is_service {
        return Err(layers.fault(
            &flags::SERVER_TO_DIAL,
            "a device carries packets to one server, and the records of a service may name several: name one by its host",
        ));
    }
    let fixed = layers.get(&tun_flags::SERVER_ADDRESS)?;
    if !fixed.is_empty() && addresses[0].at().is_none() {
        return Err(layers.fault(
            &tun_flags::SERVER_ADDRESS,
            "replaces the look-up of one host, and the records of a service may name several: leave it out, or name the server by its host",
        ));
    }
    let forwards = forwards(layers)?;
    let trust = server_trust(layers);
    let identity = ClientIdentity {
        certificate: layers
            .certificate((&flags::CLIENT_CERT, "cert"), (&flags::CLIENT_KEY, "key"))?,
        psk_file,
    };
    let (first, other_servers) = servers::servers(layers, addresses, trust, &identity)?;
    // The client of a command reads the file of a client that keeps running, and would take over its listeners.
    let is_for_command = tun.as_ref().is_some_and(|tun| tun.for_command);
    let (forwards, reverse) = if is_for_command {
        (Vec::new(), Vec::new())
    } else {
        (forwards, reverse(layers, offer)?)
    };
    if first.server.at().is_none() && !reverse.is_empty() {
        return Err(layers.fault(
            &flags::REVERSE,
            "the first server listens for reverse forwards, and the records of a service may name another one each time: put a server before it, by its host",
        ));
    }
    let transport = transport(layers, offer)?;
    let state_dir = layers.get(&flags::CLIENT_STATE_DIR)?;
    // The device of a command is the command's alone.
    let takes_host = tun.is_some() && !is_for_command;
    let carrier = match offer {
        Offer::Compat => CarrierChoice::Quic,
        Offer::Native | Offer::Both => transport.carrier,
    };
    Ok(ClientSettings {
        server: first.server,
        tls_port: first.tls_port,
        server_addresses: layers.get(&tun_flags::SERVER_ADDRESS)?,
        other_servers,
        forwards,
        proxy_users: proxy_users(layers)?,
        reverse,
        header_targets: HeaderTargets::new(layers.get(&flags::PROXY_PROTOCOL)?),
        sends_sources: layers.get(&flags::SEND_APP_ADDRESSES)?,
        tun,
        take_over,
        state_dir_is_default: state_dir.is_none(),
        state_dir: state_dir.or_else(|| state_dir::of_client(layers.inputs())),
        offer,
        trust: first.trust,
        identity: first.identity,
        outbound_proxy: outbound_proxy(layers, carrier, takes_host)?,
        transport,
        control: control::settings(layers, flags::CONTROL_FLAGS)?,
    })
}

/// Reads a client's settings of the data path. Over TLS only bonds tell what has arrived, and the original's protocol has
/// none.
fn transport(layers: &Layers<'_>, offer: Offer) -> Result<TransportSettings, Fault> {
    let settings = transport::settings(layers)?;
    let no_bonds = offer == Offer::Compat || settings.bond_ttl == Some(Duration::ZERO);
    if no_bonds && settings.carrier == CarrierChoice::Tls {
        let why =
            "tls needs flows that outlive a connection: leave out --offer compat and --bond-ttl 0s";
        return Err(layers.fault(&transport::CARRIER, why));
    }
    Ok(settings)
}

/// Returns the TCP addresses for flows in TLS, or `None` without `--listen-tls`.
fn listen_tls(layers: &Layers<'_>) -> Result<Option<Vec<SocketAddr>>, Fault> {
    let given = layers.get(&flags::LISTEN_TLS)?;
    if given.len() > CARRIER_LISTENERS_MAX {
        let most = format!("at most {CARRIER_LISTENERS_MAX} addresses");
        return Err(layers.fault(&flags::LISTEN_TLS, most));
    }
    Ok((!given.is_empty()).then(|| given.into_iter().flatten().collect()))
}

/// Gives the default client the rules of `--allow` and `--listen-for`. Returns the file of the secret that has to be
/// made for it.
fn allow_default(
    allow: Vec<TargetRule>,
    listen: Vec<ListenRule>,
    state_dir: &Path,
    clients: &mut Vec<NamedClient>,
) -> Option<PathBuf> {
    if allow.is_empty() && listen.is_empty() {
        return None;
    }
    if let Some(client) = clients
        .iter_mut()
        .find(|client| client.name == DEFAULT_CLIENT)
    {
        if !allow.is_empty() {
            client.allow = allow;
        }
        if !listen.is_empty() {
            client.listen = listen;
        }
        return None;
    }
    let psk = state_dir.join("client.psk");
    let proofs = vec![ClientProof::PskFile(psk.clone())];
    clients.push(NamedClient {
        name: DEFAULT_CLIENT.to_owned(),
        proofs,
        allow,
        listen,
        limits: ClientLimits::default(),
        names_sources: false,
    });
    Some(psk)
}

/// Returns a warning for each client without rules. If no client has rules, the server itself prints a warning.
fn idle_clients(clients: &[NamedClient]) -> Vec<String> {
    let may_nothing = |client: &&NamedClient| client.allow.is_empty() && client.listen.is_empty();
    if clients.iter().all(|client| may_nothing(&client)) {
        return Vec::new();
    }
    let idle = clients.iter().filter(may_nothing);
    idle.map(|client| {
        format!(
            "client {:?} may reach nothing: give it allow = [\"HOST:PORT\"]",
            client.name
        )
    })
    .collect()
}

/// Limit of one client's listeners on a server (PROTOCOL REVERSE-4). More are refused here already.
const REVERSE_MAX: usize = 64;

fn reverse(layers: &Layers<'_>, offer: Offer) -> Result<Vec<Reverse>, Fault> {
    let reverse: Vec<Reverse> = layers.get(&flags::REVERSE)?.concat();
    if offer == Offer::Compat && !reverse.is_empty() {
        return Err(layers.fault(
            &flags::REVERSE,
            "quic-tun's protocol has no reverse forwards: offer native or both",
        ));
    }
    if reverse.len() > REVERSE_MAX {
        let most = format!("there are more than {REVERSE_MAX} reverse forwards");
        return Err(layers.fault(&flags::REVERSE, most));
    }
    for (n, one) in reverse.iter().enumerate() {
        let again = |other: &Reverse| other.listen == one.listen && !one.listen.has_any_port();
        if reverse.iter().skip(n + 1).any(again) {
            let what = format!(
                "two reverse forwards listen on {}: keep one of them",
                one.listen
            );
            return Err(layers.fault(&flags::REVERSE, what));
        }
    }
    Ok(reverse)
}

fn forwards(layers: &Layers<'_>) -> Result<Vec<Forward>, Fault> {
    let (redirect, tproxy) = (layers.get(&flags::REDIRECT)?, layers.get(&flags::TPROXY)?);
    if redirect.is_some() && redirect == tproxy {
        return Err(layers.fault(&flags::TPROXY, "has the port of redirect: give it another"));
    }
    let mut forwards = layers.get(&flags::FORWARD)?.concat();
    let proxies = layers.get(&flags::PROXY)?.into_iter();
    forwards.extend(proxies.map(|listen| Forward {
        listen,
        to: ForwardTo::Proxy,
    }));
    leave_ipv6_to_others(&mut forwards);
    for (n, forward) in forwards.iter().enumerate() {
        let again = |other: &Forward| other.listen.clashes_with(&forward.listen);
        if forwards.iter().skip(n + 1).any(again) {
            let twice = format!(
                "two forwards listen on {}: keep one of them",
                forward.listen
            );
            return Err(layers.fault(&flags::FORWARD, twice));
        }
    }
    for (method, port) in [
        (DivertMethod::Redirect, redirect),
        (DivertMethod::Tproxy, tproxy),
    ] {
        forwards.extend(
            port.into_iter()
                .flat_map(|port| transparent::forwards(method, port)),
        );
    }
    Ok(forwards)
}

/// Leaves `::1` to a forward that names it beside one that is given as the same port alone.
fn leave_ipv6_to_others(forwards: &mut [Forward]) {
    let named: Vec<SocketAddr> = forwards
        .iter()
        .filter_map(|forward| match forward.listen {
            ListenOn::Tcp(at) => Some(at),
            _ => None,
        })
        .collect();
    for forward in forwards {
        if let ListenOn::Loopback(port) = forward.listen
            && named.contains(&(Ipv6Addr::LOCALHOST, port).into())
        {
            forward.listen = ListenOn::Tcp((Ipv4Addr::LOCALHOST, port).into());
        }
    }
}

/// Returns the file of the proxies' users. Without users, a proxy that other machines reach would be an open proxy.
fn proxy_users(layers: &Layers<'_>) -> Result<Option<PathBuf>, Fault> {
    let users = layers.readable(&flags::PROXY_USERS)?;
    let is_for_others = |listen: &&ListenOn| match listen {
        ListenOn::Tcp(at) => !at.ip().to_canonical().is_loopback(),
        ListenOn::Loopback(_)
        | ListenOn::Unix(_)
        | ListenOn::Transparent(..)
        | ListenOn::Udp(_)
        | ListenOn::TransparentUdp(_) => false,
    };
    let proxies = layers.get(&flags::PROXY)?;
    if let (None, Some(ListenOn::Tcp(at))) = (&users, proxies.iter().find(is_for_others)) {
        let port = at.port();
        let fault = layers.fault(
            &flags::PROXY,
            format!("{at} is reachable from other machines, and no password protects it"),
        );
        return Err(fault.next(format!(
            "-D {port} for this machine alone, or --proxy-users FILE with a line USER:PASSWORD for each user"
        )));
    }
    Ok(users)
}

fn server_trust(layers: &Layers<'_>) -> Result<ServerTrust, Fault> {
    let pins = layers.get(&flags::PIN)?;
    let ca = match layers.get(&flags::CLIENT_CA)? {
        Some(words) if words.as_os_str() == "system" => Some(None),
        _ => layers.readable(&flags::CLIENT_CA)?.map(Some),
    };
    match (pins.is_empty(), ca) {
        (false, None) => Ok(ServerTrust::Pins(pins)),
        (true, Some(ca)) => Ok(ServerTrust::Authorities(ca)),
        (false, Some(_)) => Err(layers.fault(
            &flags::PIN,
            "contradicts ca: a pinned server needs no authority; keep one of them",
        )),
        (true, None) => {
            let fault = layers.fault(
                &flags::PIN,
                "neither a pin nor an authority identifies the server",
            );
            Err(fault.next(
                "--pin sha256:..., as the server prints it at start, or --ca FILE, or --ca system",
            ))
        }
    }
}
