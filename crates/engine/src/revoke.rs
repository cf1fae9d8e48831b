//! Rules that change while connections and flows are open: what a server needs to judge all of them again.
//!
//! After its rules have changed, the caller sets the new TLS configuration ([`Engine::set_server_crypto`]), asks who
//! is at the other end of each connection ([`Engine::credentials`]) and what each flow was
//! opened for ([`Engine::asked`]), and ends what is no longer allowed ([`Engine::revoke_connection`],
//! [`Engine::revoke_flow`]). Nothing else is touched.

use std::sync::Arc;
use std::time::Instant;

use quictun_flow::{LostStream, Socket};
use quictun_wire::code::{CloseCode, FlowCode};
use rustls::pki_types::CertificateDer;

use crate::engine::{Engine, Role, export};
use crate::event::LossReason;
use crate::flow_entry::{Phase, Place};
use crate::quic_stream::QuicStream;
use crate::{ConnectionId, FlowId};

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
    /// Its certificate chain, its own first.
    pub certificates: Option<Vec<CertificateDer<'static>>>,
    /// The TLS exporter value that proofs are made from.
    pub exporter: Option<[u8; 32]>,
    /// Proofs of a pre-shared secret: the one that it had sent when it was admitted, and the latest, which may be of a
    /// newer secret, or wrong.
    pub proofs: [Option<[u8; 32]>; 2],
    /// When its handshake began.
    pub opened: Instant,
}

impl<S: Socket> Engine<S> {
    /// Server: handshakes that begin from now on use this configuration. Open connections keep theirs.
    ///
    /// # Errors
    ///
    /// [`LossReason::Local`] where the configuration has no cipher suite for QUIC's first packets, or this is a client.
    pub fn set_server_crypto(
        &mut self,
        crypto: &Arc<rustls::ServerConfig>,
    ) -> Result<(), LossReason> {
        let Role::Server(server) = &mut self.role else {
            return Err(LossReason::Local("not a server".to_owned()));
        };
        server.set_crypto(crypto)?;
        self.endpoint.set_server_config(Some(server.config()));
        Ok(())
    }

    /// Server: what the client of a connection has shown of itself; `None` where the connection has gone.
    pub fn credentials(&self, id: ConnectionId) -> Option<Credentials> {
        let handle = self.handle_of(id)?;
        let connection = self.connections.get(handle)?.as_ref()?;
        let identity = connection.quic.crypto_session().peer_identity();
        Some(Credentials {
            certificates: identity.and_then(|chain| chain.downcast().ok().map(|chain| *chain)),
            exporter: export(&connection.quic),
            proofs: [connection.admitted_by, connection.proof],
            opened: connection.opened,
        })
    }

    /// Server: every flow whose request has been read, in no particular order.
    pub fn asked(&self) -> Vec<Asked> {
        let flows = self.flows.iter().filter_map(|(_, entry)| {
            if matches!(entry.phase, Phase::Waiting(_) | Phase::Reading(_)) {
                return None;
            }
            let connection = match (entry.place, &entry.salvage) {
                (Some(place), _) => self.connections.get(place.handle)?.as_ref()?.id,
                (None, Some(salvage)) => salvage.carried.connection,
                (None, None) => return None,
            };
            Some(Asked {
                flow: entry.id,
                connection,
                token: entry.token.clone(),
                server_app: entry.server_app.clone(),
            })
        });
        flows.collect()
    }

    /// Server: ends a flow that is no longer allowed. Its application is reset, and its peer told
    /// [`FlowCode::Revoked`]. One that has ended already is left alone.
    pub fn revoke_flow(&mut self, now: Instant, id: FlowId) {
        if let Some(key) = self.key_of(id) {
            self.revoke(now, key);
        }
    }

    /// Server: closes a connection whose client is no longer known, with [`CloseCode::Revoked`]. All its flows end as by
    /// [`Engine::revoke_flow`], also those whose bytes have arrived whole. Returns how many these were.
    pub fn revoke_connection(&mut self, now: Instant, id: ConnectionId) -> usize {
        let Some(handle) = self.handle_of(id) else {
            return 0;
        };
        let here = |place: Place| place.handle == handle;
        let flows = self.flows.iter();
        let flows = flows.filter(|(_, entry)| entry.place.is_some_and(here));
        let keys: Vec<usize> = flows.map(|(key, _)| key).collect();
        for &key in &keys {
            self.revoke(now, key);
        }
        self.close_connection(now, id, CloseCode::Revoked);
        keys.len()
    }

    fn revoke(&mut self, now: Instant, key: usize) {
        let Some(entry) = self.flows.get_mut(key) else {
            return;
        };
        let Some(place) = entry.place else {
            if let Some(flow) = entry.flow_mut() {
                flow.abandon(&mut LostStream, FlowCode::Revoked);
                self.settle_flow(now, key);
            }
            return;
        };
        if matches!(entry.phase, Phase::Bridged { .. }) {
            let Some((entry, connection)) = self.entry_and_connection(key) else {
                return;
            };
            let mut stream = QuicStream {
                quic: &mut connection.quic,
                id: place.stream,
            };
            if let Some(flow) = entry.flow_mut() {
                flow.abandon(&mut stream, FlowCode::Revoked);
            }
            self.settle_flow(now, key);
        } else {
            self.refuse_flow(now, key, FlowCode::Revoked);
        }
        self.want_transmit(place.handle);
    }
}
