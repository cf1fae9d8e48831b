//! A relay of datagrams in front of clients. It acts as a NAT and a middlebox, and drops packets on demand.
//!
//! Call [`Relay::start`] on the clients' side, let clients dial [`Relay::address`], then call [`Relay::lose`] during a
//! load.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

/// The fault that hits the connections through the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RelayFault {
    /// Drops packets with a connection id seen so far, in both directions, until the end.
    Connection,
    /// Drops packets from and to the clients' current ports, in both directions, until the end.
    Path,
    /// Forgets the NAT mappings: clients' packets leave from another port, and packets to the old one are dropped.
    Nat,
    /// Drops all packets for a time.
    Outage,
}

/// The maximum interval at which the relay checks for orders.
const TURN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};

/// The largest datagram, in bytes.
const DATAGRAM: usize = 65536;

/// The number of datagrams taken from one socket before the others have their turn.
const BATCH: usize = 64;

/// The number of ready sockets handled in one turn. Idle sockets of ports that clients have left cost nothing.
const READY: usize = 256;

/// The id of the clients' socket among ready sockets; other sockets have the index of their mapping.
const INSIDE: u64 = u64::MAX;

/// The first bytes of a connection id, enough to distinguish it from others.
type IdPrefix = [u8; 8];

/// A running relay. It ends when this value is dropped.
#[derive(Debug)]
pub struct Relay {
    /// The address to which clients send.
    pub address: SocketAddr,
    orders: Sender<RelayCommand>,
}

struct RelayCommand {
    fault: RelayFault,
    time: Duration,
    begun: Sender<()>,
}

/// The socket from which a client's packets leave. A dead mapping drops packets in both directions.
struct Mapping {
    client: SocketAddr,
    outside: UdpSocket,
    is_dead: bool,
}

struct Worker {
    epoll: OwnedFd,
    inside: UdpSocket,
    server: SocketAddr,
    mappings: Vec<Mapping>,
    /// The current mapping of each client's address.
    present: HashMap<SocketAddr, usize>,
    /// Connection ids seen so far, and those whose packets are dropped.
    seen: HashSet<IdPrefix>,
    lost: HashSet<IdPrefix>,
    silent_until: Option<Instant>,
    datagram: Vec<u8>,
}

impl Relay {
    /// Relays between 127.0.0.1 in the network of the calling thread and `server`.
    ///
    /// # Errors
    ///
    /// Fails if a socket cannot be created.
    pub fn start(server: SocketAddr) -> Result<Self> {
        let inside = socket((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = inside.local_addr()?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &inside, EventData::new_u64(INSIDE), EventFlags::IN)?;
        let worker = Worker {
            epoll,
            inside,
            server,
            mappings: Vec::new(),
            present: HashMap::new(),
            seen: HashSet::new(),
            lost: HashSet::new(),
            silent_until: None,
            datagram: vec![0; DATAGRAM],
        };
        let (orders, taken) = channel();
        std::thread::spawn(move || worker.run(&taken));
        Ok(Self { address, orders })
    }

    /// Applies `fault` to all connections; `time` is the duration of an outage. Returns the moment from which data may
    /// flow again: at once, or after the outage.
    ///
    /// # Errors
    ///
    /// Fails if the relay has ended.
    pub fn lose(&self, fault: RelayFault, time: Duration) -> Result<Instant> {
        let (begun, answer) = channel();
        self.orders
            .send(RelayCommand { fault, time, begun })
            .ok()
            .context("the relay has ended")?;
        answer.recv().context("the relay has ended")?;
        if fault == RelayFault::Outage {
            super::measured::pause(time);
        }
        Ok(Instant::now())
    }
}

impl Worker {
    /// Runs until the relay is dropped or a socket fails.
    fn run(mut self, orders: &Receiver<RelayCommand>) {
        loop {
            match orders.try_recv() {
                Ok(order) => self.obey(&order),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return,
            }
            if self.turn().is_err() {
                return;
            }
        }
    }

