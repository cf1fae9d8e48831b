//! Changes of this machine's devices, addresses and routes, as the kernel announces them (rtnetlink).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrAny, SocketFlags, SocketType, bind, connect, recvfrom,
    socket_with,
};

use crate::netlink::messages;

#[cfg(test)]
mod tests;

/// `RTMGRP_*`: devices, then addresses and routes of IPv4 and of IPv6.
const GROUPS: u32 = (libc::RTMGRP_LINK
    | libc::RTMGRP_IPV4_IFADDR
    | libc::RTMGRP_IPV4_ROUTE
    | libc::RTMGRP_IPV6_IFADDR
    | libc::RTMGRP_IPV6_ROUTE)
    .cast_unsigned();

/// Announcements taken in one call: the kernel's default buffer holds about 270 of the shortest, so more come only while
/// others are added.
const MOST: usize = 512;

/// Enough for the headers of an announcement: one that is longer is cut, which says enough.
const ROOM: usize = 4 << 10;

/// Announcements of the network namespace in which it was opened. Its descriptor becomes readable with the next one.
#[derive(Debug)]
pub struct RouteWatch {
    socket: OwnedFd,
}

impl RouteWatch {
    /// Hears what changes from now on in the calling thread's network namespace. Needs no rights.
    pub fn open() -> io::Result<Self> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        // Connected to the kernel, it hears nobody else.
        connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { socket })
    }

    /// Takes what has been announced since the call before, and tells whether a device, an address or a route has come,
    /// gone or changed. `true` where the kernel had more to say than it could keep, or than one call takes. Never blocks;
    /// after `false` nothing is left.
    ///
    /// # Errors
    ///
    /// The socket's own failure: there is nothing to hear any more.
    pub fn drain(&mut self) -> io::Result<bool> {
        let mut buffer = [0; ROOM];
        let mut changed = false;
        for _ in 0..MOST {
            match recvfrom(&self.socket, &mut buffer, RecvFlags::empty()) {
                Ok((_, length, from)) => {
                    let announced = buffer.get(..length).unwrap_or_default();
                    changed |= is_kernel(from) && tells_of_change(announced);
                }
                // Announcements were lost, for nobody took them in time.
                Err(Errno::NOBUFS) => changed = true,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(changed),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

impl AsFd for RouteWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for RouteWatch {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

fn is_kernel(from: Option<SocketAddrAny>) -> bool {
    let from = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
    from.is_some_and(|from| from.pid() == 0)
}

/// Whether one of these messages is about a device, an address or a route. What cannot be read may have been.
fn tells_of_change(announced: &[u8]) -> bool {
    messages(announced)
        .any(|message| message.map_or(true, |message| CHANGES.contains(&message.kind)))
}

const CHANGES: [u16; 6] = [
    libc::RTM_NEWLINK,
    libc::RTM_DELLINK,
    libc::RTM_NEWADDR,
    libc::RTM_DELADDR,
    libc::RTM_NEWROUTE,
    libc::RTM_DELROUTE,
];
