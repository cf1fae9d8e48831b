//! The server process.

use std::collections::HashMap;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use quictun_engine::report::Side;
use quictun_engine::{Engine, EngineConfig, ServerRole, Transport, places_for_strangers};
use tracing::{info, warn};

use crate::asked::AskedFlows;
use crate::control::{self, Request};
use crate::dial::Dials;
use crate::launch::{self, Launch, Post};
use crate::lookups::{self, Lookups};
use crate::mailbox::{Inbox, Mailbox};
use crate::reload::{self, Read, Reload, ServerRules, ServerSource};
use crate::server_duty::ServerDuty;
use crate::server_duty::again::Leaving;
use crate::settings::ServerSettings;
use crate::worker::Parts;
use quictun_control::flow_log::FlowLog;
use quictun_control::line_budget::LineBudget;
use quictun_control::rest;
use quictun_control::systemd::{self, Activated};
use quictun_io::udp_port::UdpPort;
use quictun_trust::access::Policy;
use quictun_trust::confinement::{self, Off, Plan};
use quictun_trust::descriptors::{self, Descriptors};
use quictun_trust::identity::{self, Identity};
use quictun_trust::settings::{Access, ClientProof, Pin, ServerIdentity};
use quictun_trust::shares::CommonShares;
use quictun_trust::tls;

/// Handshakes in progress, over all workers, from which on clients must prove their address first.
const RETRY_ABOVE: usize = 256;

/// Time for a client to say what a stream is for.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs a server until a signal ends it. SIGHUP has it read its configuration by `read_again`, where that is given.
///
/// # Errors
///
/// Whatever keeps it from starting, with the remedy: addresses in use, keys that cannot be read, rules
/// that make no sense; later only the failure of a worker.
pub fn run(settings: ServerSettings, read_again: Option<Read<ServerSettings>>) -> Result<()> {
    let load = read_again.clone().map(reload::reads_of_server);
    launch::start_keeper(&settings.control, Vec::new(), load)?;
    // Rules, secrets and authorities are judged before anything is made on disk.
    let policy = Policy::new(&settings.access)?;
    let mut log = launch::prepare(&settings.control)?;
    let identity = server_identity(&settings)?;
    let key_log = tls::open_key_log(settings.transport.key_log.as_deref())?;
    warn_of_unsafe(&settings);
    let sockets = sockets(&settings)?;
    let workers = sockets.len();
    let address = sockets[0].local_addr().context("UDP socket")?;
    let ports = sockets.into_iter();
    let ports = ports.map(|socket| launch::open_udp(socket, &settings.transport));
    let ports = ports.collect::<Result<Vec<_>>>()?;
    if let Some(first) = ports.first() {
        launch::tell_of_udp(first, &settings.transport);
    }
    // The policy has to know where it is before anyone can ask for it.
    let http = rest::bind(&settings.control)?;
    let own_http = http.as_ref().map(rest::Bound::as_target).transpose()?;
    let policy = policy.with_own_http(own_http.clone());
    let rules = ServerRules::new(&settings.access, policy, &identity, key_log)?;
    let rules = Arc::new(rules);
    let source =
        read_again.map(|read| ServerSource::new(read, settings.clone(), own_http, rules.clone()));
    let strangers_max = places_for_strangers(settings.transport.memory_budget);
    let role = ServerRole {
        crypto: rules.crypto.clone(),
        max_connections: settings.transport.max_connections.div_ceil(workers),
        max_handshakes: strangers_max.div_ceil(workers),
        retry_above: RETRY_ABOVE.min(strangers_max / 2).div_ceil(workers),
        always_retry: false,
        identify: rules.policy.asks_who(),
        open_timeout: OPEN_TIMEOUT,
    };
    let path_mtu = quictun_io::udp_port::path_mtu(settings.transport.max_udp_payload);
    let transport = launch::transport(&settings.transport, path_mtu)?;
    let (request_sender, requests) = control::requests();
    let Post { mailboxes, inboxes } = launch::post(workers, settings.transport.memory_budget)?;
    let reset_key = reset_key(&identity);
    let lookups = lookups::places();
    let descriptors = descriptors::places(launch::descriptor_limit());
    confinement::enter(Plan {
        writes: settings.transport.qlog_dir.iter().cloned().collect(),
        off: (!settings.control.confine).then_some(Off::Asked),
    });
    log.start()?;
    let lines = LineBudget::default();
    let mut makers = Vec::new();
    for (index, (udp, inbox)) in ports.into_iter().zip(inboxes).enumerate() {
        let plan = WorkerPlan {
            index,
            udp,
            inbox,
            siblings: mailboxes.clone(),
            role: role.clone(),
            reset_key,
            transport: transport.clone(),
            settings: settings.clone(),
            policy: rules.policy.clone(),
            requests: request_sender.clone(),
            lookups: lookups.clone(),
            descriptors: descriptors.clone(),
            lines: lines.clone(),
        };
        makers.push(move || plan.build());
    }
    let access = settings.access;
    let pin = identity.pin;
    // From here on the key is where the TLS library keeps it.
    drop(identity);
    let announce = move || {
        info!(target: "quictun", { "listen address" = %address, pin = %pin, workers }, "Server endpoint start up successful");
        print_client_line(&access, pin, address.port());
    };
    let launch = Launch {
        side: Side::Server,
        transport: settings.transport,
        control: settings.control,
        server: None,
        server_known: Vec::new(),
        plugins: Vec::new(),
        requests,
        log_files: log.files().clone(),
        http,
        listen: vec![format!("udp {address}")],
        reload: source.map(|source| Reload::new(Arc::new(source))),
        lines,
        announce: Box::new(announce),
    };
    launch.run(mailboxes, makers)
}

