//! Making listeners for clients: in the keeper, or in this process if it is not confined.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::rc::Rc;

use quictun_io::socket_path::{SocketPath, make_room};
use quictun_trust::keeper::{self, ListenerFns};
use quictun_trust::settings::{Access, ListenRule};
use quictun_wire::code::ListenCode;
use quictun_wire::listening::ListenAddress;
use rustix::io::Errno;

use crate::datagram_socket::refuse_fragments;
use crate::listener::{self, Listener};
use crate::reload::change::Rules;
use crate::settings::ListenOn;

/// Limit of connections that wait to be accepted (PROTOCOL REVERSE-11).
const BACKLOG: i32 = 64;

/// A listener and its address.
pub(crate) type Bound = (Listener, ListenAddress);

/// The rules of all clients for listeners, in the keeper: those of the start, then those of the last reload.
///
/// The keeper reads them by itself when a reload makes it read the configuration. A configuration that is not valid
/// leaves them unchanged.
#[derive(Clone)]
pub(crate) struct KeeperRules(Rc<RefCell<Vec<ListenRule>>>);

impl KeeperRules {
    pub(crate) fn at_start(access: &Access) -> Self {
        let rules = access.clients().iter().flat_map(|client| &client.listen);
        Self(Rc::new(RefCell::new(rules.cloned().collect())))
    }

    /// Replaces the rules by those of a reload.
    pub(crate) fn apply(&self, rules: &Rules) {
        if let Rules::Server(rules) = rules {
            *self.0.borrow_mut() = rules.policy.listen_rules().cloned().collect();
        }
    }

    /// Returns whether a rule permits a listener at the address if links in its path do not leave the directory.
    fn permit(&self, address: &ListenAddress, below: Option<&str>) -> bool {
        let stays = |rule: &ListenRule| match rule.directory() {
            Some(directory) => below == Some(directory),
            None => true,
        };
        let rules = self.0.borrow();
        rules.iter().any(|rule| rule.names(address) && stays(rule))
    }
}

/// Returns the keeper's functions for listeners. It listens only at addresses that a rule names, and removes only socket
/// files that it has made.
///
/// The keeper judges the address by itself: an attacker who controls this process can make it listen only at addresses
/// that some client may use.
pub(crate) fn by_rules(rules: KeeperRules) -> ListenerFns {
    let made = Rc::new(RefCell::new(BTreeMap::new()));
    let known = made.clone();
    let bind = move |text: &str, below: Option<&str>| {
        let address = ListenAddress::parse(text).map_err(|_| io::ErrorKind::InvalidInput)?;
        if !rules.permit(&address, below) {
            return Err(Errno::PERM.into());
        }
        let bound = bind(&address, below)?;
        if matches!(address, ListenAddress::Unix(_)) {
            let below = below.map(str::to_owned);
            made.borrow_mut().insert(text.to_owned(), below);
        }
        Ok(bound)
    };
    let remove = move |text: &str| {
        let below = known.borrow().get(text).cloned().ok_or(Errno::NOENT)?;
        let address = ListenAddress::parse(text).map_err(|_| io::ErrorKind::InvalidInput)?;
        // If the path has been bound again meanwhile, the file is removed later.
        remove(&address, below.as_deref())?;
        known.borrow_mut().remove(text);
        Ok(())
    };
    ListenerFns {
        bind: Box::new(bind),
        remove: Box::new(remove),
    }
}

fn bind(address: &ListenAddress, below: Option<&str>) -> io::Result<OwnedFd> {
    match address {
        ListenAddress::Tcp(address) => listener::bind_fd(&ListenOn::Tcp(*address), BACKLOG),
        ListenAddress::Udp(address) => listener::bind_fd(&ListenOn::Udp(*address), BACKLOG),
        ListenAddress::Unix(path) => {
            let path = SocketPath::new(Path::new(path), below.map(Path::new))?;
            listener::bind_fd(&ListenOn::Unix(path.path().to_owned()), BACKLOG)
        }
    }
}

/// Makes a listener for a client whose rules name the address. Links in its path must not leave the directory `below`,
/// if there is one. It waits for the keeper, so it must not run on a worker or in an async task.
pub(crate) fn for_client(address: &ListenAddress, below: Option<&str>) -> io::Result<Bound> {
    let bound = keeper::listen(&address.to_string(), below);
    let bound = bound.unwrap_or_else(|| bind(address, below));
    bound.and_then(|socket| match address {
        ListenAddress::Tcp(_) => {
            let listener = TcpListener::from(socket);
            let at = ListenAddress::tcp(listener.local_addr()?);
            Ok((Listener::Tcp(listener), at))
        }
        ListenAddress::Udp(_) => {
            let socket = UdpSocket::from(socket);
            let at = socket.local_addr()?;
            refuse_fragments(&socket, at)?;
            Ok((Listener::udp(socket), ListenAddress::udp(at)))
        }
        ListenAddress::Unix(_) => {
            let listener = Listener::Unix(UnixListener::from(socket));
            Ok((listener, address.clone()))
        }
    })
}

/// Removes the socket file of a listener. A file on which a program listens again stays.
fn remove(address: &ListenAddress, below: Option<&str>) -> io::Result<()> {
    match address {
        ListenAddress::Tcp(_) | ListenAddress::Udp(_) => Ok(()),
        ListenAddress::Unix(path) => {
            let path = SocketPath::new(Path::new(path), below.map(Path::new))?;
            make_room(path.path())
        }
    }
}

