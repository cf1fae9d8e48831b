//! A TUN device, on which this program reads and writes complete IP packets of this host.
//!
//! Every frame is an IP packet behind the ten bytes of `struct virtio_net_hdr`. With offload, the kernel hands over
//! packets of up to 64 KiB that it would otherwise segment, with checksums not yet filled in, and accepts such packets.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::io::FdFlags;

use crate::inherit_socket::copy;
use crate::syscall_result::check;

/// A device that exists as long as this value, in the network namespace in which it was made.
#[derive(Debug)]
pub struct Tun {
    fd: OwnedFd,
    name: String,
}

impl Tun {
    /// Longest frame that is read or written.
    pub const FRAME_MAX: usize = HEADER + 65_535;

    /// Makes a device in the calling thread's network namespace, or takes over one of that name that was kept
    /// ([`Self::keep`]). A new device is down. Reads and writes never block.
    ///
    /// Fails with `PermissionDenied` without `CAP_NET_ADMIN` there, and with `NotFound` if the kernel has no TUN. Fails
    /// with `InvalidInput` if the name is not one of 1 to 15 bytes, and with `ResourceBusy` if the name is taken.
    pub fn create(name: &str, offload: bool) -> io::Result<Self> {
        let fd: OwnedFd = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")?
            .into();
        let request = request(name)?;
        // SAFETY: TUNSETIFF reads and writes a `struct ifreq`, which `request` is, and keeps no pointer to it.
        let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw const request) };
        check(done)?;
        let header = libc::c_int::try_from(HEADER).unwrap_or_default();
        // SAFETY: TUNSETVNETHDRSZ reads an `int`.
        let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const header) };
        check(done)?;
        let features = if offload { OFFLOADS } else { 0 };
        // SAFETY: TUNSETOFFLOAD takes a number, not a pointer.
        let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, features) };
        check(done)?;
        Ok(Self {
            fd,
            name: name.to_owned(),
        })
    }

    /// Takes over a device that the process that started this one has made, by its descriptor number. The original
    /// descriptor stays open as well. Fails with `InvalidInput` if the descriptor is not a device with virtio headers.
    pub fn inherit(number: i32) -> io::Result<Self> {
        let fd = copy(number)?;
        // SAFETY: all zeros is a valid `struct ifreq`, which holds numbers and arrays of them.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // SAFETY: TUNGETIFF writes a `struct ifreq`, which `request` is, and keeps no pointer to it.
        let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNGETIFF, &raw mut request) };
        check(done).map_err(|_| no_device(number))?;
        // SAFETY: TUNGETIFF fills in the flags, and every bit pattern is a valid number.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        let wanted = libc::IFF_TUN | libc::IFF_VNET_HDR;
        if i32::from(flags) & wanted != wanted {
            return Err(no_device(number));
        }
        let name = request
            .ifr_name
            .map(|byte| u8::from_ne_bytes(byte.to_ne_bytes()));
        let name: Vec<u8> = name.into_iter().take_while(|byte| *byte != 0).collect();
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self {
            fd,
            name: String::from_utf8_lossy(&name).into_owned(),
        })
    }

    /// Lets the process that `command` starts inherit the device. Returns the descriptor number that it has there.
    pub fn pass_on(&self, command: &mut Command) -> io::Result<i32> {
        let copy = self.fd.try_clone()?;
        let number = copy.as_raw_fd();
        // In this process the descriptor stays close-on-exec, as every descriptor does that has an owner.
        let inherit = move || Ok(rustix::io::fcntl_setfd(&copy, FdFlags::empty())?);
        // SAFETY: between fork and exec, `inherit` makes one system call. It touches no lock and allocates nothing.
        unsafe { command.pre_exec(inherit) };
        Ok(number)
    }

    /// Sets whether the device, with its addresses and routes, stays when its last descriptor is closed. While it has
    /// no descriptor, packets sent into the device are lost.
    pub fn keep(&self, keep: bool) -> io::Result<()> {
        // SAFETY: TUNSETPERSIST takes a number, not a pointer.
        let done = unsafe {
            libc::ioctl(
                self.fd.as_raw_fd(),
                libc::TUNSETPERSIST,
                libc::c_int::from(keep),
            )
        };
        check(done)
    }

    /// Returns the name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads a frame and returns its length. Fails with `WouldBlock` if no frame is waiting.
    pub fn read(&self, frame: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| {
            rustix::io::read(&self.fd, &mut *frame)
        })?)
    }

    /// Writes a frame. Fails with `WouldBlock` if there is no room, and with `InvalidInput` if the kernel cannot parse
    /// it.
    pub fn write(&self, frame: &[u8]) -> io::Result<()> {
        // The kernel takes a frame completely or not at all.
        rustix::io::retry_on_intr(|| rustix::io::write(&self.fd, frame))?;
        Ok(())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn request(name: &str) -> io::Result<libc::ifreq> {
    // The kernel would replace `%d` by a number that this program would not learn.
    let wrong = |byte| matches!(byte, 0 | b'%' | b'/');
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.bytes().any(wrong) {
        let text = format!("{name:?} is not a valid device name: choose one of 1 to 15 bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    // SAFETY: all zeros is a valid `struct ifreq`, which holds numbers and arrays of them.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(flags).unwrap_or_default();
    Ok(request)
}

fn no_device(number: i32) -> io::Error {
    let text = format!("descriptor {number} is not a TUN device with virtio headers");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Length of `struct virtio_net_hdr`.
const HEADER: usize = 10;
/// Checksums, and TCP segmentation for both address families.
const OFFLOADS: libc::c_uint = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;
    use crate::network::tests::namespaces;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::net::{IpAddr, UdpSocket};
    use std::time::Duration;

    /// Returns a network in which devices can be made. Prints a line that the test is skipped if there is none.
    fn network(test: &str) -> Option<crate::NetNamespace> {
        if let Err(why) = std::fs::File::open("/dev/net/tun") {
            quictun_skip::skipped(test, format_args!("/dev/net/tun: {why}"));
            return None;
        }
        namespaces(test).map(|(network, _)| network)
    }

    fn device(name: &str) -> io::Result<Tun> {
        let tun = Tun::create(name, true)?;
        let mut network = Network::open()?;
        network.set_queue_length(name, 1000)?;
        network.add_address(name, IpAddr::from([10, 99, 0, 2]), 24)?;
        network.set_up(name)?;
        Ok(tun)
    }

    /// Reads the next frame that is IPv4 with UDP. The kernel sends other packets on a new device, too.
    fn datagram(tun: &Tun) -> Vec<u8> {
        let mut frame = vec![0; Tun::FRAME_MAX];
        let patience = Timespec {
            tv_sec: 10,
            tv_nsec: 0,
        };
        loop {
            match tun.read(&mut frame) {
                Ok(length) if frame[HEADER] == 0x45 && frame[HEADER + 9] == 17 => {
                    return frame[..length].to_vec();
                }
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    let mut fds = [PollFd::new(tun, PollFlags::IN)];
                    assert_eq!(poll(&mut fds, Some(&patience)), Ok(1), "a datagram");
                }
            }
        }
    }

    #[test]
    fn packets_of_programs_can_be_read_and_answered() {
        let test = "tun::tests::packets_of_programs_can_be_read_and_answered";
        let Some(network) = network(test) else {
            return;
        };
        let (tun, socket) = network
            .within(|| Ok((device("tun7")?, UdpSocket::bind("10.99.0.2:0")?)))
            .expect("a device and a socket");
        assert_eq!(tun.name(), "tun7");
        let tun = Tun::inherit(tun.fd.as_raw_fd()).expect("the same device");
        assert_eq!(tun.name(), "tun7");
        let other = Tun::inherit(socket.as_raw_fd()).map_err(|error| error.kind());
        assert_eq!(other.err(), Some(io::ErrorKind::InvalidInput));
        assert!(Tun::inherit(-1).is_err());
        let taken = network.within(|| Tun::create("tun7", true));
        assert!(taken.is_err(), "the name is taken");
        socket
            .send_to(b"over there", "10.99.0.1:9")
            .expect("a route");
        let mut frame = datagram(&tun);
        assert!(frame.ends_with(b"over there"));
        // Send the packet back to its sender, with checksum 0, which means that there is none.
        frame[..HEADER].fill(0);
        let packet = &mut frame[HEADER..];
        for at in 12..16 {
            packet.swap(at, at + 4);
        }
        packet.swap(20, 22);
        packet.swap(21, 23);
        packet[26..28].fill(0);
        tun.write(&frame).expect("the kernel takes it");
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("a limit");
        let mut answer = [0; 100];
        let (length, from) = socket.recv_from(&mut answer).expect("an answer");
        assert_eq!(&answer[..length], b"over there");
        assert_eq!(from.to_string(), "10.99.0.1:9");
    }

    #[test]
    fn a_device_ends_with_its_descriptor_and_a_name_is_short() {
        let test = "tun::tests::a_device_ends_with_its_descriptor_and_a_name_is_short";
        let Some(network) = network(test) else {
            return;
        };
        network
            .within(|| {
                drop(Tun::create("tun8", false)?);
                drop(Tun::create("tun8", true)?);
                let kept = Tun::create("tun8", true)?;
                kept.keep(true)?;
                drop(kept);
                let mut network = Network::open()?;
                network.set_up("tun8")?;
                let again = Tun::create("tun8", true)?;
                again.keep(false)?;
                drop(again);
                assert!(network.set_up("tun8").is_err(), "the device is gone");
                Tun::create("abcdefghijklmno", true)?;
                for name in ["", "abcdefghijklmnop", "a\0b", "a/b", "tun%d"] {
                    let refused = Tun::create(name, true).map_err(|error| error.kind());
                    assert_eq!(refused.err(), Some(io::ErrorKind::InvalidInput), "{name:?}");
                }
                Ok(())
            })
            .expect("devices");
    }
}
