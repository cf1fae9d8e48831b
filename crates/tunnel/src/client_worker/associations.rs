//! The associations of applications that send datagrams through a SOCKS5 proxy (RFC 1928 section 7).
//!
//! ```text
//!  UDP ASSOCIATE ─► a UDP socket beside the connection ── answered with its address
//!                     │ a datagram names its target       each target of an association is a flow
//!                     ▼
//!                   a flow ── idle ─► ended; the next datagram begins another
//!  the connection ends ─► the socket closes, and its flows end
//! ```
//!
//! Only datagrams of the host that has the connection count, and only from one port: the one that the request has named,
//! or that of the first datagram.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quictun_engine::{Ending, FlowId, Socket as _};
use quictun_trust::shares::SharePlace;
use quictun_wire::code::FlowCode;
use quictun_wire::proxy::{RelayHeader, associated};
use quictun_wire::target::Target;
use slab::Slab;
use tracing::{debug, warn};

use super::datagram_sources::{SOURCES_MANY, SOURCES_MAX};
use crate::app_socket::AppSocket;
use crate::datagram_burst::take_datagrams;
use crate::datagram_socket::{
    DatagramSocket, Inbox, inbox_with, make_room_for_many, put, receive_from,
};
use crate::flow_source::FlowToOpen;
use crate::proxy::AssociationRequest;
use crate::rate_limited_warning::RateLimitedWarning;
use crate::refused_sources::RefusedSources;
use crate::role::ClientContext;
use quictun_control::settings::Phrases;
use quictun_io::poller::Key;

/// Flows of one association: a quarter of all, so that a program with many peers leaves some to others.
const FLOWS_MAX: usize = SOURCES_MAX / 4;

/// Time without a datagram of the application after which a flow may end early, so that another target has one.
const SPARED: Duration = Duration::from_millis(100);

/// Bytes that an application may send on the connection of its association. The protocol has none.
const LIFELINE_MAX: usize = 64 * 1024;

/// The associations of one worker.
#[derive(Debug, Default)]
pub(super) struct Associations {
    open: Slab<Association>,
    /// The flows of all associations, also of those that have ended.
    of_flows: BTreeMap<FlowId, (usize, RelayHeader)>,
    overflow: RateLimitedWarning,
}

#[derive(Debug)]
struct Association {
    lifeline: AppSocket,
    /// Number of bytes that may still arrive there.
    lifeline_left: usize,
    relay: Arc<UdpSocket>,
    source: ExpectedSource,
    /// The flows by their targets, as the application has written them.
    flows: BTreeMap<RelayHeader, TargetFlow>,
    refused: RefusedSources<RelayHeader>,
    _place: SharePlace,
}

/// The host and port from which the application sends.
#[derive(Debug)]
struct ExpectedSource {
    host: IpAddr,
    port: Option<u16>,
}

#[derive(Debug)]
struct TargetFlow {
    flow: FlowId,
    inbox: Inbox,
    /// The time of the application's last datagram.
    at: Instant,
}

impl ExpectedSource {
    /// Returns whether the application sends from this address. The first datagram decides on the port.
    fn takes(&mut self, source: SocketAddr) -> bool {
        source.ip().to_canonical() == self.host
            && *self.port.get_or_insert(source.port()) == source.port()
    }
}

impl Associations {
    /// Opens an association, and tells the application its address. Returns the connection, its key in the poller and the
    /// code of the refusal if that is not possible.
    pub(super) fn open(
        &mut self,
        cx: &ClientContext<'_>,
        request: AssociationRequest,
    ) -> Option<((AppSocket, Option<Key>), FlowCode)> {
        let AssociationRequest {
            lifeline,
            place,
            from_port,
            watched,
        } = request;
        let (peer, relay) = match bind_beside(&lifeline) {
            Ok(bound) => bound,
            Err(cause) => {
                debug!(target: "quictun", { "Client-App-Addr" = lifeline.peer(), %cause }, "an application was refused an association for datagrams");
                return Some(((lifeline, watched), FlowCode::Unsupported));
            }
        };
        let entry = self.open.vacant_entry();
        let number = entry.key();
        let (fd, key) = (lifeline.descriptor(), Key::Lifeline(number));
        let renamed = match watched {
            Some(_) => cx.poller.rename_flow(fd, key),
            None => cx.poller.add_flow(fd, key),
        };
        let watched = renamed.and_then(|()| cx.poller.add_input(&relay, Key::Relay(number)));
        let answered = watched
            .and_then(|()| relay.local_addr())
            .and_then(|address| lifeline.say(&associated(address)));
        if let Err(cause) = answered {
            warn!(target: "quictun", %cause, "a connection to the proxy cannot be watched or answered: it was reset");
            return None;
        }
        entry.insert(Association {
            lifeline,
            lifeline_left: LIFELINE_MAX,
            relay: Arc::new(relay),
            source: ExpectedSource {
                host: peer.ip().to_canonical(),
                port: from_port,
            },
            flows: BTreeMap::new(),
            refused: RefusedSources::default(),
            _place: place,
        });
        None
    }

    /// Handles that the application has sent something on the connection of its association, or has ended it.
    pub(super) fn handle_lifeline(&mut self, cx: &mut ClientContext<'_>, number: usize) {
        let Some(association) = self.open.get_mut(number) else {
            return;
        };
        if association.is_alive() {
            return;
        }
        let association = self.open.remove(number);
        for TargetFlow { flow, .. } in association.flows.into_values() {
            cx.engine.end_datagram_flow(cx.now, flow);
        }
    }

