//! Queries for a change of rules: what a server needs to judge open connections and flows again.
//!
//! After its rules have changed, the caller sets the new TLS configuration ([`Engine::set_server_crypto`]). It asks for
//! the peer of each connection ([`Engine::credentials`]), and for the target of each flow
//! ([`Engine::requested_flows`]). Then it ends what is no longer allowed ([`Engine::revoke_connection`],
//! [`Engine::revoke_flow`]). Nothing else is touched.
//!
//! [`Engine::set_server_crypto`]: crate::Engine::set_server_crypto
//! [`Engine::credentials`]: crate::Engine::credentials
//! [`Engine::requested_flows`]: crate::Engine::requested_flows
//! [`Engine::revoke_connection`]: crate::Engine::revoke_connection
//! [`Engine::revoke_flow`]: crate::Engine::revoke_flow

use std::time::Instant;

use quictun_flow::{ConnectionId, FlowId};
use rustls::pki_types::CertificateDer;

/// A flow that a client has asked for.
#[derive(Clone, Debug)]
pub struct RequestedFlow {
    /// Id of the flow.
    pub flow: FlowId,
    /// The connection that carries the flow, or carried it: completely received data is still delivered afterwards.
    pub connection: ConnectionId,
    /// Token or target, as sent.
    pub token: String,
    /// Address of the application on this side. Empty while the application is being dialled.
    pub server_app: String,
}

/// The credentials that a client has shown.
#[derive(Clone, Debug)]
pub struct ClientCredentials {
    /// The certificate chain, the client's own certificate first.
    pub certificates: Option<Vec<CertificateDer<'static>>>,
    /// The TLS exporter value that proofs are computed from.
    pub exporter: Option<[u8; 32]>,
    /// Proofs of a pre-shared secret: the one that was sent before the client was admitted, and the latest. The latest
    /// may be that of a newer secret, or wrong.
    pub proofs: [Option<[u8; 32]>; 2],
    /// Time at which the handshake began.
    pub opened: Instant,
}
