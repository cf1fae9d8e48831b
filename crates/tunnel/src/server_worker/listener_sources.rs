//! The sources of datagrams that arrive at the UDP sockets of clients' listeners: a flow for each (PROTOCOL REVERSE-16).
//!
//! A source may have a false address. So sources that have sent one datagram give way to new ones, then those that have sent
//! nothing for the longest time. The datagrams of sources for which there is no room are lost, as they would be at a full
//! socket.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quictun_engine::{Ending, FlowId};
use quictun_trust::shares::Holder;
use tracing::warn;

use super::ServerWorker;
use crate::app_addr::AppAddr;
use crate::app_socket::AppSocket;
use crate::datagram_burst::take_datagrams;
use crate::datagram_socket::{DatagramSocket, Inbox, inbox_with, put, receive_from};
use crate::listener::Listener;
use crate::rate_limited_warning::RateLimitedWarning;
use crate::refused_sources::RefusedSources;
use crate::reverse::holders::ListenerNumber;
use crate::role::ServerContext;

/// Datagrams in a listener's socket that are dropped when its client returns: more than the socket holds.
const STALE_MAX: usize = 4096;

/// Time without a datagram for which a source keeps its flow in any case. Its answer takes a round trip.
const SPARED: Duration = Duration::from_millis(500);

/// A listener, the address of a program that sends datagrams there, and the address of this host to which it sends.
type ListenerSource = (ListenerNumber, SocketAddr, Option<IpAddr>);

/// The sources of one worker.
#[derive(Debug, Default)]
pub(crate) struct ListenerSources {
    flows: BTreeMap<ListenerSource, SourceFlow>,
    of_flows: BTreeMap<FlowId, ListenerSource>,
    /// The sources in the order in which they give way.
    order: BTreeSet<(LastSent, ListenerSource)>,
    refused: RefusedSources<ListenerSource>,
    overflow: RateLimitedWarning,
}

#[derive(Debug)]
struct SourceFlow {
    flow: FlowId,
    inbox: Inbox,
    last: LastSent,
}

/// The time of a source's last datagram. Those that have sent one datagram come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LastSent {
    Only(Instant),
    Again(Instant),
}

impl ListenerSources {
    /// Takes a datagram of a source that has a flow. Returns the flow, and how many older datagrams it displaces.
    fn put(
        &mut self,
        now: Instant,
        source: ListenerSource,
        payload: Bytes,
    ) -> Result<(FlowId, u64), Bytes> {
        let Some(known) = self.flows.get_mut(&source) else {
            return Err(payload);
        };
        // A source that gives way already has no place in the order.
        if self.order.remove(&(known.last, source)) {
            known.last = LastSent::Again(now);
            self.order.insert((known.last, source));
        }
        let dropped = put(&known.inbox, payload);
        Ok((known.flow, dropped))
    }

    fn insert(&mut self, now: Instant, source: ListenerSource, flow: FlowId, inbox: Inbox) {
        let last = LastSent::Only(now);
        self.order.insert((last, source));
        self.of_flows.insert(flow, source);
        self.flows.insert(source, SourceFlow { flow, inbox, last });
    }

    /// Returns the flow of the source of these listeners that gives way next, if it has sent nothing for some time. A crowd
    /// of sources that have just sent one datagram displaces none that has sent again.
    fn pop_spare(&mut self, now: Instant, listeners: &BTreeSet<ListenerNumber>) -> Option<FlowId> {
        let mut order = self.order.iter();
        let (last, source) = *order.find(|(_, (number, ..))| listeners.contains(number))?;
        let (LastSent::Only(at) | LastSent::Again(at)) = last;
        if now < at + SPARED {
            return None;
        }
        self.order.remove(&(last, source));
        self.flows.get(&source).map(|known| known.flow)
    }

    pub(super) fn handle_closed(&mut self, now: Instant, flow: FlowId, ending: Ending) {
        let Some(source) = self.of_flows.remove(&flow) else {
            return;
        };
        if let Some(known) = self.flows.remove(&source) {
            self.order.remove(&(known.last, source));
        }
        if ending != Ending::Finished {
            self.refused.insert(now, source);
        }
    }
}

impl ServerWorker {
    /// Takes the datagrams that have arrived at a client's listener.
    pub(super) fn receive_datagrams(&mut self, cx: &mut ServerContext<'_>, key: usize) {
        let own = &self.listeners.own[key];
        let (number, listener) = (own.number, own.listener.clone());
        let Listener::Udp(socket, _) = &**listener else {
            return;
        };
        let receive = || receive_from(socket);
        take_datagrams(cx, receive, |cx, payload, (source, local)| {
            let source = (number, source, local);
            match self.listener_sources.put(cx.now, source, payload) {
                Ok((flow, dropped)) => {
                    cx.engine.note_dropped_datagrams(dropped);
                    Some(flow)
                }
                Err(payload) => {
                    self.open_source(cx, key, source, payload);
                    None
                }
            }
        });
        self.listeners.watch(cx.poller, cx.now, key);
    }