    fn obey(&mut self, order: &RelayCommand) {
        match order.fault {
            RelayFault::Connection => self.lost.extend(self.seen.drain()),
            RelayFault::Path => self.mappings.iter_mut().for_each(|one| one.is_dead = true),
            RelayFault::Nat => {
                // Without a current mapping, the next packet creates one.
                self.present.clear();
                self.mappings.iter_mut().for_each(|one| one.is_dead = true);
            }
            RelayFault::Outage => self.silent_until = Some(Instant::now() + order.time),
        }
        // The load may have ended meanwhile.
        order.begun.send(()).ok();
    }

    fn turn(&mut self) -> io::Result<()> {
        let mut ready = Vec::with_capacity(READY);
        match epoll::wait(&self.epoll, spare_capacity(&mut ready), Some(&TURN)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if self.silent_until.is_some_and(|end| end <= Instant::now()) {
            self.silent_until = None;
        }
        for event in ready {
            match event.data.u64() {
                INSIDE => self.outwards()?,
                mapping => self.inwards(usize::try_from(mapping).map_err(io::Error::other)?),
            }
        }
        Ok(())
    }

    /// Relays packets from clients.
    fn outwards(&mut self) -> io::Result<()> {
        for _ in 0..BATCH {
            let (length, client) = match self.inside.recv_from(&mut self.datagram) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // An ICMP error: a client's port is closed.
                Err(_) => continue,
            };
            let at = match self.present.get(&client) {
                Some(at) => *at,
                None => self.map(client)?,
            };
            if !self.mappings[at].is_dead && self.passes(length) {
                // If the kernel refuses the packet, it counts as lost.
                drop(self.mappings[at].outside.send(&self.datagram[..length]));
            }
        }
        Ok(())
    }

    /// Relays packets from the server to one mapping.
    fn inwards(&mut self, at: usize) {
        for _ in 0..BATCH {
            let length = match self.mappings[at].outside.recv(&mut self.datagram) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => continue,
            };
            if !self.mappings[at].is_dead && self.passes(length) {
                let client = self.mappings[at].client;
                drop(self.inside.send_to(&self.datagram[..length], client));
            }
        }
    }

    fn map(&mut self, client: SocketAddr) -> io::Result<usize> {
        let any = match self.server {
            SocketAddr::V4(_) => "0.0.0.0:0",
            SocketAddr::V6(_) => "[::]:0",
        };
        let outside = socket(any.parse().map_err(io::Error::other)?)?;
        outside.connect(self.server)?;
        let at = self.mappings.len();
        let data = EventData::new_u64(at as u64);
        epoll::add(&self.epoll, &outside, data, EventFlags::IN)?;
        self.mappings.push(Mapping {
            client,
            outside,
            is_dead: false,
        });
        self.present.insert(client, at);
        Ok(at)
    }

    /// Returns true if the datagram is not dropped, and remembers its connection id.
    fn passes(&mut self, length: usize) -> bool {
        if self.silent_until.is_some() {
            return false;
        }
        // Packets with a long header belong to handshakes, which are never cut: a new connection must be able to start.
        let packet = &self.datagram[..length];
        let is_short = packet.first().is_some_and(|first| first & 0x80 == 0);
        let id = packet.get(1..9).and_then(|id| IdPrefix::try_from(id).ok());
        let (true, Some(id)) = (is_short, id) else {
            return true;
        };
        if self.lost.contains(&id) {
            return false;
        }
        self.seen.insert(id);
        true
    }
}

/// Creates a non-blocking socket with buffers for datagrams that arrive while the relay is busy.
fn socket(address: SocketAddr) -> io::Result<UdpSocket> {
    const BUFFER: usize = 4 << 20;
    let socket = UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    let options = socket2::SockRef::from(&socket);
    options.set_recv_buffer_size(BUFFER)?;
    options.set_send_buffer_size(BUFFER)?;
    Ok(socket)
}
