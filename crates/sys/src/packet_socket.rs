//! Unsegmented frames of a network device: packet sockets with a virtio header on each frame.
//!
//! Linux passes segments around in *super-packets* of up to 64 kB and more, which are segmented only if a device cannot
//! do it itself. A packet socket with `PACKET_VNET_HDR` reads and writes super-packets unsegmented, with a header that
//! says where to segment them and which checksum is still to be filled in.

use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::net::netdevice::name_to_index;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, sendmsg, socket_with,
};

use crate::netlink::u32_at;
use crate::socket_buffer::{BufferSide, socket_buffer_force};
use crate::socket_option;
use crate::syscall_result::{check, length_as};

/// A packet socket bound to one device. It reads frames that arrive at the device, not frames that are sent through it.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    interface: String,
    /// The device counters of the namespace in which the socket was opened, if `/proc` is available.
    devices: Option<File>,
}

/// The work that remains before a frame can be sent on the wire: `struct virtio_net_hdr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// [`VnetHeader::NEEDS_CSUM`] and other flags.
    pub flags: u8,
    /// The kind of segmentation that the frame needs: [`VnetHeader::GSO_TCPV4`] and others.
    pub gso_type: u8,
    /// Bytes of headers in front of the payload.
    pub hdr_len: u16,
    /// Bytes of payload in each segment but the last.
    pub gso_size: u16,
    /// Offset at which the checksummed data begin.
    pub csum_start: u16,
    /// Offset of the checksum field, from `csum_start`.
    pub csum_offset: u16,
}

/// The result of reading a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reception {
    /// A frame was read.
    Frame {
        /// The work that remains to be done to the frame.
        header: VnetHeader,
        /// The frame's position in the buffer.
        at: Range<usize>,
        /// Time at which the frame reached the socket, since 1970 by the system's clock, if the kernel reports it.
        stamp: Option<Duration>,
    },
    /// A frame did not fit into the buffer, or the kernel cannot describe it. It is lost.
    Lost,
    /// No frame is waiting.
    Nothing,
}

/// Frames that were lost inside this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketDrops {
    /// Frames dropped because the receive buffer was full, since the previous query.
    pub receive_buffer: u64,
    /// Received frames that the device dropped, since the device was made.
    pub device_in: u64,
    /// Sent frames that the device or its peer dropped, since the device was made.
    pub device_out: u64,
}

impl VnetHeader {
    /// The checksum at `csum_offset` covers only the pseudo-header so far.
    pub const NEEDS_CSUM: u8 = 1;
    /// The frame is a single packet.
    pub const GSO_NONE: u8 = 0;
    /// The frame holds TCP segments over IPv4.
    pub const GSO_TCPV4: u8 = 1;
    /// The frame holds TCP segments over IPv6.
    pub const GSO_TCPV6: u8 = 4;
    /// The frame holds UDP datagrams.
    pub const GSO_UDP_L4: u8 = 5;
    /// Added to a TCP type: only the first segment has CWR.
    pub const GSO_ECN: u8 = 0x80;

    const LENGTH: usize = 10;

    fn from_bytes([flags, gso_type, h0, h1, g0, g1, s0, s1, o0, o1]: [u8; Self::LENGTH]) -> Self {
        let word = |a, b| u16::from_ne_bytes([a, b]);
        Self {
            flags,
            gso_type,
            hdr_len: word(h0, h1),
            gso_size: word(g0, g1),
            csum_start: word(s0, s1),
            csum_offset: word(o0, o1),
        }
    }

    fn to_bytes(self) -> [u8; Self::LENGTH] {
        let [h0, h1] = self.hdr_len.to_ne_bytes();
        let [g0, g1] = self.gso_size.to_ne_bytes();
        let [s0, s1] = self.csum_start.to_ne_bytes();
        let [o0, o1] = self.csum_offset.to_ne_bytes();
        [self.flags, self.gso_type, h0, h1, g0, g1, s0, s1, o0, o1]
    }
}

impl PacketSocket {
    /// Bytes at the front of a buffer that stay free: room for a VLAN tag that the kernel reports separately.
    pub const HEADROOM: usize = TAG as usize;

