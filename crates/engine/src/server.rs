//! The server's part: who is let in.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quictun_congestion::Gauge;
use quictun_flow::Socket;
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{ConnectionHandle, Incoming, ServerConfig};

use crate::ConnectionId;
use crate::config::ServerRole;
use crate::connection::Connection;
use crate::engine::{Engine, Role};
use crate::event::{Event, LossReason};
use crate::memory::Peer;
use crate::report::Side;

/// State of the server side.
pub(crate) struct Server {
    role: ServerRole,
    /// Cloned for every connection, which gets its own transport parameters.
    base: ServerConfig,
    /// Handles of handshakes in progress, oldest first.
    handshakes: VecDeque<(usize, ConnectionId)>,
    established: usize,
}

impl Server {
    pub(crate) fn new(role: ServerRole) -> Result<Self, LossReason> {
        let tls = rustls::ServerConfig::clone(&role.crypto);
        let crypto = QuicServerConfig::try_from(tls)
            .map_err(|error| LossReason::Local(error.to_string()))?;
        Ok(Self {
            role,
            base: ServerConfig::with_crypto(Arc::new(crypto)),
            handshakes: VecDeque::new(),
            established: 0,
        })
    }

    /// What the endpoint starts with.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::new(self.base.clone())
    }

    pub(crate) fn open_timeout(&self) -> Duration {
        self.role.open_timeout
    }

    /// Handshakes that may be in progress: whoever completes one has been let in, so those that are
    /// established leave less room. A handshake that nobody means to complete must not take the place
    /// of one that will be.
    fn handshakes_max(&self) -> usize {
        let room = self.role.max_connections.saturating_sub(self.established);
        self.role.max_handshakes.min(room)
    }
}

impl<S: Socket> Engine<S> {
    /// A client wants to connect.
    pub(crate) fn handle_incoming(&mut self, now: Instant, incoming: Incoming) {
        let Role::Server(server) = &mut self.role else {
            self.endpoint.ignore(incoming);
            return;
        };
        let mut response = Vec::new();
        let full = server.established >= server.role.max_connections;
        if full || self.draining {
            let transmit = self.endpoint.refuse(incoming, &mut response);
            self.totals.handshakes_failed += 1;
            self.respond(&transmit, response);
            return;
        }
        let validate = server.role.always_retry
            || server.handshakes.len() >= server.role.retry_above.min(server.handshakes_max());
        if validate && !incoming.remote_address_validated() {
            match self.endpoint.retry(incoming, &mut response) {
                Ok(transmit) => self.respond(&transmit, response),
                Err(error) => self.endpoint.ignore(error.into_incoming()),
            }
            return;
        }
        self.accept(now, incoming);
    }

    fn accept(&mut self, now: Instant, incoming: Incoming) {
        let Role::Server(server) = &mut self.role else {
            return;
        };
        let evicted = (server.handshakes.len() >= server.handshakes_max())
            .then(|| server.handshakes.pop_front())
            .flatten();
        let remote = incoming.remote_address();
        let gauge = Gauge::new();
        let known = self.transport.memory.recall(now, Peer::Client(remote.ip()));
        let mut config = server.base.clone();
        let (transport, trace) =
            Connection::transport_config(&self.transport, &gauge, remote, Side::Server, known, now);
        config.transport_config(transport);
        let mut response = Vec::new();
        let accepted = self
            .endpoint
            .accept(incoming, now, &mut response, Some(Arc::new(config)));
        match accepted {
            Ok((ConnectionHandle(handle), quic)) => {
                let id = ConnectionId(self.next_id(handle));
                let connection =
                    Connection::new(id, quic, gauge, &self.transport, known, trace, now);
                self.adopt(handle, connection);
                if let Role::Server(server) = &mut self.role {
                    server.handshakes.push_back((handle, id));
                }
            }
            Err(error) => {
                self.totals.handshakes_failed += 1;
                if let Some(transmit) = error.response {
                    self.respond(&transmit, response);
                }
            }
        }
        if let Some((handle, id)) = evicted {
            let still = self.connections.get(handle).and_then(Option::as_ref);
            if still.is_some_and(|connection| connection.id == id && connection.protocol.is_none())
            {
                self.forget(now, handle, LossReason::TimedOut);
            }
        }
    }

    pub(crate) fn server_connected(&mut self, handle: usize) {
        if let Role::Server(server) = &mut self.role {
            server.handshakes.retain(|&(other, _)| other != handle);
            server.established += 1;
        }
    }

    pub(crate) fn server_lost(
        &mut self,
        handle: usize,
        remote: SocketAddr,
        established: bool,
        reason: LossReason,
    ) {
        let Role::Server(server) = &mut self.role else {
            return;
        };
        if established {
            server.established = server.established.saturating_sub(1);
            return;
        }
        let before = server.handshakes.len();
        server.handshakes.retain(|&(other, _)| other != handle);
        if server.handshakes.len() < before && reason != LossReason::ClosedLocally {
            self.events
                .push_back(Event::HandshakeFailed { remote, reason });
        }
    }
}
