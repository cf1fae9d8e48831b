//! A middlebox between client and server that stops passing the packets of a connection, as some real ones do after a
//! while, or all UDP packets, as some networks do.
//!
//! The middlebox passes datagrams each way. The programs' connection ids have 8 bytes and follow the first byte of a
//! short header (RFC 9000 section 17.3). The middlebox uses them to distinguish a connection from the next one between
//! the same two sockets.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quictun_io::udp_port::any_address;
use rustix::net::sockopt::set_socket_recv_buffer_size;

/// Receive buffer of each socket, in bytes. It holds bursts of both programs; the system may grant less.
const BUFFER: usize = 4 << 20;

/// The bit of the first byte that marks a long header, which handshakes use.
const LONG_HEADER: u8 = 0x80;

type ConnectionId = [u8; 8];

pub(super) struct Middlebox {
    front: SocketAddr,
    directions: Arc<[DirectionFilter; 2]>,
}

/// Sizes of packets that belong to no handshake: their number of bytes says whether a connection carries data.
const LARGE: usize = 1000;

/// State for the packets of one direction.
#[derive(Default)]
struct DirectionFilter {
    ids: Mutex<ConnectionIds>,
    dropped: AtomicU64,
    /// True if no packet passes.
    blocked: AtomicBool,
    /// Bytes in large packets with a short header that have passed.
    carried: AtomicU64,
}

#[derive(Default)]
struct ConnectionIds {
    seen: BTreeSet<ConnectionId>,
    banned: BTreeSet<ConnectionId>,
}

impl Middlebox {
    /// Starts to pass datagrams between one client and `server`, until the process ends.
    pub(super) fn start(server: SocketAddr) -> io::Result<Self> {
        let front = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let back = UdpSocket::bind(any_address(server.is_ipv6()))?;
        back.connect(server)?;
        for socket in [&front, &back] {
            set_socket_recv_buffer_size(socket, BUFFER)?;
        }
        let address = front.local_addr()?;
        let directions = Arc::<[DirectionFilter; 2]>::default();
        let client = Arc::<Mutex<Option<SocketAddr>>>::default();
        let (to_server, known) = (directions.clone(), client.clone());
        let (from_client, towards_server) = (front.try_clone()?, back.try_clone()?);
        std::thread::spawn(move || {
            let receive = |datagram: &mut [u8]| {
                let (length, from) = from_client.recv_from(datagram)?;
                *lock(&known) = Some(from);
                Ok(length)
            };
            pass(&to_server[0], receive, |datagram| {
                towards_server.send(datagram)
            });
        });
        let to_client = directions.clone();
        std::thread::spawn(move || {
            let send = |datagram: &[u8]| match *lock(&client) {
                Some(client) => front.send_to(datagram, client),
                None => Ok(0),
            };
            pass(&to_client[1], |datagram| back.recv(datagram), send);
        });
        Ok(Self {
            front: address,
            directions,
        })
    }

    /// Returns the address to which the client sends.
    pub(super) fn address(&self) -> SocketAddr {
        self.front
    }

    /// Drops from now on the packets of all connections that it has seen. Packets of new connections pass.
    pub(super) fn cut(&self) {
        for direction in &*self.directions {
            let mut ids = lock(&direction.ids);
            let ConnectionIds { seen, banned } = &mut *ids;
            banned.append(seen);
        }
    }

    /// Drops all packets from now on, or passes them again.
    pub(super) fn block(&self, blocked: bool) {
        for direction in &*self.directions {
            direction.blocked.store(blocked, Ordering::Relaxed);
        }
    }

    /// Returns the number of bytes that connections have carried in both directions.
    pub(super) fn carried(&self) -> u64 {
        let each = self.directions.iter();
        each.map(|direction| direction.carried.load(Ordering::Relaxed))
            .sum()
    }

    /// Returns the number of dropped packets in each direction.
    pub(super) fn dropped(&self) -> [u64; 2] {
        [&self.directions[0], &self.directions[1]]
            .map(|direction| direction.dropped.load(Ordering::Relaxed))
    }
}

impl DirectionFilter {
    fn passes(&self, datagram: &[u8]) -> bool {
        if self.blocked.load(Ordering::Relaxed) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let Some(id) = connection_id(datagram) else {
            return true;
        };
        let mut ids = lock(&self.ids);
        if ids.banned.contains(&id) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        ids.seen.insert(id);
        if datagram.len() >= LARGE {
            let bytes = u64::try_from(datagram.len()).unwrap_or(u64::MAX);
            self.carried.fetch_add(bytes, Ordering::Relaxed);
        }
        true
    }
}

/// Returns the connection id of a short header, or `None` if the datagram has none.
fn connection_id(datagram: &[u8]) -> Option<ConnectionId> {
    let (first, rest) = datagram.split_first()?;
    (first & LONG_HEADER == 0)
        .then(|| rest.first_chunk().copied())
        .flatten()
}

fn pass(
    direction: &DirectionFilter,
    receive: impl Fn(&mut [u8]) -> io::Result<usize>,
    send: impl Fn(&[u8]) -> io::Result<usize>,
) {
    let mut datagram = vec![0; 1 << 16];
    loop {
        match receive(&mut datagram) {
            Ok(length) if direction.passes(&datagram[..length]) => {
                if send(&datagram[..length]).is_err() {
                    // A datagram that cannot be sent is lost, as on any path. QUIC retransmits its content.
                }
            }
            Ok(_) => {}
            // An ICMP message says that the other side does not listen yet, or has ended.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(_) => return,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_passes_while_all_is_blocked() {
        let directions = Arc::<[DirectionFilter; 2]>::default();
        let middlebox = Middlebox {
            front: (Ipv4Addr::LOCALHOST, 1).into(),
            directions: directions.clone(),
        };
        let packet = [0x40; LARGE];
        assert!(directions[0].passes(&packet));
        middlebox.block(true);
        assert!(!directions[0].passes(&packet) && !directions[1].passes(&[0xc0; LARGE]));
        middlebox.block(false);
        assert!(directions[1].passes(&packet) && directions[1].passes(&packet[1..]));
        assert_eq!(middlebox.dropped(), [1, 1]);
        assert_eq!(middlebox.carried(), 2 * LARGE as u64);
    }

    #[test]
    fn a_cut_drops_the_connections_before_it_and_passes_the_next() {
        let direction = DirectionFilter::default();
        let short = |id: u8| [&[0x40][..], &[id; 8], b"sealed"].concat();
        let long = [&[0xc0, 0, 0, 0, 1, 8][..], &[1; 8]].concat();
        assert!(direction.passes(&short(1)));
        let middlebox = Middlebox {
            front: (Ipv4Addr::LOCALHOST, 1).into(),
            directions: Arc::new([direction, DirectionFilter::default()]),
        };
        middlebox.cut();
        let direction = &middlebox.directions[0];
        assert!(!direction.passes(&short(1)));
        assert!(direction.passes(&long), "a handshake packet passes");
        assert!(direction.passes(&short(2)));
        assert!(
            direction.passes(&[0x40, 1]),
            "a header without an id passes"
        );
        assert_eq!(middlebox.dropped(), [1, 0]);
    }
}