    /// Opens `interface` of the calling thread's network namespace. Reads and writes never block. Needs `CAP_NET_RAW`
    /// in the namespace.
    pub fn open(interface: &str) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol, nothing arrives before `bind`. So no frame is of another device, or lacks a header.
        let fd = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        for option in [
            libc::PACKET_VNET_HDR,
            libc::PACKET_IGNORE_OUTGOING,
            libc::PACKET_QDISC_BYPASS,
            libc::PACKET_AUXDATA,
        ] {
            socket_option::set(fd.as_fd(), libc::SOL_PACKET, option, &1)?;
        }
        socket_option::set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1)?;
        socket_buffer_force(&fd, BufferSide::Receive, BUFFER)?;
        socket_buffer_force(&fd, BufferSide::Send, BUFFER)?;
        let index = name_to_index(&fd, interface)?;
        bind(fd.as_fd(), index)?;
        Ok(Self {
            fd,
            interface: interface.to_owned(),
            devices: File::open("/proc/thread-self/net/dev").ok(),
        })
    }

    /// Reads a frame into `buffer`, if one is waiting. A VLAN tag is put back to its place on the wire.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Reception> {
        let mut header = [0; VnetHeader::LENGTH];
        let Some(room) = buffer.get_mut(Self::HEADROOM..) else {
            return Ok(Reception::Lost);
        };
        let message = match receive(self.fd.as_fd(), &mut header, room) {
            Ok(message) => message,
            Err(error) => {
                return match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::EINTR) => Ok(Reception::Nothing),
                    Some(libc::EINVAL) => Ok(Reception::Lost),
                    _ => Err(error),
                };
            }
        };
        let Some(length) = message.length.checked_sub(header.len()) else {
            return Ok(Reception::Lost);
        };
        if message.truncated {
            return Ok(Reception::Lost);
        }
        let mut header = VnetHeader::from_bytes(header);
        let end = Self::HEADROOM + length;
        let at = match message.vlan {
            Some(tag) if length >= MACS => {
                buffer.copy_within(Self::HEADROOM..Self::HEADROOM + MACS, 0);
                buffer[MACS..MACS + tag.len()].copy_from_slice(&tag);
                header.csum_start = header.csum_start.saturating_add(TAG);
                header.hdr_len = header.hdr_len.saturating_add(TAG);
                0..end
            }
            _ => Self::HEADROOM..end,
        };
        Ok(Reception::Frame {
            header,
            at,
            stamp: message.stamp,
        })
    }

    /// Sends a frame that is given in two parts. Fails with `WouldBlock` if there is no room for it now.
    pub fn send(&self, header: VnetHeader, parts: [&[u8]; 2]) -> io::Result<()> {
        let header = header.to_bytes();
        let [first, second] = parts;
        let slices = [
            IoSlice::new(&header),
            IoSlice::new(first),
            IoSlice::new(second),
        ];
        let mut control = SendAncillaryBuffer::default();
        sendmsg(&self.fd, &slices, &mut control, SendFlags::empty())?;
        Ok(())
    }

    /// Returns how many frames were lost without an error or [`Reception::Lost`].
    pub fn drops(&self) -> io::Result<PacketDrops> {
        let mut text = vec![0; DEVICES_TEXT_MAX];
        let [device_in, device_out] = match &self.devices {
            Some(devices) => {
                let length = devices.read_at(&mut text, 0)?;
                device_drops(&String::from_utf8_lossy(&text[..length]), &self.interface)
                    .unwrap_or_default()
            }
            None => [0; 2],
        };
        let [_, receive_buffer] = statistics(self.fd.as_fd())?;
        Ok(PacketDrops {
            receive_buffer: receive_buffer.into(),
            device_in,
            device_out,
        })
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Size requested for the buffers: a tenth of a second of 5 Gbit/s, as the kernel counts it.
const BUFFER: usize = 64 << 20;

/// A namespace with an emulator in it has three devices, each with a line of 130 bytes.
const DEVICES_TEXT_MAX: usize = 4096;

/// Length of the two addresses in front of a VLAN tag.
const MACS: usize = 12;

/// Length of a VLAN tag.
const TAG: u16 = 4;

/// The type of a VLAN tag, if the kernel does not report it: IEEE 802.1Q.
const VLAN_8021Q: u16 = 0x8100;

struct MessageInfo {
    length: usize,
    truncated: bool,
    vlan: Option<[u8; 4]>,
    stamp: Option<Duration>,
}

/// Converts a constant that is an `int` in C and has 16 bits in a structure.
fn short(constant: libc::c_int) -> u16 {
    u16::try_from(constant).expect("invariant: AF_PACKET and ETH_P_ALL fit")
}

pub(crate) fn bind(fd: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    // SAFETY: a `sockaddr_ll` consists of integers, for which zeroes are valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = short(libc::AF_PACKET);
    address.sll_protocol = short(libc::ETH_P_ALL).to_be();
    address.sll_ifindex = libc::c_int::try_from(index).map_err(io::Error::other)?;
    let length =
        libc::socklen_t::try_from(size_of_val(&address)).expect("invariant: structures are small");
    // SAFETY: `address` is alive and `length` bytes long, and the kernel only reads it.
    let done = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) };
    check(done)
}

