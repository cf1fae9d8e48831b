//! The stack inside its process, for all kinds of callers. Connections are numbered in the order of their arrival.

use std::os::fd::OwnedFd;
use std::time::Instant;

use anyhow::{Context as _, Result};
use quictun_netstack::{Config, Event, Stack, StackFlowId, StackRead};
use quictun_stackd::frames::Frames;
use rustix::event::{PollFd, PollFlags};

use super::wire::Wire;
use crate::netstack::in_thread;

/// Maximum frames that are read before their effects are handled. With more, short flows would wait for bulk flows.
const FRAMES: usize = 8;

pub(crate) struct StackHost {
    stack: Stack,
    pub(crate) frames: Frames<Wire>,
    flows: Vec<StackFlowId>,
    /// Connections that have become readable or writable.
    pub(crate) ready: Vec<usize>,
    /// If true, packets are sent with each message, as in the original; otherwise once per round.
    eager: bool,
    now: Instant,
}

impl StackHost {
    pub(crate) fn new(wire: Wire, eager: bool) -> Result<Self> {
        let now = Instant::now();
        let seed = u64::from(std::process::id());
        Ok(Self {
            stack: Stack::new(Config::default(), seed, now)?,
            frames: Frames::new(wire),
            flows: Vec::new(),
            ready: Vec::new(),
            eager,
            now,
        })
    }

    /// Reads a few frames and handles their effects. Returns true if there were any.
    pub(crate) fn turn(&mut self) -> Result<bool> {
        self.now = Instant::now();
        let taken = self.frames.take(self.now, FRAMES, &mut self.stack);
        let some = taken.context("reading the device")? > 0;
        if self.stack.next_timeout().is_some_and(|at| at <= self.now) {
            self.stack.handle_timeout(self.now);
        }
        while let Some(event) = self.stack.poll_event() {
            match event {
                Event::Offered { flow, .. } => {
                    self.stack.accept(self.now, flow)?;
                    self.flows.push(flow);
                }
                Event::Open(flow)
                | Event::Readable(flow)
                | Event::Writable(flow)
                | Event::Ended { flow, .. } => {
                    let number = self.flows.iter().position(|known| *known == flow);
                    self.ready.extend(number);
                }
            }
        }
        Ok(some)
    }

    /// Receives data. Returns its length, `None` if no data has arrived yet, or 0 if none will.
    pub(crate) fn receive(&mut self, number: usize, into: &mut [u8]) -> Option<usize> {
        let flow = *self.flows.get(number)?;
        let read = self.stack.read(self.now, flow, |bytes| {
            let length = bytes.len().min(into.len());
            into[..length].copy_from_slice(&bytes[..length]);
            length
        });
        match read {
            Ok(StackRead::Data(length)) => Some(length),
            Ok(StackRead::Empty) => None,
            Ok(StackRead::Finished) | Err(_) => Some(0),
        }
    }

    /// Sends data. Returns the length sent, `None` if there is no room yet, or 0 if there will be none.
    pub(crate) fn send(&mut self, number: usize, bytes: &[u8]) -> Option<usize> {
        let flow = *self.flows.get(number)?;
        let sent = match self.stack.write(self.now, flow, bytes) {
            Ok(0) => return None,
            Ok(sent) => sent,
            Err(_) => 0,
        };
        if self.eager && self.transmit().is_err() {
            // The next turn reports the error.
            return Some(0);
        }
        Some(sent)
    }

    /// Sends everything that may be sent. Returns true if there was anything.
    pub(crate) fn transmit(&mut self) -> Result<bool> {
        let sent = self.frames.transmit(self.now, &mut self.stack);
        Ok(sent.context("writing to the device")? > 0)
    }

    pub(crate) fn wait(&self, wakes: &OwnedFd) -> Result<()> {
        let mut fds = vec![PollFd::new(wakes, PollFlags::IN)];
        if let Wire::Tun(tun) = &self.frames.wire {
            fds.push(PollFd::new(tun, PollFlags::IN));
        }
        in_thread::wait(&self.stack, self.now, &mut fds)
    }
}

#[cfg(test)]
mod tests {
    use super::super::setup::Mode;
    use super::super::wire::SimulatedPrograms;
    use super::*;

    /// More messages than fit into the buffers of a connection, so that it must pause and continue.
    const MESSAGES: usize = 20_000;

    /// Serves each connection as an application does, and checks that all messages pass within a limited number of
    /// rounds.
    fn serve(mode: Mode, bytes: usize, eager: bool) {
        const CONNECTIONS: usize = 3;
        let programs = SimulatedPrograms::new(mode, bytes, CONNECTIONS);
        let mut host = StackHost::new(Wire::Memory(programs), eager).expect("creating a stack");
        let mut done = [0; CONNECTIONS];
        let mut unsent = [0; CONNECTIONS];
        for _ in 0..20 * MESSAGES {
            host.turn().expect("memory");
            for (number, done) in done.iter_mut().enumerate() {
                let mut room = [0; 64];
                let moved = match mode {
                    Mode::Read => host.receive(number, &mut room[..bytes]),
                    Mode::Write => host.send(number, &[7; 64][..bytes]),
                    Mode::Call if unsent[number] < bytes => {
                        let received = host.receive(number, &mut room[..bytes - unsent[number]]);
                        unsent[number] += received.unwrap_or(0);
                        None
                    }
                    Mode::Call => host.send(number, &[7; 64][..bytes]).inspect(|sent| {
                        unsent[number] -= *sent;
                    }),
                };
                *done += moved.unwrap_or(0);
            }
            host.transmit().expect("memory");
            if done.iter().all(|done| *done >= MESSAGES * bytes) {
                break;
            }
        }
        assert!(
            done.iter().all(|done| *done >= MESSAGES * bytes),
            "{mode:?}: {done:?}"
        );
        let Wire::Memory(programs) = host.frames.wire else {
            unreachable!("the wire was made of memory");
        };
        let calls = if mode == Mode::Call {
            CONNECTIONS * (MESSAGES - 1)
        } else {
            0
        };
        assert!(
            programs.times.len() >= calls,
            "{} calls",
            programs.times.len()
        );
    }

    #[test]
    fn simulated_programs_continue_while_they_are_served() {
        for mode in Mode::ALL {
            for (bytes, eager) in [(1, true), (1, false), (64, true), (64, false)] {
                serve(mode, bytes, eager);
            }
        }
    }
}
