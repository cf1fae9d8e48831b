//! The sources of datagrams that arrive at the UDP sockets of forwards: a flow for each.
//!
//! A source keeps its flow, whatever other sources do, and whatever it sends (endpoint-independent mapping, RFC 4787): the
//! forward has one target. The flow ends when it is idle (PROTOCOL UDP-8). The next datagram then begins another.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use quictun_engine::{Ending, FlowId};

use super::datagram_table::DatagramTable;
use crate::datagram_burst::take_datagrams;
use crate::datagram_socket::{DatagramSocket, receive_from};
use crate::listener::Listener;
use crate::reload::forwards::ForwardNumber;
use crate::role::ClientContext;
use quictun_control::settings::Phrases;

/// Sources of all forwards: as many as a server permits a client on one of its workers.
pub(super) const SOURCES_MAX: usize = 1024;

/// Number of sources from which on each new one ends the flow of the source that would be idle next. A resolver takes a new
/// port for each query. The rest is for flows whose end is on its way.
pub(super) const SOURCES_MANY: usize = SOURCES_MAX / 4 * 3;

/// A forward, the address of a program that sends datagrams there, and the address of this host to which it sends.
type Source = (ForwardNumber, SocketAddr, Option<IpAddr>);

#[derive(Debug, Default)]
pub(super) struct DatagramSources {
    /// The forwards whose sockets this worker has.
    own: BTreeSet<ForwardNumber>,
    flows: DatagramTable<Source>,
}

impl DatagramSources {
    /// Returns whether this worker watches the listener. One worker has all sources of a UDP socket.
    pub(super) fn watches(&mut self, number: ForwardNumber, listener: &Listener) -> bool {
        self.own.contains(&number) || listener.claim() && self.own.insert(number)
    }

    /// Takes the datagrams that have arrived at the socket of a forward. They lead to the target `token`.
    pub(super) fn receive(
        &mut self,
        cx: &mut ClientContext<'_>,
        (number, listener, token): (ForwardNumber, &Arc<Listener>, &str),
        (phrases, sends_sources): (Phrases, bool),
    ) {
        let Listener::Udp(socket, _) = &**listener else {
            return;
        };
        let receive = || receive_from(socket);
        take_datagrams(cx, receive, |cx, payload, (source, local)| {
            let told = sends_sources.then_some(source);
            let how = (|| Some(token.to_owned()), phrases, told);
            let socket = |inbox| Some(DatagramSocket::of_source((source, local), listener, inbox));
            let key = (number, source, local);
            self.flows
                .take(cx, key, payload, how, socket)
                .flow_to_read()
        });
    }

    pub(super) fn handle_closed(&mut self, now: Instant, flow: FlowId, ending: Ending) {
        self.flows.handle_closed(now, flow, ending);
    }
}
