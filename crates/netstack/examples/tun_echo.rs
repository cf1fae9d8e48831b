//! A TCP echo on a TUN device: it answers at every port of 192.0.2.0/24. It needs the right to make devices: start it
//! as root, end it with Ctrl-C, and try it with `nc 192.0.2.7 7`. The device ends with the program.
//!
//! ```sh
//! cargo build -p quictun-netstack --example tun_echo && sudo target/debug/examples/tun_echo
//! ```

#![expect(clippy::print_stdout, reason = "the example prints the events")]

use std::error::Error;
use std::hash::{BuildHasher as _, RandomState};
use std::io::ErrorKind;
use std::time::Instant;

use quictun_netstack::{Config, Event, FRAME_MAX, FlowError, Stack, StackFlowId, StackRead};
use quictun_sys::{Network, Tun};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

fn main() -> Result<(), Box<dyn Error>> {
    let tun = Tun::create("tun-echo", true)?;
    let mut network = Network::open()?;
    network.add_address(tun.name(), [192, 0, 2, 1].into(), 24)?;
    network.set_up(tun.name())?;
    let secret = RandomState::new().hash_one(0);
    let mut stack = Stack::new(Config::default(), secret, Instant::now())?;
    let frame: Result<Box<[u8; FRAME_MAX]>, _> = vec![0; FRAME_MAX].try_into();
    let mut frame = frame.expect("the length is right");
    loop {
        let now = Instant::now();
        // Only a few frames: what they cause must leave in time.
        for _ in 0..32 {
            match tun.read(&mut frame[..]) {
                Ok(length) => stack.handle_frame(now, &mut frame[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        stack.handle_timeout(now);
        while let Some(event) = stack.poll_event() {
            println!("{event:?}");
            // A call fails if the flow has ended, which an event reports as well.
            let _result = match event {
                Event::Offered { flow, .. } => stack.accept(now, flow),
                Event::Readable(flow) | Event::Writable(flow) => echo(&mut stack, now, flow),
                Event::Open(_) | Event::Ended { .. } => Ok(()),
            };
        }
        while let Some(length) = stack.poll_transmit(now, &mut frame) {
            // If the device has no room, the frame is lost, and TCP sends it again.
            let _written = tun.write(&frame[..length]);
        }
        let due = stack.next_timeout();
        let wait = due.map(|at| at.saturating_duration_since(now));
        let wait = wait.map(Timespec::try_from).transpose()?;
        let mut fds = [PollFd::new(&tun, PollFlags::IN)];
        rustix::io::retry_on_intr(|| poll(&mut fds, wait.as_ref()))?;
    }
}

/// Echoes as much as there is room for. The rest stays in the stack until [`Event::Writable`].
fn echo(stack: &mut Stack, now: Instant, flow: StackFlowId) -> Result<(), FlowError> {
    let mut text = Vec::new();
    loop {
        let copy = |bytes: &[u8]| {
            text = bytes.to_vec();
            0
        };
        match stack.read(now, flow, copy)? {
            StackRead::Data(_) => {}
            StackRead::Empty => return Ok(()),
            StackRead::Finished => return stack.finish(now, flow),
        }
        let written = stack.write(now, flow, &text)?;
        stack.read(now, flow, |_| written)?;
        if written < text.len() {
            return Ok(());
        }
    }
}
