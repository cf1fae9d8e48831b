//! The network stack in this very process, on a device of its own.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Instant;

use quictun_netstack::{Config, FRAME_MAX, FlowId, Stack};
use quictun_sys::Tun;

use crate::stack_socket::SharedStack;
use crate::tun_device;

/// Frames taken in before what they caused goes on: more, and short flows wait for bulk.
const FRAMES: usize = 8;

/// The device and the stack.
pub struct OwnStack {
    /// The device.
    pub tun: Tun,
    /// The stack, as its sockets share it.
    pub shared: Rc<SharedStack>,
    frame: Box<[u8; FRAME_MAX]>,
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
        let frame = vec![0; FRAME_MAX].into_boxed_slice().try_into();
        Ok(Self {
            tun,
            shared: Rc::new(SharedStack {
                stack: RefCell::new(stack),
                now: Cell::new(now),
                unfinished: RefCell::default(),
            }),
            frame: frame
                .map_err(|_| io::Error::other("a buffer of another length than asked for"))?,
        })
    }

    /// Takes some of the frames that the device has.
    pub fn take_frames(&mut self, now: Instant) -> io::Result<()> {
        for _ in 0..FRAMES {
            match self.tun.read(self.frame.as_mut_slice()) {
                Ok(length) => {
                    let mut stack = self.shared.stack.borrow_mut();
                    stack.handle_frame(now, &mut self.frame[..length]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Gives the device all that the stack has.
    pub fn transmit(&mut self, now: Instant) -> io::Result<()> {
        loop {
            let length = self
                .shared
                .stack
                .borrow_mut()
                .poll_transmit(now, &mut self.frame);
            let Some(length) = length else {
                return Ok(());
            };
            match self.tun.write(&self.frame[..length]) {
                Ok(()) => {}
                // TCP repeats what there was no room for.
                Err(error) if tun_device::has_no_room(&error) => {}
                Err(error) => return Err(error),
            }
        }
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
