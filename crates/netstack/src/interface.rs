//! The adapter that passes packets into smoltcp's sockets and out of them, one at a time.

use std::time::{Duration, Instant};

use smoltcp::iface::{Config as InterfaceConfig, Interface};
use smoltcp::phy::{
    Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken,
};
use smoltcp::time::Instant as Micros;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, Ipv4Address, Ipv6Address};

use crate::config::{Config, MAX_PACKET};
use crate::socket_pool::PooledSocket;

pub(crate) struct SharedInterface {
    interface: Interface,
    capabilities: DeviceCapabilities,
    start: Instant,
}

impl std::fmt::Debug for SharedInterface {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedInterface").finish_non_exhaustive()
    }
}

impl SharedInterface {
    pub(crate) fn new(config: &Config, seed: u64, start: Instant) -> Self {
        let capabilities = capabilities(config);
        let mut device = PacketDevice::new(&capabilities, None, &mut []);
        let mut settings = InterfaceConfig::new(HardwareAddress::Ip);
        settings.random_seed = seed;
        let mut interface = Interface::new(settings, &mut device, Micros::ZERO);
        // To answer for every address, smoltcp needs a default route through an address of its own.
        let (v4, v6) = (OWN_V4, OWN_V6);
        interface.update_ip_addrs(|addresses| {
            for cidr in [
                IpCidr::new(IpAddress::Ipv4(v4), 32),
                IpCidr::new(IpAddress::Ipv6(v6), 128),
            ] {
                let pushed = addresses.push(cidr);
                debug_assert!(pushed.is_ok(), "smoltcp has room for two addresses");
            }
        });
        let routes = interface.routes_mut();
        let routed =
            routes.add_default_ipv4_route(v4).is_ok() & routes.add_default_ipv6_route(v6).is_ok();
        debug_assert!(routed, "smoltcp has room for two routes");
        interface.set_any_ip(true);
        Self {
            interface,
            capabilities,
            start,
        }
    }

    /// Passes a packet to a socket. Writes an immediate answer into `tx` and returns its length, or 0 if there is none.
    pub(crate) fn ingress(
        &mut self,
        now: Instant,
        socket: &mut PooledSocket,
        packet: &[u8],
        tx: &mut [u8],
    ) -> usize {
        let now = self.micros(now);
        let mut device = PacketDevice::new(&self.capabilities, Some(packet), tx);
        self.interface
            .poll_ingress_single(now, &mut device, &mut socket.sockets);
        device.sent
    }

    /// Writes the next packet that a socket wants to send into `tx`. Returns its length, or 0 if there is none.
    pub(crate) fn egress(
        &mut self,
        now: Instant,
        socket: &mut PooledSocket,
        tx: &mut [u8],
    ) -> usize {
        let now = self.micros(now);
        let mut device = PacketDevice::new(&self.capabilities, None, tx);
        self.interface
            .poll_egress(now, &mut device, &mut socket.sockets);
        device.sent
    }

    pub(crate) fn poll_at(&mut self, now: Instant, socket: &PooledSocket) -> Option<Instant> {
        let micros = self.micros(now);
        let at = self.interface.poll_at(micros, &socket.sockets)?;
        let at = u64::try_from(at.total_micros()).unwrap_or(0);
        Some(self.start + Duration::from_micros(at))
    }

    fn micros(&self, now: Instant) -> Micros {
        let since = now.saturating_duration_since(self.start).as_micros();
        Micros::from_micros(i64::try_from(since).unwrap_or(i64::MAX))
    }
}

fn capabilities(config: &Config) -> DeviceCapabilities {
    let mut checksum = ChecksumCapabilities::default();
    // The stack verifies checksums on arrival and fills them in on departure.
    checksum.tcp = Checksum::None;
    checksum.ipv4 = Checksum::Tx;
    let mut all = DeviceCapabilities::default();
    all.medium = Medium::Ip;
    all.checksum = checksum;
    if config.offload {
        // With IPv6, smoltcp 0.14 drops packets that are longer than the MTU, and it does not pass on the segment size.
        // An MTU of the longest packet avoids both, because the stack knows the segment size itself.
        all.max_transmission_unit = MAX_PACKET;
        all.segmentation.tcpv4 = MAX_PACKET.try_into().ok();
        all.segmentation.tcpv6 = MAX_PACKET.try_into().ok();
    } else {
        all.max_transmission_unit = config.mtu;
    }
    all
}

/// A device that holds at most one packet in each direction.
struct PacketDevice<'a> {
    capabilities: &'a DeviceCapabilities,
    rx: Option<&'a [u8]>,
    tx: &'a mut [u8],
    sent: usize,
}

impl<'a> PacketDevice<'a> {
    fn new(capabilities: &'a DeviceCapabilities, rx: Option<&'a [u8]>, tx: &'a mut [u8]) -> Self {
        Self {
            capabilities,
            rx,
            tx,
            sent: 0,
        }
    }
}

struct ReceivedPacket<'a>(&'a [u8]);

struct TransmitBuffer<'a> {
    tx: &'a mut [u8],
    sent: &'a mut usize,
}

impl RxToken for ReceivedPacket<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(self.0)
    }
}

impl TxToken for TransmitBuffer<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        if let Some(place) = self.tx.get_mut(..length) {
            *self.sent = length;
            fill(place)
        } else {
            // Only packets without payload are written here, which always fit: see `ShortFrame::CAPACITY`. Any other
            // packet would be lost, as on any network.
            fill(&mut vec![0; length])
        }
    }
}

impl Device for PacketDevice<'_> {
    type RxToken<'b>
        = ReceivedPacket<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = TransmitBuffer<'b>
    where
        Self: 'b;

    fn receive(&mut self, _: Micros) -> Option<(ReceivedPacket<'_>, TransmitBuffer<'_>)> {
        let packet = self.rx.take()?;
        let outgoing = TransmitBuffer {
            tx: self.tx,
            sent: &mut self.sent,
        };
        Some((ReceivedPacket(packet), outgoing))
    }

    fn transmit(&mut self, _: Micros) -> Option<TransmitBuffer<'_>> {
        // Only one packet at a time: a packet that would overwrite it has to wait.
        (self.sent == 0).then_some(TransmitBuffer {
            tx: self.tx,
            sent: &mut self.sent,
        })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.capabilities.clone()
    }
}

/// Addresses that no other host has: the dummy addresses of RFC 7600 and RFC 6666.
const OWN_V4: Ipv4Address = Ipv4Address::new(192, 0, 0, 8);
const OWN_V6: Ipv6Address = Ipv6Address::new(0x100, 0, 0, 0, 0, 0, 0, 1);
