//! The server's part: who is let in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use quictun_congestion::Gauge;
use quictun_flow::Socket;
use quictun_wire::code::CloseCode;
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{ConnectionHandle, Incoming, ServerConfig};

use crate::ConnectionId;
use crate::config::ServerRole;
use crate::connection::{Connection, First};
use crate::engine::{Engine, Role, close_code};
use crate::event::{Event, LossReason};
use crate::memory::Peer;
use crate::newcomers::Newcomers;
use crate::report::Side;
use crate::strangers::{Source, Strangers};

/// However few places there are, the connections of one client find theirs.
const OF_ONE_MIN: usize = 8;

/// Handshakes that begin in one turn.
const HANDSHAKES_OF_TURN: usize = 4;

/// Limit for the datagrams that follow the first one of a waiting connection, bytes. A handshake with ML-KEM begins with two
/// datagrams, and each is sent twice.
const FOLLOWING_MAX: u64 = 8 * 1024;

/// Memory of a connection that waits, bytes: its first packet with the keys to read it, and the datagrams that follow.
const NEWCOMER_COST: u64 = 4 * 1024 + FOLLOWING_MAX;

/// State of the server side.
pub(crate) struct Server {
    role: ServerRole,
    /// Cloned for every connection, which gets its own transport parameters.
    base: ServerConfig,
    /// Handshakes in progress, and connections whose clients are not known yet where they have to be.
    strangers: Strangers,
    newcomers: Newcomers<Incoming>,
    /// Arrival of the last newcomer.
    came: Option<Instant>,
    /// Connections that are served in full.
    established: usize,
}

impl Server {
    pub(crate) fn new(role: ServerRole) -> Result<Self, LossReason> {
        let crypto = quic_crypto(&role.crypto)?;
        let newcomers = Newcomers::new(role.max_handshakes);
        let mut base = ServerConfig::with_crypto(crypto);
        base.incoming_buffer_size(FOLLOWING_MAX)
            .incoming_buffer_size_total(FOLLOWING_MAX * newcomers.most() as u64);
        Ok(Self {
            role,
            base,
            strangers: Strangers::default(),
            newcomers,
            came: None,
            established: 0,
        })
    }

    /// Handshakes that begin from now on use this. The key of address validation stays: tokens that are on their way
    /// remain good.
    pub(crate) fn set_crypto(
        &mut self,
        crypto: &Arc<rustls::ServerConfig>,
    ) -> Result<(), LossReason> {
        self.base.crypto = quic_crypto(crypto)?;
        self.role.crypto = crypto.clone();
        Ok(())
    }

    /// What the endpoint is configured with.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::new(self.base.clone())
    }

    pub(crate) fn open_timeout(&self) -> Duration {
        self.role.open_timeout
    }

    /// Places for strangers. Where a handshake is all that is asked for, a stranger that completes it is let
    /// in, so those that are established leave less room.
    fn strangers_max(&self) -> usize {
        let room = self.role.max_connections.saturating_sub(self.established);
        if self.role.identify {
            self.role.max_handshakes
        } else {
            self.role.max_handshakes.min(room)
        }
    }

    /// Places that one source may have of them: half leaves room for others before any gives way. Many clients may be
    /// behind one address, and each has several connections.
    fn strangers_of_one_max(&self) -> usize {
        if self.role.identify {
            (self.role.max_handshakes / 2).max(OF_ONE_MIN)
        } else {
            usize::MAX
        }
    }

    /// Memory of the connections that wait, bytes.
    pub(crate) fn kept(&self) -> u64 {
        self.newcomers.len() as u64 * NEWCOMER_COST
    }

    /// Time to begin the next handshakes: in the past while newcomers wait.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.came.filter(|_| self.newcomers.len() > 0)
    }

    /// Whether as many connections are served as may be.
    pub(crate) fn is_full(&self) -> bool {
        self.established >= self.role.max_connections
    }

    /// A stranger is one no more.
    pub(crate) fn admitted(&mut self, connection: &mut Connection, handle: usize) {
        if let Some(source) = connection.stranger.take() {
            self.strangers.remove(source, handle);
        }
        self.established += 1;
    }
}

