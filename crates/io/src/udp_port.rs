//! A worker's UDP socket: it receives batches with GRO and `recvmmsg`, and sends batches with GSO.
//!
//! [`bind`] a socket, make it a [`UdpPort`], and [`send`](UdpPort::send) the engine's datagrams. When the socket is
//! readable, call [`receive`](UdpPort::receive) until it returns false.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;
use quictun_engine::{Datagrams, LocalAddress, PathMtu, asks_for_bond, worker_of};
use quictun_sys::{BufferPool, BufferSide, set_mark, set_udp_gro, socket_buffer_force};
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::io::Errno;
use rustix::net::sockopt;
use socket2::{Domain, Protocol, Socket, Type};

/// State and counters of a worker's UDP socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpSocketReport {
    /// Size of the receive buffer that the system granted, in bytes.
    pub recv_buffer: usize,
    /// Size of the send buffer that the system granted, in bytes.
    pub send_buffer: usize,
    /// True if segmentation offload (GSO) is in use for sending.
    pub gso: bool,
    /// True if receive offload (GRO) is in use.
    pub gro: bool,
    /// Batches sent again in single datagrams because the kernel refused segmentation.
    pub gso_fallbacks: u64,
    /// Send calls that failed for other reasons.
    pub send_errors: u64,
    /// Datagrams that the kernel dropped because the receive buffer was full.
    pub receive_drops: u64,
}

/// Buffers for one `recvmmsg`: the most that the library takes.
const SLOTS: usize = quinn_udp::BATCH_SIZE;

/// Buffers offered while they are filled. With GRO each holds up to 64 datagrams, and more buffers would only fall out
/// of the cache.
const SLOTS_FULL: usize = 8;

/// Size of one GRO batch: the largest UDP payload.
const SLOT_SIZE: usize = 65_536;

/// Number of lent buffers that the pool waits to get back, 1 MiB in total.
const POOLED: usize = 16;

/// Shorter batches are copied out of their slot, so that a small datagram does not keep 64 KiB in memory.
const COPY_BELOW: usize = 8 * 1024;

/// Length of the IP and UDP headers, in bytes.
const OVERHEAD_V4: u32 = 28;
const OVERHEAD_V6: u32 = 48;

/// UDP payload assumed if the system does not report the MTU: Ethernet, IPv6.
const PAYLOAD_DEFAULT: u16 = 1452;

/// Largest payload of one datagram. QUIC's own limit is larger than what IPv4 carries.
const PAYLOAD_MAX: u16 = 65_507;

/// The outcome of sending a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// The batch was sent, or lost as packets may be.
    Done,
    /// The socket's buffer is full. Try again when it is writable.
    Full,
    /// The batch was sent in single datagrams, because the system or the device does not segment. Make no more batches.
    Unsegmented,
}

/// A datagram that the socket has received.
#[derive(Debug)]
pub struct ReceivedDatagram {
    /// The address of the sender.
    pub remote: SocketAddr,
    /// The address that the datagram was sent to, if known.
    pub local_ip: Option<IpAddr>,
    /// The two ECN bits.
    pub ecn: Option<u8>,
    /// The payload of the datagram.
    pub data: BytesMut,
}

/// One worker's UDP socket.
#[derive(Debug)]
pub struct UdpPort {
    socket: UdpSocket,
    state: UdpSocketState,
    slots: Vec<BytesMut>,
    pool: BufferPool,
    metas: [RecvMeta; SLOTS],
    /// Number of buffers offered to the next call.
    offered: usize,
    dual_stack: bool,
    pub(crate) report: UdpSocketReport,
}

/// Returns the address for a socket that sends to addresses of this family: the unspecified one, with a port of the
/// system's choice.
pub fn any_address(v6: bool) -> SocketAddr {
    if v6 {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    }
}

/// Binds a UDP socket. With `shared`, several sockets may be bound to the same address (`SO_REUSEPORT`).
pub fn bind(address: SocketAddr, shared: bool) -> io::Result<UdpSocket> {
    let any_v6 = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let socket = match Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    ) {
        // On a kernel without IPv6, "all addresses" means the IPv4 addresses.
        Err(error) if any_v6 && error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error()) => {
            return bind((Ipv4Addr::UNSPECIFIED, address.port()).into(), shared);
        }
        socket => socket?,
    };
    if any_v6 {
        socket.set_only_v6(false)?;
    }
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Forbids the system and all hosts on the path to fragment the datagrams of this socket.
pub fn never_fragment(socket: &UdpSocket) -> io::Result<()> {
    UdpSocketState::new(UdpSockRef::from(socket))?;
    // The library makes sockets for loops that do not block.
    socket.set_nonblocking(false)
}

