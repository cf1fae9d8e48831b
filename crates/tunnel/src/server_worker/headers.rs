//! PROXY headers: which targets get one, and which source address it contains (PROTOCOL section 5.10).

use std::collections::BTreeSet;

use quictun_engine::FlowId;
use quictun_wire::proxy_header;
use tracing::info;

use crate::flow_records::{FlowRecords, name_of};
use quictun_trust::access::{DialAddress, Policy};

/// Remembers the log lines about headers, of which there is at most one for each client of the configuration.
#[derive(Debug, Default)]
pub(crate) struct Headers {
    /// Clients whose reported addresses were ignored, which was logged.
    unbelieved: BTreeSet<String>,
}

impl Headers {
    /// Returns the header for the target of a flow, or `None` if the target gets none.
    pub(super) fn of(
        &mut self,
        policy: &Policy,
        flows: &FlowRecords,
        flow: FlowId,
        dialled: DialAddress<'_>,
    ) -> Option<Vec<u8>> {
        if !policy.gets_header(dialled) {
            return None;
        }
        let Some((peer, remote, reported)) = flows.requester(flow) else {
            return Some(proxy_header::encode(None, dialled.address()));
        };
        let mut source = remote;
        if let Some(reported) = reported {
            if policy.believes_sources(peer) {
                source = reported;
            } else if self.unbelieved.insert(name_of(peer).to_owned()) {
                let client = name_of(peer);
                info!(target: "quictun", client, "the client sends addresses of its applications, but PROXY headers contain the client's own address: proxy_protocol = true in its table would change that");
            }
        }
        Some(proxy_header::encode(Some(source), dialled.address()))
    }
}
