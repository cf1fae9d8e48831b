//! Applications without a tunnel behind the stack in another process. They show the cost of the separation alone.
//!
//! [`answer`] takes the place of the engine's loop and reaches the stack in the same way. It accepts every connection,
//! to any address, and serves it as its port demands.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes};
use quictun_io::poller::{Key, Poller, WaitPlan};
use quictun_io::spin::Spin;
use quictun_netstack::{Event, StackFlowId};
use quictun_stackd::netstackd::{NetstackProcess, PIECE_MOST, RemoteStack};

use super::service::Service;

/// Maximum sleep, after which the loop checks whether it must end.
const NAP: Duration = Duration::from_millis(50);

struct ServedFlow {
    service: Service,
    /// Received data that must be echoed.
    unsent: VecDeque<Bytes>,
}

struct Applications {
    stack: Rc<RemoteStack>,
    flows: BTreeMap<StackFlowId, ServedFlow>,
    source: Vec<u8>,
    moved: usize,
}

/// Answers all connections through the stack at the other end of `socket`, until `stop` is set. Adds the payload bytes
/// to `moved`.
pub(crate) fn answer(socket: OwnedFd, moved: &AtomicU64, stop: &AtomicBool) -> io::Result<()> {
    let mut remote = NetstackProcess::new(socket)?;
    let mut poller = Poller::new()?;
    poller.add_input(remote.wakes(), Key::Wake)?;
    let mut applications = Applications {
        stack: remote.shared().clone(),
        flows: BTreeMap::new(),
        source: vec![7; PIECE_MOST as usize],
        moved: 0,
    };
    let (mut spin, mut ready) = (Spin::default(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let mut busy = remote.advance()?;
        while let Some(event) = applications.stack.poll_event() {
            busy = true;
            applications.handle(event);
        }
        let bytes = std::mem::take(&mut applications.moved);
        moved.fetch_add(bytes as u64, Ordering::Relaxed);
        spin.note_bulk(bytes);
        if busy {
            continue;
        }
        let plan = WaitPlan {
            polling: spin.budget(),
            ..WaitPlan::default()
        };
        let start = Instant::now();
        poller.wait(Some(start + NAP), plan, &mut ready)?;
        spin.note_wait(start.elapsed());
        if !ready.is_empty() {
            remote.handle_ready();
        }
    }
    Ok(())
}

impl Applications {
    fn handle(&mut self, event: Event) {
        let done = match event {
            Event::Offered { flow, target, .. } => {
                let service = Service::of(target.port());
                let unsent = VecDeque::new();
                self.flows.insert(flow, ServedFlow { service, unsent });
                self.stack.accept(flow);
                return;
            }
            Event::Open(flow) | Event::Writable(flow) => (flow, self.write(flow)),
            Event::Readable(flow) => (flow, self.read(flow)),
            Event::Ended { flow, .. } => (flow, Err(ErrorKind::ConnectionReset.into())),
        };
        if let (flow, Err(_)) = done {
            // The flow has ended, one way or another.
            self.flows.remove(&flow);
            self.stack.leave(flow, false);
        }
    }

    fn read(&mut self, flow: StackFlowId) -> io::Result<()> {
        let Some(served) = self.flows.get_mut(&flow) else {
            return Ok(());
        };
        // Data that is not echoed yet stops further reading.
        while served.unsent.is_empty() {
            let bytes = match self.stack.take(flow, usize::MAX) {
                Ok(bytes) if bytes.is_empty() => return self.stack.finish(flow),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            self.moved += bytes.len();
            if served.service == Service::Echo {
                served.unsent.push_back(bytes);
            }
        }
        self.write(flow)
    }

    fn write(&mut self, flow: StackFlowId) -> io::Result<()> {
        let Some(served) = self.flows.get_mut(&flow) else {
            return Ok(());
        };
        let generating = served.service == Service::Generate;
        let mut any = false;
        loop {
            let chunk = match served.unsent.front() {
                Some(unsent) => unsent.as_ref(),
                None if generating => self.source.as_slice(),
                None => break,
            };
            match self.stack.write(flow, &[IoSlice::new(chunk)]) {
                Ok(written) if generating => self.moved += written,
                Ok(written) => {
                    any = true;
                    if let Some(unsent) = served.unsent.front_mut() {
                        unsent.advance(written);
                    }
                    served.unsent.retain(|unsent| !unsent.is_empty());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        if any { self.read(flow) } else { Ok(()) }
    }
}
