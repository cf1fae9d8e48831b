//! Sends packets of every kind to addresses that must be reachable only through the tunnel.

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, SockAddr, Socket, Type};

use super::{EXPERIMENT, PROTOCOLS, PacketKind, Protocol};

/// Sends one packet of each kind to each address, once unbound and once bound to `device`. Packets that the system
/// refuses are not sent. The function does not wait for answers.
///
/// # Errors
///
/// Fails if the system has no memory for a packet. All other errors are ignored.
pub fn send_all(targets: &[IpAddr], device: &str) -> io::Result<()> {
    for target in targets {
        for protocol in PROTOCOLS {
            for bound in [None, Some(device)] {
                let kind = PacketKind {
                    protocol,
                    v6: target.is_ipv6(),
                };
                match send(kind, *target, bound) {
                    Err(error) if error.kind() == io::ErrorKind::OutOfMemory => return Err(error),
                    // A closed tunnel answers with refusals.
                    Ok(()) | Err(_) => {}
                }
            }
        }
    }
    Ok(())
}

fn send(kind: PacketKind, target: IpAddr, device: Option<&str>) -> io::Result<()> {
    let domain = if kind.v6 { Domain::IPV6 } else { Domain::IPV4 };
    let icmp = if kind.v6 {
        socket2::Protocol::ICMPV6
    } else {
        socket2::Protocol::ICMPV4
    };
    let (style, protocol, port) = match kind.protocol {
        Protocol::Tcp => (Type::STREAM, socket2::Protocol::TCP, 80),
        Protocol::Udp => (Type::DGRAM, socket2::Protocol::UDP, 4433),
        Protocol::Dns => (Type::DGRAM, socket2::Protocol::UDP, 53),
        Protocol::Icmp => (Type::RAW, icmp, 0),
        Protocol::Raw => (Type::RAW, i32::from(EXPERIMENT).into(), 0),
    };
    let socket = Socket::new(domain, style, Some(protocol))?;
    socket.set_nonblocking(true)?;
    if let Some(device) = device {
        socket.bind_device(Some(device.as_bytes()))?;
    }
    let there = SockAddr::from(SocketAddr::new(target, port));
    match kind.protocol {
        Protocol::Tcp => socket.connect(&there),
        Protocol::Icmp => socket.send_to(&echo_request(kind.v6), &there).map(drop),
        Protocol::Udp | Protocol::Dns | Protocol::Raw => {
            socket.send_to(b"a leak", &there).map(drop)
        }
    }
}

/// Returns type, code, checksum, identifier and sequence number. For IPv6 the kernel computes the checksum.
fn echo_request(v6: bool) -> [u8; 8] {
    if v6 {
        [128, 0, 0, 0, 0, 1, 0, 1]
    } else {
        // The complement of 0x0800 + 0x0001 + 0x0001.
        [8, 0, 0xf7, 0xfd, 0, 1, 0, 1]
    }
}
