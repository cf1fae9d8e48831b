//! A tap on a cable: records all packets that one end sends, except those that the documentation allows.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use socket2::{Domain, Socket, Type};

use super::{EXPERIMENT, PacketKind, Protocol};
use crate::deadline;
use crate::machine::Machine;

/// The destination port of the marker datagrams that [`Tap::settle`] sends to a neighbour (the discard port).
const FENCE: u16 = 9;

/// Receive buffer in bytes, for packets that arrive while this thread does not run.
const BUFFER: usize = 4 << 20;

/// The interval at which the thread checks whether it should end.
const LOOK: Duration = Duration::from_millis(50);

/// The time limit for a packet to cross a cable.
const SOON: Duration = Duration::from_secs(10);

/// A thread that captures packets on the machine at the other end of the cable.
#[derive(Debug)]
pub struct Tap {
    seen: Arc<TapState>,
    thread: Option<JoinHandle<()>>,
    neighbour: IpAddr,
    fences: u64,
}

#[derive(Debug, Default)]
struct TapState {
    ended: AtomicBool,
    inner: Mutex<TapCounts>,
}

#[derive(Debug, Default)]
struct TapCounts {
    packets: BTreeMap<String, usize>,
    kinds: BTreeMap<PacketKind, usize>,
    fence: u64,
}

impl Tap {
    /// Taps the packets that the device with hardware address `mac` sends to `far`. Packets to `server`, by UDP and by TCP,
    /// belong to the tunnel and are ignored. `neighbour` is an address of `far` that is reached outside the tunnel.
    ///
    /// # Errors
    ///
    /// Fails if packet sockets are not permitted.
    pub fn start(
        far: &Machine,
        mac: [u8; 6],
        server: SocketAddr,
        neighbour: IpAddr,
    ) -> Result<Self> {
        let seen = Arc::<TapState>::default();
        let socket = far
            .within(|| Ok(open()?))
            .context("cannot open a packet socket")?;
        let of_thread = seen.clone();
        let thread = std::thread::spawn(move || listen(&socket, mac, server, &of_thread));
        Ok(Self {
            seen,
            thread: Some(thread),
            neighbour,
            fences: 0,
        })
    }

    /// Returns the packets seen since the last call: a count for each kind, and a line with a count for each packet of
    /// no known kind.
    ///
    /// # Errors
    ///
    /// Fails if a packet to the neighbour does not arrive.
    pub fn take(&mut self) -> Result<(BTreeMap<PacketKind, usize>, BTreeMap<String, usize>)> {
        self.settle()?;
        let mut inner = self.inner();
        Ok((
            std::mem::take(&mut inner.kinds),
            std::mem::take(&mut inner.packets),
        ))
    }