fn receive(fd: BorrowedFd<'_>, header: &mut [u8], frame: &mut [u8]) -> io::Result<MessageInfo> {
    let mut parts = [header, frame].map(|part| libc::iovec {
        iov_base: part.as_mut_ptr().cast(),
        iov_len: part.len(),
    });
    let mut control = MaybeUninit::<ControlBuffer>::uninit();
    // SAFETY: a `msghdr` consists of integers and pointers, for which zeroes are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = length_as(parts.len());
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = length_as(size_of::<ControlBuffer>());
    // SAFETY: `message` points at two buffers and a control buffer that outlive the call. Each has the length given,
    // the kernel may write all of them, and any bytes are valid for them.
    let length = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, 0) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    let mut received = MessageInfo {
        length,
        truncated: message.msg_flags & libc::MSG_TRUNC != 0,
        vlan: None,
        stamp: None,
    };
    received.read_control(&message);
    Ok(received)
}

/// Room for one `tpacket_auxdata` and one `timespec`, with their headers.
#[repr(C, align(8))]
struct ControlBuffer([u8; 128]);

impl MessageInfo {
    /// Reads the control messages that arrived with the frame. `recvmsg` must have filled in `message`.
    fn read_control(&mut self, message: &libc::msghdr) {
        // SAFETY: the kernel has written `msg_controllen` bytes of complete control messages at `msg_control`.
        let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
        while !next.is_null() {
            // SAFETY: the pointer is not null, so it points at a header inside the aligned control buffer, which the
            // caller keeps.
            let head = unsafe { next.read() };
            // SAFETY: `next` is valid, see above, and its data follow it.
            let data = unsafe { libc::CMSG_DATA(next) };
            // SAFETY: the macro only computes a length.
            let before = unsafe { libc::CMSG_LEN(0) } as usize;
            let length = length_as::<_, usize>(head.cmsg_len) - before;
            match (head.cmsg_level, head.cmsg_type) {
                (libc::SOL_PACKET, libc::PACKET_AUXDATA)
                    if length >= size_of::<libc::tpacket_auxdata>() =>
                {
                    // SAFETY: `length` says that a complete structure was written there, and it consists of integers.
                    let aux = unsafe { data.cast::<libc::tpacket_auxdata>().read_unaligned() };
                    self.vlan = tag(&aux);
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS)
                    if length >= size_of::<libc::timespec>() =>
                {
                    // SAFETY: `length` says that a complete structure was written there, and it consists of integers.
                    let time = unsafe { data.cast::<libc::timespec>().read_unaligned() };
                    self.stamp = since_1970(time);
                }
                _ => {}
            }
            // SAFETY: both pointers are valid, see above.
            next = unsafe { libc::CMSG_NXTHDR(message, next) };
        }
    }
}

fn tag(aux: &libc::tpacket_auxdata) -> Option<[u8; 4]> {
    let valid = aux.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
    let named = aux.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let protocol = if named { aux.tp_vlan_tpid } else { VLAN_8021Q };
    let [p0, p1] = protocol.to_be_bytes();
    let [t0, t1] = aux.tp_vlan_tci.to_be_bytes();
    valid.then_some([p0, p1, t0, t1])
}

fn since_1970(time: libc::timespec) -> Option<Duration> {
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let nanos = u32::try_from(time.tv_nsec).ok()?;
    Duration::from_secs(seconds).checked_add(Duration::from_nanos(nanos.into()))
}

/// Returns the frames that have arrived since the last call, and those of them that found no room: `struct
/// tpacket_stats`.
pub(crate) fn statistics(fd: BorrowedFd<'_>) -> io::Result<[u32; 2]> {
    let (bytes, _): ([u8; 8], _) =
        socket_option::get(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
    Ok([0, 4].map(|at| u32_at(&bytes, at).unwrap_or_default()))
}

/// Returns the two `drop` columns of `/proc/net/dev`: receive and transmit.
fn device_drops(text: &str, interface: &str) -> Option<[u64; 2]> {
    const RECEIVE_DROP: usize = 3;
    const TRANSMIT_DROP: usize = 11;
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, numbers) = lines.find(|(name, _)| name.trim() == interface)?;
    let column = |index| numbers.split_whitespace().nth(index)?.parse().ok();
    Some([column(RECEIVE_DROP)?, column(TRANSMIT_DROP)?])
}

#[cfg(test)]
mod tests;
