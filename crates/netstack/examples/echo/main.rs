//! A program connects to an address that no host has. The stack answers in place of the target and echoes what it
//! receives. Frames pass between the two in memory, and time is virtual. The example `tun_echo` uses a TUN device.
//!
//! ```sh
//! cargo run -p quictun-netstack --example echo
//! ```

#![expect(clippy::print_stdout, reason = "the example prints what happens")]

mod program;

use std::error::Error;
use std::time::{Duration, Instant};

use quictun_netstack::{Config, Event, FRAME_MAX, HEADER, Offload, Stack, StackFlowId, StackRead};

use program::{MTU, TcpProgram};

fn main() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let config = Config {
        mtu: MTU,
        // This device splits no packets and fills in no checksums.
        offload: false,
        ..Config::default()
    };
    let mut stack = Stack::new(config, 1, start)?;
    let mut program = TcpProgram::connect([203, 0, 113, 9], 80, b"hello")?;
    let frame: Result<Box<[u8; FRAME_MAX]>, _> = vec![0; FRAME_MAX].try_into();
    let mut frame = frame.expect("the length is right");
    // Each turn of the loop takes a millisecond.
    for millis in 0..60_000 {
        let now = start + Duration::from_millis(millis);
        for packet in program.turn(millis)? {
            let mut packet = [Offload::default().to_bytes().as_slice(), &packet].concat();
            stack.handle_frame(now, &mut packet);
        }
        if stack.next_timeout().is_some_and(|at| at <= now) {
            stack.handle_timeout(now);
        }
        while let Some(event) = stack.poll_event() {
            println!("{event:?}");
            match event {
                Event::Offered { flow, .. } => stack.accept(now, flow)?,
                Event::Readable(flow) => echo(&mut stack, now, flow)?,
                Event::Open(_) | Event::Writable(_) => {}
                Event::Ended { .. } => {
                    println!("the program received {:?}", program.received());
                    assert_eq!(program.received(), "hello");
                    return Ok(());
                }
            }
        }
        while let Some(length) = stack.poll_transmit(now, &mut frame) {
            program.handle_packet(&frame[HEADER..length]);
        }
    }
    Err("the flow does not end".into())
}

/// Echoes everything that has arrived. The texts are short, so each write takes all of one.
fn echo(stack: &mut Stack, now: Instant, flow: StackFlowId) -> Result<(), Box<dyn Error>> {
    loop {
        let mut text = Vec::new();
        let read = stack.read(now, flow, |bytes| {
            text.extend_from_slice(bytes);
            bytes.len()
        })?;
        match read {
            StackRead::Data(_) => assert_eq!(stack.write(now, flow, &text)?, text.len()),
            StackRead::Finished => return Ok(stack.finish(now, flow)?),
            StackRead::Empty => return Ok(()),
        }
    }
}
