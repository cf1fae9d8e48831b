//! One flow: what is known of it with and without a socket.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use smoltcp::socket::tcp::State;

use crate::config::Config;
use crate::craft::{Bare, Short};
use crate::event::FlowId;
use crate::seat::{Seat, Size};
use crate::segment::{ACK, FIN, SYN, Segment, SynOptions};
use crate::timers::Alarm;

/// Who talks to whom: what the table of flows is searched by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tuple {
    client: u128,
    target: u128,
    ports: u32,
}

impl Tuple {
    pub(crate) fn new(client: SocketAddr, target: SocketAddr) -> Self {
        // An IPv6 address that is a mapped one is refused, so that these are different for each family.
        let address = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => u128::from(ip.to_ipv6_mapped()),
            IpAddr::V6(ip) => u128::from(ip),
        };
        Self {
            client: address(client.ip()),
            target: address(target.ip()),
            ports: u32::from(client.port()) << 16 | u32::from(target.port()),
        }
    }
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
pub(crate) struct Flow {
    pub(crate) id: FlowId,
    pub(crate) client: SocketAddr,
    pub(crate) target: SocketAddr,
    pub(crate) line: Line,
    pub(crate) stage: Stage,
    pub(crate) alarm: Alarm,
    /// It waits in the queue of those that may have something to send.
    pub(crate) dirty: bool,
    /// Since when we wait for the application: it was last heard then, or there was nothing to wait for before.
    pub(crate) heard: Instant,
    /// When something was last done with its socket.
    pub(crate) used: Instant,
    /// The hand-shake is complete.
    pub(crate) open: bool,
    /// `Readable` was told, and no read has found nothing since.
    pub(crate) told_readable: bool,
    /// A write found less room than it wanted.
    pub(crate) wants_room: bool,
    /// The end of what the application sends was read.
    pub(crate) read_end: bool,
    /// We have finished.
    pub(crate) finished: bool,
    /// Small buffers have shown to be too small.
    pub(crate) outgrown: bool,
    /// Bytes taken out since it has its buffers.
    pub(crate) taken: usize,
    /// The last segment of its socket without payload: when, sequence numbers, window.
    pub(crate) said: Option<(Instant, u32, u32, u16)>,
    /// The size of the buffers its windows were last announced from.
    pub(crate) size: Size,
}

/// What a flow is doing.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Its SYN came, and nobody has accepted it.
    Offered,
    /// It has a socket.
    Awake(Box<Seat>),
    /// Open in both directions, with nothing under way in either, and without a socket.
    Asleep,
    /// Finished in both directions, to answer the application should it not have heard.
    Lingering,
}

/// How the flow looks on the wire, whichever socket serves it.
///
/// A socket starts with a sequence number of its own choice and may announce its window in other units than
/// the one before it: what it sends and gets is translated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// What the application's SYN said, with a segment size that fits the device.
    pub(crate) peer: SynOptions,
    /// Bytes of payload that fit a segment to the application.
    pub(crate) mss: u16,
    /// The unit of the windows we announce, as a shift.
    shift: u8,
    /// Added to the socket's sequence numbers.
    offset: u32,
    /// The next we send.
    pub(crate) send_next: u32,
    /// The next we expect, as last acknowledged.
    pub(crate) receive_next: u32,
    /// The application's window, as last announced and in its units.
    pub(crate) peer_window: u16,
}

impl Line {
    /// From a SYN; `mss` is what fits the device.
    pub(crate) fn new(syn: &Segment, options: SynOptions, mss: u16, shift: u8) -> Self {
        let theirs = match options.mss {
            None | Some(0) => DEFAULT_MSS,
            Some(theirs) => theirs.max(MIN_MSS),
        };
        let mss = theirs.min(mss);
        Self {
            peer: SynOptions {
                mss: Some(mss),
                ..options
            },
            mss,
            shift: if options.window_scale.is_some() {
                shift
            } else {
                0
            },
            offset: 0,
            send_next: 0,
            receive_next: syn.seq.wrapping_add(1),
            peer_window: syn.window,
        }
    }

    /// Makes a socket's sequence number `from` mean what `send_next` says.
    pub(crate) fn rebase(&mut self, from: u32) {
        self.offset = self.send_next.wrapping_sub(from);
    }

