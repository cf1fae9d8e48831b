//! The listeners of a client's forwards in a hand-over. Applications connect to them meanwhile, and wait in their queues.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result, ensure};
use rustix::net::SocketType;

use super::taking::{IP, UNIX, check_kind};
use crate::listener::Listener;
use crate::settings::{DivertMethod, ListenOn};

/// The listeners that the old process has passed on, by their addresses. Several may have the address with port 0.
#[derive(Debug, Default)]
pub(crate) struct TakenForwards {
    each: BTreeMap<String, VecDeque<OwnedFd>>,
    used: bool,
}

/// Returns the address under which the listener of a forward is passed on: that of the configuration, and the way in which
/// connections are diverted to it, because its socket depends on that.
pub(crate) fn passed_as(listen: &ListenOn) -> String {
    match listen {
        ListenOn::Transparent(DivertMethod::Redirect, _) => format!("redirect:{listen}"),
        ListenOn::Transparent(DivertMethod::Tproxy, _) | ListenOn::TransparentUdp(_) => {
            format!("tproxy:{listen}")
        }
        ListenOn::Tcp(_) | ListenOn::Loopback(_) | ListenOn::Udp(_) | ListenOn::Unix(_) => {
            listen.to_string()
        }
    }
}

impl TakenForwards {
    pub(super) fn add(&mut self, address: String, socket: OwnedFd) {
        self.each.entry(address).or_default().push_back(socket);
    }

    /// Takes the listener of a forward, if the old process has passed one on.
    pub(crate) fn take(&mut self, listen: &ListenOn) -> Result<Option<Listener>> {
        let sockets = self.each.get_mut(&passed_as(listen));
        let Some(socket) = sockets.and_then(VecDeque::pop_front) else {
            return Ok(None);
        };
        match listen {
            ListenOn::Tcp(_) | ListenOn::Loopback(_) | ListenOn::Transparent(..) => {
                check_kind(&socket, &IP, SocketType::STREAM, true)
            }
            ListenOn::Udp(_) | ListenOn::TransparentUdp(_) => {
                check_kind(&socket, &IP, SocketType::DGRAM, false)
            }
            ListenOn::Unix(_) => check_kind(&socket, &UNIX, SocketType::STREAM, true),
        }
        .with_context(|| format!("the listener at {listen}"))?;
        self.used = true;
        Ok(Some(Listener::of_socket(listen, socket)))
    }

    /// Checks that the old process is the one that this process replaces: another client listens elsewhere. Closes the
    /// listeners that the configuration no longer names.
    pub(crate) fn close_rest(self) -> Result<()> {
        let addresses = self.each.into_keys().collect::<Vec<_>>().join(", ");
        ensure!(
            self.used || addresses.is_empty(),
            "--take-over: the running client listens on {addresses}, and this configuration on none of that: it seems to be another client; give each client a --state-dir of its own"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};

    use super::*;
    use crate::listener::bind_fd;

    const ANY: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

    fn listener() -> OwnedFd {
        bind_fd(&ListenOn::Tcp(ANY.into()), 5).expect("a free port")
    }

    #[test]
    fn listeners_are_taken_by_their_addresses_in_their_order() {
        let any = ListenOn::Tcp(ANY.into());
        let mut taken = TakenForwards::default();
        let listeners = [listener(), listener()];
        let address = |socket: OwnedFd| Listener::of_socket(&any, socket).address();
        let addresses = listeners
            .each_ref()
            .map(|it| address(it.try_clone().expect("a copy")));
        for socket in listeners {
            taken.add(passed_as(&any), socket);
        }
        for expected in addresses {
            let listener = taken.take(&any).expect("a listener");
            assert_eq!(listener.map(|it| it.address()), Some(expected));
        }
        assert!(taken.take(&any).expect("none is wrong").is_none());
        taken.add("127.0.0.1:9".to_owned(), listener());
        taken.close_rest().expect("it was this client");
    }

    #[test]
    fn sockets_of_another_kind_and_those_of_another_client_are_refused() {
        let at = SocketAddr::from(([127, 0, 0, 1], 7));
        let tcp = ListenOn::Tcp(at);
        let mut taken = TakenForwards::default();
        taken.add(
            passed_as(&tcp),
            UdpSocket::bind(SocketAddr::from(ANY))
                .expect("a port")
                .into(),
        );
        assert!(taken.take(&tcp).is_err(), "it takes no connections");
        for method in [DivertMethod::Redirect, DivertMethod::Tproxy] {
            assert_ne!(
                passed_as(&ListenOn::Transparent(method, at)),
                passed_as(&tcp)
            );
        }
        taken.add(passed_as(&tcp), listener());
        let refused = taken.close_rest().expect_err("another client's");
        assert!(refused.to_string().contains("--state-dir"), "{refused}");
    }
}
