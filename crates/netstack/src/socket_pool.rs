//! Sockets and their buffers, which go from flow to flow.
//!
//! A flow has a socket only while something is under way. Sockets come in two sizes; free ones are
//! kept, because making and clearing buffers would be most of the cost of a short flow.

use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Small,
    Large,
}

/// One TCP socket in a set of its own, so that what is done to it costs the same however many others there are.
pub(crate) struct PooledSocket {
    pub(crate) sockets: SocketSet<'static>,
    handle: SocketHandle,
    pub(crate) size: Size,
}

impl std::fmt::Debug for PooledSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.tcp().state();
        write!(f, "PooledSocket({:?}, {state})", self.size)
    }
}

impl PooledSocket {
    /// With `bytes` of buffer in each direction.
    fn new(size: Size, bytes: usize) -> Self {
        // smoltcp takes the window of its SYN for scaled: one byte less than a power of two is what
        // 65535 scaled stays below, so that a peer that believes it, too, cannot overrun the buffer.
        let receive = SocketBuffer::new(vec![0; bytes - 1]);
        let mut socket = Socket::new(receive, SocketBuffer::new(vec![0; bytes]));
        // The device is in this machine: nothing gets lost between, nor is there a queue to spare.
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

    /// Bytes of room for what the application sends.
    pub(crate) fn window(&self) -> usize {
        self.tcp().recv_capacity() - self.tcp().recv_queue()
    }

    /// Open in both directions, with nothing under way in either.
    pub(crate) fn is_quiet(&self) -> bool {
        let socket = self.tcp();
        socket.state() == State::Established && socket.send_queue() == 0 && socket.recv_queue() == 0
    }
}

#[derive(Debug)]
#[expect(
    clippy::vec_box,
    reason = "sockets go to flows and come back as they are"
)]
pub(crate) struct SocketPool {
    window: usize,
    limit: usize,
    /// Bytes of all sockets there are.
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

    pub(crate) fn take(&mut self, size: Size) -> Option<Box<PooledSocket>> {
        let free = self.free(size).pop();
        if free.is_some() {
            return free;
        }
        let other = match size {
            Size::Small => Size::Large,
            Size::Large => Size::Small,
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
            Size::Small => KEEP_SMALL,
            Size::Large => KEEP_LARGE,
        };
        if self.free(size).len() < keep {
            socket.tcp_mut().abort();
            self.free(size).push(socket);
        } else {
            self.bytes -= self.cost(size);
        }
    }

    /// Bytes that fit the receive buffer of a socket.
    pub(crate) fn window(&self, size: Size) -> usize {
        self.cost(size) / 2 - 1
    }

    /// The unit in which a socket of that size announces its window, as a shift; `scaled` where the application scales.
    pub(crate) fn shift(&self, size: Size, scaled: bool) -> u32 {
        match size {
            Size::Large if scaled => self.window.trailing_zeros() - 16,
            _ => 0,
        }
    }

    #[expect(
        clippy::vec_box,
        reason = "sockets go to flows and come back as they are"
    )]
    fn free(&mut self, size: Size) -> &mut Vec<Box<PooledSocket>> {
        match size {
            Size::Small => &mut self.small,
            Size::Large => &mut self.large,
        }
    }

    fn cost(&self, size: Size) -> usize {
        let buffers = match size {
            Size::Small => SMALL,
            Size::Large => self.window,
        };
        2 * buffers
    }
}

/// Bytes of a small buffer: with two of them a flow that cannot give them back, because it is half closed,
/// costs 16 KiB.
pub(crate) const SMALL: usize = 8 * 1024 - 512;
/// Free sockets that are kept; chosen arbitrarily, to serve many short flows at a time from 16 MiB, ...
const KEEP_SMALL: usize = 1024;
/// ... and some that take turns at bulk.
const KEEP_LARGE: usize = 32;
