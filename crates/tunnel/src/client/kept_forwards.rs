//! The keeper's part in a client's reload: it opens the listeners of forwards, which the confined process may not.
//!
//! The keeper reads the configuration by itself, and listens only at the addresses of forwards that it has found there
//! at the latest reload. An attacker who controls the client cannot make it listen anywhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quictun_io::socket_path::make_room;
use quictun_trust::keeper::ListenerFns;
use rustix::io::Errno;

use crate::listener::{self, with_one_listener};
use crate::settings::{Forward, ListenOn};

/// The forwards that the keeper knows. Clones share the same state.
#[derive(Clone, Debug, Default)]
pub(super) struct KeptForwards(Arc<Mutex<KnownForwards>>);

#[derive(Debug, Default)]
struct KnownForwards {
    /// The addresses of the latest configuration, by their text.
    listen: BTreeMap<String, ListenOn>,
    /// The paths of all Unix sockets that any configuration since the start has named.
    paths: BTreeSet<PathBuf>,
}

impl KeptForwards {
    pub(super) fn new(forwards: &[Forward]) -> Self {
        let new = Self::default();
        new.note(&with_one_listener(forwards.to_vec()));
        new
    }

    /// Returns the keeper's functions for listeners.
    pub(super) fn fns(&self) -> ListenerFns {
        let (of_bind, of_remove) = (self.clone(), self.clone());
        ListenerFns {
            bind: Box::new(move |text, _| of_bind.bind(text)),
            remove: Box::new(move |text| of_remove.remove(text)),
        }
    }

    /// Replaces the known forwards by those of a configuration that is in force from now on.
    pub(super) fn note(&self, forwards: &[Forward]) {
        let mut known = self.known();
        known.listen = forwards
            .iter()
            .map(|forward| (forward.listen.to_string(), forward.listen.clone()))
            .collect();
        known
            .paths
            .extend(forwards.iter().filter_map(|it| match &it.listen {
                ListenOn::Unix(path) => Some(path.clone()),
                ListenOn::Tcp(_)
                | ListenOn::Loopback(_)
                | ListenOn::Transparent(..)
                | ListenOn::Udp(_)
                | ListenOn::TransparentUdp(_) => None,
            }));
    }

    fn bind(&self, text: &str) -> io::Result<OwnedFd> {
        let listen = self.known().listen.get(text).cloned();
        let listen = listen.ok_or(Errno::PERM)?;
        listener::bind_fd(&listen, listener::BACKLOG)
    }

    /// Removes the socket file of a forward. A file on which a program listens stays.
    fn remove(&self, text: &str) -> io::Result<()> {
        let path = text.strip_prefix("unix:").map(PathBuf::from);
        let known = |path: &PathBuf| self.known().paths.contains(path);
        let path = path.filter(known).ok_or(Errno::NOENT)?;
        make_room(&path)
    }

    fn known(&self) -> MutexGuard<'_, KnownForwards> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::settings::ForwardTo;

    fn forward(listen: ListenOn) -> Forward {
        let to = ForwardTo::Proxy;
        Forward { listen, to }
    }

    #[test]
    fn the_keeper_listens_only_where_the_configuration_that_it_has_read_names_a_forward() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let any = ListenOn::Tcp(([127, 0, 0, 1], 0).into());
        let kept = KeptForwards::new(&[forward(any)]);
        let fns = kept.fns();
        let unix = format!("unix:{}", path.display());
        let refused = |text: &str| (fns.bind)(text, None).expect_err(text).raw_os_error();
        for text in ["127.0.0.1:80", "127.0.0.1:1", "", &unix] {
            assert_eq!(refused(text), Some(Errno::PERM.raw_os_error()), "{text}");
        }
        let socket = (fns.bind)("127.0.0.1:0", None).expect("the configuration names it");
        assert!(TcpListener::from(socket).local_addr().is_ok());

        kept.note(&[forward(ListenOn::Unix(path.clone()))]);
        refused("127.0.0.1:0");
        let socket = (fns.bind)(&unix, None).expect("the configuration names it now");
        (fns.remove)(&unix).expect_err("it listens");
        drop(socket);
        kept.note(&[]);
        refused(&unix);
        std::fs::write(directory.path().join("other"), "").expect("a file");
        let other = format!("unix:{}/other", directory.path().display());
        (fns.remove)(&other).expect_err("no configuration has named it");
        (fns.remove)(&unix).expect("an earlier configuration has named it");
        assert!(!path.exists());
    }
}
