//! An emulator that runs in a [`World`], on a thread of its own.

use std::io;
use std::thread::{self, JoinHandle};

use quictun_sys::PacketSocket;

use crate::world::{ROUTER_FAR, ROUTER_NEAR, World};
use crate::{Audit, EmulatorConfig, Stop, emulate};

/// A running emulator. It ends when stopped, or with the process.
#[derive(Debug)]
pub struct RunningEmulator {
    stop: Stop,
    thread: JoinHandle<io::Result<Audit>>,
}

impl RunningEmulator {
    /// Opens both ends in the world's router and starts the emulator.
    pub fn start(world: &World, plan: EmulatorConfig) -> io::Result<Self> {
        let open = || {
            Ok([
                PacketSocket::open(ROUTER_NEAR)?,
                PacketSocket::open(ROUTER_FAR)?,
            ])
        };
        let ends = world.router().within(open)?;
        let stop = Stop::new()?;
        let told = stop.clone();
        let thread = thread::Builder::new()
            .name("emulator".to_owned())
            .spawn(move || emulate(&ends, plan, &told))?;
        Ok(Self { stop, thread })
    }

    /// Stops the emulator and returns its audit.
    pub fn stop(self) -> io::Result<Audit> {
        self.stop.stop();
        self.thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the emulator's thread panicked")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use quictun_link::LinkConfig;

    use crate::{LossUnit, WorldOptions};

    #[test]
    fn data_reaches_the_other_side_after_the_delay() {
        let test = "running::tests::data_reaches_the_other_side_after_the_delay";
        if !crate::world::tests::permitted(test) {
            return;
        }
        let delay = Duration::from_millis(5);
        let direction = LinkConfig {
            delay,
            ..LinkConfig::default()
        };
        let plan = EmulatorConfig {
            up: direction.clone(),
            down: direction,
            seed: 1,
            coalesce: Duration::ZERO,
            loss_unit: LossUnit::Segment,
        };
        let world = World::build(&WorldOptions::default()).expect("build world");
        let running = RunningEmulator::start(&world, plan).expect("start emulator");
        for address in world.far_addresses() {
            let listener = world.far().within(|| TcpListener::bind((address, 0)));
            let listener = listener.expect("bind");
            let port = listener.local_addr().expect("local address").port();
            let begin = Instant::now();
            let near = world.near().within(|| TcpStream::connect((address, port)));
            let mut near = near.expect("connect");
            assert!(begin.elapsed() >= 2 * delay, "{:?}", begin.elapsed());
            near.write_all(b"across").expect("send");
            drop(near);
            let mut said = String::new();
            let (mut far, _) = listener.accept().expect("accept");
            far.read_to_string(&mut said).expect("receive");
            assert_eq!(said, "across");
        }
        let audit = running.stop().expect("stop emulator");
        for direction in [&audit.up, &audit.down] {
            assert!(direction.counts.frames_out >= 4, "{audit}");
            assert_eq!(direction.counts.unintended.total(), 0, "{audit}");
        }
    }
}
