//! Counts long frames at a device. The kernel counts them, so counting costs very little.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::packet_socket::{bind, statistics};
use crate::socket_option;
use crate::syscall_result::check;

/// Counts frames that arrive at a device and are longer than a limit.
///
/// A filter in the kernel passes only these frames and keeps one byte of each. No process reads them.
#[derive(Debug)]
pub struct FrameCounter {
    fd: OwnedFd,
    seen: u64,
}

impl FrameCounter {
    /// Counts frames that arrive from now on at `interface`, in the calling thread's network namespace, and have more
    /// than `longer_than` bytes, including the Ethernet header. Needs `CAP_NET_RAW` in the namespace.
    pub fn open(interface: &str, longer_than: u32) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol, nothing arrives before `bind`, when the filter is in place.
        let fd = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        let ignore = libc::PACKET_IGNORE_OUTGOING;
        socket_option::set(fd.as_fd(), libc::SOL_PACKET, ignore, &1)?;
        attach(&fd, longer_than)?;
        bind(fd.as_fd(), name_to_index(&fd, interface)?)?;
        Ok(Self { fd, seen: 0 })
    }

    /// Returns how many such frames have arrived since the counter was opened.
    pub fn count(&mut self) -> io::Result<u64> {
        // The kernel resets its counters at each call. Frames that found no room in the buffer are included.
        let [arrived, _] = statistics(self.fd.as_fd())?;
        self.seen += u64::from(arrived);
        Ok(self.seen)
    }
}

/// Bytes kept of a frame. With 0, the kernel would drop the frame and not count it.
const KEPT: u32 = 1;

fn attach(fd: &OwnedFd, longer_than: u32) -> io::Result<()> {
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: u16::try_from(code).unwrap_or_default(),
        jt,
        jf,
        k,
    };
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0, 0, 0),
        step(
            libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K,
            0,
            1,
            longer_than,
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, KEPT),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ];
    let program = libc::sock_fprog {
        len: u16::try_from(steps.len()).unwrap_or_default(),
        filter: steps.as_mut_ptr(),
    };
    let length = libc::socklen_t::try_from(size_of_val(&program)).unwrap_or_default();
    // SAFETY: `program` is alive and `length` bytes long, and it names `steps`, which is alive and as long as `len`
    // says. The kernel only reads both, and copies them.
    let done = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            length,
        )
    };
    check(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Network;
    use crate::network::tests::namespaces;
    use std::net::UdpSocket;

    #[test]
    fn only_frames_longer_than_the_limit_are_counted() {
        let test = "frame_counter::tests::only_frames_longer_than_the_limit_are_counted";
        let Some((network, _)) = namespaces(test) else {
            return;
        };
        let count = || -> io::Result<[u64; 2]> {
            Network::open()?.set_up("lo")?;
            let mut counter = FrameCounter::open("lo", 1000)?;
            let receiver = UdpSocket::bind("127.0.0.1:0")?;
            let sender = UdpSocket::bind("127.0.0.1:0")?;
            // Ethernet, IP and UDP headers have 42 bytes.
            for payload in [958, 959, 10, 5000, 1] {
                sender.send_to(&vec![0; payload], receiver.local_addr()?)?;
            }
            Ok([counter.count()?, counter.count()?])
        };
        assert_eq!(network.within(count).expect("a count"), [2, 2]);
    }
}
