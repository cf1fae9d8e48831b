//! A program with smoltcp as its TCP, behind a device that keeps packets in memory.

use std::collections::VecDeque;
use std::error::Error;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, Ipv4Address};

/// Longest packet of the device, in bytes.
pub(crate) const MTU: usize = 1500;

/// A program that connects, sends a text, finishes, and keeps what it receives.
pub(crate) struct TcpProgram {
    device: MemoryDevice,
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    text: &'static [u8],
    received: Vec<u8>,
}

impl TcpProgram {
    pub(crate) fn connect(
        to: [u8; 4],
        port: u16,
        text: &'static [u8],
    ) -> Result<Self, Box<dyn Error>> {
        let mut device = MemoryDevice::default();
        let mut interface = interface(&mut device)?;
        let buffer = || SocketBuffer::new(vec![0; 4096]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.connect(interface.context(), (Ipv4Address::from(to), port), 40_000)?;
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        let received = Vec::new();
        Ok(Self {
            device,
            interface,
            sockets,
            handle,
            text,
            received,
        })
    }

    /// Does what is due at a time in milliseconds. Returns the packets that the program's host sends.
    pub(crate) fn turn(&mut self, millis: u64) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
        let now = Instant::from_millis(i64::try_from(millis)?);
        self.interface
            .poll(now, &mut self.device, &mut self.sockets);
        let socket = self.sockets.get_mut::<Socket<'_>>(self.handle);
        if socket.may_send() {
            socket.send_slice(self.text)?;
            socket.close();
        }
        if socket.can_recv() {
            let received = &mut self.received;
            socket.recv(|bytes| {
                received.extend_from_slice(bytes);
                (bytes.len(), ())
            })?;
        }
        Ok(self.device.sent.drain(..).collect())
    }

    /// Takes a packet that arrives at the program's host.
    pub(crate) fn handle_packet(&mut self, packet: &[u8]) {
        self.device.arrived.push_back(packet.to_vec());
    }

    pub(crate) fn received(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.received)
    }
}

/// Creates a host with one address and a default route.
fn interface(device: &mut MemoryDevice) -> Result<Interface, Box<dyn Error>> {
    let settings = Config::new(HardwareAddress::Ip);
    let mut interface = Interface::new(settings, device, Instant::ZERO);
    let own = IpCidr::new(IpAddress::v4(10, 0, 0, 2), 24);
    let mut has_room = true;
    interface.update_ip_addrs(|all| has_room = all.push(own).is_ok());
    assert!(has_room, "smoltcp has room for an address");
    let gateway = Ipv4Address::new(10, 0, 0, 1);
    interface.routes_mut().add_default_ipv4_route(gateway)?;
    Ok(interface)
}

/// A device whose packets are kept in memory.
#[derive(Default)]
struct MemoryDevice {
    arrived: VecDeque<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
}

struct ReceiveToken(Vec<u8>);

struct TransmitToken<'a>(&'a mut VecDeque<Vec<u8>>);

impl Device for MemoryDevice {
    type RxToken<'a> = ReceiveToken;
    type TxToken<'a> = TransmitToken<'a>;

    fn receive(&mut self, _: Instant) -> Option<(ReceiveToken, TransmitToken<'_>)> {
        let packet = self.arrived.pop_front()?;
        Some((ReceiveToken(packet), TransmitToken(&mut self.sent)))
    }

    fn transmit(&mut self, _: Instant) -> Option<TransmitToken<'_>> {
        Some(TransmitToken(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut all = DeviceCapabilities::default();
        all.medium = Medium::Ip;
        all.max_transmission_unit = MTU;
        all
    }
}

impl RxToken for ReceiveToken {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(&self.0)
    }
}

impl TxToken for TransmitToken<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        let mut packet = vec![0; length];
        let result = fill(&mut packet);
        self.0.push_back(packet);
        result
    }
}
