//! Carriers over TCP: the start of their connections, and their sockets.
//!
//! The caller dials and accepts. From then on the engine reads and writes the socket, as it does with those of flows.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::BytesMut;
use fxhash::FxHashMap;
use quictun_flow::{ConnectionId, ConnectionKey, Socket};
use quictun_tls::SendBuffer;

use super::{Contact, Traffic};
use crate::carrier::Carrier;
use crate::carrier::tls::{TlsCarrier, TlsClient, TlsServer};
use crate::grants::FirstGrants;
use crate::loss::LossReason;

/// Number of times that one connection writes in a turn, so that others have theirs.
const WRITES: usize = 8;

/// A TCP connection that a listener for carriers has accepted.
#[derive(Debug)]
pub struct AcceptedTcp<S> {
    /// Address of the client.
    pub remote: SocketAddr,
    /// The connection, which does not block.
    pub socket: S,
    /// Bytes that were read from the connection. Empty, unless another worker has read them.
    pub received: BytesMut,
}

/// The sockets of carriers, and memory that all of them use in turn.
pub(crate) struct CarrierSockets<S> {
    of: FxHashMap<ConnectionKey, S>,
    read: Vec<u8>,
    written: SendBuffer,
    /// Bytes that were read and written since the caller has asked.
    moved: u64,
}

impl<S> Default for CarrierSockets<S> {
    fn default() -> Self {
        Self {
            of: FxHashMap::default(),
            read: Vec::new(),
            written: SendBuffer::new(),
            moved: 0,
        }
    }
}

impl<S> CarrierSockets<S> {
    pub(crate) fn get(&self, key: ConnectionKey) -> Option<&S> {
        self.of.get(&key)
    }

    pub(crate) fn remove(&mut self, key: ConnectionKey) {
        self.of.remove(&key);
    }

    /// Returns the bytes that were read and written since the last call.
    pub(crate) fn take_moved(&mut self) -> u64 {
        std::mem::take(&mut self.moved)
    }
}

impl<S: Socket> Traffic<S> {
    /// Begins a connection over TCP, which the caller has to dial. Returns it, for [`crate::ClientEvent::DialCarrier`].
    pub(crate) fn connect_over_tcp(
        &mut self,
        now: Instant,
        address: SocketAddr,
        server_name: &str,
        tls: &TlsClient,
        route: Option<u8>,
    ) -> Result<(ConnectionKey, ConnectionId), LossReason> {
        let (_, first) = self.first_as_client(now, address);
        let transport = &self.transport;
        let carrier = TlsCarrier::client(now, address, server_name, tls, route, transport, first)?;
        let key = self.connections.vacant_key();
        let carrier = Carrier::Tls(Box::new(carrier));
        Ok((key, self.adopt(now, carrier, address, first)))
    }

    /// Takes a TCP connection that the caller has accepted.
    pub(crate) fn accept_over_tcp(
        &mut self,
        now: Instant,
        accepted: AcceptedTcp<S>,
        tls: &TlsServer,
        first: FirstGrants,
    ) -> Option<(ConnectionKey, ConnectionId)> {
        let AcceptedTcp {
            remote,
            socket,
            received,
        } = accepted;
        let (_, first) = self.first_as_server(now, remote, first);
        let begun = (remote, &received[..]);
        let Ok(carrier) = TlsCarrier::server(now, begun, tls, &self.transport, first) else {
            self.totals.handshakes_failed += 1;
            return None;
        };
        let key = self.connections.vacant_key();
        self.carrier_sockets.of.insert(key, socket);
        let carrier = Carrier::Tls(Box::new(carrier));
        Some((key, self.adopt(now, carrier, remote, first)))
    }

    pub(crate) fn carrier_socket(&self, id: ConnectionId) -> Option<&S> {
        self.carrier_sockets.of.get(&self.connections.find(id)?)
    }

    pub(crate) fn carrier_socket_mut(&mut self, id: ConnectionId) -> Option<&mut S> {
        self.carrier_sockets.of.get_mut(&self.connections.find(id)?)
    }

    pub(crate) fn handle_carrier_dialed(
        &mut self,
        now: Instant,
        id: ConnectionId,
        result: Result<S, LossReason>,
    ) {
        let Some((key, connection)) = self.connections.named_mut(id) else {
            return;
        };
        let Some(tls) = connection.carrier.as_tls() else {
            return;
        };
        let result = result.map(|socket| {
            self.carrier_sockets.of.insert(key, socket);
        });
        tls.handle_dialed(now, result);
        self.connections.mark(key);
    }

