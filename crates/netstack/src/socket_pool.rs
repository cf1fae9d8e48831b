//! A pool of sockets with buffers, which flows use in turn.
//!
//! A flow has a socket only while it has something under way. Sockets come in two sizes. Free sockets are kept, because
//! allocating and clearing buffers would be most of the cost of a short flow.

use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BufferSize {
    Small,
    Large,
}

/// A TCP socket in a socket set of its own, so that the cost of an operation does not depend on the number of sockets.
pub(crate) struct PooledSocket {
    pub(crate) sockets: SocketSet<'static>,
    handle: SocketHandle,
    pub(crate) size: BufferSize,
}

impl std::fmt::Debug for PooledSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.tcp().state();
        write!(f, "PooledSocket({:?}, {state})", self.size)
    }
}

impl PooledSocket {
    /// Creates a socket with `bytes` of buffer in each direction.
    fn new(size: BufferSize, bytes: usize) -> Self {
        // smoltcp treats the window of its SYN as scaled. The receive buffer is one byte shorter than a power of two,
        // so that a scaled 65535 stays below it. A peer that also treats the window as scaled then cannot overrun the
        // buffer.
        let receive = SocketBuffer::new(vec![0; bytes - 1]);
        let mut socket = Socket::new(receive, SocketBuffer::new(vec![0; bytes]));
        // The device is in this host: no packet is lost on the way, and there is no bottleneck queue to protect.
        socket.set_congestion_control(CongestionControl::None);
        socket.set_ack_delay(None);
        socket.set_nagle_enabled(false);
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let handle = sockets.add(socket);
        Self {
            sockets,
            handle,
            size,
        }
    }

    pub(crate) fn tcp(&self) -> &Socket<'static> {
        self.sockets.get(self.handle)
    }

    pub(crate) fn tcp_mut(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// Returns the number of bytes that the application may send.
    pub(crate) fn window(&self) -> usize {
        self.tcp().recv_capacity() - self.tcp().recv_queue()
    }

    /// Returns whether the socket is open in both directions, with nothing queued in either.
    pub(crate) fn is_quiet(&self) -> bool {
        let socket = self.tcp();
        socket.state() == State::Established && socket.send_queue() == 0 && socket.recv_queue() == 0
    }
}

#[derive(Debug)]
#[expect(
    clippy::vec_box,
    reason = "sockets move between flows and the pool without a copy"
)]
pub(crate) struct SocketPool {
    window: usize,
    limit: usize,
    /// Number of bytes in the buffers of all sockets, in use or free.
    pub(crate) bytes: usize,
    small: Vec<Box<PooledSocket>>,
    large: Vec<Box<PooledSocket>>,
}

impl SocketPool {
    pub(crate) fn new(window: usize, limit: usize) -> Self {
        Self {
            window,
            limit,
            bytes: 0,
            small: Vec::new(),
            large: Vec::new(),
        }
    }

    pub(crate) fn take(&mut self, size: BufferSize) -> Option<Box<PooledSocket>> {
        let free = self.free(size).pop();
        if free.is_some() {
            return free;
        }
        let other = match size {
            BufferSize::Small => BufferSize::Large,
            BufferSize::Large => BufferSize::Small,
        };
        while self.bytes + self.cost(size) > self.limit {
            self.free(other).pop()?;
            self.bytes -= self.cost(other);
        }
        self.bytes += self.cost(size);
        Some(Box::new(PooledSocket::new(size, self.cost(size) / 2)))
    }

    pub(crate) fn put(&mut self, mut socket: Box<PooledSocket>) {
        let size = socket.size;
        let keep = match size {
            BufferSize::Small => KEEP_SMALL,
            BufferSize::Large => KEEP_LARGE,
        };
        if self.free(size).len() < keep {
            socket.tcp_mut().abort();
            self.free(size).push(socket);
        } else {
            self.bytes -= self.cost(size);
        }
    }

    /// Returns the largest window that a socket of this size announces, in bytes.
    pub(crate) fn window(&self, size: BufferSize) -> usize {
        self.cost(size) / 2 - 1
    }

    /// Returns the unit of the windows that a socket of this size announces, as a shift. `scaled` says whether the
    /// application scales windows.
    pub(crate) fn shift(&self, size: BufferSize, scaled: bool) -> u32 {
        match size {
            BufferSize::Large if scaled => self.window.trailing_zeros() - 16,
            _ => 0,
        }
    }

    #[expect(
        clippy::vec_box,
        reason = "sockets move between flows and the pool without a copy"
    )]
    fn free(&mut self, size: BufferSize) -> &mut Vec<Box<PooledSocket>> {
        match size {
            BufferSize::Small => &mut self.small,
            BufferSize::Large => &mut self.large,
        }
    }

    fn cost(&self, size: BufferSize) -> usize {
        let buffers = match size {
            BufferSize::Small => SMALL,
            BufferSize::Large => self.window,
        };
        2 * buffers
    }
}

/// Size of a small buffer in bytes. Two of them make up the 16 KiB of a half-closed flow, which cannot return its
/// buffers.
pub(crate) const SMALL: usize = 8 * 1024 - 512;
/// Largest number of free small sockets. Chosen arbitrarily, to serve many short flows at a time from 16 MiB.
const KEEP_SMALL: usize = 1024;
/// Largest number of free large sockets. Chosen arbitrarily, for some flows that transfer bulk data in turns.
const KEEP_LARGE: usize = 32;