    /// Opens a flow for a source, if there is room for one.
    fn open_source(
        &mut self,
        cx: &mut ServerContext<'_>,
        key: usize,
        source: ListenerSource,
        payload: Bytes,
    ) {
        let own = &self.listeners.own[key];
        let ((_, address, local), connection) = (source, own.connection);
        let holder = Holder::Client(own.client.clone());
        let sources = &mut self.listener_sources;
        if sources.refused.contains(cx.now, &source) {
            return cx.engine.note_dropped_datagrams(1);
        }
        if self.source_places.has_many(&holder) {
            let its = self.listeners.own.iter().map(|(_, it)| it);
            let its = its.filter(|it| it.client == own.client);
            let its = its.map(|it| it.number).collect();
            if let Some(spare) = sources.pop_spare(cx.now, &its) {
                cx.engine.end_datagram_flow(cx.now, spare);
            }
        }
        let has_room = self.source_places.has_place(&holder)
            && self.listeners.has_room_for_source(connection)
            && cx.engine.takes_incoming(connection);
        if !has_room {
            cx.engine.note_dropped_datagrams(1);
            if let Some(datagrams) = self.listener_sources.overflow.count(cx.now) {
                warn!(target: "quictun", client = &*self.listeners.own[key].client, datagrams, "too many programs send datagrams to the listeners of clients: those of further ones are dropped until some are idle");
            }
            return;
        }
        let inbox = inbox_with(payload);
        let listener = self.listeners.own[key].listener.shared();
        let socket = DatagramSocket::of_source((address, local), listener, inbox.clone());
        let socket = AppSocket::Datagrams(Box::new(socket));
        if let Some(flow) = self.open_incoming(cx, key, (socket, AppAddr::Ip(address))) {
            self.source_places.take(flow, &holder);
            self.listener_sources.insert(cx.now, source, flow, inbox);
        }
    }

    /// Ends the flows of the sources of a listener that is closed: no datagram leaves or arrives there any more.
    pub(super) fn end_sources(&self, cx: &mut ServerContext<'_>, number: ListenerNumber) {
        let flows = &self.listener_sources.flows;
        let its = flows
            .iter()
            .filter(|((listener, ..), _)| *listener == number);
        for (_, known) in its {
            cx.engine.end_datagram_flow(cx.now, known.flow);
        }
    }

    /// Drops the datagrams that have arrived at a listener while its client was away. They are too old.
    pub(super) fn drop_stale_datagrams(&self, key: usize) {
        if let Listener::Udp(socket, _) = &**self.listeners.own[key].listener {
            let _dropped = (0..STALE_MAX)
                .take_while(|_| receive_from(socket).is_ok())
                .count();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn sources_that_have_sent_once_give_way_first_then_those_that_are_idle() {
        let (mut sources, now) = (ListenerSources::default(), Instant::now());
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let source = |listener, port| (listener, at(port), None);
        for port in 1..=3 {
            let at = now + Duration::from_millis(port.into());
            sources.insert(at, source(7, port), FlowId(port.into()), Inbox::default());
        }
        sources.insert(now, source(8, 1), FlowId(8), Inbox::default());
        let seven = [7].into();
        let put = |sources: &mut ListenerSources, at, port| {
            sources.put(at, source(7, port), Bytes::new())
        };
        assert_eq!(put(&mut sources, now, 1), Ok((FlowId(1), 0)));
        let spare = sources.pop_spare(now, &seven);
        assert_eq!(spare, None, "answers may be on their way");
        let later = now + Duration::from_secs(1);
        assert_eq!(sources.pop_spare(later, &seven), Some(FlowId(2)));
        // Datagrams do not keep a flow whose end is on its way.
        assert_eq!(put(&mut sources, later, 2), Ok((FlowId(2), 0)));
        sources.handle_closed(later, FlowId(3), Ending::Finished);
        assert_eq!(put(&mut sources, later, 3), Err(Bytes::new()));
        // False sources may send two datagrams each. A real one sends on.
        sources.insert(now, source(7, 4), FlowId(4), Inbox::default());
        for at in [now, later] {
            assert_eq!(put(&mut sources, at, 4), Ok((FlowId(4), 0)));
        }
        // A crowd of new sources displaces none that has sent again.
        sources.insert(later, source(7, 5), FlowId(5), Inbox::default());
        assert_eq!(sources.pop_spare(later, &seven), None);
        sources.handle_closed(later, FlowId(5), Ending::Finished);
        assert_eq!(sources.pop_spare(later, &seven), Some(FlowId(1)));
        assert_eq!(sources.pop_spare(later, &seven), None);
        assert_eq!(
            sources.pop_spare(later, &[7, 8].into()),
            Some(FlowId(8)),
            "another listener of the same client"
        );
        for flow in [1, 2, 4, 8] {
            sources.handle_closed(later, FlowId(flow), Ending::Finished);
        }
        assert!(sources.flows.is_empty() && sources.order.is_empty());
    }
}
