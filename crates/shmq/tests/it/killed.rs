//! A peer that is killed at an arbitrary moment.

use std::time::Duration;

use quictun_shmq::{Allocation, Channel, ChannelError, Message, SleepMode};

use crate::peer::{TestRng, given, start};

/// Number of kills. `QUICTUN_SHMQ_KILLS` overrides it.
const KILLS: u64 = 20;

/// Longest time for which a side sleeps before it writes again.
const NAP: Duration = Duration::from_millis(1);

/// Writes until the ring is full or 100 messages are written, reads all messages, and sleeps if there is nothing to do.
/// Returns the number of messages read.
///
/// Both sides do the same. If their messages cross, both find nothing more to do, and neither would wake the other.
fn turn(channel: &mut Channel) -> Result<u64, ChannelError> {
    let mut read = 0;
    for _ in 0..100 {
        let payload = channel.reserve(64);
        let off = payload.as_ref().map_or(0, Allocation::off);
        let len = payload.as_ref().map_or(0, Allocation::len);
        let message = Message::default().with_payload(off, len);
        if let Some(payload) = payload {
            channel.release(payload);
        }
        if !channel.push(message)? {
            break;
        }
    }
    while let Some(message) = channel.pop()? {
        channel.received(&message)?;
        read += 1;
    }
    if channel.arm(SleepMode::Futex) {
        channel.wait(Some(NAP));
    } else {
        channel.disarm();
    }
    Ok(read)
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd")
        .expect("list the descriptors")
        .count()
}

/// The surviving process gets everything that was sent and then an error, wherever the peer stopped. No descriptor
/// leaks.
#[test]
fn the_survivor_detects_the_death() {
    let test = "killed::the_survivor_detects_the_death";
    if let Some(mut channel) = given(test) {
        while turn(&mut channel).is_ok() {}
        return;
    }
    let kills = std::env::var("QUICTUN_SHMQ_KILLS").ok();
    let kills = kills.and_then(|n| n.parse().ok()).unwrap_or(KILLS);
    let mut rng = TestRng(0xdead);
    let mut most = 0;
    for round in 0..kills {
        let (mut channel, mut child) = start(test);
        let (mut read, until) = (0, rng.below(30_000));
        let mut killed = false;
        let error = loop {
            if !killed && read >= until {
                child.kill().expect("kill the process");
                killed = true;
            }
            match turn(&mut channel) {
                Ok(messages) => read += messages,
                Err(error) => break error,
            }
        };
        assert_eq!(
            error,
            ChannelError::Died,
            "round {round}, after {read} messages"
        );
        child.wait().expect("wait for the killed process");
        drop(channel);
        // Other tests have descriptors open at the same time.
        if round == 3 {
            most = descriptors() + 60;
        }
    }
    assert!(kills < 100 || descriptors() <= most, "descriptors leak");
}
