//! Hands the flows of a worker over to another process, and takes them over there.

use std::time::Instant;

use quictun_engine::report::ServerId;
use quictun_engine::{ClientEngine, FlowId};
use quictun_wire::handover::{HandedBond, HandedHolder};
use tracing::warn;

use super::ClientWorker;
use crate::app_socket::AppSocket;
use crate::handover::{TakenBond, watch, with_sockets};
use crate::role::ClientContext;
use crate::settings::Address;

/// The flows that a worker has taken over, until it runs.
#[derive(Debug, Default)]
pub(crate) struct FlowsToContinue {
    flows: Vec<FlowId>,
    /// The bonds whose server the configuration no longer names: the address of the server, and the number of flows.
    left: Vec<(String, usize)>,
}

impl ClientWorker {
    /// Returns the flows that another process can continue. It continues them with the server of the same address.
    pub(super) fn flows_to_hand_over(
        &self,
        cx: &ClientContext<'_>,
    ) -> Vec<(HandedBond, Vec<FlowId>)> {
        let bonds = cx.engine.hand_over(cx.now, |server| self.name_of(server));
        with_sockets(cx, bonds, |_, _| true)
    }

    /// Returns the address of a server, by which another process finds it. That of a service has its own server behind it.
    fn name_of(&self, server: ServerId) -> Option<String> {
        match self.dialled.address(server)? {
            Address::At(address) => Some(address.to_string()),
            Address::Service(_) => self.services.pass_on(server),
        }
    }

    fn server_of(&self, name: &str, now: Instant) -> Option<ServerId> {
        let named = self.dialled.find(name);
        named.or_else(|| self.services.take_over(name, now))
    }

    /// Continues the flows of bonds that another process has handed over. Their sockets are not used before the worker
    /// runs.
    pub(crate) fn take_over(
        &mut self,
        engine: &mut ClientEngine<AppSocket>,
        now: Instant,
        bonds: Vec<TakenBond>,
    ) {
        for (bond, sockets) in bonds.into_iter().map(TakenBond::into_parts) {
            let HandedHolder::Server { address, .. } = &bond.holder else {
                continue;
            };
            match self.server_of(address, now) {
                Some(server) => {
                    let flows = engine.take_over(now, &bond, server, sockets);
                    self.taken.flows.extend(flows);
                }
                None => self.taken.left.push((address.clone(), sockets.len())),
            }
        }
    }

    /// Watches the sockets of the flows that were taken over.
    pub(super) fn start_taken(&mut self, cx: &mut ClientContext<'_>) {
        let FlowsToContinue { flows, left } = std::mem::take(&mut self.taken);
        for (server, flows) in left {
            warn!(target: "quictun", server, flows, "flows are reset: the configuration no longer names their server");
        }
        watch(cx, &flows);
    }
}
