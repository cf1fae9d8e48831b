//! The network stack in this very process, on a device of its own.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Instant;

use quictun_netstack::{Config, FlowId, Stack};
use quictun_sys::Tun;

use crate::frames::Frames;
use crate::stack_socket::SharedStack;
use crate::tun_device;

/// Frames taken in before what they caused goes on: more, and short flows wait for bulk.
const FRAMES: usize = 8;

/// The device and the stack.
pub struct OwnStack {
    /// The device.
    pub frames: Frames<Tun>,
    /// The stack, as its sockets share it.
    pub shared: Rc<SharedStack>,
}

impl std::fmt::Debug for OwnStack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnStack").finish_non_exhaustive()
    }
}

impl OwnStack {
    /// A stack on a device; its sequence numbers follow from `seed`.
    pub fn new(tun: Tun, names: bool, seed: u64) -> io::Result<Self> {
        let now = Instant::now();
        let config = Config {
            datagram_port: names.then_some(tun_device::PORT),
            ..Config::default()
        };
        let stack = Stack::new(config, seed, now).map_err(io::Error::other)?;
        Ok(Self {
            frames: Frames::new(tun),
            shared: Rc::new(SharedStack {
                stack: RefCell::new(stack),
                now: Cell::new(now),
                unfinished: RefCell::default(),
            }),
        })
    }

    /// Takes some of the frames that the device has.
    pub fn take_frames(&mut self, now: Instant) -> io::Result<()> {
        let stack = &mut self.shared.stack.borrow_mut();
        self.frames.take(now, FRAMES, stack).map(drop)
    }

    /// Gives the device all that the stack has.
    pub fn transmit(&mut self, now: Instant) -> io::Result<()> {
        let stack = &mut self.shared.stack.borrow_mut();
        self.frames.transmit(now, stack).map(drop)
    }

    /// There is room again: for the end of what was sent, perhaps.
    pub fn finish_again(&self, now: Instant, id: FlowId) {
        let mut unfinished = self.shared.unfinished.borrow_mut();
        if let Some(at) = unfinished.iter().position(|waiting| *waiting == id)
            && self.shared.stack.borrow_mut().finish(now, id).is_ok()
        {
            unfinished.swap_remove(at);
        }
    }
}
