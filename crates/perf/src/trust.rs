//! The keys of a measurement: created when the server starts, and pinned by a message on the control connection.
//!
//! The control connection is not protected, so the pin gives no security. It only makes handshakes do the same work as
//! in real use. Handshakes are full ones, without tickets and resumption.

use std::str::FromStr as _;
use std::sync::Arc;

use quictun_trust::identity::Identity;
use quictun_trust::settings::{Aead, ClientIdentity, Offer, Pin, ServerTrust};
use quictun_trust::tls;
use quictun_wire::alpn;
use rustls::client::Resumption;
use rustls::{ClientConfig, ServerConfig};

use crate::error::PerfError;

pub(crate) fn server_config(identity: &Identity) -> Result<Arc<ServerConfig>, PerfError> {
    let config = tls::server_config(identity, &tls::SharedConfig::open(None, Aead::Auto)?)?;
    let mut config = ServerConfig::clone(&config);
    config.alpn_protocols = vec![alpn::PERF.to_vec()];
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

pub(crate) fn client_config(pin: &str) -> Result<Arc<ClientConfig>, PerfError> {
    let trust = ServerTrust::Pins(Pin::from_str(pin).into_iter().collect());
    let shared = tls::SharedConfig::open(None, Aead::Auto)?;
    let config = tls::client_config(&trust, &ClientIdentity::default(), Offer::Native, &shared)?;
    let mut config = ClientConfig::clone(&config);
    config.alpn_protocols = vec![alpn::PERF.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}
