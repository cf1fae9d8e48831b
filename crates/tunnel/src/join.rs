//! `quictun join`: one connection to a server, over which this machine becomes a named client (PROTOCOL section 5.7).

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use quictun_engine::{
    CarrierChoice, ClientEngine, ClientEvent, ClientRole, Engine, EngineConfig, Event, LossReason,
    ServerPlace, ServerToDial, Transport,
};
use quictun_wire::code::CloseCode;
use quictun_wire::join::Grant;
use thiserror::Error;

use crate::app_socket::AppSocket;
use crate::client::any_socket;
use crate::launch;
use crate::outage_log;
use crate::settings::HostPort;
use crate::zone;
use quictun_io::EnginePort;
use quictun_io::poller::{Key, Poller};
use quictun_io::udp_port::{UdpPort, path_mtu};
use quictun_trust::enrolment::InviteSecret;
use quictun_trust::identity::{self, IdentityError};
use quictun_trust::settings::{CertificateFiles, ClientIdentity, Offer, Pin, ServerTrust};
use quictun_trust::tls::{self, TlsError};

mod refusals;

use refusals::Refusals;

/// Time limit until the answer, name look-up included. It is long enough for an attempt whose first packets are lost,
/// and for the second kind of `ClientHello`.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);

/// Number of failures to store the key after which the client gives up. The first may be due to another program that
/// changes the same directory at that moment.
const STORE_ATTEMPTS: u32 = 3;

/// Size of the socket buffers, bytes. A handshake and one frame would also fit the system's default.
const BUFFER: usize = 256 << 10;

/// The contents of a code, and the key that this machine has made for itself.
#[derive(Debug)]
pub struct JoinRequest {
    /// The server's host and port.
    pub server: HostPort,
    /// The server as the code writes it, for error messages.
    pub written: String,
    /// The pin of the server's key.
    pub pin: Pin,
    /// The name of the invited client.
    pub name: String,
    /// The one-time secret of the invitation, by which the client proves that it has the code.
    pub secret: InviteSecret,
    /// The client's own certificate and key.
    pub own: CertificateFiles,
}

/// The reasons why this machine has not become a client.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The new key cannot be read.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The TLS library refuses the configuration.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The system provides no socket or no random numbers.
    #[error("cannot open a UDP socket")]
    Socket(#[source] io::Error),
    /// The engine could not start.
    #[error(transparent)]
    Engine(anyhow::Error),
    /// The server cannot be found, or the handshake fails.
    #[error("cannot connect to {server}: {cause}")]
    Connect {
        /// The server, as the code names it.
        server: String,
        /// The end of the attempt, in words.
        cause: String,
    },
    /// No program listens on the server's port.
    #[error(
        "cannot connect to {server}: the host refuses datagrams, because nothing listens on that UDP port"
    )]
    NothingListens {
        /// The server, as the code names it.
        server: String,
    },
    /// This machine cannot send to any address of the server.
    #[error("cannot connect to {server}: this machine cannot send to {address}: {source}")]
    NoRoute {
        /// The server, as the code names it.
        server: String,
        /// The server's first address.
        address: IpAddr,
        /// The error with which the system refused it.
        source: io::Error,
    },
    /// The server's key has another pin than the code.
    #[error("the server {0} has another key than the one that this code names")]
    OtherKey(String),
    /// The server does not answer.
    #[error("no answer from {server} in {} s: {reason}", JOIN_TIMEOUT.as_secs())]
    NoAnswer {
        /// The server, as the code names it.
        server: String,
        /// The end of the latest attempt.
        reason: LossReason,
    },
    /// The code was used, has expired, was revoked, or belongs to another server.
    #[error("the server {0} refuses this code: it was used, has expired or was revoked")]
    Refused(String),
    /// The server has accepted the code, but the time until which this client may use the server has passed.
    #[error("the access to the server {0} for which this code was made has expired")]
    Expired(String),
    /// The server cannot write to its disk.
    #[error(
        "the server {0} cannot store the key of this machine: its disk is full, read-only or failing"
    )]
    NotStored(String),
    /// The server is too old, or accepts every client.
    #[error(
        "the server {0} does not take invitations: it is older than this program, or is not a `quictun server`"
    )]
    NotTaken(String),
    /// The server knows the key as another client's.
    #[error(
        "the server knows this key as that of the client {known:?}, but the code is for {invited:?}"
    )]
    OtherName {
        /// The name under which the server knows this key.
        known: String,
        /// The name in the code.
        invited: String,
    },
}