    /// The acknowledgement of a segment of the application, as the socket knows it.
    pub(crate) fn inbound(&self, ack: u32) -> u32 {
        ack.wrapping_sub(self.offset)
    }

    /// The sequence number of a segment of the socket, as the application knows it.
    pub(crate) fn outbound(&self, seq: u32) -> u32 {
        seq.wrapping_add(self.offset)
    }

    /// Whether a segment can belong to what was said so far: smoltcp 0.14 believes acknowledgements of what it
    /// has not sent yet, and fails on numbers that are half of the sequence space apart.
    pub(crate) fn is_plausible(&self, segment: &Segment) -> bool {
        let near = |a: u32, b: u32| a.wrapping_sub(b).cast_signed().unsigned_abs() < FAR;
        let end = segment.seq.wrapping_add(segment.space());
        let seen = near(segment.seq, self.receive_next) && near(end, self.receive_next);
        let heard = !segment.has(ACK)
            || near(segment.ack, self.send_next) && !after(segment.ack, self.send_next);
        seen && heard
    }

    /// Keeps in mind what goes out: sequence number and acknowledgement as on the wire.
    pub(crate) fn sent(&mut self, seq: u32, segment: &Segment) {
        let end = seq.wrapping_add(segment.space());
        if segment.has(SYN) || after(end, self.send_next) {
            self.send_next = end;
        }
        if segment.has(ACK) && after(segment.ack, self.receive_next) {
            self.receive_next = segment.ack;
        }
    }

    /// A window of so many bytes, in our units.
    pub(crate) fn window(&self, bytes: usize) -> u16 {
        u16::try_from(bytes >> self.shift).unwrap_or(u16::MAX)
    }

    /// What our SYN says.
    pub(crate) fn our_options(&self, mss: u16) -> SynOptions {
        SynOptions {
            mss: Some(mss),
            window_scale: self.peer.window_scale.map(|_| self.shift),
            sack_permitted: self.peer.sack_permitted,
        }
    }
}

impl Flow {
    /// From when on it does without buffers, should nothing happen before.
    pub(crate) fn idle_at(&self, config: &Config) -> Instant {
        let silent = self.taken == 0;
        self.used + config.idle_after / if silent { 4 } else { 1 }
    }

    /// A segment to the application without payload.
    pub(crate) fn bare(&self, flags: u8, window: usize) -> Short {
        self.says(flags, window).frame()
    }

    fn says(&self, flags: u8, window: usize) -> Bare {
        Bare {
            from: self.target,
            to: self.client,
            seq: self.line.send_next,
            ack: self.line.receive_next,
            flags,
            window: self.line.window(window),
            options: SynOptions::default(),
        }
    }

    /// What the application would say to acknowledge all we sent, as the socket knows it.
    pub(crate) fn heard_bare(&self) -> Bare {
        Bare {
            from: self.client,
            to: self.target,
            seq: self.line.receive_next,
            ack: self.line.inbound(self.line.send_next),
            flags: ACK,
            window: self.line.peer_window,
            options: SynOptions::default(),
        }
    }

    /// Our FIN again.
    pub(crate) fn end_again(&self) -> Short {
        let Stage::Awake(seat) = &self.stage else {
            return self.bare(ACK, 0);
        };
        let bare = Bare {
            seq: self.line.send_next.wrapping_sub(1),
            ..self.says(FIN | ACK, seat.window())
        };
        bare.frame()
    }

    /// All that is missing is the application's acknowledgement of our FIN.
    pub(crate) fn awaits_end(&self) -> bool {
        let Stage::Awake(seat) = &self.stage else {
            return false;
        };
        let socket = seat.socket();
        let sent = matches!(
            socket.state(),
            State::FinWait1 | State::Closing | State::LastAck
        );
        sent && socket.send_queue() == 0
    }

    /// The hand-shake is under way.
    pub(crate) fn is_opening(&self) -> bool {
        !self.open
    }
}

/// Whether a sequence number comes after another.
pub(crate) fn after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

/// Farther than any window reaches, and half of what can be compared.
const FAR: u32 = 1 << 30;
/// RFC 9293 section 3.7.1, for who says nothing.
const DEFAULT_MSS: u16 = 536;
/// What Linux takes at least (`TCP_MIN_SND_MSS`): less is an attempt to make us send headers only.
const MIN_MSS: u16 = 48;
