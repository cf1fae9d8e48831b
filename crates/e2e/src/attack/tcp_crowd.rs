//! Thousands of hostile TCP connections from many addresses, on one thread.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use socket2::{Domain, Socket, Type};

use super::crowd::source_address;
use super::peer::PeerState;
use super::tcp_peer::{TcpPeer, TcpWork};

/// The receive buffer of a connection in bytes: small, so that the data of a slow reader stays in the server.
const BUFFER: usize = 8 * 1024;

/// Hostile TCP connections to one server.
#[derive(Debug)]
pub struct TcpCrowd {
    server: SocketAddr,
    sources: usize,
    epoll: OwnedFd,
    peers: Vec<TcpPeer>,
    /// Slow peers, by the time of their next byte.
    slow: BTreeSet<(Instant, usize)>,
}

impl TcpCrowd {
    /// Creates a crowd without connections that come from this number of addresses.
    ///
    /// # Errors
    ///
    /// Fails if the system refuses an epoll set.
    pub fn new(server: SocketAddr, sources: usize) -> Result<Self> {
        Ok(Self {
            server,
            sources: sources.max(1),
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            peers: Vec::new(),
            slow: BTreeSet::new(),
        })
    }

    /// Begins one more connection, from the next source address, and returns its number.
    ///
    /// # Errors
    ///
    /// Fails if the system refuses the socket.
    pub fn connect(&mut self, work: TcpWork) -> Result<usize> {
        let number = self.peers.len();
        let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking().cloexec(), None)?;
        socket.set_recv_buffer_size(BUFFER)?;
        socket.set_tcp_nodelay(true)?;
        let source = source_address(number % self.sources);
        socket
            .bind(&SocketAddr::from((source, 0)).into())
            .with_context(|| format!("binding {source}"))?;
        match socket.connect(&self.server.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error).context("connecting"),
        }
        let stream = TcpStream::from(socket);
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(
            &self.epoll,
            &stream,
            EventData::new_u64(number as u64),
            flags,
        )?;
        self.peers.push(TcpPeer::new(stream, work));
        Ok(number)
    }

    /// Returns all connections in the order in which they began, including lost ones.
    pub fn peers(&self) -> &[TcpPeer] {
        &self.peers
    }

    /// Returns a connection by its number.
    pub fn peer(&mut self, number: usize) -> &mut TcpPeer {
        &mut self.peers[number]
    }

    /// Returns the number of connections that are not lost.
    pub fn open(&self) -> usize {
        self.peers
            .iter()
            .filter(|peer| peer.stream.is_some())
            .count()
    }

    /// Returns the number of established connections.
    pub fn connected(&self) -> usize {
        let connected = |peer: &&TcpPeer| *peer.state() == PeerState::Connected;
        self.peers.iter().filter(connected).count()
    }

    /// Returns the reasons for which connections were lost, with the number of connections for each.
    pub fn losses(&self) -> BTreeMap<&str, usize> {
        let mut losses = BTreeMap::new();
        for peer in &self.peers {
            if let PeerState::Lost(reason) = peer.state() {
                *losses.entry(reason.as_str()).or_default() += 1;
            }
        }
        losses
    }

    /// Returns the bytes sent and received on all connections.
    pub fn bytes(&self) -> [u64; 2] {
        self.peers.iter().fold([0; 2], |sum, peer| {
            let [sent, received] = peer.bytes();
            [sum[0] + sent, sum[1] + received]
        })
    }

    /// Lets slow peers send, then waits at most `timeout` for sockets, and serves them.
    ///
    /// # Errors
    ///
    /// Fails if polling fails or a TLS library refuses a record.
    pub fn turn(&mut self, timeout: Duration) -> Result<()> {
        let now = Instant::now();
        while let Some(&(at, number)) = self.slow.first() {
            if at > now {
                break;
            }
            self.slow.pop_first();
            self.peers[number].drip(now);
            self.note_slow(number);
        }
        let mut events = Vec::with_capacity(256);
        let wait = Timespec::try_from(timeout)?;
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&wait)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        for event in events {
            self.serve(usize::try_from(event.data.u64())?)?;
        }
        Ok(())
    }

    /// Reads and writes the socket of a connection.
    ///
    /// # Errors
    ///
    /// Fails if the TLS library refuses a record.
    pub fn serve(&mut self, number: usize) -> Result<()> {
        self.peers[number].serve(Instant::now())?;
        self.note_slow(number);
        Ok(())
    }

    fn note_slow(&mut self, number: usize) {
        if let Some(at) = self.peers[number].next_byte {
            self.slow.insert((at, number));
        }
    }
}