impl UdpPort {
    /// Takes a bound socket, and asks for buffers of `buffer` bytes. The system may grant less: see
    /// [`UdpPort::report`].
    pub fn new(socket: UdpSocket, buffer: usize, gso: bool) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        let recv_buffer = socket_buffer_force(&socket, BufferSide::Receive, buffer)?;
        let send_buffer = socket_buffer_force(&socket, BufferSide::Send, buffer)?;
        let report = UdpSocketReport {
            recv_buffer,
            send_buffer,
            gso: gso && state.max_gso_segments() > 1,
            gro: state.gro_segments() > 1,
            ..UdpSocketReport::default()
        };
        Ok(Self {
            slots: (0..SLOTS).map(|_| BytesMut::zeroed(SLOT_SIZE)).collect(),
            pool: BufferPool::new(SLOT_SIZE, POOLED),
            metas: [RecvMeta::default(); SLOTS],
            offered: SLOTS,
            dual_stack: socket.local_addr()?.is_ipv6(),
            socket,
            state,
            report,
        })
    }

    /// Turns receive offload on or off: with it, the kernel merges datagrams if it can.
    pub fn set_receive_offload(&mut self, on: bool) -> io::Result<()> {
        set_udp_gro(&self.socket, on)?;
        self.report.gro = on;
        Ok(())
    }

    /// Returns whether batches of several datagrams may be sent.
    pub fn segments(&self) -> bool {
        self.report.gso
    }

    /// Sends one batch of datagrams.
    pub fn send(&mut self, datagrams: &Datagrams, bytes: &[u8]) -> SendOutcome {
        match self.try_send(datagrams, datagrams.segment_size, bytes) {
            Ok(()) => SendOutcome::Done,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => SendOutcome::Full,
            Err(_) if datagrams.count() > 1 => {
                let segment = datagrams.segment_size.unwrap_or(bytes.len()).max(1);
                let singles = bytes.chunks(segment);
                let sent: Vec<bool> = singles
                    .map(|datagram| self.try_send(datagrams, None, datagram).is_ok())
                    .collect();
                self.report.send_errors += sent.iter().map(|sent| u64::from(!sent)).sum::<u64>();
                if sent.first() != Some(&true) {
                    // A full-size datagram cannot be sent alone either: the route is gone for the moment, or the
                    // path's MTU is smaller. Segmentation is not at fault.
                    return SendOutcome::Done;
                }
                // EIO, EINVAL and other errors come from drivers that claim to segment. No more batches are made
                // (quinn-udp counts what the system refused).
                self.report.gso = false;
                self.report.gso_fallbacks += 1;
                SendOutcome::Unsegmented
            }
            Err(_) => {
                // The datagram counts as lost: it may be a probe larger than the path's MTU, or the route may be gone
                // for the moment.
                self.report.send_errors += 1;
                SendOutcome::Done
            }
        }
    }

    fn try_send(
        &self,
        datagrams: &Datagrams,
        segment_size: Option<usize>,
        contents: &[u8],
    ) -> io::Result<()> {
        let transmit = Transmit {
            destination: self.in_family(datagrams.destination),
            ecn: datagrams.ecn.and_then(EcnCodepoint::from_bits),
            contents,
            segment_size,
            src_ip: datagrams.source,
        };
        self.state
            .try_send(UdpSockRef::from(&self.socket), &transmit)
    }

    fn in_family(&self, destination: SocketAddr) -> SocketAddr {
        match destination {
            SocketAddr::V4(v4) if self.dual_stack => {
                SocketAddr::new(IpAddr::V6(v4.ip().to_ipv6_mapped()), v4.port())
            }
            _ => destination,
        }
    }

    /// Receives the available datagrams, at most one round of buffers. Returns false if nothing is left.
    pub fn receive(&mut self, sink: &mut impl FnMut(ReceivedDatagram)) -> io::Result<bool> {
        let mut buffers = self.slots.iter_mut().map(|slot| IoSliceMut::new(slot));
        let mut buffers: [IoSliceMut<'_>; SLOTS] =
            std::array::from_fn(|_| buffers.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
        let socket = UdpSockRef::from(&self.socket);
        let offered = &mut buffers[..self.offered];
        let room = offered.len();
        let count = match self.state.recv(socket, offered, &mut self.metas) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        let mut metas = self.metas[..count].iter();
        let full = metas.any(|meta| meta.len >= COPY_BELOW);
        self.offered = if full { SLOTS_FULL } else { SLOTS };
        for (slot, meta) in self.slots.iter_mut().zip(&self.metas).take(count) {
            let mut data = if meta.len < COPY_BELOW {
                BytesMut::from(&slot[..meta.len])
            } else {
                let full = std::mem::replace(slot, self.pool.take());
                self.pool.lend(full, meta.len)
            };
            let stride = meta.stride.max(1);
            while !data.is_empty() {
                let datagram = data.split_to(stride.min(data.len()));
                sink(ReceivedDatagram {
                    remote: canonical(meta.addr),
                    local_ip: meta.dst_ip.map(|ip| ip.to_canonical()),
                    ecn: meta.ecn.map(|ecn| ecn as u8),
                    data: datagram,
                });
            }
        }
        Ok(count == room)
    }

    /// Changes the local port, if the system chose the present one. This helps when the path drops all packets from
    /// that port.
    ///
    /// The system chooses a port again when a socket without one sends. Datagrams in flight to the old port are lost.
    pub fn renew(&self) -> io::Result<()> {
        Ok(rustix::net::connect_unspec(&self.socket)?)
    }

    /// Returns the state of the socket and its counters.
    pub fn report(&self) -> UdpSocketReport {
        let mut report = self.report;
        report.receive_drops = quictun_sys::socket_drops(&self.socket).map_or(0, u64::from);
        report
    }
}

impl AsFd for UdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns the worker to which a datagram belongs, if that is another one of `workers`.
pub fn other_worker(data: &[u8], me: usize, workers: usize) -> Option<usize> {
    let mut named = usize::from(worker_of(data)?);
    if asks_for_bond(data) {
        // The bond may come from a server with more workers, which this one has taken over.
        named %= workers.max(1);
    }
    (workers > 1 && named != me && named < workers).then_some(named)
}

/// Returns a function that asks the kernel for the MTU of the route to an address, which path MTU discovery aims for.
/// Payloads have at most `most` bytes.
pub fn path_mtu(most: Option<u16>) -> PathMtu {
    Arc::new(move |remote| {
        // Without a probe, discovery aims for `PAYLOAD_DEFAULT`.
        let probe = UdpSocket::bind(any_address(remote.is_ipv6())).ok();
        payload(probe.as_ref(), remote, most)
    })
}

/// Like [`path_mtu`], for sockets with a mark, which may take another route. The probes are made now, because a
/// confined process may not set marks later.
pub fn marked_path_mtu(most: Option<u16>, mark: u32) -> io::Result<PathMtu> {
    let probes = RouteProbes::open(Some(mark))?;
    Ok(Arc::new(move |remote| {
        probes.ask(remote, |probe| payload(probe, remote, most))
    }))
}

/// Returns a function that asks the kernel for the local address of the route to an address. The sockets have the mark,
/// if there is one.
pub fn local_address(mark: Option<u32>) -> io::Result<LocalAddress> {
    let probes = RouteProbes::open(mark)?;
    Ok(Arc::new(move |remote| {
        let local = |probe: &UdpSocket| {
            probe.connect(remote).ok()?;
            Some(probe.local_addr().ok()?.ip())
        };
        probes.ask(remote, |probe| probe.and_then(local))
    }))
}

/// Sockets that are connected to addresses in turn, to ask the kernel about their routes. Connecting sends nothing.
struct RouteProbes([Mutex<Option<UdpSocket>>; 2]);

impl RouteProbes {
    fn open(mark: Option<u32>) -> io::Result<Self> {
        let open = |v6| {
            // A host may have only one address family.
            let probe = UdpSocket::bind(any_address(v6)).ok();
            if let (Some(probe), Some(mark)) = (&probe, mark) {
                set_mark(probe, mark)?;
            }
            io::Result::Ok(Mutex::new(probe))
        };
        Ok(Self([open(false)?, open(true)?]))
    }

    /// Asks with the socket of the family of `remote`, if the host has that family. Workers ask one after the other,
    /// because each connects the socket.
    fn ask<T>(&self, remote: SocketAddr, ask: impl FnOnce(Option<&UdpSocket>) -> T) -> T {
        let probe = &self.0[usize::from(remote.is_ipv6())];
        let probe = probe.lock().unwrap_or_else(PoisonError::into_inner);
        ask(probe.as_ref())
    }
}

fn payload(probe: Option<&UdpSocket>, remote: SocketAddr, most: Option<u16>) -> u16 {
    let found = probe.and_then(|probe| route_payload(probe, remote));
    found
        .unwrap_or(PAYLOAD_DEFAULT)
        .min(most.unwrap_or(PAYLOAD_MAX))
}

fn route_payload(probe: &UdpSocket, remote: SocketAddr) -> Option<u16> {
    probe.connect(remote).ok()?;
    let payload = if remote.is_ipv4() {
        sockopt::ip_mtu(probe).ok()?.saturating_sub(OVERHEAD_V4)
    } else {
        sockopt::ipv6_mtu(probe).ok()?.saturating_sub(OVERHEAD_V6)
    };
    let payload = u16::try_from(payload).unwrap_or(PAYLOAD_MAX);
    Some(payload.min(PAYLOAD_MAX))
}

/// Converts an IPv4-mapped IPv6 address, as dual-stack sockets report it, to IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        // A link-local address keeps its zone, without which no answer can be sent.
        IpAddr::V6(_) => address,
        v4 @ IpAddr::V4(_) => SocketAddr::new(v4, address.port()),
    }
}

#[cfg(test)]
mod tests;