    /// Handles a carrier's socket that may have become ready. Returns the kind of contact with the peer if anything has
    /// arrived.
    pub(crate) fn handle_carrier_socket(
        &mut self,
        now: Instant,
        id: ConnectionId,
        readable: bool,
        writable: bool,
        failed: bool,
    ) -> Option<(ConnectionKey, Contact)> {
        let key = self.connections.find(id)?;
        let tls = self.connections.get_mut(key)?.carrier.as_tls()?;
        tls.handle_ready(readable, writable, failed);
        self.connections.mark(key);
        Some((key, self.read_carrier(now, key)?))
    }

    /// Takes a connection away whose client has named another worker. Its bytes and its socket go there.
    pub(crate) fn take_carrier(
        &mut self,
        now: Instant,
        id: ConnectionId,
    ) -> Option<AcceptedTcp<S>> {
        let (key, connection) = self.connections.named_mut(id)?;
        let remote = connection.remote();
        let received = connection.carrier.as_tls()?.take_received();
        let socket = self.carrier_sockets.of.remove(&key)?;
        self.forget(now, key, LossReason::ClosedLocally);
        Some(AcceptedTcp {
            remote,
            socket,
            received,
        })
    }

    /// Answers the first message of a client. Returns whether the connection still exists.
    pub(crate) fn answer_client_hello(&mut self, now: Instant, id: ConnectionId) -> bool {
        let Some((key, connection)) = self.connections.named_mut(id) else {
            return false;
        };
        if let Some(tls) = connection.carrier.as_tls() {
            tls.answer_client_hello(now);
        }
        // The socket may have more.
        self.connections.read_on(now, key);
        true
    }

    /// Ends the handshake of a connection over TCP, without an answer.
    pub(crate) fn drop_stranger(&mut self, now: Instant, id: ConnectionId) {
        if let Some(key) = self.connections.find(id) {
            self.totals.handshakes_failed += 1;
            self.forget(now, key, LossReason::TimedOut);
        }
    }

    /// Reads a carrier's socket.
    fn read_carrier(&mut self, now: Instant, key: ConnectionKey) -> Option<Contact> {
        let socket = self.carrier_sockets.of.get_mut(&key)?;
        let connection = self.connections.get_mut(key)?;
        let tls = connection.carrier.as_tls()?;
        let before = tls.moved();
        let arrived = tls.read(now, socket, &mut self.carrier_sockets.read);
        self.carrier_sockets.moved += tls.moved() - before;
        if tls.is_readable() {
            self.connections.read_on(now, key);
        }
        if !arrived {
            return None;
        }
        let contact = self.note_heard(now, key);
        if let Some(connection) = self.connections.get_mut(key) {
            connection.note_in_flight(now);
        }
        contact
    }

    /// Reads on, if the last turn ended before everything was read. Returns whether the connection is over.
    pub(super) fn exchange_over_tcp(&mut self, now: Instant, key: ConnectionKey) -> Option<bool> {
        let tls = self.connections.get_mut(key)?.carrier.as_tls()?;
        if tls.is_readable() {
            // The turn that began to read has told the role of the contact.
            let _contact = self.read_carrier(now, key);
        }
        Some(self.connections.get_mut(key)?.carrier.as_tls()?.is_over())
    }

    /// Reads on if the application has taken what a connection without QMux had to wait for. QMux sends the peer credit.
    fn resume_reading(&mut self, now: Instant, key: ConnectionKey) {
        let is_single = |tls: &mut TlsCarrier| tls.is_single();
        let connection = self.connections.get_mut(key);
        let Some(connection) = connection.filter(|it| it.is_admitted()) else {
            return;
        };
        if !connection.carrier.as_tls().is_some_and(is_single) {
            return;
        }
        connection.announce(0);
        if connection
            .carrier
            .as_tls()
            .is_some_and(|tls| tls.is_readable())
        {
            self.connections.read_on(now, key);
        }
    }

    /// Lets flows fill records, and writes them, until the socket is full, nothing is left, or the turn is over.
    pub(super) fn send_over_tcp(&mut self, now: Instant, key: ConnectionKey) {
        for _ in 0..WRITES {
            self.fill(now, key);
            let (Some(connection), Some(socket)) = (
                self.connections.get_mut(key),
                self.carrier_sockets.of.get_mut(&key),
            ) else {
                return;
            };
            let Some(tls) = connection.carrier.as_tls() else {
                return;
            };
            let before = tls.moved();
            let sent = tls.write(now, socket, &mut self.carrier_sockets.written);
            self.carrier_sockets.moved += tls.moved() - before;
            let (over, full) = (tls.is_over() || tls.has_failed(), !tls.is_writable());
            if sent {
                connection.note_sent(now);
            }
            if over {
                break;
            }
            if sent {
                self.release_datagrams(key);
            }
            if full || !sent {
                return self.resume_reading(now, key);
            }
        }
        self.connections.read_on(now, key);
    }
}
