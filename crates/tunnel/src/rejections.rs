//! Notices that the network rejects datagrams to a server, so that TLS over TCP need not wait for QUIC.
//!
//! A [`Probe`] sends one byte before QUIC sends anything: hosts send only a few ICMP errors in a second. Hosts on the path
//! can forge ICMP errors, so an error may begin an attempt sooner, and nothing else.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::probe::Probe;

/// Time to wait for an ICMP error: the longest head start of QUIC.
const WAIT: Duration = Duration::from_millis(250);

/// Time for which an answer counts. The workers of a client dial a server at the same time.
const KEPT: Duration = Duration::from_secs(1);

/// Asks the network about one address at a time.
#[derive(Debug)]
pub(crate) struct RejectionWatch {
    probe: Probe,
    latest: Mutex<Option<NetworkAnswer>>,
}

#[derive(Debug)]
struct NetworkAnswer {
    remote: SocketAddr,
    rejected: bool,
    until: Instant,
}

impl RejectionWatch {
    /// Takes over a socket that has the same mark as the tunnel's own sockets. Call it within the runtime. Without a
    /// probe, TLS waits for QUIC.
    pub(crate) fn new(socket: UdpSocket) -> Option<Self> {
        Some(Self {
            probe: Probe::new(socket).ok()?,
            latest: Mutex::new(None),
        })
    }

    /// Returns whether a host on the path, or this machine, rejects datagrams to an address. Calls `sent` as soon as the
    /// datagram has been sent, or at once if the probe is busy.
    pub(crate) async fn ask(&self, remote: SocketAddr, sent: impl FnOnce()) -> bool {
        let Ok(mut latest) = self.latest.try_lock() else {
            sent();
            let mut latest = self.latest.lock().await;
            return self.ask_now(&mut latest, remote, || ()).await;
        };
        self.ask_now(&mut latest, remote, sent).await
    }

    async fn ask_now(
        &self,
        latest: &mut Option<NetworkAnswer>,
        remote: SocketAddr,
        sent: impl FnOnce(),
    ) -> bool {
        let counts = |it: &&NetworkAnswer| it.remote == remote && Instant::now() < it.until;
        if let Some(known) = latest.as_ref().filter(counts) {
            sent();
            return known.rejected;
        }
        let asked = self.probe.send(remote).await;
        sent();
        let answer = match asked {
            Ok(()) => timeout(WAIT, self.probe.answer()).await.unwrap_or(Ok(())),
            Err(error) => Err(error),
        };
        let rejected = answer.is_err_and(|error| is_rejection(&error));
        *latest = Some(NetworkAnswer {
            remote,
            rejected,
            until: Instant::now() + KEPT,
        });
        rejected
    }
}

/// Returns whether an error says that a host, or this machine, rejects the datagram.
fn is_rejection(error: &io::Error) -> bool {
    let kinds = [
        ErrorKind::ConnectionRefused,
        ErrorKind::HostUnreachable,
        ErrorKind::NetworkUnreachable,
        ErrorKind::PermissionDenied,
    ];
    kinds.contains(&error.kind())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_closed_port_rejects_and_a_silent_program_does_not() {
        let silent = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let silent_at = silent.local_addr().expect("an address");
        let closed = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let closed_at = closed.local_addr().expect("an address");
        drop(closed);
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let watch = RejectionWatch::new(socket).expect("a probe");
        let told = Cell::new(0);
        let ask = |at| watch.ask(at, || told.set(told.get() + 1));
        assert!(ask(closed_at).await);
        assert!(!ask(silent_at).await);
        // Two workers ask at the same time: there is one datagram, and each of them gets the answer.
        let both = tokio::join!(ask(closed_at), ask(closed_at));
        assert_eq!((both, told.get()), ((true, true), 4));
        // The port is in use now, and the answer still counts.
        let _used = UdpSocket::bind(closed_at).expect("the port is free");
        assert!(ask(closed_at).await);
        silent.set_nonblocking(true).expect("an option");
        assert_eq!(silent.recv(&mut [0; 2]).ok(), Some(1));
    }
}