/// Joins a server, and returns the rules of this client: the targets that it may reach.
///
/// # Errors
///
/// Returns why the attempt failed. Unless the server refused it, it can be repeated with the same code and key.
pub fn run(request: JoinRequest) -> Result<Grant, JoinError> {
    let invited = request.name.clone();
    let mut client = Client::new(request)?;
    let outcome = client.until_answered();
    // Tells the server that the connection is over.
    client.port.engine.close(Instant::now());
    client.port.transmit();
    let grant = outcome?;
    if grant.name != invited {
        let known = grant.name;
        return Err(JoinError::OtherName { known, invited });
    }
    Ok(grant)
}

struct Client {
    server: HostPort,
    written: String,
    port: EnginePort<AppSocket, quictun_engine::Client>,
    poller: Poller,
    /// Watches the server's only address until the server answers.
    refusals: Option<Refusals>,
    /// True if a datagram has arrived.
    answered: bool,
    /// Number of times that the server could not store the key.
    store_failures: u32,
}

impl Client {
    fn new(request: JoinRequest) -> Result<Self, JoinError> {
        let socket =
            any_socket(&[request.server.host.as_str()].into_iter()).map_err(JoinError::Socket)?;
        let udp = UdpPort::new(socket, BUFFER, false);
        let udp = udp.map_err(JoinError::Socket)?;
        let poller = Poller::new().map_err(JoinError::Socket)?;
        poller
            .add_input(&udp, Key::Udp)
            .map_err(JoinError::Socket)?;
        let (server, written) = (request.server.clone(), request.written.clone());
        Ok(Self {
            server,
            written,
            port: EnginePort::new(engine(request)?, udp),
            poller,
            refusals: None,
            answered: false,
            store_failures: 0,
        })
    }

    fn until_answered(&mut self) -> Result<Grant, JoinError> {
        let deadline = Instant::now() + JOIN_TIMEOUT;
        let mut latest = LossReason::TimedOut;
        let mut ready = Vec::new();
        loop {
            self.port.engine.handle_timeout(Instant::now());
            let mut more = self.port.transmit();
            while let Some(event) = self.port.engine.poll_event() {
                more = true;
                if let Some(grant) = self.handle_event(event, deadline, &mut latest)? {
                    return Ok(grant);
                }
            }
            let now = Instant::now();
            if now >= deadline {
                let (server, reason) = (self.written.clone(), latest);
                return Err(JoinError::NoAnswer { server, reason });
            }
            if let Some(refusals) = &mut self.refusals
                && refusals.handle_timeout(now)
            {
                let server = self.written.clone();
                return Err(JoinError::NothingListens { server });
            }
            let engine = self.port.engine.next_timeout();
            let refusals = self.refusals.as_ref().map(Refusals::next_timeout);
            let until = [engine, refusals].into_iter().flatten().min();
            let until = until.unwrap_or(deadline).min(deadline);
            let until = if more { now } else { until };
            let plan = self.port.wait_plan(now);
            let waited = self.poller.wait(Some(until), plan, &mut ready);
            waited.map_err(JoinError::Socket)?;
            let answered = &mut self.answered;
            self.port.receive(|datagram| {
                *answered = true;
                Some(datagram)
            });
            if self.answered {
                self.refusals = None;
            }
        }
    }

    fn handle_event(
        &mut self,
        event: ClientEvent,
        deadline: Instant,
        latest: &mut LossReason,
    ) -> Result<Option<Grant>, JoinError> {
        let name = self.written.clone();
        match event {
            ClientEvent::Resolve { server, tenant } => {
                let lookup = |host: &str, port| (host, port).to_socket_addrs();
                let resolved = resolve(&self.server, deadline, lookup);
                if let Some((address, source)) =
                    refusals::no_route(resolved.as_deref().unwrap_or(&[]))
                {
                    return Err(JoinError::NoRoute {
                        server: name,
                        address,
                        source,
                    });
                }
                let now = Instant::now();
                let watched = self.answered || self.refusals.is_some();
                if let Ok([address]) = resolved.as_deref()
                    && !watched
                {
                    // Without the watch, the attempt only takes longer to fail.
                    self.refusals = Refusals::new(now, *address).ok();
                }
                self.port
                    .engine
                    .handle_resolved(now, server, tenant, &resolved);
            }
            ClientEvent::Welcome { grant, .. } => {
                return grant.map(Some).ok_or(JoinError::NotTaken(name));
            }
            ClientEvent::Shared(Event::Disconnected {
                reason: LossReason::NotAuthorized,
                ..
            }) => return Err(JoinError::Refused(name)),
            ClientEvent::Shared(Event::Disconnected {
                reason: LossReason::Expired,
                ..
            }) => return Err(JoinError::Expired(name)),
            ClientEvent::ConnectFailed { reason, .. }
            | ClientEvent::Shared(Event::Disconnected { reason, .. }) => {
                if reason == LossReason::ClosedByPeer(CloseCode::NotStored.to_u64()) {
                    self.store_failures += 1;
                    if self.store_failures == STORE_ATTEMPTS {
                        return Err(JoinError::NotStored(name));
                    }
                }
                if is_final(&reason) {
                    return Err(connect_error(name, &reason));
                }
                *latest = reason;
            }
            _ => {}
        }
        Ok(None)
    }
}

