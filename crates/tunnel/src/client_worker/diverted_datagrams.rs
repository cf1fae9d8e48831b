//! The datagrams that the packet filter leads to this process (`--tproxy`), and the sockets that answer them.
//!
//! Each pair of a program and the address that it has sent to is a flow. An answer leaves from that address: the
//! socket that sends it is bound to an address of another host, which a transparent socket may be. The flows to one address share
//! a socket. Nothing arrives there if the packet filter leads all datagrams to the listener: its rules must not let packets
//! pass that have a socket (`socket transparent`).

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Instant;

use quictun_engine::{Ending, FlowId};
use tracing::{debug, warn};

use super::datagram_sources::SOURCES_MAX;
use super::datagram_table::DatagramTable;
use crate::datagram_burst::take_datagrams;
use crate::datagram_socket::{DatagramSocket, receive_diverted};
use crate::listener::Listener;
use crate::reload::forwards::ForwardNumber;
use crate::role::ClientContext;
use crate::transparent;
use quictun_control::settings::Phrases;

/// A listener, a program, and the address that it has sent to.
type Ends = (ForwardNumber, SocketAddr, SocketAddr);

#[derive(Debug, Default)]
pub(super) struct DivertedDatagrams {
    flows: DatagramTable<Ends>,
    /// The sockets that answer, by the addresses that they answer for. Flows keep them.
    answering: BTreeMap<SocketAddr, Weak<UdpSocket>>,
    /// A line was logged about a socket that could not be made.
    has_failed: bool,
}

impl DivertedDatagrams {
    /// Takes the datagrams that have arrived at a listener.
    pub(super) fn receive(
        &mut self,
        cx: &mut ClientContext<'_>,
        (number, listener): (ForwardNumber, &Arc<Listener>),
        phrases: Phrases,
    ) {
        let Listener::Udp(socket, _) = &**listener else {
            return;
        };
        let own_port = socket.local_addr().map(|it| it.port()).unwrap_or_default();
        let receive = || receive_diverted(socket);
        take_datagrams(cx, receive, |cx, payload, (source, destination)| {
            // A datagram to the listener itself would come back here for ever.
            if destination.port() == own_port {
                return None;
            }
            let token = || Some(transparent::datagram_target(destination).to_string());
            let answering = &mut self.answering;
            let has_failed = &mut self.has_failed;
            let socket = |inbox| match answering_socket(answering, destination) {
                Ok(socket) => Some(DatagramSocket::diverted(source, socket, inbox)),
                Err(cause) => {
                    if !std::mem::replace(has_failed, true) {
                        warn!(target: "quictun", %destination, %cause, "no socket can answer for this address: datagrams to it are dropped, and further ones without a line");
                    }
                    None
                }
            };
            let ends = (number, source, destination);
            let how = (token, phrases, None);
            self.flows
                .take(cx, ends, payload, how, socket)
                .flow_to_read()
        });
    }

    pub(super) fn handle_closed(&mut self, now: Instant, flow: FlowId, ending: Ending) {
        let closed = self.flows.handle_closed(now, flow, ending);
        if let Some((_, program, target)) = closed.filter(|_| ending != Ending::Finished) {
            debug!(target: "quictun", %program, %target, "datagrams of this program are dropped for a second");
        }
    }
}

/// Returns the socket that answers for an address.
fn answering_socket(
    sockets: &mut BTreeMap<SocketAddr, Weak<UdpSocket>>,
    address: SocketAddr,
) -> io::Result<Rc<UdpSocket>> {
    if let Some(socket) = sockets.get(&address).and_then(Weak::upgrade) {
        return Ok(socket);
    }
    if sockets.len() >= SOURCES_MAX {
        sockets.retain(|_, socket| socket.strong_count() > 0);
    }
    let socket = Rc::new(transparent::bind_to_destination(address)?);
    sockets.insert(address, Rc::downgrade(&socket));
    Ok(socket)
}
