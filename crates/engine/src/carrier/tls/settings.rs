//! TLS configurations in the form that this carrier takes: those of QUIC with another protocol name.

use quictun_wire::alpn;

use super::hello::protocol_of_worker;

/// How to dial a server.
#[derive(Clone, Debug)]
pub(crate) struct TlsClient(pub(super) rustls::ClientConfig);

impl TlsClient {
    pub(crate) fn new(quic: &rustls::ClientConfig) -> Self {
        let mut config = quic.clone();
        config.alpn_protocols = vec![alpn::MUX.to_vec()];
        config.enable_secret_extraction = true;
        // A ticket of a connection by QUIC resumes no other kind.
        config.resumption = rustls::client::Resumption::disabled();
        Self(config)
    }

    /// Returns the configuration for a connection that is to reach this worker.
    pub(super) fn for_worker(&self, worker: Option<u8>) -> rustls::ClientConfig {
        let mut config = self.0.clone();
        config.alpn_protocols.extend(worker.map(protocol_of_worker));
        config
    }
}

/// How to answer clients.
#[derive(Clone, Debug)]
pub(crate) struct TlsServer {
    pub(super) config: rustls::ServerConfig,
    /// Takes clients that speak HTTP.
    pub(super) serves_http: bool,
}

impl TlsServer {
    /// Makes the configuration from that of QUIC. If `serves_http`, it offers the HTTPS proxy, too.
    pub(crate) fn new(quic: &rustls::ServerConfig, serves_http: bool) -> Self {
        let mut config = quic.clone();
        config.alpn_protocols = vec![alpn::MUX.to_vec()];
        if serves_http {
            let names = [alpn::HTTP_2, alpn::HTTP_1];
            config.alpn_protocols.extend(names.map(<[u8]>::to_vec));
        }
        config.enable_secret_extraction = true;
        config.send_tls13_tickets = 0;
        Self {
            config,
            serves_http,
        }
    }

    /// Selects these protocols as well, for programs without quictun.
    pub(crate) fn select_others(&mut self, names: Vec<Vec<u8>>) {
        self.config.alpn_protocols.extend(names);
    }

    /// Replaces the configuration of QUIC. The protocols stay.
    pub(crate) fn replace(&mut self, quic: &rustls::ServerConfig) {
        let protocols = std::mem::take(&mut self.config.alpn_protocols);
        *self = Self::new(quic, self.serves_http);
        self.config.alpn_protocols = protocols;
    }
}
