//! The applications: smoltcp with one socket set for each connection.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use quictun_netstack::Offload;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Instant as Micros;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

/// A host with connections; connection `i` has the port `FIRST_PORT + i`.
pub(crate) struct PeerHost {
    interface: Interface,
    pub(crate) connections: Vec<Connection>,
    out: VecDeque<Vec<u8>>,
    mtu: usize,
    start: Instant,
}

/// One application. It sends a number of bytes of a pattern, then finishes, and reads meanwhile.
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
pub(crate) struct Connection {
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    number: u64,
    /// Number of bytes to send before it finishes.
    pub(crate) to_send: u64,
    pub(crate) sent: u64,
    /// True if the application never finishes by itself.
    pub(crate) stays: bool,
    /// Number of bytes that it must receive before it finishes.
    pub(crate) waits_for: u64,
    pub(crate) received: u64,
    /// True if all bytes that it read were correct.
    pub(crate) intact: bool,
    /// True if it reads nothing for now.
    pub(crate) deaf: bool,
    pub(crate) saw_end: bool,
    pub(crate) was_open: bool,
}

pub(crate) const FIRST_PORT: u16 = 10_000;
pub(crate) const V4: &str = "10.0.0.2";
pub(crate) const V6: &str = "fd00::2";

/// Returns byte `at` of the pattern of connection `number`.
pub(crate) fn pattern(number: u64, at: u64) -> u8 {
    let mixed = (at ^ number << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

impl PeerHost {
    pub(crate) fn new(mtu: usize, start: Instant) -> Self {
        let mut device = PeerDevice {
            mtu,
            rx: None,
            out: &mut VecDeque::new(),
        };
        let mut interface =
            Interface::new(Config::new(HardwareAddress::Ip), &mut device, Micros::ZERO);
        let (v4, v6): (IpAddress, IpAddress) = (V4.parse().unwrap(), V6.parse().unwrap());
        interface.update_ip_addrs(|all| {
            all.push(IpCidr::new(v4, 24)).unwrap();
            all.push(IpCidr::new(v6, 64)).unwrap();
        });
        let routes = interface.routes_mut();
        routes
            .add_default_ipv4_route("10.0.0.1".parse().unwrap())
            .unwrap();
        routes
            .add_default_ipv6_route("fd00::1".parse().unwrap())
            .unwrap();
        Self {
            interface,
            connections: Vec::new(),
            out: VecDeque::new(),
            mtu,
            start,
        }
    }

    pub(crate) fn connect(
        &mut self,
        now: Instant,
        target: SocketAddr,
        to_send: u64,
        buffer: usize,
    ) -> usize {
        let index = self.connections.len();
        let buffers = || SocketBuffer::new(vec![0; buffer]);
        let mut socket = Socket::new(buffers(), buffers());
        let port = FIRST_PORT + u16::try_from(index).unwrap();
        self.interface.poll_maintenance(micros(self.start, now));
        socket
            .connect(
                self.interface.context(),
                (IpAddress::from(target.ip()), target.port()),
                port,
            )
            .unwrap();
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        self.connections.push(Connection {
            sockets,
            handle,
            number: index as u64,
            to_send,
            sent: 0,
            stays: false,
            waits_for: 0,
            received: 0,
            intact: true,
            deaf: false,
            saw_end: false,
            was_open: false,
        });
        index
    }

    /// Handles a packet that arrives.
    pub(crate) fn handle(&mut self, now: Instant, packet: &[u8]) {
        let port = if packet[0] >> 4 == 4 { 22 } else { 42 };
        let port = u16::from_be_bytes([packet[port], packet[port + 1]]);
        let index = usize::from(port.wrapping_sub(FIRST_PORT));
        let Some(connection) = self.connections.get_mut(index) else {
            return;
        };
        let mut device = PeerDevice {
            mtu: self.mtu,
            rx: Some(packet),
            out: &mut self.out,
        };
        let at = micros(self.start, now);
        self.interface
            .poll_ingress_single(at, &mut device, &mut connection.sockets);
        self.work(now, index);
    }

    /// Lets a connection read, write and send.
    pub(crate) fn work(&mut self, now: Instant, index: usize) {
        let connection = &mut self.connections[index];
        connection.pump();
        let at = micros(self.start, now);
        let mut device = PeerDevice {
            mtu: self.mtu,
            rx: None,
            out: &mut self.out,
        };
        while self
            .interface
            .poll_egress(at, &mut device, &mut connection.sockets)
            != smoltcp::iface::PollResult::None
        {
            connection.pump();
        }
    }

    /// Returns the next frame that the host sends.
    pub(crate) fn poll(&mut self) -> Option<Vec<u8>> {
        let packet = self.out.pop_front()?;
        Some([Offload::default().to_bytes().as_slice(), &packet].concat())
    }

    /// Returns the next deadline of a connection.
    pub(crate) fn next(&mut self, now: Instant, index: usize) -> Option<Instant> {
        let at = micros(self.start, now);
        let next = self
            .interface
            .poll_at(at, &self.connections[index].sockets)?;
        let next = self.start + Duration::from_micros(next.total_micros().try_into().unwrap());
        Some(next.max(now + Duration::from_micros(1)))
    }
}

impl Connection {
    pub(crate) fn state(&self) -> State {
        self.sockets.get::<Socket<'_>>(self.handle).state()
    }

    pub(crate) fn reset(&mut self) {
        self.sockets.get_mut::<Socket<'_>>(self.handle).abort();
    }

    /// Returns whether the connection sent everything and received the end, and neither direction was cut short.
    pub(crate) fn is_done(&self) -> bool {
        let closed = matches!(self.state(), State::Closed | State::TimeWait);
        self.intact && self.saw_end && self.sent == self.to_send && closed
    }

    fn pump(&mut self) {
        let number = self.number;
        let socket = self.sockets.get_mut::<Socket<'_>>(self.handle);
        self.was_open |= socket.may_send();
        while !self.deaf && socket.can_recv() {
            let (received, intact) = (&mut self.received, &mut self.intact);
            socket
                .recv(|bytes| {
                    for (at, byte) in (*received..).zip(bytes.iter()) {
                        *intact &= *byte == pattern(number, at);
                    }
                    *received += bytes.len() as u64;
                    (bytes.len(), ())
                })
                .unwrap();
        }
        if let Err(smoltcp::socket::tcp::RecvError::Finished) = socket.peek(1) {
            self.saw_end = true;
        }
        while socket.can_send() && self.sent < self.to_send {
            let (sent, all) = (&mut self.sent, self.to_send);
            socket
                .send(|room| {
                    let length = room.len().min(usize::try_from(all - *sent).unwrap());
                    for (at, byte) in (*sent..).zip(&mut room[..length]) {
                        *byte = pattern(number, at);
                    }
                    *sent += length as u64;
                    (length, ())
                })
                .unwrap();
        }
        let acknowledged = socket.send_queue() == 0 && self.received >= self.waits_for;
        if self.sent == self.to_send && !self.stays && acknowledged && socket.may_send() {
            socket.close();
        }
    }
}

pub(crate) fn micros(start: Instant, now: Instant) -> Micros {
    Micros::from_micros(i64::try_from((now - start).as_micros()).unwrap())
}

struct PeerDevice<'a> {
    mtu: usize,
    rx: Option<&'a [u8]>,
    out: &'a mut VecDeque<Vec<u8>>,
}

struct Rx<'a>(&'a [u8]);
struct Tx<'a>(&'a mut VecDeque<Vec<u8>>);

impl RxToken for Rx<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(self.0)
    }
}

impl TxToken for Tx<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        let mut packet = vec![0; length];
        let result = fill(&mut packet);
        self.0.push_back(packet);
        result
    }
}

impl Device for PeerDevice<'_> {
    type RxToken<'b>
        = Rx<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = Tx<'b>
    where
        Self: 'b;

    fn receive(&mut self, _: Micros) -> Option<(Rx<'_>, Tx<'_>)> {
        Some((Rx(self.rx.take()?), Tx(self.out)))
    }

    fn transmit(&mut self, _: Micros) -> Option<Tx<'_>> {
        Some(Tx(self.out))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut all = DeviceCapabilities::default();
        all.medium = Medium::Ip;
        all.max_transmission_unit = self.mtu;
        all
    }
}

impl PeerHost {
    /// Lets a connection send keep-alive probes.
    pub(crate) fn keep_alive(&mut self, index: usize, every: Duration) {
        let connection = &mut self.connections[index];
        let socket = connection.sockets.get_mut::<Socket<'_>>(connection.handle);
        socket.set_keep_alive(Some(smoltcp::time::Duration::from_millis(
            u64::try_from(every.as_millis()).unwrap(),
        )));
    }
}
