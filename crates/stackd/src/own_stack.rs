//! The network stack in this process, on a device of its own.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Instant;

use quictun_netstack::StackFlowId;
use quictun_sys::Tun;

use crate::frames::{Frames, new_stack};
use crate::stack_socket::SharedStack;

/// Largest number of frames taken before their effects are handled. With more, short flows wait for bulk flows.
const FRAMES: usize = 8;

/// A device and the stack attached to it.
#[derive(Debug)]
pub struct OwnStack {
    /// The device, with a buffer for a frame.
    pub frames: Frames<Tun>,
    /// The stack, shared with its sockets.
    pub shared: Rc<SharedStack>,
}

impl OwnStack {
    /// Creates a stack on a device.
    pub fn new(tun: Tun) -> io::Result<Self> {
        let now = Instant::now();
        let stack = new_stack(now)?;
        Ok(Self {
            frames: Frames::new(tun),
            shared: Rc::new(SharedStack {
                stack: RefCell::new(stack),
                now: Cell::new(now),
                unfinished: RefCell::default(),
            }),
        })
    }

    /// Returns how many datagrams the stack has dropped so far, in both directions.
    pub fn dropped_datagrams(&self) -> u64 {
        self.shared.stack.borrow().counters().datagrams_dropped
    }

    /// Passes a bounded number of frames from the device to the stack.
    pub fn take_frames(&mut self, now: Instant) -> io::Result<()> {
        let stack = &mut self.shared.stack.borrow_mut();
        self.frames.take(now, FRAMES, stack).map(drop)
    }

    /// Passes pending frames from the stack to the device. Returns whether there are more.
    pub fn transmit(&mut self, now: Instant) -> io::Result<bool> {
        let stack = &mut self.shared.stack.borrow_mut();
        self.frames.transmit(now, stack)?;
        Ok(stack.has_outgoing_datagram())
    }

    /// Tries again to finish a flow that now has room, if an earlier attempt found no memory.
    pub fn finish_again(&self, now: Instant, id: StackFlowId) {
        let mut unfinished = self.shared.unfinished.borrow_mut();
        if let Some(at) = unfinished.iter().position(|waiting| *waiting == id)
            && self.shared.stack.borrow_mut().finish(now, id).is_ok()
        {
            unfinished.swap_remove(at);
        }
    }
}
