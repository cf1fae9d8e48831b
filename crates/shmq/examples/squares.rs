//! Two processes share memory. One sends numbers, and the other, a second run of this program, sends their squares.
//!
//! ```sh
//! cargo run -p quictun-shmq --example squares
//! ```

#![expect(clippy::print_stdout, reason = "the example prints the answers")]

use std::error::Error;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use quictun_shmq::{Channel, ChannelError, Message, SleepMode};

/// The argument of the other process.
const OTHER: &str = "--other-process";

/// Length of each arena in bytes. The numbers need no arena, since they lie in the messages.
const ARENA: u32 = 1 << 16;

/// The operation of a request.
const SQUARE: u16 = 1;

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some(OTHER) {
        return answer();
    }
    let mut channel = Channel::create(ARENA, 1)?;
    let (here, there) = UnixStream::pair()?;
    // The other process gets the memory as standard input, and the socket as standard output.
    let mut other = Command::new(std::env::current_exe()?)
        .arg(OTHER)
        .stdin(Stdio::from(channel.memory().try_clone_to_owned()?))
        .stdout(Stdio::from(OwnedFd::from(there)))
        .spawn()?;
    channel.watch(here.into())?;
    for number in 1..=5 {
        let request = Message::new(SQUARE).with_arg(number);
        assert!(channel.push(request)?, "the ring is full");
    }
    // This call wakes the other process, once for all messages.
    channel.flush();
    for number in 1..=5_u64 {
        let square = next(&mut channel)?.arg();
        println!("the square of {number} is {square}");
        assert_eq!(square, number * number);
    }
    // The other process detects the end of the channel and exits.
    drop(channel);
    assert!(other.wait()?.success(), "the other process failed");
    Ok(())
}

/// Returns the next message. Sleeps while there is none.
fn next(channel: &mut Channel) -> Result<Message, ChannelError> {
    loop {
        if let Some(message) = channel.pop()? {
            return Ok(message);
        }
        if channel.arm(SleepMode::Futex) {
            channel.wait(None);
        } else {
            channel.disarm();
        }
    }
}

/// Answers requests until the peer is gone.
fn answer() -> Result<(), Box<dyn Error>> {
    let mut channel = Channel::open(std::io::stdin().as_fd().try_clone_to_owned()?)?;
    channel.watch(std::io::stdout().as_fd().try_clone_to_owned()?)?;
    while let Ok(request) = next(&mut channel) {
        let number = request.arg();
        channel.push(Message::new(SQUARE).with_arg(number * number))?;
        channel.flush();
    }
    Ok(())
}
