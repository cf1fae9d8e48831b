//! The state of a flow on the wire, which is independent of the socket that serves it.

use crate::segment::{ACK, SYN, Segment, SynOptions};

/// Sequence numbers and windows of a flow as they appear on the wire.
///
/// A new socket starts with a sequence number of its own choice, and may announce its window in other units than the
/// previous socket. The stack therefore translates the segments that a socket sends and receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WireState {
    /// Options of the application's SYN, with a segment size that fits the device.
    pub(crate) peer: SynOptions,
    /// Largest payload of a segment to the application, in bytes.
    pub(crate) mss: u16,
    /// The unit of the windows that this side announces, as a shift.
    shift: u8,
    /// Offset to add to the socket's sequence numbers.
    offset: u32,
    pub(crate) send_next: u32,
    /// The next expected sequence number, as last acknowledged.
    pub(crate) receive_next: u32,
    /// The application's window, as last announced and in the application's units.
    pub(crate) peer_window: u16,
}

impl WireState {
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

    /// Maps the socket's sequence number `from` to `send_next` on the wire.
    pub(crate) fn rebase(&mut self, from: u32) {
        self.offset = self.send_next.wrapping_sub(from);
    }

    /// Translates an acknowledgement number of the application into the socket's numbers.
    pub(crate) fn inbound(&self, ack: u32) -> u32 {
        ack.wrapping_sub(self.offset)
    }

    /// Translates a sequence number of the socket into the application's numbers.
    pub(crate) fn outbound(&self, seq: u32) -> u32 {
        seq.wrapping_add(self.offset)
    }

    /// Returns whether a segment is close enough to the current sequence numbers. smoltcp 0.14 accepts acknowledgements
    /// of data that it has not sent yet, and fails on numbers that are half of the sequence space apart.
    pub(crate) fn is_plausible(&self, segment: &Segment) -> bool {
        let near = |a: u32, b: u32| a.wrapping_sub(b).cast_signed().unsigned_abs() < FAR;
        let end = segment.seq.wrapping_add(segment.sequence_length());
        let seen = near(segment.seq, self.receive_next) && near(end, self.receive_next);
        let heard = !segment.has(ACK)
            || near(segment.ack, self.send_next) && !after(segment.ack, self.send_next);
        seen && heard
    }

    /// Records a segment that is sent; `seq` and the acknowledgement are those on the wire.
    pub(crate) fn sent(&mut self, seq: u32, segment: &Segment) {
        let end = seq.wrapping_add(segment.sequence_length());
        if segment.has(SYN) || after(end, self.send_next) {
            self.send_next = end;
        }
        if segment.has(ACK) && after(segment.ack, self.receive_next) {
            self.receive_next = segment.ack;
        }
    }

    pub(crate) fn window(&self, bytes: usize) -> u16 {
        u16::try_from(bytes >> self.shift).unwrap_or(u16::MAX)
    }

    pub(crate) fn our_options(&self, mss: u16) -> SynOptions {
        SynOptions {
            mss: Some(mss),
            window_scale: self.peer.window_scale.map(|_| self.shift),
            sack_permitted: self.peer.sack_permitted,
        }
    }
}

pub(crate) fn after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

/// Largest distance of a plausible sequence number. No window reaches that far, and it is half of the largest distance
/// that can be compared.
const FAR: u32 = 1 << 30;
/// Segment size of an application that announces none (RFC 9293 section 3.7.1).
const DEFAULT_MSS: u16 = 536;
/// Smallest accepted segment size, as in Linux (`TCP_MIN_SND_MSS`). A smaller one is an attempt to make this side send
/// mostly headers.
const MIN_MSS: u16 = 48;
