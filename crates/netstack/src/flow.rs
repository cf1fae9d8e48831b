//! A flow: its state with and without a socket.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use smoltcp::socket::tcp::State;

use crate::config::Config;
use crate::craft::{EmptySegment, ShortFrame};
use crate::event::StackFlowId;
use crate::reset::UnreadReset;
use crate::segment::{ACK, FIN, SynOptions};
use crate::socket_pool::{BufferSize, PooledSocket};
use crate::timers::FlowAlarm;
use crate::wire_state::WireState;

/// Addresses and ports of both ends, which are the key of the table of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FourTuple {
    client: u128,
    target: u128,
    ports: u32,
}

impl FourTuple {
    pub(crate) fn new(client: SocketAddr, target: SocketAddr) -> Self {
        // Mapped IPv6 addresses are refused, so the addresses of the two families cannot collide.
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
    pub(crate) id: StackFlowId,
    pub(crate) client: SocketAddr,
    pub(crate) target: SocketAddr,
    pub(crate) wire: WireState,
    pub(crate) state: FlowState,
    pub(crate) alarm: FlowAlarm,
    /// True if the flow is in the queue of flows that may have something to send.
    pub(crate) dirty: bool,
    /// Start of the wait for the application: the arrival of its last segment, or the time at which the stack began to
    /// wait for an answer.
    pub(crate) heard: Instant,
    /// Time of the last use of its socket.
    pub(crate) used: Instant,
    /// True if the handshake is complete.
    pub(crate) open: bool,
    /// True if `Readable` was reported and no read has found nothing since.
    pub(crate) readable_reported: bool,
    /// True if a write found less room than it wanted.
    pub(crate) wants_room: bool,
    /// True if the end of the application's bytes was read.
    pub(crate) read_end: bool,
    /// True if the user has finished its direction.
    pub(crate) finished: bool,
    /// True if the small buffers have turned out to be too small.
    pub(crate) outgrown: bool,
    /// Number of bytes read since the flow got its buffers.
    pub(crate) taken: usize,
    /// The socket's last segment without payload: time, sequence number, acknowledgement number and window.
    pub(crate) last_empty: Option<(Instant, u32, u32, u16)>,
    /// Set if the application has reset the flow, and the user has not read everything yet.
    pub(crate) reset: Option<UnreadReset>,
    /// Set if the user has reset the flow, and the application has not acknowledged everything yet: the time until which
    /// it may.
    pub(crate) doomed: Option<Instant>,
    /// The size of the buffers from which windows were last announced.
    pub(crate) size: BufferSize,
}

#[derive(Debug)]
pub(crate) enum FlowState {
    /// The SYN has arrived, and the user has not accepted the flow yet.
    Offered,
    Awake(Box<PooledSocket>),
    /// The flow is open in both directions, has nothing under way, and has no socket.
    Asleep,
    /// Both directions have finished. The flow still answers an application that missed the last segment.
    Lingering,
}

impl Flow {
    /// Returns the time at which the flow returns its buffers if there is no traffic before.
    pub(crate) fn idle_at(&self, config: &Config) -> Instant {
        let silent = self.taken == 0;
        self.used + config.idle_after / if silent { 4 } else { 1 }
    }

    pub(crate) fn empty_segment(&self, flags: u8, window: usize) -> ShortFrame {
        self.segment_to_client(flags, window).frame()
    }

    fn segment_to_client(&self, flags: u8, window: usize) -> EmptySegment {
        EmptySegment {
            from: self.target,
            to: self.client,
            seq: self.wire.send_next,
            ack: self.wire.receive_next,
            flags,
            window: self.wire.window(window),
            options: SynOptions::default(),
        }
    }

    /// Builds the segment with which the application would acknowledge everything sent, in the socket's sequence
    /// numbers.
    pub(crate) fn client_acknowledgement(&self) -> EmptySegment {
        EmptySegment {
            from: self.client,
            to: self.target,
            seq: self.wire.receive_next,
            ack: self.wire.inbound(self.wire.send_next),
            flags: ACK,
            window: self.wire.peer_window,
            options: SynOptions::default(),
        }
    }

    pub(crate) fn repeated_fin(&self) -> ShortFrame {
        let FlowState::Awake(socket) = &self.state else {
            return self.empty_segment(ACK, 0);
        };
        let bare = EmptySegment {
            seq: self.wire.send_next.wrapping_sub(1),
            ..self.segment_to_client(FIN | ACK, socket.window())
        };
        bare.frame()
    }

    /// Returns whether the application has not acknowledged everything that was written.
    pub(crate) fn has_unsent(&self) -> bool {
        matches!(&self.state, FlowState::Awake(socket) if socket.tcp().send_queue() > 0)
    }

    /// Returns whether only the application's acknowledgement of this side's FIN is missing.
    pub(crate) fn awaits_fin_ack(&self) -> bool {
        let FlowState::Awake(socket) = &self.state else {
            return false;
        };
        let tcp = socket.tcp();
        let sent = matches!(
            tcp.state(),
            State::FinWait1 | State::Closing | State::LastAck
        );
        sent && tcp.send_queue() == 0
    }
}
