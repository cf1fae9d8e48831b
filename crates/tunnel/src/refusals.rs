//! Notices that nothing listens on a server's port, for a program that makes one attempt and ends.
//!
//! The kernel reports ICMP errors only on connected sockets, and that of QUIC is not connected. A socket of its own
//! sends one byte at a time, which no QUIC server answers (see [`crate::probe`]). Other hosts can forge ICMP errors, so
//! a client that keeps running must not end because of them.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use quictun_io::udp_port::any_address;

/// Pause between two datagrams. Hosts send about one ICMP error in a second.
const PAUSE: Duration = Duration::from_secs(1);

/// Number of refusals after which nothing listens. The last of these datagrams is sent after three seconds, so a server
/// has this time to start.
const REFUSALS: u32 = 4;

/// Watches whether one address refuses datagrams.
#[derive(Debug)]
pub(crate) struct Refusals {
    socket: UdpSocket,
    refused: u32,
    next: Instant,
}

impl Refusals {
    /// Begins to watch an address.
    pub(crate) fn new(now: Instant, address: SocketAddr) -> io::Result<Self> {
        let socket = connected(address)?;
        socket.set_nonblocking(true)?;
        let mut watch = Self {
            socket,
            refused: 0,
            next: now,
        };
        watch.send(now);
        Ok(watch)
    }

    /// Returns the time of the next call of [`Refusals::handle_timeout`].
    pub(crate) fn next_timeout(&self) -> Instant {
        self.next
    }

    /// Returns whether nothing listens on the port.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> bool {
        if now < self.next {
            return false;
        }
        let answer = self.socket.recv(&mut [0]);
        if answer.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
            self.refused += 1;
        }
        self.send(now);
        self.refused >= REFUSALS
    }

    fn send(&mut self, now: Instant) {
        self.next = now + PAUSE;
        // A datagram that cannot be sent is not refused, and the attempt reports why it fails.
        self.socket.send(&[0]).ok();
    }
}

/// Returns the first address and its error if this machine cannot send to any of the addresses: no route leads there, or
/// a route forbids it. Sends nothing. The kernel chooses the route when the socket is connected.
pub(crate) fn no_route(addresses: &[SocketAddr]) -> Option<(IpAddr, io::Error)> {
    let mut first = None;
    for address in addresses {
        let error = connected(*address).err()?;
        first.get_or_insert((address.ip(), error));
    }
    first
}

fn connected(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(any_address(address.is_ipv6()))?;
    socket.connect(address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    /// Waits until the kernel has reported the refusal of the latest datagram.
    fn await_refusal(watch: &Refusals) {
        let mut fds = [PollFd::new(&watch.socket, PollFlags::IN)];
        let limit = Timespec {
            tv_sec: 20,
            tv_nsec: 0,
        };
        assert_eq!(poll(&mut fds, Some(&limit)), Ok(1), "no refusal");
    }

    fn closed_port(local: &str) -> SocketAddr {
        let socket = UdpSocket::bind(local).expect("a port");
        socket.local_addr().expect("an address")
    }

    #[test]
    fn a_port_that_still_refuses_after_three_seconds_is_closed() {
        let address = closed_port("127.0.0.1:0");
        let start = Instant::now();
        let mut watch = Refusals::new(start, address).expect("a socket");
        for second in 1..=4 {
            await_refusal(&watch);
            let due = start + second * PAUSE;
            let before = start + (second - 1) * PAUSE + Duration::from_millis(999);
            assert!(!watch.handle_timeout(before));
            assert_eq!(watch.next_timeout(), due);
            assert_eq!(watch.handle_timeout(due), second == 4, "after {second} s");
        }
    }

    #[test]
    fn a_server_that_starts_within_three_seconds_is_not_taken_for_a_closed_port() {
        let address = closed_port("127.0.0.1:0");
        let start = Instant::now();
        let mut watch = Refusals::new(start, address).expect("a socket");
        for second in 1..=2 {
            await_refusal(&watch);
            assert!(!watch.handle_timeout(start + second * PAUSE));
        }
        await_refusal(&watch);
        let server = UdpSocket::bind(address).expect("the port is free");
        for second in 3..=20 {
            assert!(!watch.handle_timeout(start + second * PAUSE), "{second} s");
        }
        drop(server);
    }

    #[test]
    fn addresses_count_as_unreachable_if_this_machine_can_send_to_none_of_them() {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 7500));
        // The system refuses to send there unless a socket asks for it, with a route and without one.
        let nowhere = SocketAddr::from((Ipv4Addr::BROADCAST, 7500));
        let address = |addresses: &[SocketAddr]| no_route(addresses).map(|(address, _)| address);
        assert_eq!(address(&[nowhere]), Some(nowhere.ip()));
        assert_eq!(address(&[nowhere, nowhere]), Some(nowhere.ip()));
        assert_eq!(address(&[nowhere, here]), None);
        assert_eq!(address(&[here, nowhere]), None);
        assert_eq!(address(&[]), None);
    }

    #[test]
    fn a_server_that_is_silent_refuses_nothing() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = server.local_addr().expect("an address");
        let start = Instant::now();
        let mut watch = Refusals::new(start, address).expect("a socket");
        for second in 1..=20 {
            assert!(!watch.handle_timeout(start + second * PAUSE), "{second} s");
        }
    }
}
