//! Network namespaces, held by descriptor. They have no names, so nothing is left behind when the process ends.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::thread;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::contain::own_namespaces;

const CURRENT: &str = "/proc/thread-self/ns/net";

/// A separate network: devices, addresses, routes, ports. It ends with its last descriptor and its last process.
#[derive(Debug)]
pub struct NetNamespace {
    fd: OwnedFd,
}

impl NetNamespace {
    /// Returns the namespace of the calling thread.
    pub fn current() -> io::Result<Self> {
        let fd = File::open(CURRENT)?.into();
        Ok(Self { fd })
    }

    /// Makes a namespace that has only a loopback device, which is down. Fails with `PermissionDenied` without
    /// `CAP_SYS_ADMIN` in the user namespace; see [`crate::contain`].
    pub fn new() -> io::Result<Self> {
        on_a_thread(|| {
            own_namespaces(UnshareFlags::NEWNET)?;
            Self::current()
        })
    }

    /// Moves the calling thread into this namespace permanently. Sockets that it opens and processes that it starts
    /// from now on belong to the namespace. Needs `CAP_SYS_ADMIN`.
    pub fn enter(&self) -> io::Result<()> {
        move_into_link_name_space(self.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(())
    }

    /// Runs `act` on a new thread in this namespace. Sockets and processes that it makes stay in the namespace. If the
    /// calling thread is in the namespace already, no rights are needed.
    pub fn within<T: Send>(&self, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        on_a_thread(|| {
            if !self.is_current()? {
                self.enter()?;
            }
            act()
        })
    }

    fn is_current(&self) -> io::Result<bool> {
        let own = File::from(self.fd.try_clone()?).metadata()?;
        let here = std::fs::metadata(CURRENT)?;
        Ok((own.dev(), own.ino()) == (here.dev(), here.ino()))
    }
}

impl AsFd for NetNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Runs `act` on a thread of its own. A thread's namespaces cannot always be restored, so a thread that changes them
/// must not do anything else.
fn on_a_thread<T: Send>(act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, act)?;
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
