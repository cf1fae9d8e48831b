//! The part of netlink that this crate needs: requests to the kernel, and its answers.
//!
//! A [`Request`] is built attribute by attribute. [`Netlink::execute`] sends it and waits until the kernel accepts or
//! refuses it; [`Netlink::dump`] waits for a list. [`messages`] and [`attributes`] parse the answers. They take any
//! bytes and never panic.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send,
    socket_with,
};

use crate::poll_until;

#[cfg(test)]
mod tests;

/// Length of `struct nlmsghdr`: length, kind, flags, sequence number, port.
const HEADER: usize = 16;

/// Kind of a message that accepts (error 0) or refuses a request: `NLMSG_ERROR`.
const ERROR: u16 = 2;

/// Kind of a message that ends a list: `NLMSG_DONE`.
const DONE: u16 = 3;

/// Flag: attributes with an explanation follow the echoed header (`NLM_F_ACK_TLVS`).
const EXPLAINED: u16 = 0x200;

/// The explanation, as text: `NLMSGERR_ATTR_MSG`.
const EXPLANATION: u16 = 1;

/// More than the kernel puts into one message of a list, which is 32 KiB.
const ANSWER: usize = 64 << 10;

/// Timeout of a receive. The kernel answers within the call; this only limits the wait if something is wrong.
const PATIENCE: Duration = Duration::from_secs(5);

/// A message of this length always fits into the socket's buffer, whose default size is 208 KiB.
const ROOM: libc::c_int = 64 << 10;

#[derive(Clone, Debug)]
#[must_use]
pub(crate) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// Makes a request of this kind, which starts with the kind's own fixed header.
    pub(crate) fn new(kind: u16, flags: i32, fixed: &[u8]) -> Self {
        let flags = u16::try_from(flags | libc::NLM_F_REQUEST).unwrap_or_default();
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(&0_u32.to_ne_bytes());
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(fixed);
        Self { bytes }
    }

    pub(crate) fn with(self, kind: u16, value: &[u8]) -> Self {
        self.nested(kind, |inner| inner.raw(value))
    }

    pub(crate) fn with_text(self, kind: u16, text: &str) -> Self {
        self.nested(kind, |inner| inner.raw(text.as_bytes()).raw(&[0]))
    }

    pub(crate) fn with_u32(self, kind: u16, value: u32) -> Self {
        self.with(kind, &value.to_ne_bytes())
    }

    pub(crate) fn nested(self, kind: u16, fill: impl FnOnce(Self) -> Self) -> Self {
        let start = self.bytes.len();
        let header = self.raw(&[0; 2]).raw(&kind.to_ne_bytes());
        let mut filled = fill(header);
        // An attribute that is too long here is too long for the kernel, which refuses it.
        let length = u16::try_from(filled.bytes.len() - start).unwrap_or(u16::MAX);
        filled.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        let padded = filled.bytes.len().next_multiple_of(4);
        filled.bytes.resize(padded, 0);
        filled
    }

    /// Appends bytes unchanged: a fixed header inside an attribute.
    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    fn add_flags(&mut self, flags: i32) {
        let flags = u16::try_from(flags).unwrap_or_default();
        let had = u16::from_ne_bytes([self.bytes[6], self.bytes[7]]);
        self.bytes[6..8].copy_from_slice(&(had | flags).to_ne_bytes());
    }

    pub(crate) fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// A socket for the kernel's network configuration, in the namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket in the calling thread's network namespace. Without a protocol it is route netlink.
    pub(crate) fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        )?;
        // A socket that is connected to the kernel receives from no other sender.
        connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
            crate::socket_option::set(socket.as_fd(), libc::SOL_NETLINK, option, &1)?;
        }
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    pub(crate) fn execute(&mut self, request: Request) -> io::Result<()> {
        self.exchange(request, libc::NLM_F_ACK, |_, _| ())
    }

    /// Sends a request for a list, and passes every entry's kind and content to `each`.
    pub(crate) fn dump(
        &mut self,
        request: Request,
        each: impl FnMut(u16, &[u8]),
    ) -> io::Result<()> {
        self.exchange(request, libc::NLM_F_DUMP, each)
    }

    /// Sends requests to `nf_tables`, which performs all of them or, if it refuses one, none.
    pub(crate) fn execute_all(&mut self, mut requests: Vec<Request>) -> io::Result<()> {
        if let Some(last) = requests.last_mut() {
            last.add_flags(libc::NLM_F_ACK);
        }
        // struct nfgenmsg with the subsystem in it.
        let subsystem = u8::try_from(libc::NFNL_SUBSYS_NFTABLES).unwrap_or_default();
        let bracket = |kind: libc::c_int| {
            Request::new(
                u16::try_from(kind).unwrap_or_default(),
                0,
                &[0, 0, 0, subsystem],
            )
        };
        requests.insert(0, bracket(libc::NFNL_MSG_BATCH_BEGIN));
        requests.push(bracket(libc::NFNL_MSG_BATCH_END));
        // All requests have one number. The answer is the first refusal, or the acceptance of the last one.
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        let messages = requests.into_iter().map(|request| request.finish(sequence));
        let bytes: Vec<u8> = messages.flatten().collect();
        let room = libc::c_int::try_from(bytes.len()).unwrap_or(libc::c_int::MAX);
        if room > ROOM {
            let set = |option| {
                crate::socket_option::set(self.socket.as_fd(), libc::SOL_SOCKET, option, &room)
            };
            // The root of a user namespace may not exceed the system's limit.
            set(libc::SO_SNDBUFFORCE).or_else(|_| set(libc::SO_SNDBUF))?;
        }
        send(&self.socket, &bytes, SendFlags::empty())?;
        self.receive(|_, _| ())
    }

    /// Sends a request, and passes the kind and content of every entry of the answer to `each`.
    pub(crate) fn exchange(
        &mut self,
        mut request: Request,
        flags: i32,
        each: impl FnMut(u16, &[u8]),
    ) -> io::Result<()> {
        request.add_flags(flags);
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = request.finish(self.sequence);
        send(&self.socket, &bytes, SendFlags::empty())?;
        self.receive(each)
    }

    fn receive(&mut self, mut each: impl FnMut(u16, &[u8])) -> io::Result<()> {
        let mut buffer = vec![0; ANSWER];
        loop {
            let mut answered = [PollFd::new(&self.socket, PollFlags::IN)];
            if !poll_until(&mut answered, Instant::now() + PATIENCE)? {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let flags = RecvFlags::TRUNC | RecvFlags::DONTWAIT;
            let (_, length) = recv(&self.socket, buffer.as_mut_slice(), flags)?;
            let answer = buffer.get(..length).ok_or_else(malformed)?;
            for message in messages(answer) {
                let message = message?;
                if message.sequence != self.sequence {
                    continue;
                }
                match message.kind {
                    DONE | ERROR => return verdict(&message),
                    kind => each(kind, message.content),
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) content: &'a [u8],
}

/// Iterates over the messages of an answer. Ends after the first malformed one.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = io::Result<Message<'_>>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let Some((message, rest)) = message(bytes) else {
            bytes = &[];
            return Some(Err(malformed()));
        };
        bytes = rest;
        Some(Ok(message))
    })
}

