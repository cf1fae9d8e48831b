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

/// Maximum number of announcements that one call takes. The kernel's default buffer holds about 270 of the shortest, so
/// a call sees more only while new ones arrive.
const MOST: usize = 512;

/// Room for the headers of an announcement. A longer one is cut, and counts as a change.
const ROOM: usize = 4 << 10;

/// Receives announcements of the network namespace in which it was opened. The descriptor becomes readable at the next
/// announcement.
#[derive(Debug)]
pub struct RouteWatch {
    socket: OwnedFd,
}

impl RouteWatch {
    /// Watches the calling thread's network namespace from now on. Needs no rights.
    pub fn open() -> io::Result<Self> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        // A socket that is connected to the kernel receives from no other sender.
        connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { socket })
    }

    /// Reads all announcements since the previous call. Returns whether a device, an address or a route was added,
    /// removed or changed. Returns true as well if the kernel's buffer overflowed, or if one call cannot read
    /// everything. Never blocks. After `false`, the socket is empty.
    ///
    /// # Errors
    ///
    /// The socket itself failed. No announcement will arrive any more.
    pub fn drain(&mut self) -> io::Result<bool> {
        let mut buffer = [0; ROOM];
        let mut changed = false;
        for _ in 0..MOST {
            match recvfrom(&self.socket, &mut buffer, RecvFlags::empty()) {
                Ok((_, length, from)) => {
                    let announced = buffer.get(..length).unwrap_or_default();
                    changed |= is_kernel(from) && tells_of_change(announced);
                }
                // Announcements were lost, because they were not read in time.
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

/// Returns whether one of these messages announces a change of a device, an address or a route. A message that cannot
/// be read counts as one.
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
