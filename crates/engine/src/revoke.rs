//! Rules that change while connections and flows are open: what a server needs to judge all of them again.
//!
//! After its rules have changed, the caller sets the new TLS configuration ([`Engine::set_server_crypto`]), asks who
//! is at the other end of each connection ([`Engine::credentials`]) and what each flow was
//! opened for ([`Engine::asked`]), and ends what is no longer allowed ([`Engine::revoke_connection`],
//! [`Engine::revoke_flow`]). Nothing else is touched.
//!
//! [`Engine::set_server_crypto`]: crate::Engine::set_server_crypto
//! [`Engine::credentials`]: crate::Engine::credentials
//! [`Engine::asked`]: crate::Engine::asked
//! [`Engine::revoke_connection`]: crate::Engine::revoke_connection
//! [`Engine::revoke_flow`]: crate::Engine::revoke_flow

use std::time::Instant;

use quictun_flow::{ConnectionId, FlowId};
use rustls::pki_types::CertificateDer;

/// A flow that a client has asked for, and how far it has come.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The flow.
    pub flow: FlowId,
    /// The connection that carries it, or carried it: what had arrived whole is still delivered.
    pub connection: ConnectionId,
    /// Token or target, as sent.
    pub token: String,
    /// Address of the application on this side; empty while it is being dialled.
    pub server_app: String,
}

/// What a client has shown of itself.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The certificate chain, the client's own certificate first.
    pub certificates: Option<Vec<CertificateDer<'static>>>,
    /// The TLS exporter value that proofs are made from.
    pub exporter: Option<[u8; 32]>,
    /// Proofs of a pre-shared secret: the one that it had sent when it was admitted, and the latest, which may be of a
    /// newer secret, or wrong.
    pub proofs: [Option<[u8; 32]>; 2],
    /// When its handshake began.
    pub opened: Instant,
}
