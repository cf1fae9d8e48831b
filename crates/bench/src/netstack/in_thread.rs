//! The stack on a TUN device, in a thread of its own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use quictun_netstack::{Config, Event, FlowError, Stack, StackFlowId, StackRead};
use quictun_stackd::frames::Frames;
use quictun_sys::Tun;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::service::Service;
use crate::machine::thread_cpu_ns;

#[derive(Debug, Default)]
pub(crate) struct StackCounters {
    pub(crate) bytes: AtomicU64,
    /// Processor time of the stack's thread.
    pub(crate) busy_ns: AtomicU64,
    pub(crate) stop: AtomicBool,
}

/// Maximum frames that are read before the responses to them are sent. With more, short flows would wait for bulk
/// flows.
const TURN: usize = 32;

const REPORT: Duration = Duration::from_millis(1);

/// Maximum sleep, after which the loop checks whether it must end.
const NAP: Duration = Duration::from_millis(50);

struct StackThread {
    frames: Frames<Tun>,
    stack: Stack,
    flows: BTreeMap<StackFlowId, Service>,
    /// Echoes that found no room: a flow accepts no data while it changes its buffers.
    unsent: BTreeMap<StackFlowId, Vec<u8>>,
    source: Vec<u8>,
    sink: Vec<u8>,
    moved: u64,
}

/// Serves the device until `stop` is set, then resets all flows.
pub(crate) fn serve(tun: Tun, config: Config, shared: &StackCounters) -> Result<()> {
    let seed = u64::from(std::process::id());
    let stack = Stack::new(config, seed, Instant::now())?;
    let mut machine = StackThread {
        frames: Frames::new(tun),
        stack,
        flows: BTreeMap::new(),
        unsent: BTreeMap::new(),
        source: vec![7; 64 * 1024],
        sink: vec![0; 64 * 1024],
        moved: 0,
    };
    let mut reported = Instant::now();
    while !shared.stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        let frames = machine.turn(now)?;
        if now >= reported + REPORT || frames == 0 {
            reported = now;
            shared.bytes.store(machine.moved, Ordering::Relaxed);
            shared.busy_ns.store(thread_cpu_ns(), Ordering::Relaxed);
        }
        if frames == 0 {
            let mut fds = [PollFd::new(&machine.frames.wire, PollFlags::IN)];
            wait(&machine.stack, now, &mut fds)?;
        }
    }
    for flow in std::mem::take(&mut machine.flows).into_keys() {
        if machine.stack.reset(flow).is_err() {
            // The flow has ended already.
        }
    }
    machine.send(Instant::now())
}

impl StackThread {
    /// Reads a few frames and sends everything that is due. Returns the number of frames read.
    fn turn(&mut self, now: Instant) -> Result<usize> {
        let taken = self.frames.take(now, TURN, &mut self.stack);
        let frames = taken.context("reading the device")?;
        if self.stack.next_timeout().is_some_and(|at| at <= now) {
            self.stack.handle_timeout(now);
        }
        self.work(now)?;
        self.send(now)?;
        Ok(frames)
    }

    fn send(&mut self, now: Instant) -> Result<()> {
        loop {
            let sent = self.frames.transmit(now, &mut self.stack);
            sent.context("writing to the device")?;
            if !self.work(now)? {
                return Ok(());
            }
        }
    }

    fn work(&mut self, now: Instant) -> Result<bool> {
        let mut any = false;
        while let Some(event) = self.stack.poll_event() {
            any = true;
            match event {
                Event::Offered { flow, target, .. } => {
                    self.stack.accept(now, flow)?;
                    self.flows.insert(flow, Service::of(target.port()));
                }
                Event::Open(flow) | Event::Writable(flow) => match self.flows.get(&flow) {
                    Some(Service::Generate) => self.fill(now, flow)?,
                    _ => self.write_unsent(now, flow)?,
                },
                Event::Readable(flow) => self.drain(now, flow)?,
                Event::Ended { flow, .. } => {
                    self.flows.remove(&flow);
                    self.unsent.remove(&flow);
                }
            }
        }
        Ok(any)
    }

