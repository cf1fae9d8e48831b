//! The datagram flows of programs whose datagrams name their targets: behind a TUN device, or led to this process by the
//! packet filter.
//!
//! Each pair of a program and a target is a flow. A program that sends to several targets has a port of its own at each
//! of them.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use quictun_engine::{Ending, FlowId};
use tracing::warn;

use super::datagram_sources::{SOURCES_MANY, SOURCES_MAX};
use crate::app_socket::AppSocket;
use crate::datagram_socket::{DatagramSocket, Inbox, put};
use crate::flow_source::FlowToOpen;
use crate::rate_limited_warning::RateLimitedWarning;
use crate::refused_sources::RefusedSources;
use crate::role::ClientContext;
use quictun_control::settings::Phrases;

/// The flows by their programs and targets, `K`.
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
    /// The datagram was dropped. The last flow was refused, or has failed, or none could be opened.
    Refused,
    /// The datagram was dropped, because there are too many flows.
    Dropped,
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
    /// Takes a datagram. If it begins a flow, `socket` makes its socket, and `token` names the target.
    pub(crate) fn take(
        &mut self,
        cx: &mut ClientContext<'_>,
        key: K,
        payload: Bytes,
        (token, phrases): (impl FnOnce() -> Option<String>, Phrases),
        socket: impl FnOnce(Inbox) -> Option<DatagramSocket>,
    ) -> DatagramFate {
        if let Some((flow, inbox)) = self.flows.get(&key) {
            cx.engine.note_dropped_datagrams(put(inbox, payload));
            return DatagramFate::Put(*flow);
        }
        if self.refused.contains(cx.now, &key) {
            return DatagramFate::Refused;
        }
        if self.flows.len() >= SOURCES_MAX {
            if let Some(datagrams) = self.overflow.count(cx.now) {
                warn!(target: "quictun", datagrams, most = SOURCES_MAX, "programs send datagrams to too many targets: those to further ones are dropped until some are idle");
            }
            return DatagramFate::Dropped;
        }
        if self.flows.len() >= SOURCES_MANY {
            cx.engine.end_spare_datagram_flow(cx.now);
        }
        let inbox: Inbox = Rc::new(RefCell::new(VecDeque::from([payload])));
        let opened = token()
            .zip(socket(inbox.clone()))
            .and_then(|(token, socket)| {
                let socket = AppSocket::Datagrams(Box::new(socket));
                // The address of a program behind a device is meaningless to a target.
                FlowToOpen::new(socket, token).open(cx, phrases, None)
            });
        let Some(flow) = opened else {
            self.refused.insert(cx.now, key);
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
