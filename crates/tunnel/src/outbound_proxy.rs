//! The outbound proxy of a client, through which TLS over TCP leads to its servers.
//!
//! The client connects to the proxy, names the server ([`handshake`]), and hands the TCP connection to the engine. The
//! proxy resolves the server's name. QUIC does not pass through it, and is tried directly.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quictun_engine::ResolveResult;
use quictun_trust::logins::{self, LoginsError};
use quictun_wire::outbound_proxy::{OutboundHandshake, OutboundTarget};
use tracing::info;

use crate::settings::HostPort;

pub(crate) mod handshake;
mod no_proxy;

pub use no_proxy::NoProxy;
pub use quictun_wire::outbound_proxy::OutboundProtocol;
pub use quictun_wire::proxy::Credentials;

/// Time for which the server's own addresses are looked up if there is a proxy. The proxy resolves the name as well,
/// and networks with a proxy may have no resolver for names outside.
pub(crate) const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// An outbound proxy, and its exceptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundProxy {
    /// The protocol of the proxy.
    pub protocol: OutboundProtocol,
    /// The address of the proxy.
    pub at: HostPort,
    /// The login, if the proxy asks for one.
    pub login: ProxyLogin,
    /// The servers that are reached without the proxy.
    pub except: NoProxy,
    /// The setting that names the proxy, for messages.
    pub named_by: String,
}

/// The source of the login at an outbound proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyLogin {
    /// There is no login.
    None,
    /// The login was in the address of the proxy.
    Given(Credentials),
    /// The login is the line of this file.
    File(PathBuf),
}

/// Formats the address without the login.
impl std::fmt::Display for OutboundProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = match self.protocol {
            OutboundProtocol::Http => "http",
            OutboundProtocol::Socks5 => "socks5h",
        };
        write!(f, "{scheme}://{}", self.at)
    }
}

/// An outbound proxy whose login was read.
#[derive(Debug)]
pub(crate) struct OpenProxy {
    settings: OutboundProxy,
    login: Option<Credentials>,
}

/// The way to one server through a proxy.
#[derive(Clone, Debug)]
pub(crate) struct ProxiedServer {
    /// The server, as the proxy is asked for it.
    pub(crate) target: HostPort,
    /// The addresses of the proxy.
    pub(crate) addresses: ResolveResult,
}

impl ProxiedServer {
    /// Replaces the port by the server's TCP port for TLS, if it is another one.
    pub(crate) fn at_port(mut self, tls_port: Option<u16>) -> Self {
        self.target.port = tls_port.unwrap_or(self.target.port);
        self
    }
}

impl OpenProxy {
    /// Reads the login. `None` means that there is no proxy.
    pub(crate) fn open(settings: Option<&OutboundProxy>) -> Result<Option<Arc<Self>>, LoginsError> {
        let Some(settings) = settings else {
            return Ok(None);
        };
        let login = match &settings.login {
            ProxyLogin::None => None,
            ProxyLogin::Given(login) => Some(login.clone()),
            ProxyLogin::File(path) => Some(logins::load_one(path)?),
        };
        let settings = settings.clone();
        Ok(Some(Arc::new(Self { settings, login })))
    }

    /// Announces the proxy in the log.
    pub(crate) fn announce(&self) {
        let (proxy, from) = (&self.settings, &self.settings.named_by);
        info!(target: "quictun", %proxy, from, login = self.login.is_some(), "TLS over TCP leads through a proxy");
    }

    /// Returns whether the server is reached through the proxy.
    pub(crate) fn serves(&self, server: &HostPort) -> bool {
        !self.settings.except.has(&server.host)
    }

    /// Returns the address of the proxy.
    pub(crate) fn at(&self) -> &HostPort {
        &self.settings.at
    }

    /// Returns the reason why the proxy's name does not resolve, in words.
    pub(crate) fn unresolved(&self, error: &str) -> String {
        format!("the proxy {}: {error}", self.settings)
    }

    /// Begins the handshake that asks for a server.
    pub(crate) fn handshake(&self, server: &HostPort) -> OutboundHandshake {
        let target = OutboundTarget {
            // A zone is of this machine alone.
            host: server.name().to_owned(),
            port: server.port,
        };
        OutboundHandshake::new(self.settings.protocol, target, self.login.clone())
    }
}

/// Formats the address without the login.
impl std::fmt::Display for OpenProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.settings.fmt(f)
    }
}