    fn fill(&mut self, now: Instant, flow: StackFlowId) -> Result<()> {
        loop {
            match self.stack.write(now, flow, &self.source) {
                Ok(0) | Err(FlowError::Gone) => return Ok(()),
                Ok(written) => self.moved += written as u64,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn drain(&mut self, now: Instant, flow: StackFlowId) -> Result<()> {
        let echoes = self.flows.get(&flow) == Some(&Service::Echo);
        loop {
            let sink = &mut self.sink;
            let read = self.stack.read(now, flow, |bytes| {
                let length = bytes.len().min(sink.len());
                sink[..length].copy_from_slice(&bytes[..length]);
                length
            });
            match read {
                Ok(StackRead::Data(length)) => {
                    self.moved += length as u64;
                    if echoes {
                        let unsent = self.unsent.entry(flow).or_default();
                        unsent.extend_from_slice(&self.sink[..length]);
                        self.write_unsent(now, flow)?;
                    }
                }
                Ok(StackRead::Empty) | Err(FlowError::Gone) => return Ok(()),
                Ok(StackRead::Finished) => {
                    self.stack.finish(now, flow)?;
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes the echoes that a flow is owed, or as much of them as there is room for.
    fn write_unsent(&mut self, now: Instant, flow: StackFlowId) -> Result<()> {
        let Some(unsent) = self.unsent.get_mut(&flow) else {
            return Ok(());
        };
        match self.stack.write(now, flow, unsent) {
            Ok(written) => drop(unsent.drain(..written)),
            Err(FlowError::Gone) => unsent.clear(),
            Err(error) => return Err(error.into()),
        }
        if unsent.is_empty() {
            self.unsent.remove(&flow);
        }
        Ok(())
    }
}

/// Waits until a descriptor is ready or the stack has a deadline.
pub(crate) fn wait(stack: &Stack, now: Instant, fds: &mut [PollFd<'_>]) -> Result<()> {
    let until = stack.next_timeout().unwrap_or(now + NAP);
    let nap = until.saturating_duration_since(now).min(NAP);
    let time = Timespec {
        tv_sec: 0,
        tv_nsec: nap.subsec_nanos().into(),
    };
    poll(fds, Some(&time)).context("waiting for the device")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use quictun_sys::NetNamespace;

    use super::super::device;
    use super::*;

    /// Bytes of an echo. A few hundred echoes fill the small buffers.
    const ECHO: usize = 64;
    /// More echoes than are needed to outgrow the buffers twice.
    const ECHOES: usize = 1000;

    #[test]
    fn echoes_continue_while_a_flow_changes_its_buffers() {
        let made = NetNamespace::new().and_then(|network| {
            let tun = network.within(|| device::create(true))?;
            Ok((network, tun))
        });
        let (network, tun) = match made {
            Ok(made) => made,
            Err(why) => {
                let test =
                    "netstack::in_thread::tests::echoes_continue_while_a_flow_changes_its_buffers";
                let why = format_args!("no network with a TUN device: {why}");
                return quictun_skip::skipped(test, why);
            }
        };
        let shared = StackCounters::default();
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| serve(tun, Config::default(), &shared));
            let mut stream = network
                .within(|| TcpStream::connect(("10.77.0.1", Service::Echo.port())))
                .expect("connecting");
            stream.set_nodelay(true).expect("setting an option");
            let timeout = Some(Duration::from_secs(30));
            stream.set_read_timeout(timeout).expect("setting timeout");
            let mut echo = [0; ECHO];
            for number in 0..ECHOES {
                let text = [u8::try_from(number % 251).unwrap_or(0); ECHO];
                stream.write_all(&text).expect("sending an echo");
                stream.read_exact(&mut echo).expect("receiving an echo");
                assert_eq!(echo, text, "echo {number}");
            }
            shared.stop.store(true, Ordering::Relaxed);
            serving.join().expect("no panic").expect("no failure");
        });
    }
}
