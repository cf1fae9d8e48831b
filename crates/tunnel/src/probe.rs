//! Asks the network why a server does not answer.
//!
//! QUIC's sockets are not connected, and the kernel reports ICMP errors only on connected sockets (`udp(7)`). Therefore
//! an additional socket, made before the process is confined, connects to an address and waits for an error. It sends
//! one byte, which no QUIC server answers (RFC 9000 section 17.2: a packet has the fixed bit, and is longer).

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use tokio::time::timeout;

/// Time to wait for an ICMP error. A distant router takes a few hundred milliseconds.
const WAIT: Duration = Duration::from_millis(700);

/// Maximum number of addresses to probe, one after the other.
const ADDRESSES: usize = 3;

/// A socket that probes the network.
#[derive(Debug)]
pub(crate) struct Probe(tokio::net::UdpSocket);

impl Probe {
    /// Takes over a socket that has the same mark as the tunnel's own sockets. Call it within the runtime.
    pub(crate) fn new(socket: UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self(tokio::net::UdpSocket::from_std(socket)?))
    }

    /// Returns the result for each address, as in `192.0.2.1:7500: silence`.
    pub(crate) async fn ask(&self, addresses: &[SocketAddr]) -> String {
        let mut answers = Vec::new();
        for address in addresses.iter().take(ADDRESSES) {
            let answer = match timeout(WAIT, self.ask_one(*address)).await {
                Ok(Err(error)) => describe(&error),
                Ok(Ok(())) => "something answers, but not in QUIC".to_owned(),
                Err(_) => "silence".to_owned(),
            };
            answers.push(format!("{address}: {answer}"));
        }
        answers.join(", ")
    }

    async fn ask_one(&self, address: SocketAddr) -> io::Result<()> {
        self.send(address).await?;
        self.answer().await
    }

    /// Sends a datagram to an address.
    pub(crate) async fn send(&self, address: SocketAddr) -> io::Result<()> {
        // An error that has come late belongs to the previous address.
        self.0.take_error()?;
        let is_v6 = self.0.local_addr()?.is_ipv6();
        let address = match address.ip() {
            IpAddr::V4(ip) if is_v6 => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
            _ => address,
        };
        self.0.connect(address).await?;
        self.0.send(&[0]).await?;
        Ok(())
    }

    /// Waits for an answer from the address, or for an error.
    pub(crate) async fn answer(&self) -> io::Result<()> {
        self.0.recv(&mut [0; 1]).await?;
        Ok(())
    }
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => {
            "the host refuses: nothing listens on that UDP port".to_owned()
        }
        ErrorKind::HostUnreachable => {
            "the host is unreachable (ICMP, or no answer to ARP)".to_owned()
        }
        ErrorKind::NetworkUnreachable => "no route to the network of the host".to_owned(),
        ErrorKind::PermissionDenied => "a packet filter on this machine forbids it".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_closed_port_refuses_and_a_program_that_sends_nothing_is_silent() {
        let silent = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let silent_at = silent.local_addr().expect("an address");
        let closed = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let closed_at = closed.local_addr().expect("an address");
        drop(closed);
        for local in ["127.0.0.1:0", "[::]:0"] {
            let socket = UdpSocket::bind(local).expect("a port");
            let probe = Probe::new(socket).expect("a probe");
            let said = probe.ask(&[closed_at, silent_at, closed_at]).await;
            let refused = "the host refuses: nothing listens on that UDP port";
            let expected =
                format!("{closed_at}: {refused}, {silent_at}: silence, {closed_at}: {refused}");
            assert_eq!(said, expected, "from {local}");
        }
    }
}
