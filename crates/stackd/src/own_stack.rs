//! The network stack in this very process, on a device of its own.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Instant;

use quictun_netstack::FlowId;
use quictun_sys::Tun;

use crate::frames::{Frames, new_stack};
use crate::stack_socket::SharedStack;

/// Frames taken in before what they caused goes on: more, and short flows wait for bulk.
const FRAMES: usize = 8;

/// The device and the stack.
#[derive(Debug)]
pub struct OwnStack {
    /// The device.
    pub frames: Frames<Tun>,
    /// The stack, as its sockets share it.
    pub shared: Rc<SharedStack>,
}

impl OwnStack {
    /// Makes a stack on a device; it takes questions to name servers where `names`.
    pub fn new(tun: Tun, names: bool) -> io::Result<Self> {
        let now = Instant::now();
        let stack = new_stack(names, now)?;
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