/// Returns whether a second attempt a moment later would end the same way.
fn is_final(reason: &LossReason) -> bool {
    matches!(
        reason,
        LossReason::Protocol(_)
            | LossReason::Resolve(_)
            | LossReason::Local(_)
            | LossReason::Violation(_)
    )
}

fn connect_error(server: String, reason: &LossReason) -> JoinError {
    if outage_log::is_other_key(reason) {
        return JoinError::OtherKey(server);
    }
    let (cause, _) = outage_log::explain(reason);
    JoinError::Connect { server, cause }
}

/// Looks the server's name up. The system's resolver may take much longer than the limit and cannot be stopped: its
/// thread ends with the process.
fn resolve<A: Iterator<Item = SocketAddr>>(
    server: &HostPort,
    deadline: Instant,
    lookup: impl FnOnce(&str, u16) -> io::Result<A> + Send + 'static,
) -> Result<Vec<SocketAddr>, String> {
    let HostPort { host, port } = server.clone();
    let (answer, answered) = sync_channel(1);
    let look = move || {
        let found = lookup(&host, port).map(Iterator::collect);
        // The receiver is gone once the deadline has passed.
        answer.send(found).ok();
    };
    let host = &server.host;
    let failed = |error: io::Error| format!("{host} does not resolve: {error}");
    thread::Builder::new().spawn(look).map_err(failed)?;
    match answered.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(found) => zone::with_zones(host, found.map_err(failed)?),
        Err(_) => Err(format!(
            "no answer for {host} in {} s: is the DNS server reachable?",
            JOIN_TIMEOUT.as_secs()
        )),
    }
}

fn engine(request: JoinRequest) -> Result<ClientEngine<AppSocket>, JoinError> {
    let own = identity::load_files(&request.own)?.pin;
    let identity = ClientIdentity {
        certificate: Some(request.own),
        psk_file: None,
    };
    let trust = ServerTrust::Pins(vec![request.pin]);
    let shared = tls::SharedConfig::default();
    let (crypto, fallback) = tls::client_configs(&trust, &identity, Offer::Native, &shared)?;
    let (name, secret) = (request.name, request.secret);
    let random = || launch::random().map_err(JoinError::Engine);
    let config = EngineConfig {
        role: ClientRole {
            servers: vec![ServerToDial {
                crypto,
                fallback,
                name: request.server.name().to_owned(),
                prover: None,
                carrier: CarrierChoice::Quic,
                place: ServerPlace::default(),
            }],
            connections: 1,
            joiner: Some(Arc::new(move |exporter| secret.join(&name, exporter, own))),
            reverse: false,
            // The connection carries no flows.
            wait_timeout: JOIN_TIMEOUT,
            bond_ttl: Duration::ZERO,
            compat_streams: 1,
        },
        transport: Transport::new(path_mtu(None)),
        worker: 0,
        seed: random()?,
        reset_key: random()?,
    };
    Engine::client(config).map_err(|reason| JoinError::Engine(reason.into()))
}

#[cfg(test)]
mod tests {
    use std::vec::IntoIter;

    use super::*;

    fn server() -> HostPort {
        HostPort {
            host: "vpn.example.net".to_owned(),
            port: 7500,
        }
    }

    #[test]
    fn a_resolver_that_hangs_is_not_waited_for() {
        // The look-up hangs until the test ends.
        let (end, ended) = sync_channel::<()>(0);
        let hang = move |_: &str, _| {
            // An error means that the test has ended, which is what this thread waits for.
            ended.recv().ok();
            Ok(Vec::new().into_iter())
        };
        let found = resolve(&server(), Instant::now(), hang);
        let why = found.expect_err("it hangs");
        assert!(why.starts_with("no answer for vpn.example.net"), "{why}");
        drop(end);
    }

    #[test]
    fn a_timely_answer_of_the_resolver_counts() {
        let address: SocketAddr = ([192, 0, 2, 1], 7500).into();
        let deadline = Instant::now() + JOIN_TIMEOUT;
        let good = move |_: &str, _| Ok(vec![address].into_iter());
        assert_eq!(resolve(&server(), deadline, good), Ok(vec![address]));
        let bad = |_: &str, _| Err::<IntoIter<SocketAddr>, _>(io::Error::other("no such name"));
        let why = resolve(&server(), deadline, bad).expect_err("refused");
        assert_eq!(why, "vpn.example.net does not resolve: no such name");
    }
}
