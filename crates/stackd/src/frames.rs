//! Moves frames between a stack and the wire that it is attached to.

use std::io::{self, ErrorKind};
use std::time::Instant;

use quictun_netstack::{Config, FRAME_MAX, Stack};
use quictun_sys::Tun;

use crate::tun_device;

/// A source and sink of frames that a stack is attached to, usually a device.
pub trait FrameDevice {
    /// Reads the next frame and returns its length, or `None` if there is no frame now.
    fn read(&mut self, frame: &mut [u8]) -> io::Result<Option<usize>>;

    /// Writes a frame. A frame that finds no space is lost, and TCP retransmits it.
    fn write(&mut self, frame: &[u8]) -> io::Result<()>;
}

impl FrameDevice for Tun {
    fn read(&mut self, frame: &mut [u8]) -> io::Result<Option<usize>> {
        match Self::read(self, frame) {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        match Self::write(self, frame) {
            Err(error) if !tun_device::has_no_room(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

/// Creates a stack with random sequence numbers.
pub(crate) fn new_stack(now: Instant) -> io::Result<Stack> {
    let random = quictun_sys::random()?;
    let words = random.as_chunks().0.iter();
    let seed = words.fold(0, |seed, word| seed ^ u64::from_ne_bytes(*word));
    Stack::new(Config::default(), seed, now).map_err(io::Error::other)
}

/// A wire with a buffer for one frame.
#[derive(Debug)]
pub struct Frames<W> {
    /// The wire that carries the frames.
    pub wire: W,
    frame: Box<[u8; FRAME_MAX]>,
}

impl<W: FrameDevice> Frames<W> {
    /// Creates a buffer for frames of this wire.
    pub fn new(wire: W) -> Self {
        let frame = vec![0; FRAME_MAX].into_boxed_slice().try_into();
        Self {
            wire,
            frame: frame.expect("invariant: the buffer has length FRAME_MAX"),
        }
    }

    /// Passes up to `most` frames from the wire to the stack. Returns how many there were.
    pub fn take(&mut self, now: Instant, most: usize, stack: &mut Stack) -> io::Result<usize> {
        for taken in 0..most {
            let Some(length) = self.wire.read(self.frame.as_mut_slice())? else {
                return Ok(taken);
            };
            stack.handle_frame(now, &mut self.frame[..length]);
        }
        Ok(most)
    }

    /// Passes all pending frames from the stack to the wire, but only a bounded number of datagrams. Returns how many there
    /// were. While [`Stack::has_outgoing_datagram`], come back without waiting: programs can read meanwhile.
    pub fn transmit(&mut self, now: Instant, stack: &mut Stack) -> io::Result<usize> {
        stack.permit_datagrams(DATAGRAMS);
        let mut sent = 0;
        while let Some(length) = stack.poll_transmit(now, &mut self.frame) {
            self.wire.write(&self.frame[..length])?;
            sent += 1;
        }
        if stack.has_outgoing_datagram() {
            // A program may need this processor.
            std::thread::yield_now();
        }
        Ok(sent)
    }
}

/// Number of datagrams written at once: a third of what a program's socket holds by default if each fills a packet.
const DATAGRAMS: usize = 32;

#[cfg(test)]
mod tests {
    use quictun_netstack::Datagram;

    use super::*;

    /// The number of frames that were written.
    struct Written(usize);

    impl FrameDevice for Written {
        fn read(&mut self, _: &mut [u8]) -> io::Result<Option<usize>> {
            Ok(None)
        }

        fn write(&mut self, _: &[u8]) -> io::Result<()> {
            self.0 += 1;
            Ok(())
        }
    }

    #[test]
    fn a_burst_of_datagrams_is_written_in_parts() {
        let now = Instant::now();
        let mut stack = new_stack(now).expect("random numbers");
        let datagram = Datagram {
            client: ([198, 18, 0, 2], 4000).into(),
            target: ([192, 0, 2, 1], 4000).into(),
            payload: vec![7; 1200],
        };
        for _ in 0..80 {
            assert!(stack.send_datagram(&datagram));
        }
        let mut frames = Frames::new(Written(0));
        for (written, more) in [(32, true), (64, true), (80, false), (80, false)] {
            frames.transmit(now, &mut stack).expect("never fails");
            let left = stack.has_outgoing_datagram();
            assert_eq!((frames.wire.0, left), (written, more));
        }
    }
}
