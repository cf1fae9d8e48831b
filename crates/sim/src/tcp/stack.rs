//! The TCP of a host with an engine: the connections that carriers use.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use quictun_engine::{AcceptedTcp, ConnectionId};

use super::stream::{ByteStream, StreamState, reset};
use super::tampering::Tampering;
use super::{SegmentKind, TcpSegment};
use crate::addresses::PORT;
use crate::packet::{OutgoingPacket, PacketBody};
use crate::socket::{self, ActivityQueues, AppEnd, MemSocket, PendingReadiness};

/// Bytes that a socket buffers in each direction, beside those in flight: the tunnel's limit of unsent bytes.
const BUFFER: usize = 512 * 1024;

/// The connections of a host. Both ends of a connection have the number that its client has given it.
#[derive(Debug, Default)]
pub(crate) struct TcpStack {
    pub(crate) listens: bool,
    pub(crate) tampering: Tampering,
    /// Client: the TCP port of servers, if it is another one than their UDP port.
    pub(crate) server_port: Option<u16>,
    streams: BTreeMap<(SocketAddr, u32), OwnStream>,
    activity: Rc<RefCell<ActivityQueues>>,
    /// The system's end of each socket, and its connection in the engine.
    sockets: Vec<(AppEnd, Option<ConnectionId>)>,
    dialled: u32,
    news: VecDeque<TcpNews>,
    resets: Vec<OutgoingPacket>,
}

#[derive(Debug)]
struct OwnStream {
    stream: ByteStream,
    index: usize,
    /// The engine's end, until the handshake is over.
    socket: Option<MemSocket>,
    /// True if a middlebox drops all segments of the connection.
    silent: bool,
}

/// News of a TCP connection, for the engine of its host.
#[derive(Debug)]
pub(crate) enum TcpNews {
    Dialled(ConnectionId, io::Result<MemSocket>),
    /// A connection, with the number of its socket.
    Accepted(usize, AcceptedTcp<MemSocket>),
}

impl TcpStack {
    /// Client: dials for the engine.
    pub(crate) fn dial(&mut self, now: Instant, connection: ConnectionId, mut to: SocketAddr) {
        self.dialled += 1;
        if let Some(port) = self.server_port {
            if to.port() != port {
                let refused = Err(io::ErrorKind::ConnectionRefused.into());
                self.news.push_back(TcpNews::Dialled(connection, refused));
                return;
            }
            // The network knows hosts by one port.
            to.set_port(PORT);
        }
        self.add(now, (to, self.dialled), Some(connection));
    }

    fn add(&mut self, now: Instant, at: (SocketAddr, u32), connection: Option<ConnectionId>) {
        let index = self.sockets.len();
        let (socket, app) = socket::pair(index, &self.activity, BUFFER, usize::MAX);
        let tampering = Tampering {
            cut: self.tampering.cut.take(),
            ..self.tampering
        };
        let stream = ByteStream::new(now, at.1, app.clone(), connection.is_some(), tampering);
        self.sockets.push((app, connection));
        let own = OwnStream {
            stream,
            index,
            socket: Some(socket),
            silent: false,
        };
        self.streams.insert(at, own);
    }

    /// Server: sets the engine's connection of an accepted socket.
    pub(crate) fn set_connection(&mut self, index: usize, connection: ConnectionId) {
        self.sockets[index].1 = Some(connection);
    }

    pub(crate) fn handle_segment(
        &mut self,
        now: Instant,
        from: SocketAddr,
        segment: TcpSegment,
        bytes: Bytes,
    ) {
        let at = (from, segment.connection);
        if segment.kind == SegmentKind::Syn && self.listens && !self.streams.contains_key(&at) {
            self.add(now, at, None);
        }
        match self.streams.get_mut(&at) {
            Some(own) if own.silent => {}
            Some(own) => own.stream.handle_segment(now, segment.kind, bytes),
            None if segment.kind == SegmentKind::Reset => {}
            None => {
                let packet = packet(from, reset(segment.connection), Bytes::new());
                self.resets.push(packet);
            }
        }
    }

    /// Resets every connection at this end and at the other one, as a middlebox does.
    pub(crate) fn cut(&mut self) {
        for (&(to, connection), own) in &mut self.streams {
            own.stream.fail();
            self.resets
                .push(packet(to, reset(connection), Bytes::new()));
        }
    }

    /// Makes a middlebox drop all further segments of the present connections.
    pub(crate) fn silence(&mut self) {
        for own in self.streams.values_mut() {
            own.silent = true;
        }
    }

    /// Forgets what the process knew. Its sockets are closed with it.
    pub(crate) fn restart(&mut self) {
        self.news.clear();
        for (_, connection) in &mut self.sockets {
            *connection = None;
        }
        for own in self.streams.values_mut() {
            own.socket = None;
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let streams = self.streams.values();
        streams.filter_map(|own| own.stream.next_timeout()).min()
    }

    /// Does the work that is due. Returns whether there was any.
    pub(crate) fn run(&mut self, now: Instant, out: &mut Vec<OutgoingPacket>) -> bool {
        let before = (out.len(), self.news.len());
        out.append(&mut self.resets);
        for index in self.activity.borrow_mut().for_apps.drain(..) {
            self.sockets[index].0.clear_notified();
        }
        let (sockets, news) = (&self.sockets, &mut self.news);
        self.streams.retain(|&(to, number), own| {
            let OwnStream { stream, silent, .. } = own;
            stream.run(now, |segment, bytes| {
                if !*silent {
                    out.push(packet(to, segment, bytes));
                }
            });
            if stream.state != StreamState::Opening
                && let Some(socket) = own.socket.take()
            {
                let failed = stream.state == StreamState::Over;
                if let Some(connection) = sockets[own.index].1 {
                    let refused = io::ErrorKind::ConnectionRefused;
                    let result = if failed {
                        Err(refused.into())
                    } else {
                        Ok(socket)
                    };
                    news.push_back(TcpNews::Dialled(connection, result));
                } else {
                    let accepted = AcceptedTcp {
                        remote: SocketAddr::new(to.ip(), client_port(number)),
                        socket,
                        received: BytesMut::new(),
                    };
                    news.push_back(TcpNews::Accepted(own.index, accepted));
                }
            }
            stream.state != StreamState::Over
        });
        before != (out.len(), self.news.len())
    }

    /// Returns whether a socket has changed that [`TcpStack::run`] or the engine has not looked at.
    pub(crate) fn is_active(&self) -> bool {
        let activity = self.activity.borrow();
        !activity.for_apps.is_empty() || !activity.for_engine.is_empty()
    }

    pub(crate) fn poll_news(&mut self) -> Option<TcpNews> {
        self.news.pop_front()
    }

    /// Returns the next connection whose socket may be ready.
    pub(crate) fn poll_ready(&mut self) -> Option<(ConnectionId, PendingReadiness)> {
        loop {
            let index = self.activity.borrow_mut().for_engine.pop_front()?;
            let (app, connection) = &self.sockets[index];
            let readiness = app.take_readiness();
            if let Some(connection) = connection {
                return Some((*connection, readiness));
            }
        }
    }
}

/// Returns the port from which a client has dialled connection number `number`.
fn client_port(number: u32) -> u16 {
    const FIRST: u16 = 10_000;
    FIRST + u16::try_from(number % 50_000).unwrap_or(0)
}

fn packet(to: SocketAddr, segment: TcpSegment, bytes: Bytes) -> OutgoingPacket {
    OutgoingPacket {
        to,
        ecn: 0,
        body: PacketBody::Stream { segment, bytes },
    }
}
