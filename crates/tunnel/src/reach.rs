//! `quictun doctor HOST`: whether a server can be reached by QUIC, by TLS over TCP, and by datagrams of which size.
//!
//! The client accepts any key, shows none, and ends the connection after the handshake. So the result says that a server
//! of quictun answers, and not which one.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quictun_engine::{
    CarrierChoice, ClientEngine, ClientEvent, Event, LossReason, ServerPlace, ServerToDial,
};
use thiserror::Error;

use crate::app_socket::AppSocket;
use crate::blocking_lookup::resolve;
use crate::outage_log;
use crate::outbound_proxy::{OpenProxy, OutboundProxy};
use crate::refusals::{self, Refusals};
use crate::settings::HostPort;
use crate::short_client::{self, ShortClient};
use quictun_trust::logins::LoginsError;
use quictun_trust::settings::{ClientIdentity, Offer, ServerTrust};
use quictun_trust::tls::{self, TlsError};

mod datagram_size;

/// Time limit of the name look-up.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit of a handshake. It is long enough for attempts whose first packets are lost, and for hosts that refuse
/// datagrams: see [`Refusals`].
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The server to reach.
#[derive(Clone, Debug)]
pub struct ReachRequest {
    /// The host and the UDP port.
    pub server: HostPort,
    /// The TCP port, if it is another one.
    pub tls_port: Option<u16>,
    /// The proxy through which TLS over TCP leads to the server.
    pub outbound_proxy: Option<OutboundProxy>,
}

impl ReachRequest {
    /// Returns the proxy, unless the server is one of its exceptions.
    pub fn proxy(&self) -> Option<&OutboundProxy> {
        let proxy = self.outbound_proxy.as_ref();
        proxy.filter(|proxy| !proxy.except.has(&self.server.host))
    }
}

/// Time limit of a handshake through a proxy, which has to connect to the server first.
pub const ANSWER_TIMEOUT_OF_PROXY: Duration = Duration::from_secs(10);

/// The ways that lead to a server.
#[derive(Debug)]
pub struct Reach {
    /// The addresses of the host. None if only a proxy can resolve its name.
    pub addresses: Vec<IpAddr>,
    /// The result of a handshake by QUIC.
    pub quic: Answer,
    /// The result of a handshake by TLS over TCP.
    pub tls: Answer,
    /// The largest packets that reach the server. `None` if no datagram does, or if the server does not answer to them.
    pub largest: Option<LargestPacket>,
}

/// The result of a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A server of quictun answers.
    Server {
        /// The address at which the server answers.
        remote: SocketAddr,
        /// Duration of the handshake.
        after: Duration,
    },
    /// The handshake fails, for this reason.
    Failed(String),
    /// The proxy does not lead to the server, for this reason.
    OutboundProxy(String),
    /// The host has no address, for this reason.
    Unresolved(String),
    /// The host refuses, because nothing listens on the port.
    Refused,
    /// There is no answer within [`ANSWER_TIMEOUT`].
    Silent,
    /// This machine cannot send to the host, for this reason.
    NoRoute(String),
}

/// The largest packets that reach a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargestPacket {
    /// Size of the IP packet, bytes.
    pub packet: u32,
    /// Size of its UDP payload, bytes.
    pub payload: u16,
}

