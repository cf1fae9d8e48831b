//! An engine and its UDP socket: what has come goes in, what is to be sent goes out.
//!
//! # Order of use
//!
//! In each turn of a loop [`EnginePort::patience`] says how to wait, and [`EnginePort::note_wait`] hears how long that
//! took. Then come [`EnginePort::receive`] where the socket is readable, [`EnginePort::flush_blocked`] where it is
//! writable, and [`EnginePort::transmit`].

use std::time::{Duration, Instant};

use quictun_engine::{Datagrams, Engine, Socket};

use crate::gather::Gather;
use crate::poller::Patience;
use crate::spin::Spin;
use crate::udp_port::{Received, Sent, UdpPort};

/// Batches sent before arrivals are looked at again: acknowledgements must not wait behind a megabyte.
const SEND_ROUNDS: usize = 16;

/// Rounds of receive buffers taken before something is sent: a flood has the kernel drop, not the loop wait.
const RECEIVE_ROUNDS: usize = 4;

/// An engine on its UDP socket.
pub struct EnginePort<S: Socket> {
    /// The engine.
    pub engine: Engine<S>,
    /// The socket.
    pub udp: UdpPort,
    blocked: Option<(Datagrams, Vec<u8>)>,
    buffer: Vec<u8>,
    spin: Spin,
    gather: Gather,
    /// Bytes of datagrams in this turn of the loop.
    moved: usize,
    /// The path has refused segmentation, and the caller does not know yet.
    refused_segments: bool,
}

impl<S: Socket> EnginePort<S> {
    /// Joins the two; the engine makes single datagrams where the socket cannot segment.
    pub fn new(engine: Engine<S>, udp: UdpPort) -> Self {
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

    /// Goes on with another engine on the same socket.
    pub fn renew(&mut self, engine: Engine<S>) {
        self.engine = engine;
        self.blocked = None;
        self.limit_segments();
    }

    fn limit_segments(&mut self) {
        if !self.udp.segments() {
            self.engine.set_max_segments(1);
        }
    }

    /// Begins a turn: how long to sleep, or to poll, before waiting.
    pub fn patience(&mut self, now: Instant) -> Patience {
        let moved = std::mem::take(&mut self.moved);
        self.spin.note_bulk(moved);
        self.gather.note(now, moved, self.engine.is_talking(now));
        if self.gather.asks(now) {
            self.gather.set_path(now, self.engine.path());
        }
        let asleep = self.gather.pause();
        self.engine.set_sleeps(asleep);
        Patience {
            asleep,
            polling: self.spin.budget(),
        }
    }

    /// Notes how long the wait of this turn took.
    pub fn note_wait(&mut self, waited: Duration) {
        self.spin.note_wait(waited);
    }

    /// Gives the engine what has come, but for datagrams that `route` takes for itself. Tells whether there may be more.
    pub fn receive(&mut self, mut route: impl FnMut(Received) -> Option<Received>) -> bool {
        let (engine, moved) = (&mut self.engine, &mut self.moved);
        for _ in 0..RECEIVE_ROUNDS {
            // No earlier than they came: a round trip that seems shorter than the path would be believed for long.
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
                // Errors here are echoes of earlier sends (ICMP); QUIC has its own timeouts.
                Ok(false) | Err(_) => return false,
            }
        }
        true
    }

    /// Gives the engine a datagram that came in elsewhere.
    pub fn handle_datagram(&mut self, now: Instant, datagram: Received) {
        give(&mut self.engine, now, datagram);
    }

    /// Has the engine do its work, then sends what it has. Tells whether there is more.
    ///
    /// A full UDP socket holds up datagrams only, never what has arrived for applications.
    pub fn transmit(&mut self) -> bool {
        let now = Instant::now();
        let early = self.gather.early();
        if !early.is_zero() {
            self.engine.acknowledge_early(now + early);
        }
        self.engine.drive(now);
        if self.is_blocked() {
            return false;
        }
        for _ in 0..SEND_ROUNDS {
            // Every batch has a time of its own: the engine's rate samples tell batches apart by it.
            let now = Instant::now();
            let Some(datagrams) = self.engine.poll_transmit(now, &mut self.buffer) else {
                return false;
            };
            if !self.send(&datagrams) {
                return false;
            }
        }
        true
    }

    fn send(&mut self, datagrams: &Datagrams) -> bool {
        self.moved += datagrams.size;
        match self.udp.send(datagrams, &self.buffer[..datagrams.size]) {
            Sent::Done => true,
            Sent::Unsegmented => {
                self.engine.set_max_segments(1);
                self.refused_segments = true;
                true
            }
            Sent::Full => {
                self.blocked = Some((*datagrams, std::mem::take(&mut self.buffer)));
                false
            }
        }
    }

    /// Whether a batch waits for room in the socket.
    pub fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// Sends the batch that waits for room, if any. Tells whether it has gone.
    pub fn flush_blocked(&mut self) -> bool {
        let Some((datagrams, bytes)) = self.blocked.take() else {
            return false;
        };
        self.buffer = bytes;
        self.send(&datagrams)
    }

    /// Forgets the batch that waits for room.
    pub fn forget_blocked(&mut self) {
        self.blocked = None;
    }

    /// Whether the path has refused segmentation since the last call; the engine makes single datagrams from then on.
    pub fn has_refused_segments(&mut self) -> bool {
        std::mem::take(&mut self.refused_segments)
    }
}

fn give<S: Socket>(engine: &mut Engine<S>, now: Instant, datagram: Received) {
    let Received {
        remote,
        local_ip,
        ecn,
        data,
    } = datagram;
    engine.handle_datagram(now, remote, local_ip, ecn, data);
}

impl<S: Socket> std::fmt::Debug for EnginePort<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EnginePort")
            .field("udp", &self.udp)
            .finish_non_exhaustive()
    }
}