fn message(bytes: &[u8]) -> Option<(Message<'_>, &[u8])> {
    let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
    let content = bytes.get(HEADER..length)?;
    let message = Message {
        kind: u16_at(bytes, 4)?,
        flags: u16_at(bytes, 6)?,
        sequence: u32_at(bytes, 8)?,
        content,
    };
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((message, rest))
}

/// Iterates over the attributes in `bytes`, as kind and value. Ends at the first malformed one.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        // The top bits say how the value is stored, not which attribute it is.
        let kind = u16_at(bytes, 2)? & 0x3fff;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Returns the value of the first attribute of this kind in `bytes`.
pub(crate) fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find_map(|(kind, value)| (kind == wanted).then_some(value))
}

/// Turns the kernel's answer into a result, with the kernel's explanation if there is one.
fn verdict(message: &Message<'_>) -> io::Result<()> {
    let bytes = message.content.first_chunk().ok_or_else(malformed)?;
    let code = i32::from_ne_bytes(*bytes);
    if code == 0 {
        return Ok(());
    }
    let refused = io::Error::from_raw_os_error(code.saturating_neg());
    let explained = (message.flags & EXPLAINED != 0)
        .then(|| message.content.get(4 + HEADER..))
        .flatten()
        .and_then(|rest| attribute(rest, EXPLANATION))
        .map(String::from_utf8_lossy);
    Err(match explained {
        Some(text) => io::Error::new(
            refused.kind(),
            format!("{} ({refused})", text.trim_end_matches('\0')),
        ),
        None => refused,
    })
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*field))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let field = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_ne_bytes(*field))
}

fn malformed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the kernel's answer is malformed",
    )
}