    /// Waits until the tap has seen all packets sent before this call.
    fn settle(&mut self) -> Result<()> {
        self.fences += 1;
        let wanted = self.fences;
        deadline::wait("a packet to a neighbour", SOON, || {
            let any: IpAddr = if self.neighbour.is_ipv6() {
                [0; 16].into()
            } else {
                [0; 4].into()
            };
            let socket = UdpSocket::bind((any, 0))?;
            // While the cable is being reconnected there is no route.
            let sent = socket.send_to(&wanted.to_be_bytes(), (self.neighbour, FENCE));
            Ok((sent.is_ok() && self.inner().fence >= wanted).then_some(()))
        })
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, TapCounts> {
        self.seen
            .inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.seen.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {}
    }
}

fn open() -> io::Result<Socket> {
    // Every protocol: ETH_P_ALL, in network byte order.
    let all = i32::from(3_u16.to_be());
    let socket = Socket::new(Domain::PACKET, Type::RAW, Some(all.into()))?;
    socket.set_recv_buffer_size(BUFFER)?;
    socket.set_read_timeout(Some(LOOK))?;
    Ok(socket)
}

fn listen(mut socket: &Socket, mac: [u8; 6], server: SocketAddr, seen: &TapState) {
    let mut frame = vec![0; 1 << 16];
    while !seen.ended.load(Ordering::Relaxed) {
        // No packet arrived before the read timeout.
        let Ok(length) = socket.read(&mut frame) else {
            continue;
        };
        let frame = &frame[..length];
        if frame.get(6..12) == Some(&mac) {
            let mut inner = seen.inner.lock().unwrap_or_else(PoisonError::into_inner);
            inner.see(frame, server);
        }
    }
}

impl TapCounts {
    fn see(&mut self, frame: &[u8], server: SocketAddr) {
        // Not an IP packet: ARP.
        let Some(packet) = Packet::parse(frame) else {
            return;
        };
        if packet.is_of_the_link() || packet.to(server) || packet.tells_error_to(server.ip()) {
            return;
        }
        if let Some(fence) = packet.fence() {
            self.fence = self.fence.max(fence);
            return;
        }
        match packet.kind() {
            Some(kind) => *self.kinds.entry(kind).or_default() += 1,
            None => *self.packets.entry(packet.to_string()).or_default() += 1,
        }
    }
}

/// An IPv4 or IPv6 packet.
struct Packet<'a> {
    from: IpAddr,
    to: IpAddr,
    protocol: u8,
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    fn parse(frame: &'a [u8]) -> Option<Self> {
        let packet = frame.get(14..)?;
        match frame.get(12..14)? {
            [0x08, 0x00] => {
                let length = usize::from(packet.first()? & 15) * 4;
                Some(Self {
                    from: (*packet.get(12..16)?.first_chunk::<4>()?).into(),
                    to: (*packet.get(16..20)?.first_chunk::<4>()?).into(),
                    protocol: *packet.get(9)?,
                    payload: packet.get(length..)?,
                })
            }
            [0x86, 0xdd] => Some(Self {
                from: (*packet.get(8..24)?.first_chunk::<16>()?).into(),
                to: (*packet.get(24..40)?.first_chunk::<16>()?).into(),
                protocol: *packet.get(6)?,
                payload: packet.get(40..)?,
            }),
            _ => None,
        }
    }

    /// Returns true for neighbour discovery and for packets to link-local groups, which routers do not forward.
    fn is_of_the_link(&self) -> bool {
        let discovers = self.protocol == 58 && matches!(self.payload, [133..=136, ..]);
        let group = match self.to {
            IpAddr::V4(to) => to.octets()[..3] == [224, 0, 0],
            IpAddr::V6(to) => to.segments()[0] == 0xff02,
        };
        discovers || group
    }

    fn port(&self) -> Option<u16> {
        let bytes = self.payload.get(2..4)?.first_chunk()?;
        Some(u16::from_be_bytes(*bytes))
    }

    fn to(&self, there: SocketAddr) -> bool {
        let carrier = matches!(self.protocol, 6 | 17);
        carrier && self.to == there.ip() && self.port() == Some(there.port())
    }

    /// Returns true for a port-unreachable error to the server. After the client dies, the server's last datagrams
    /// cause such errors.
    fn tells_error_to(&self, there: IpAddr) -> bool {
        let kind = self.payload.first();
        self.to == there && matches!((self.protocol, kind), (1, Some(3)) | (58, Some(1)))
    }

    fn fence(&self) -> Option<u64> {
        let is_one = self.protocol == 17 && self.port() == Some(FENCE);
        let number = self.payload.get(8..16)?.first_chunk()?;
        is_one.then(|| u64::from_be_bytes(*number))
    }

    fn kind(&self) -> Option<PacketKind> {
        let v6 = self.to.is_ipv6();
        let protocol = match (self.protocol, self.payload.first()) {
            (6, _) => Protocol::Tcp,
            (17, _) if self.port() == Some(53) => Protocol::Dns,
            (17, _) => Protocol::Udp,
            (1, Some(8)) if !v6 => Protocol::Icmp,
            (58, Some(128)) if v6 => Protocol::Icmp,
            (EXPERIMENT, _) => Protocol::Raw,
            _ => return None,
        };
        Some(PacketKind { protocol, v6 })
    }
}

impl std::fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (from, to, protocol) = (self.from, self.to, self.protocol);
        let start = &self.payload[..self.payload.len().min(4)];
        write!(f, "{from} to {to}, protocol {protocol}, {start:?}")
    }
}