/// The reasons why nothing can be said about a server.
#[derive(Debug, Error)]
pub enum ReachError {
    /// The host has no address.
    #[error("{cause}")]
    Resolve {
        /// The resolver's error, with the name of the host.
        cause: String,
    },
    /// The login at the outbound proxy cannot be read.
    #[error(transparent)]
    Login(#[from] LoginsError),
    /// The TLS library refuses the configuration.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The system provides no socket.
    #[error("cannot open a socket")]
    Socket(#[from] io::Error),
    /// The engine could not start, or a thread could not.
    #[error(transparent)]
    Engine(anyhow::Error),
}

impl Answer {
    /// Returns whether a server of quictun answers.
    pub fn is_server(&self) -> bool {
        matches!(self, Self::Server { .. })
    }
}

/// Tries all ways to a server. Takes a few seconds at most.
///
/// # Errors
///
/// Returns a [`ReachError`] if the host has no address, or if this machine cannot try.
pub fn run(request: &ReachRequest) -> Result<Reach, ReachError> {
    let proxy = OpenProxy::open(request.proxy())?;
    let lookup = |host: &str, port| (host, port).to_socket_addrs();
    let resolved = resolve(&request.server, LOOKUP_TIMEOUT, lookup);
    let (addresses, unresolved) = match resolved {
        Ok(addresses) => (addresses, None),
        Err(cause) if proxy.is_none() => return Err(ReachError::Resolve { cause }),
        Err(cause) => (Vec::new(), Some(cause)),
    };
    let (quic, tls) = std::thread::scope(|scope| {
        let quic = scope.spawn(|| match unresolved {
            Some(cause) => Ok(Answer::Unresolved(cause)),
            None => answer(request, &addresses, CarrierChoice::Quic, None),
        });
        let tls = answer(request, &addresses, CarrierChoice::Tls, proxy.as_ref());
        let ended = || ReachError::Engine(anyhow::anyhow!("a thread has failed"));
        (quic.join().map_err(|_| ended()).flatten(), tls)
    });
    let (quic, tls) = (quic?, tls?);
    let largest = match &quic {
        Answer::Server { remote, after } => datagram_size::largest(*remote, *after)?,
        _ => None,
    };
    Ok(Reach {
        addresses: addresses.iter().map(SocketAddr::ip).collect(),
        quic,
        tls,
        largest,
    })
}

/// Shakes hands by this carrier.
fn answer(
    request: &ReachRequest,
    addresses: &[SocketAddr],
    carrier: CarrierChoice,
    proxy: Option<&Arc<OpenProxy>>,
) -> Result<Answer, ReachError> {
    if proxy.is_none()
        && let Some((address, error)) = refusals::no_route(addresses)
    {
        return Ok(Answer::NoRoute(format!("{address}: {error}")));
    }
    let engine = engine(request, carrier)?;
    let mut client = ShortClient::new(&request.server.host, engine, proxy.cloned())?;
    let start = Instant::now();
    let deadline = start
        + if proxy.is_some() {
            ANSWER_TIMEOUT_OF_PROXY
        } else {
            ANSWER_TIMEOUT
        };
    let mut refusals: Vec<Refusals> = if carrier == CarrierChoice::Quic {
        let watched = addresses
            .iter()
            .map(|&address| Refusals::new(start, address));
        watched.collect::<Result<_, _>>().unwrap_or_default()
    } else {
        Vec::new()
    };
    loop {
        let mut more = client.drive();
        while let Some(event) = client.poll_event() {
            more = true;
            if let (ClientEvent::Resolve { server, .. }, Some(proxy)) = (&event, proxy) {
                let mut target = request.server.clone();
                target.port = request.tls_port.unwrap_or(target.port);
                client.go_through_proxy(proxy, *server, target, LOOKUP_TIMEOUT);
            }
            if let Some(answer) = handle_event(&mut client, event, addresses, start) {
                client.close();
                return Ok(answer);
            }
        }
        let now = Instant::now();
        if now >= deadline {
            return Ok(Answer::Silent);
        }
        if client.is_answered() {
            refusals.clear();
        }
        let refused = refusals.iter_mut().map(|it| it.handle_timeout(now));
        if refused.min() == Some(true) {
            return Ok(Answer::Refused);
        }
        let next = refusals.iter().map(Refusals::next_timeout);
        let until = next.chain([deadline]).min().unwrap_or(deadline);
        client.wait(if more { now } else { until })?;
    }
}

fn handle_event(
    client: &mut ShortClient,
    event: ClientEvent,
    addresses: &[SocketAddr],
    start: Instant,
) -> Option<Answer> {
    let now = Instant::now();
    match event {
        ClientEvent::Resolve { server, tenant } => {
            let resolved = Ok(addresses.to_vec());
            client
                .engine()
                .handle_resolved(now, server, tenant, &resolved);
            None
        }
        ClientEvent::Shared(Event::Connected { remote, .. }) => {
            let after = now - start;
            Some(Answer::Server { remote, after })
        }
        ClientEvent::ConnectFailed { reason, .. } => Some(of_failure(&reason)),
        _ => None,
    }
}

fn of_failure(reason: &LossReason) -> Answer {
    match reason {
        LossReason::TimedOut => Answer::Silent,
        LossReason::OutboundProxy(why) => Answer::OutboundProxy(why.clone()),
        LossReason::Tcp(text) if *text == refused() => Answer::Refused,
        reason => Answer::Failed(outage_log::explain(reason).0),
    }
}

/// Returns the system's text for a connection that the host has refused.
fn refused() -> String {
    io::Error::from(rustix::io::Errno::CONNREFUSED).to_string()
}

fn engine(
    request: &ReachRequest,
    carrier: CarrierChoice,
) -> Result<ClientEngine<AppSocket>, ReachError> {
    let trust = ServerTrust::Insecure;
    let identity = ClientIdentity {
        certificate: None,
        psk_file: None,
    };
    let shared = tls::SharedConfig::default();
    let (crypto, fallback) = tls::client_configs(&trust, &identity, Offer::Native, &shared)?;
    let server = ServerToDial {
        crypto,
        fallback,
        name: request.server.name().to_owned(),
        prover: None,
        carrier,
        place: ServerPlace {
            tls_port: request.tls_port,
            ..ServerPlace::default()
        },
    };
    short_client::engine(server, None).map_err(ReachError::Engine)
}
