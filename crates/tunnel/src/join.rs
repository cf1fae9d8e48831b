//! `quictun join`: one connection to a server, over which this machine becomes a named client (PROTOCOL section 5.7).

use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quictun_engine::report::ServerId;
use quictun_engine::{
    CarrierChoice, ClientEngine, ClientEvent, Event, Joiner, LossReason, ResolveResult,
    ServerPlace, ServerToDial,
};
use quictun_wire::code::CloseCode;
use quictun_wire::join::Grant;
use thiserror::Error;

use crate::app_socket::AppSocket;
use crate::blocking_lookup::resolve;
use crate::outage_log;
use crate::outbound_proxy::{LOOKUP_TIMEOUT, OpenProxy, OutboundProxy};
use crate::refusals::{self, Refusals};
use crate::settings::HostPort;
use crate::short_client::{self, ShortClient};
use quictun_trust::enrolment::InviteSecret;
use quictun_trust::identity::{self, IdentityError};
use quictun_trust::logins::LoginsError;
use quictun_trust::settings::{CertificateFiles, ClientIdentity, Offer, Pin, ServerTrust};
use quictun_trust::tls::{self, TlsError};

/// Time limit until the answer, name look-up included. It is long enough for an attempt whose first packets are lost,
/// and for the second kind of `ClientHello`.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);

/// Number of failures to store the key after which the client gives up. The first may be due to another program that
/// changes the same directory at that moment.
const STORE_ATTEMPTS: u32 = 3;

/// The contents of a code, and the key that this machine has made for itself.
#[derive(Debug)]
pub struct JoinRequest {
    /// The server's host and port.
    pub server: HostPort,
    /// The server as the code writes it, for error messages.
    pub written: String,
    /// The server's TCP port for TLS, if it is another one than that of its address.
    pub tls_port: Option<u16>,
    /// The pin of the server's key.
    pub pin: Pin,
    /// The name of the invited client.
    pub name: String,
    /// The one-time secret of the invitation, by which the client proves that it has the code.
    pub secret: InviteSecret,
    /// The client's own certificate and key.
    pub own: CertificateFiles,
    /// The carriers that may lead to the server.
    pub carrier: CarrierChoice,
    /// The proxy through which TLS over TCP leads to the server.
    pub outbound_proxy: Option<OutboundProxy>,
}

/// The reasons why this machine has not become a client.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The new key cannot be read.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The login at the outbound proxy cannot be read.
    #[error(transparent)]
    Login(#[from] LoginsError),
    /// The TLS library refuses the configuration.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The system provides no socket or no random numbers.
    #[error("cannot open a socket")]
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
    let mut joining = Joining::new(request)?;
    let outcome = joining.until_answered();
    joining.client.close();
    let grant = outcome?;
    if grant.name != invited {
        let known = grant.name;
        return Err(JoinError::OtherName { known, invited });
    }
    Ok(grant)
}

struct Joining {
    server: HostPort,
    written: String,
    tls_port: Option<u16>,
    /// The proxy through which TLS over TCP leads to the server.
    proxy: Option<Arc<OpenProxy>>,
    client: ShortClient,
    /// Watches the server's only address until the server answers.
    refusals: Option<Refusals>,
    /// True if the client may use QUIC.
    uses_quic: bool,
    /// Number of times that the server could not store the key.
    store_failures: u32,
}

impl Joining {
    fn new(request: JoinRequest) -> Result<Self, JoinError> {
        let (server, written) = (request.server.clone(), request.written.clone());
        let uses_quic = request.carrier != CarrierChoice::Tls;
        let tls_port = request.tls_port;
        let proxy = OpenProxy::open(request.outbound_proxy.as_ref())?;
        let proxy = proxy.filter(|proxy| proxy.serves(&server));
        let client = ShortClient::new(&server.host, engine(request)?, proxy.clone());
        Ok(Self {
            server,
            written,
            tls_port,
            proxy,
            client: client.map_err(JoinError::Socket)?,
            refusals: None,
            uses_quic,
            store_failures: 0,
        })
    }

    fn until_answered(&mut self) -> Result<Grant, JoinError> {
        let deadline = Instant::now() + JOIN_TIMEOUT;
        let mut latest = LossReason::TimedOut;
        loop {
            let mut more = self.client.drive();
            while let Some(event) = self.client.poll_event() {
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
            if self.client.is_answered() {
                self.refusals = None;
            }
            if let Some(refusals) = &mut self.refusals
                && refusals.handle_timeout(now)
            {
                let server = self.written.clone();
                return Err(JoinError::NothingListens { server });
            }
            let refusals = self.refusals.as_ref().map(Refusals::next_timeout);
            let until = refusals.map_or(deadline, |at| at.min(deadline));
            let until = if more { now } else { until };
            self.client.wait(until).map_err(JoinError::Socket)?;
        }
    }

    /// Looks up the addresses of the server, and those of the proxy.
    fn resolve(&mut self, server: ServerId, left: Duration) -> ResolveResult {
        let lookup = |host: &str, port| (host, port).to_socket_addrs();
        let Some(proxy) = self.proxy.clone() else {
            return resolve(&self.server, left, lookup);
        };
        let mut target = self.server.clone();
        target.port = self.tls_port.unwrap_or(target.port);
        self.client.go_through_proxy(&proxy, server, target, left);
        resolve(&self.server, left.min(LOOKUP_TIMEOUT), lookup)
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
                let left = deadline.saturating_duration_since(Instant::now());
                let resolved = self.resolve(server, left);
                if self.proxy.is_none()
                    && let Some((address, source)) =
                        refusals::no_route(resolved.as_deref().unwrap_or(&[]))
                {
                    return Err(JoinError::NoRoute {
                        server: name,
                        address,
                        source,
                    });
                }
                let now = Instant::now();
                let watched = self.client.is_answered() || self.refusals.is_some();
                if let Ok([address]) = resolved.as_deref()
                    && self.proxy.is_none()
                    && self.uses_quic
                    && !watched
                {
                    // Without the watch, the attempt only takes longer to fail.
                    self.refusals = Refusals::new(now, *address).ok();
                }
                let engine = self.client.engine();
                engine.handle_resolved(now, server, tenant, &resolved);
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
            | LossReason::OutboundProxy(_)
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
    let server = ServerToDial {
        crypto,
        fallback,
        name: request.server.name().to_owned(),
        prover: None,
        carrier: request.carrier,
        place: ServerPlace {
            tls_port: request.tls_port,
            ..ServerPlace::default()
        },
    };
    let joiner: Joiner = Arc::new(move |exporter| secret.join(&name, exporter, own));
    short_client::engine(server, Some(joiner)).map_err(JoinError::Engine)
}