/// What one worker is built from, on its own thread.
struct WorkerPlan {
    index: usize,
    transport: Transport,
    udp: UdpPort,
    inbox: Inbox,
    siblings: Vec<Mailbox>,
    role: ServerRole,
    reset_key: [u8; 32],
    settings: ServerSettings,
    policy: Arc<Policy>,
    requests: tokio::sync::mpsc::Sender<Request>,
    lookups: CommonShares,
    descriptors: CommonShares,
    lines: LineBudget,
}

impl WorkerPlan {
    fn build(self) -> Result<Parts<ServerDuty>> {
        let config = EngineConfig {
            role: self.role,
            transport: self.transport,
            worker: u8::try_from(self.index).context("too many workers: at most 256")?,
            seed: launch::random()?,
            reset_key: self.reset_key,
        };
        let phrases = self.settings.control.log.phrases;
        let log = FlowLog::new(Side::Server, self.index, phrases);
        Ok(Parts {
            index: self.index,
            engine: Engine::server(config)?,
            udp: self.udp,
            inbox: self.inbox,
            siblings: self.siblings,
            duty: ServerDuty {
                index: self.index,
                policy: self.policy,
                token_parser: self.settings.token_parser,
                dial_timeout: self.settings.dial_timeout,
                control: self.requests,
                dials: Dials::new(),
                peers: HashMap::new(),
                leaving: Leaving::default(),
                lookups: Lookups::new(self.lookups),
                descriptors: Descriptors::new(self.descriptors),
                asked: AskedFlows::new(log, self.lines.clone(), self.settings.token_parser),
                lines: self.lines,
            },
        })
    }
}

/// The sockets of all workers: inherited from systemd, or bound.
fn sockets(settings: &ServerSettings) -> Result<Vec<UdpSocket>> {
    for (name, activated) in systemd::listen_fds()? {
        if let Activated::Udp(socket) = activated {
            info!(target: "quictun", name, "UDP socket inherited: one worker");
            return Ok(vec![socket]);
        }
        warn!(target: "quictun", name, "an inherited socket is no UDP socket: not used");
    }
    launch::bind_udp(settings.listen, settings.transport.workers.max(1))
        .with_context(|| format!("cannot listen on UDP {}", settings.listen))
}

/// The server's key: given, or made on the first run.
fn server_identity(settings: &ServerSettings) -> Result<Identity> {
    let identity = match &settings.identity {
        ServerIdentity::Files(files) => identity::load_files(files)?,
        ServerIdentity::State(dir) => match identity::load_or_generate(dir, "server") {
            Ok((identity, made)) => {
                if made {
                    info!(target: "quictun", directory = %dir.display(), pin = %identity.pin, "first run: the server's key was made");
                }
                identity
            }
            Err(error) if error.is_unusable_directory() && is_open(settings) => {
                let cause = quictun_trust::error_chain(&error);
                warn!(target: "quictun", cause, "the server's key is made anew at every start and cannot be pinned: give --key-file and --cert-file, or a writable state directory");
                identity::ephemeral()?
            }
            Err(error) => return Err(error.into()),
        },
    };
    if let Some(warning) = &identity.warning {
        warn!(target: "quictun", "{warning}");
    }
    if let ServerIdentity::State(dir) = &settings.identity {
        identity::warn_of_wide([dir.as_path()]);
    }
    identity::warn_of_wide(secrets(&settings.access));
    Ok(identity)
}

/// Stateless reset tokens must survive a restart, and change with the key.
fn reset_key(identity: &Identity) -> [u8; 32] {
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, identity.key.secret_der());
    let tag = aws_lc_rs::hmac::sign(&key, b"quictun stateless reset");
    let mut bytes = [0; 32];
    bytes.copy_from_slice(tag.as_ref());
    bytes
}

fn is_open(settings: &ServerSettings) -> bool {
    matches!(settings.access, Access::Open { .. })
}

/// One line for each unsafe mode, with what closes it.
fn warn_of_unsafe(settings: &ServerSettings) {
    if let Access::Open { ca: None, .. } = &settings.access {
        warn!(target: "quictun", "UNSAFE: anyone who reaches this port may connect to any TCP target from here; ask for client certificates with --verify-remote-endpoint --ca-file FILE, or name clients and targets with `quictun server`");
    }
    if let Some(path) = &settings.transport.key_log {
        warn!(target: "quictun", path = %path.display(), "UNSAFE: TLS secrets are written to a file, whoever reads it reads the traffic");
    }
    if let Access::Named { clients, .. } = &settings.access
        && clients.iter().all(|client| client.allow.is_empty())
    {
        warn!(target: "quictun", "no client may reach any target: allow some with --allow HOST:PORT, or [[client]] entries in the configuration file");
    }
}

/// The files of the clients' secrets.
fn secrets(access: &Access) -> impl Iterator<Item = &Path> {
    let clients = match access {
        Access::Named { clients, .. } => clients.as_slice(),
        Access::Open { .. } => &[],
    };
    let proofs = clients.iter().flat_map(|client| &client.proofs);
    proofs.filter_map(|proof| match proof {
        ClientProof::PskFile(path) => Some(path.as_path()),
        ClientProof::Pin(_) | ClientProof::CertificateName => None,
    })
}

/// The line to type on the client, for each client that has a secret or none else to say.
fn print_client_line(access: &Access, pin: Pin, port: u16) {
    for path in secrets(access) {
        let name = path.file_name().map_or(Path::new("client.psk"), Path::new);
        info!(
            target: "quictun",
            "on the client, after copying {} there: quictun client --server THIS-HOST:{port} --pin {} --psk-file {} -L 127.0.0.1:PORT=TARGET",
            path.display(),
            pin,
            name.display(),
        );
    }
}
