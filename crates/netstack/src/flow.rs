//! One flow: what is known of it with and without a socket.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use smoltcp::socket::tcp::State;

use crate::config::Config;
use crate::craft::{Bare, Short};
use crate::event::FlowId;
use crate::segment::{ACK, FIN, SynOptions};
use crate::socket_pool::{PooledSocket, Size};
use crate::timers::Alarm;
use crate::wire_state::WireState;

/// Addresses and ports of both ends, by which the table of flows is searched.
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
    pub(crate) wire: WireState,
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

#[derive(Debug)]
pub(crate) enum Stage {
    /// The SYN came, and the user has not accepted the flow.
    Offered,
    Awake(Box<PooledSocket>),
    /// Open in both directions, with nothing under way in either, and without a socket.
    Asleep,
    /// Finished in both directions, to answer the application should it not have heard.
    Lingering,
}

impl Flow {
    /// From when on it does without buffers, should nothing happen before.
    pub(crate) fn idle_at(&self, config: &Config) -> Instant {
        let silent = self.taken == 0;
        self.used + config.idle_after / if silent { 4 } else { 1 }
    }

    pub(crate) fn bare(&self, flags: u8, window: usize) -> Short {
        self.says(flags, window).frame()
    }

    fn says(&self, flags: u8, window: usize) -> Bare {
        Bare {
            from: self.target,
            to: self.client,
            seq: self.wire.send_next,
            ack: self.wire.receive_next,
            flags,
            window: self.wire.window(window),
            options: SynOptions::default(),
        }
    }

    /// What the application would say to acknowledge all we sent, as the socket knows it.
    pub(crate) fn heard_bare(&self) -> Bare {
        Bare {
            from: self.client,
            to: self.target,
            seq: self.wire.receive_next,
            ack: self.wire.inbound(self.wire.send_next),
            flags: ACK,
            window: self.wire.peer_window,
            options: SynOptions::default(),
        }
    }

    pub(crate) fn end_again(&self) -> Short {
        let Stage::Awake(socket) = &self.stage else {
            return self.bare(ACK, 0);
        };
        let bare = Bare {
            seq: self.wire.send_next.wrapping_sub(1),
            ..self.says(FIN | ACK, socket.window())
        };
        bare.frame()
    }

    /// All that is missing is the application's acknowledgement of our FIN.
    pub(crate) fn awaits_end(&self) -> bool {
        let Stage::Awake(socket) = &self.stage else {
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
