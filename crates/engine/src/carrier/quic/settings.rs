//! TLS configurations in the form that the library takes.

use std::sync::Arc;

use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{ServerConfig, TransportConfig};

use super::bounded_handshake::BoundedConfig;
use crate::loss::{LocalError, LossReason};

/// How to dial a server.
#[derive(Clone)]
pub(crate) struct ClientCrypto(pub(super) Arc<QuicClientConfig>);

impl ClientCrypto {
    pub(crate) fn new(tls: &Arc<rustls::ClientConfig>) -> Result<Self, LossReason> {
        quic_crypto(tls).map(Self)
    }
}

/// The settings of a server's handshakes.
#[derive(Debug)]
pub(crate) struct ServerSettings(ServerConfig);

impl ServerSettings {
    /// Makes the settings. At most `following` bytes of each newcomer wait behind its first packet, for at most
    /// `newcomers` of them.
    pub(crate) fn new(
        tls: &Arc<rustls::ServerConfig>,
        following: u64,
        newcomers: usize,
    ) -> Result<Self, LossReason> {
        let mut config = ServerConfig::with_crypto(bounded(tls)?);
        config
            .incoming_buffer_size(following)
            .incoming_buffer_size_total(following * newcomers as u64);
        Ok(Self(config))
    }

    /// Sets the TLS configuration. The key of address validation stays, so that tokens in transit remain valid.
    pub(crate) fn set_crypto(&mut self, tls: &Arc<rustls::ServerConfig>) -> Result<(), LossReason> {
        self.0.crypto = bounded(tls)?;
        Ok(())
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::new(self.0.clone())
    }

    /// Returns the configuration of a connection with transport parameters of its own.
    pub(super) fn with_transport(&self, transport: Arc<TransportConfig>) -> Arc<ServerConfig> {
        let mut config = self.0.clone();
        config.transport_config(transport);
        Arc::new(config)
    }
}

fn bounded(tls: &Arc<rustls::ServerConfig>) -> Result<Arc<BoundedConfig>, LossReason> {
    let crypto = quic_crypto::<QuicServerConfig, _>(tls)?;
    Ok(Arc::new(BoundedConfig(crypto)))
}

fn quic_crypto<Q, C>(tls: &Arc<C>) -> Result<Arc<Q>, LossReason>
where
    C: Clone,
    Q: TryFrom<C>,
{
    match Q::try_from(C::clone(tls)) {
        Ok(crypto) => Ok(Arc::new(crypto)),
        Err(_) => Err(LocalError::NoInitialCipherSuite.into()),
    }
}
