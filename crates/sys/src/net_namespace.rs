//! Network namespaces, held by descriptor: nothing has a name, so nothing is left behind.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::thread;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::contain::own_namespaces;

const CURRENT: &str = "/proc/thread-self/ns/net";

/// A network of its own: devices, addresses, routes, ports. It ends with its last descriptor and last process.
#[derive(Debug)]
pub struct NetNamespace {
    fd: OwnedFd,
}

impl NetNamespace {
    /// The one in which the calling thread is.
    pub fn current() -> io::Result<Self> {
        let fd = File::open(CURRENT)?.into();
        Ok(Self { fd })
    }

    /// A new one with nothing but a loopback device, which is down. Fails with `PermissionDenied` without
    /// `CAP_SYS_ADMIN` in the user namespace; see [`crate::contain`].
    pub fn new() -> io::Result<Self> {
        on_a_thread(|| {
            own_namespaces(UnshareFlags::NEWNET)?;
            Self::current()
        })
    }

    /// Moves the calling thread here for good: what it opens and starts from now on belongs here. Needs
    /// `CAP_SYS_ADMIN`.
    pub fn enter(&self) -> io::Result<()> {
        move_into_link_name_space(self.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(())
    }

    /// Runs `act` on a thread that is here; sockets and processes made there stay here. Entering needs no rights where
    /// the calling thread is here already.
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

/// A thread's namespaces cannot always be put back, so those that change them are not used for anything else.
fn on_a_thread<T: Send>(act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, act)?;
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