/// A TLS configuration as QUIC needs it.
fn quic_crypto(tls: &Arc<rustls::ServerConfig>) -> Result<Arc<QuicServerConfig>, LossReason> {
    let crypto = QuicServerConfig::try_from(rustls::ServerConfig::clone(tls));
    match crypto {
        Ok(crypto) => Ok(Arc::new(crypto)),
        Err(error) => Err(LossReason::Local(error.to_string())),
    }
}

impl<S: Socket> Engine<S> {
    /// A client wants to connect: its address is validated where there are many, and its handshake waits for its turn.
    pub(crate) fn handle_incoming(&mut self, now: Instant, incoming: Incoming) {
        if self.is_closed_to_newcomers() {
            return self.turn_away(incoming);
        }
        let Role::Server(server) = &mut self.role else {
            self.endpoint.ignore(incoming);
            return;
        };
        let begun = server.strangers.len() + server.newcomers.len();
        let validate = server.role.always_retry
            || begun >= server.role.retry_above.min(server.strangers_max());
        if validate && !incoming.remote_address_validated() {
            let mut response = Vec::new();
            match self.endpoint.retry(incoming, &mut response) {
                Ok(transmit) => self.respond(&transmit, response),
                Err(error) => self.endpoint.ignore(error.into_incoming()),
            }
            return;
        }
        server.came = Some(now);
        let source = Source::of(incoming.remote_address().ip());
        if let Some(lost) = server.newcomers.push(source, incoming) {
            self.totals.handshakes_failed += 1;
            self.endpoint.ignore(lost);
        }
    }

    /// Begins the handshakes of this turn.
    pub(crate) fn accept_newcomers(&mut self, now: Instant) {
        for _ in 0..HANDSHAKES_OF_TURN {
            let Role::Server(server) = &mut self.role else {
                return;
            };
            let Some(incoming) = server.newcomers.pop() else {
                return;
            };
            if self.is_closed_to_newcomers() {
                self.turn_away(incoming);
            } else {
                self.accept(now, incoming);
            }
        }
    }

    /// Whether no connection more is served for now. Where there is no memory for one more, those that are served go on,
    /// and strangers give way.
    fn is_closed_to_newcomers(&self) -> bool {
        let Role::Server(server) = &self.role else {
            return true;
        };
        let no_place = server.strangers.len() == 0 && self.has_no_memory_for_strangers();
        server.is_full() || self.draining || no_place
    }

    fn has_no_memory_for_strangers(&self) -> bool {
        First::stranger(0).debt() > self.lease.free_for_newcomers()
    }

    /// Refuses all newcomers that wait.
    pub(crate) fn refuse_newcomers(&mut self) {
        while let Role::Server(server) = &mut self.role
            && let Some(incoming) = server.newcomers.pop()
        {
            self.turn_away(incoming);
        }
    }

    fn turn_away(&mut self, incoming: Incoming) {
        let mut response = Vec::new();
        let transmit = self.endpoint.refuse(incoming, &mut response);
        self.totals.handshakes_failed += 1;
        self.respond(&transmit, response);
    }

    fn accept(&mut self, now: Instant, incoming: Incoming) {
        let flows = self.first_flows();
        let no_memory = self.has_no_memory_for_strangers();
        let Role::Server(server) = &mut self.role else {
            return;
        };
        let remote = incoming.remote_address();
        let source = Source::of(remote.ip());
        let (most, most_of_one) = (server.strangers_max(), server.strangers_of_one_max());
        let most = if no_memory {
            most.min(server.strangers.len())
        } else {
            most
        };
        let gives_way = server.strangers.make_room(source, most, most_of_one);
        let gauge = Gauge::new();
        let known = self.transport.memory.recall(now, Peer::Client(remote.ip()));
        let window = self.lease.first_window(known.receive_window, 0, false);
        let first = if server.role.identify {
            First::stranger(window)
        } else {
            First {
                window,
                remembered: known.receive_window,
                flows,
            }
        };
        let mut config = server.base.clone();
        let (transport, trace) = Connection::transport_config(
            &self.transport,
            &gauge,
            remote,
            Side::Server,
            known,
            first,
            now,
        );
        config.transport_config(transport);
        let mut response = Vec::new();
        let accepted = self
            .endpoint
            .accept(incoming, now, &mut response, Some(Arc::new(config)));
        match accepted {
            Ok((ConnectionHandle(handle), quic)) => {
                let id = ConnectionId(self.next_id(handle));
                let mut connection =
                    Connection::new(id, quic, gauge, &self.transport, first, trace, now);
                connection.stranger = Some(source);
                self.adopt(handle, connection);
                if let Role::Server(server) = &mut self.role {
                    server.strangers.insert(source, (handle, id));
                }
            }
            Err(error) => {
                self.totals.handshakes_failed += 1;
                if let Some(transmit) = error.response {
                    self.respond(&transmit, response);
                }
            }
        }
        if let Some((handle, id)) = gives_way {
            self.give_way(now, handle, id);
        }
    }

