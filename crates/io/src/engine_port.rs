//! An engine and its UDP socket: received datagrams go to the engine, and the engine's datagrams go to the socket.
//!
//! # Order of use
//!
//! In each turn of a loop, [`EnginePort::wait_plan`] returns how to wait, and [`EnginePort::note_wait`] records how
//! long the wait took. Then call [`EnginePort::receive`] if the socket is readable, [`EnginePort::flush_blocked`] if it
//! is writable, and finally [`EnginePort::transmit`].

use std::time::{Duration, Instant};

use quictun_engine::{Datagrams, Engine, Role, Socket};

use crate::gather::Gather;
use crate::poller::WaitPlan;
use crate::spin::Spin;
use crate::udp_port::{ReceivedDatagram, SendOutcome, UdpPort};

/// Batches sent before the socket is read again: acknowledgements must not wait behind a megabyte of data.
const SEND_ROUNDS: usize = 16;

/// Rounds of receive buffers read before something is sent. In a flood the kernel drops datagrams, and the loop is not
/// held up.
const RECEIVE_ROUNDS: usize = 4;

/// An engine on its UDP socket.
pub struct EnginePort<S: Socket, R: Role> {
    /// The engine that handles the datagrams.
    pub engine: Engine<S, R>,
    /// The UDP socket that carries them.
    pub udp: UdpPort,
    blocked: Option<(Datagrams, Vec<u8>)>,
    buffer: Vec<u8>,
    spin: Spin,
    gather: Gather,
    /// Bytes of datagrams moved in this turn of the loop.
    moved: usize,
    /// The path has refused segmentation, and the caller does not know it yet.
    refused_segments: bool,
}

impl<S: Socket, R: Role> EnginePort<S, R> {
    /// Joins an engine and a socket. If the socket cannot segment, the engine makes single datagrams.
    pub fn new(engine: Engine<S, R>, udp: UdpPort) -> Self {
        let gather = Gather::new(Instant::now(), udp.report.gro);
        let mut port = Self {
            engine,
            udp,
            blocked: None,
            buffer: Vec::new(),
            spin: Spin::default(),
            gather,
            moved: 0,
            refused_segments: false,
        };
        port.limit_segments();
        port
    }

    /// Continues with another engine on the same socket.
    pub fn renew(&mut self, engine: Engine<S, R>) {
        self.engine = engine;
        self.blocked = None;
        self.limit_segments();
    }

    fn limit_segments(&mut self) {
        if !self.udp.segments() {
            self.engine.set_max_segments(1);
        }
    }

    /// Begins a turn. Returns how long to sleep, or to poll, before waiting.
    pub fn wait_plan(&mut self, now: Instant) -> WaitPlan {
        let moved = std::mem::take(&mut self.moved);
        let over_tcp = usize::try_from(self.engine.take_moved_over_tcp()).unwrap_or(usize::MAX);
        self.spin.note_bulk(moved.saturating_add(over_tcp));
        // The kernel gathers what arrives over TCP, so only datagrams count.
        self.gather.note(now, moved, self.engine.is_talking(now));
        let quiet = self.engine.is_quiet(now);
        if !quiet && self.gather.needs_path(now) {
            self.gather.set_path(now, self.engine.path());
        }
        let asleep = self.gather.pause();
        self.engine.set_sleeps(asleep);
        let polling = if quiet {
            Duration::ZERO
        } else {
            self.spin.budget()
        };
        WaitPlan { asleep, polling }
    }

    /// Notes how long the wait of this turn took.
    pub fn note_wait(&mut self, waited: Duration) {
        self.spin.note_wait(waited);
    }

    /// Passes received datagrams to the engine, except those that `route` keeps. Returns whether there may be more.
    pub fn receive(
        &mut self,
        mut route: impl FnMut(ReceivedDatagram) -> Option<ReceivedDatagram>,
    ) -> bool {
        let (engine, moved) = (&mut self.engine, &mut self.moved);
        for _ in 0..RECEIVE_ROUNDS {
            // The clock is read after the datagrams arrived. An earlier time would give a round-trip sample below the
            // true path delay, and the minimum is kept for long.
            let mut read = None;
            let received = self.udp.receive(&mut |datagram| {
                let now = *read.get_or_insert_with(Instant::now);
                *moved += datagram.data.len();
                if let Some(datagram) = route(datagram) {
                    give(engine, now, datagram);
                }
            });
            match received {
                Ok(true) => {}
                // Errors here report earlier sends (ICMP). QUIC has its own timeouts.
                Ok(false) | Err(_) => return false,
            }
        }
        true
    }

    /// Passes the engine a datagram that another socket received.
    pub fn handle_datagram(&mut self, now: Instant, datagram: ReceivedDatagram) {
        give(&mut self.engine, now, datagram);
    }

    /// Drives the engine, then sends its datagrams. Returns whether there are more.
    ///
    /// A full UDP socket delays only datagrams. Data that has arrived for applications is still delivered, and connections
    /// over TCP still send.
    pub fn transmit(&mut self) -> bool {
        let now = Instant::now();
        let early = self.gather.early();
        if !early.is_zero() {
            self.engine.acknowledge_early(now + early);
        }
        self.engine.drive(now);
        if self.is_blocked() {
            self.engine.transmit_over_tcp(now);
            return false;
        }
        for _ in 0..SEND_ROUNDS {
            // Every batch has its own time: the engine's rate samples distinguish batches by it.
            let now = Instant::now();
            let Some(datagrams) = self.engine.poll_transmit(now, &mut self.buffer) else {
                return false;
            };
            if !self.send(&datagrams) {
                self.engine.transmit_over_tcp(now);
                return false;
            }
        }
        true
    }

    fn send(&mut self, datagrams: &Datagrams) -> bool {
        self.moved += datagrams.size;
        match self.udp.send(datagrams, &self.buffer[..datagrams.size]) {
            SendOutcome::Done => true,
            SendOutcome::Unsegmented => {
                self.engine.set_max_segments(1);
                self.refused_segments = true;
                true
            }
            SendOutcome::Full => {
                self.blocked = Some((*datagrams, std::mem::take(&mut self.buffer)));
                false
            }
        }
    }

    /// Returns whether a batch waits for room in the socket's send buffer.
    pub fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// Sends the batch that waits for room, if any. Returns whether it was sent.
    pub fn flush_blocked(&mut self) -> bool {
        let Some((datagrams, bytes)) = self.blocked.take() else {
            return false;
        };
        self.buffer = bytes;
        self.send(&datagrams)
    }

    /// Discards the batch that waits for room.
    pub fn forget_blocked(&mut self) {
        self.blocked = None;
    }

    /// Returns whether the path has refused segmentation since the last call. From then on the engine makes single
    /// datagrams.
    pub fn has_refused_segments(&mut self) -> bool {
        std::mem::take(&mut self.refused_segments)
    }
}

fn give<S: Socket, R: Role>(engine: &mut Engine<S, R>, now: Instant, datagram: ReceivedDatagram) {
    let ReceivedDatagram {
        remote,
        local_ip,
        ecn,
        data,
    } = datagram;
    engine.handle_datagram(now, remote, local_ip, ecn, data);
}

impl<S: Socket, R: Role> std::fmt::Debug for EnginePort<S, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EnginePort")
            .field("udp", &self.udp)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
