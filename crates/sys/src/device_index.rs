//! The number that the kernel gives to a network device.

use std::io;

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Returns the index of a network device of the calling thread's namespace. A process that keeps [`SyscallSet::Tunnel`]
/// may ask for it.
///
/// # Errors
///
/// Fails with `ENODEV` if there is no device of this name.
///
/// [`SyscallSet::Tunnel`]: crate::confine::SyscallSet::Tunnel
pub fn device_index(name: &str) -> io::Result<u32> {
    // The request takes a socket of any family.
    let (datagrams, close) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
    let socket = socket_with(AddressFamily::UNIX, datagrams, close, None)?;
    Ok(name_to_index(socket, name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_has_an_index_and_a_name_without_a_device_is_an_error() {
        assert!(device_index("lo").expect("a device") > 0);
        let error = device_index("no-such-device").expect_err("no device");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