    /// Takes the datagrams that have arrived at the UDP socket of an association.
    pub(super) fn receive(
        &mut self,
        cx: &mut ClientContext<'_>,
        number: usize,
        how: (Phrases, bool),
    ) {
        let Some(relay) = self.open.get(number).map(|it| it.relay.clone()) else {
            return;
        };
        let receive = || receive_from(&relay);
        take_datagrams(cx, receive, |cx, datagram, (source, _)| {
            let association = self.open.get_mut(number)?;
            if !association.source.takes(source) {
                return None;
            }
            let Some((header, target, payload)) = RelayHeader::decode(&datagram) else {
                cx.engine.note_dropped_datagrams(1);
                return None;
            };
            let payload = datagram.slice_ref(payload);
            self.take(cx, number, source, (header, &target, payload), how)
        });
    }

    /// Takes a datagram to a target. Returns the flow that has got it, if it has one already.
    fn take(
        &mut self,
        cx: &mut ClientContext<'_>,
        number: usize,
        source: SocketAddr,
        (header, target, payload): (RelayHeader, &Target, Bytes),
        (phrases, sends_sources): (Phrases, bool),
    ) -> Option<FlowId> {
        let association = self.open.get_mut(number)?;
        if let Some(known) = association.flows.get_mut(&header) {
            known.at = cx.now;
            cx.engine.note_dropped_datagrams(put(&known.inbox, payload));
            return Some(known.flow);
        }
        if association.refused.contains(cx.now, &header) {
            cx.engine.note_dropped_datagrams(1);
            return None;
        }
        let has_room = self.of_flows.len() < SOURCES_MAX
            && (association.flows.len() < FLOWS_MAX || association.end_oldest(cx));
        if !has_room {
            cx.engine.note_dropped_datagrams(1);
            if let Some(datagrams) = self.overflow.count(cx.now) {
                warn!(target: "quictun", datagrams, most = FLOWS_MAX, "applications send datagrams to too many targets: those to further ones are dropped until some are idle");
            }
            return None;
        }
        if self.of_flows.len() >= SOURCES_MANY {
            cx.engine.end_spare_datagram_flow(cx.now);
        }
        let inbox = inbox_with(payload);
        let socket =
            DatagramSocket::relayed(source, &association.relay, header.clone(), inbox.clone());
        let socket = AppSocket::Datagrams(Box::new(socket));
        let told = sends_sources.then_some(source);
        let opened = FlowToOpen::new(socket, target.to_string()).open(cx, phrases, told);
        let Some(flow) = opened else {
            association.refused.insert(cx.now, header);
            cx.engine.note_dropped_datagrams(1);
            return None;
        };
        let at = cx.now;
        association
            .flows
            .insert(header.clone(), TargetFlow { flow, inbox, at });
        self.of_flows.insert(flow, (number, header));
        None
    }

    pub(super) fn handle_closed(&mut self, now: Instant, flow: FlowId, ending: Ending) {
        let Some((number, header)) = self.of_flows.remove(&flow) else {
            return;
        };
        // Another association may have the number, and another flow the target.
        if let Some(association) = self.open.get_mut(number)
            && association.flows.get(&header).map(|known| known.flow) == Some(flow)
        {
            association.flows.remove(&header);
            if ending != Ending::Finished {
                association.refused.insert(now, header);
            }
        }
    }
}

impl Association {
    /// Reads what has arrived on the connection. Returns whether it lives.
    fn is_alive(&mut self) -> bool {
        let mut buffer = Vec::with_capacity(512);
        while self.lifeline_left > 0 {
            buffer.clear();
            match self.lifeline.read(&mut buffer) {
                Ok(0) => return false,
                Ok(read) => self.lifeline_left = self.lifeline_left.saturating_sub(read),
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        false
    }

    /// Ends the flow to which the application has sent nothing for the longest time. Returns whether there was one.
    fn end_oldest(&mut self, cx: &mut ClientContext<'_>) -> bool {
        let oldest = self.flows.iter().min_by_key(|(_, known)| known.at);
        let Some((header, &TargetFlow { flow, at, .. })) = oldest else {
            return false;
        };
        if cx.now < at + SPARED {
            return false;
        }
        let header = header.clone();
        self.flows.remove(&header);
        cx.engine.end_datagram_flow(cx.now, flow);
        true
    }
}

/// Binds a UDP socket at the address to which the application has connected, which reaches it there. Returns the
/// application's address, too.
fn bind_beside(lifeline: &AppSocket) -> io::Result<(SocketAddr, UdpSocket)> {
    let AppSocket::Tcp(tcp) = lifeline else {
        return Err(io::Error::other(
            "datagrams need a proxy on a TCP port: a Unix socket has no address for them",
        ));
    };
    let mut local = tcp.stream().local_addr()?;
    if let SocketAddr::V6(v6) = local
        && let Some(v4) = v6.ip().to_ipv4_mapped()
    {
        local = SocketAddr::new(v4.into(), 0);
    }
    local.set_port(0);
    let relay = UdpSocket::bind(local)?;
    make_room_for_many(&relay)?;
    relay.set_nonblocking(true)?;
    Ok((tcp.stream().peer_addr()?, relay))
}
