//! The datagram flows of programs, by what distinguishes them: the program and the forward that it sends to, or the program
//! and the target that its datagrams name.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use quictun_engine::{Ending, FlowId};
use tracing::warn;

use super::datagram_sources::{SOURCES_MANY, SOURCES_MAX};
use crate::app_socket::AppSocket;
use crate::datagram_socket::{DatagramSocket, Inbox, inbox_with, put};
use crate::flow_source::FlowToOpen;
use crate::rate_limited_warning::RateLimitedWarning;
use crate::refused_sources::RefusedSources;
use crate::role::ClientContext;
use quictun_control::settings::Phrases;

/// The flows by their programs and forwards, or targets, `K`.
#[derive(Debug)]
pub(crate) struct DatagramTable<K> {
    flows: BTreeMap<K, (FlowId, Inbox)>,
    of_flows: BTreeMap<FlowId, K>,
    refused: RefusedSources<K>,
    overflow: RateLimitedWarning,
}

/// The fate of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatagramFate {
    /// The inbox of this flow has the datagram. The engine does not know that yet.
    Put(FlowId),
    /// The datagram has begun this flow.
    Begun(FlowId),
    /// The datagram was dropped and counted. The last flow was refused, or has failed, or none could be opened.
    Refused,
    /// The datagram was dropped and counted, because there are too many flows.
    Dropped,
}

impl DatagramFate {
    /// Returns the flow whose inbox has the datagram, if the engine does not know that yet.
    pub(crate) fn flow_to_read(self) -> Option<FlowId> {
        match self {
            Self::Put(flow) => Some(flow),
            Self::Begun(_) | Self::Refused | Self::Dropped => None,
        }
    }
}

impl<K> Default for DatagramTable<K> {
    fn default() -> Self {
        Self {
            flows: BTreeMap::new(),
            of_flows: BTreeMap::new(),
            refused: RefusedSources::default(),
            overflow: RateLimitedWarning::default(),
        }
    }
}

impl<K: Copy + Ord> DatagramTable<K> {
    /// Takes a datagram. If it begins a flow, `socket` makes its socket, `token` names the target, and the server is told
    /// the address `told`.
    pub(crate) fn take(
        &mut self,
        cx: &mut ClientContext<'_>,
        key: K,
        payload: Bytes,
        (token, phrases, told): (impl FnOnce() -> Option<String>, Phrases, Option<SocketAddr>),
        socket: impl FnOnce(Inbox) -> Option<DatagramSocket>,
    ) -> DatagramFate {
        if let Some((flow, inbox)) = self.flows.get(&key) {
            cx.engine.note_dropped_datagrams(put(inbox, payload));
            return DatagramFate::Put(*flow);
        }
        if self.refused.contains(cx.now, &key) {
            // The datagram is lost, as it would be at a port without a program.
            cx.engine.note_dropped_datagrams(1);
            return DatagramFate::Refused;
        }
        if self.flows.len() >= SOURCES_MAX {
            cx.engine.note_dropped_datagrams(1);
            if let Some(datagrams) = self.overflow.count(cx.now) {
                warn!(target: "quictun", datagrams, most = SOURCES_MAX, "too many programs send datagrams, or to too many targets: those of further ones are dropped until some are idle");
            }
            return DatagramFate::Dropped;
        }
        if self.flows.len() >= SOURCES_MANY {
            cx.engine.end_spare_datagram_flow(cx.now);
        }
        let inbox = inbox_with(payload);
        let opened = token()
            .zip(socket(inbox.clone()))
            .and_then(|(token, socket)| {
                let socket = AppSocket::Datagrams(Box::new(socket));
                FlowToOpen::new(socket, token).open(cx, phrases, told)
            });
        let Some(flow) = opened else {
            self.refused.insert(cx.now, key);
            cx.engine.note_dropped_datagrams(1);
            return DatagramFate::Refused;
        };
        self.of_flows.insert(flow, key);
        self.flows.insert(key, (flow, inbox));
        DatagramFate::Begun(flow)
    }

    /// Handles the end of a flow. Returns its program and target if it is one of these.
    pub(crate) fn handle_closed(
        &mut self,
        now: Instant,
        flow: FlowId,
        ending: Ending,
    ) -> Option<K> {
        let key = self.of_flows.remove(&flow)?;
        self.flows.remove(&key);
        if ending != Ending::Finished {
            self.refused.insert(now, key);
        }
        Some(key)
    }

    pub(crate) fn contains(&self, flow: FlowId) -> bool {
        self.of_flows.contains_key(&flow)
    }

    /// Ends all flows, because their programs have ended.
    pub(crate) fn end_all(&self, cx: &mut ClientContext<'_>) {
        for flow in self.of_flows.keys() {
            cx.engine.end_datagram_flow(cx.now, *flow);
        }
    }
}