/// Removes the socket file of a client's listener that is closed ([`Listener::stop`]). It waits for the keeper, so it
/// must not run on a worker or in an async task.
pub(crate) fn remove_for_client(address: &ListenAddress) -> io::Result<()> {
    keeper::remove_listener(&address.to_string()).unwrap_or_else(|| remove(address, None))
}

/// Returns the code with which the server refuses a client's listener.
pub(crate) fn code_of(error: &io::Error) -> ListenCode {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ADDRINUSE) => ListenCode::InUse,
        Some(Errno::ADDRNOTAVAIL | Errno::INVAL) => ListenCode::BadAddress,
        // XDEV: a link leads out of the directory of the client's rule.
        Some(Errno::PERM | Errno::XDEV) => ListenCode::NotAllowed,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => ListenCode::TooMany,
        _ => ListenCode::Failed,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;
    use crate::listener::AcceptOutcome;

    fn access(listen: &[&str]) -> Access {
        let client = quictun_trust::settings::NamedClient {
            name: "home".to_owned(),
            proofs: Vec::new(),
            allow: Vec::new(),
            listen: listen
                .iter()
                .map(|rule| rule.parse().expect(rule))
                .collect(),
            limits: quictun_trust::settings::ClientLimits::default(),
            names_sources: false,
        };
        Access::Named {
            clients: vec![client],
            ca: None,
        }
    }

    #[test]
    fn the_keeper_listens_only_where_a_rule_allows_it() {
        let bind = by_rules(KeeperRules::at_start(&access(&["127.0.0.1:0"]))).bind;
        let socket = bind("tcp:127.0.0.1:0", None).expect("a rule names it");
        let address = TcpListener::from(socket).local_addr().expect("bound");
        assert!(address.port() != 0);
        for (text, number) in [
            ("udp:127.0.0.1:0", Some(Errno::PERM)),
            ("tcp:127.0.0.1:80", Some(Errno::PERM)),
            ("unix:/run/x", Some(Errno::PERM)),
            ("localhost:0", None),
        ] {
            let error = bind(text, None).expect_err(text);
            assert_eq!(
                error.raw_os_error(),
                number.map(Errno::raw_os_error),
                "{text}"
            );
        }
    }

    #[test]
    fn the_keeper_binds_a_socket_for_datagrams_where_a_rule_for_them_allows_it() {
        let bind = by_rules(KeeperRules::at_start(&access(&["udp:127.0.0.1:0"]))).bind;
        let socket = UdpSocket::from(bind("udp:127.0.0.1:0", None).expect("a rule names it"));
        assert!(socket.local_addr().expect("bound").port() != 0);
        let error = bind("tcp:127.0.0.1:0", None).expect_err("no rule names it");
        assert_eq!(code_of(&error), ListenCode::NotAllowed);
    }

    #[test]
    fn the_keeper_removes_the_files_of_closed_listeners_that_it_has_made() {
        let directory = tempfile::tempdir().expect("a directory");
        let text = |name: &str| format!("unix:{}/{name}", directory.path().display());
        let fns = by_rules(KeeperRules::at_start(&access(&[text("*").as_str()])));
        let other = directory.path().join("other");
        drop(UnixListener::bind(&other).expect("a free path"));
        (fns.remove)(&text("other")).expect_err("the keeper has not made it");
        assert!(other.exists());
        let below = format!("{}/", directory.path().display());
        let error = (fns.bind)(&text("own"), None).expect_err("links could lead anywhere");
        assert_eq!(code_of(&error), ListenCode::NotAllowed);
        std::os::unix::fs::symlink("/tmp", directory.path().join("link")).expect("a link");
        let error = (fns.bind)(&text("link/own"), Some(&below)).expect_err("it leads elsewhere");
        assert_eq!(code_of(&error), ListenCode::NotAllowed);
        let socket = (fns.bind)(&text("own"), Some(&below)).expect("a rule names it");
        let listener = Listener::Unix(UnixListener::from(socket));
        let own = directory.path().join("own");
        assert!(own.exists());
        (fns.remove)(&text("own")).expect_err("the listener is open");
        // Another worker may still have the listener.
        let again = listener.try_clone().expect("a duplicate");
        listener.stop();
        (fns.remove)(&text("own")).expect("it is closed");
        assert!(!own.exists());
        drop(again);
        (fns.remove)(&text("own")).expect_err("it was removed");
    }

    #[test]
    fn an_address_in_use_is_reported_by_its_code() {
        let any = ListenAddress::parse("tcp:127.0.0.1:0").expect("an address");
        let refused = |address| code_of(&for_client(address, None).expect_err("it is refused"));
        let (first, address) = for_client(&any, None).expect("a free port");
        assert_eq!(refused(&address), ListenCode::InUse);
        let ListenAddress::Tcp(at) = address else {
            panic!("{address}");
        };
        let _queued = TcpStream::connect(at).expect("it listens");
        assert!(matches!(first.accept(), AcceptOutcome::Connection(..)));
        // 192.0.2.1 is not an address of this machine.
        let far = ListenAddress::parse("tcp:192.0.2.1:0").expect("an address");
        assert_eq!(refused(&far), ListenCode::BadAddress);
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let path = ListenAddress::unix(&path.to_string_lossy()).expect("a path");
        let bound = for_client(&path, None).expect("a free path");
        assert_eq!(refused(&path), ListenCode::InUse);
        drop(bound);
        for_client(&path, None).expect("the previous listener is gone");
    }
}