    /// Forgets the closed connection of a stranger as soon as its last packet has been sent, if memory is half full.
    ///
    /// The library keeps closed connections for three probe time-outs so that it can say again that they are closed. A peer can
    /// make these as long as it likes by delaying acknowledgements. Without the connection its packets get a stateless
    /// reset.
    pub(crate) fn forget_stranger(&mut self, now: Instant, handle: usize) {
        let server = matches!(self.role, Role::Server(_));
        if let Some(Some(connection)) = self.connections.get(handle)
            && server
            && connection.lost
            && !connection.admitted
            && self.lease.is_half_full()
        {
            self.forget(now, handle, LossReason::ClosedLocally);
        }
    }

    /// A stranger gives its place to a newcomer.
    fn give_way(&mut self, now: Instant, handle: usize, id: ConnectionId) {
        let Some(Some(connection)) = self.connections.get_mut(handle) else {
            return;
        };
        if connection.id != id {
            return;
        }
        connection.stranger = None;
        if connection.protocol.is_none() {
            // Forgotten silently: a client that retransmits its first packet gets a new place, one that is further in its
            // handshake times out. A CONNECTION_CLOSE would also let a flood come again sooner.
            self.forget(now, handle, LossReason::TimedOut);
        } else {
            // It may be an honest one that is slow: it will come again.
            self.close_connection(now, id, CloseCode::TooManyConnections);
        }
    }

    pub(crate) fn server_connected(&mut self, now: Instant, handle: usize) {
        let (Role::Server(server), Some(Some(connection))) =
            (&mut self.role, self.connections.get_mut(handle))
        else {
            return;
        };
        if server.role.identify {
            connection.prove_by = Some(now + self.transport.handshake_timeout);
        } else {
            connection.admitted = true;
            server.admitted(connection, handle);
        }
    }

    /// The time to show who it is has passed.
    pub(crate) fn handle_unproven(&mut self, now: Instant, handle: usize) {
        if matches!(self.role, Role::Client(_)) {
            // A server that says nothing to our HELLO is taken for an older one.
            return self.welcome(handle);
        }
        let Some(Some(connection)) = self.connections.get_mut(handle) else {
            return;
        };
        connection.prove_by = None;
        let id = connection.id;
        let code = close_code(CloseCode::NotAuthorized);
        let reason = Bytes::from_static(b"no identity was shown in time");
        connection.quic.close(now, code, reason);
        self.events.push_back(Event::Unproven {
            connection: id,
            remote: connection.remote,
        });
        self.mark(handle);
        self.lose(now, handle, LossReason::ClosedLocally);
    }

    pub(crate) fn server_lost(
        &mut self,
        handle: usize,
        remote: SocketAddr,
        established: bool,
        reason: LossReason,
    ) {
        let (Role::Server(server), Some(Some(connection))) =
            (&mut self.role, self.connections.get_mut(handle))
        else {
            return;
        };
        if connection.admitted {
            server.established = server.established.saturating_sub(1);
        }
        let had_place = match connection.stranger.take() {
            Some(source) => server.strangers.remove(source, handle),
            None => false,
        };
        if !established && had_place && reason != LossReason::ClosedLocally {
            self.events
                .push_back(Event::HandshakeFailed { remote, reason });
        }
    }
}
