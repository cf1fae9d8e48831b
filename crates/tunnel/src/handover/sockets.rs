//! The sockets of the flows that a worker hands over, and of those that it has taken over.

use quictun_engine::{FlowId, Role};
use quictun_wire::code::FlowCode;
use quictun_wire::handover::{HandedBond, HandedFlow};

use crate::app_socket::AppSocket;
use crate::role::WorkerContext;

/// Adds the kinds of their sockets to flows. `complete` adds what only the role knows, and returns whether another process
/// can continue the flow. Other flows end in their bonds.
pub(crate) fn with_sockets<R: Role>(
    cx: &WorkerContext<'_, R>,
    bonds: Vec<(HandedBond, Vec<FlowId>)>,
    complete: impl Fn(&mut HandedFlow, FlowId) -> bool,
) -> Vec<(HandedBond, Vec<FlowId>)> {
    let each = bonds.into_iter().map(|(mut bond, ids)| {
        let flows = std::mem::take(&mut bond.flows).into_iter().zip(ids);
        let mut kept = Vec::new();
        for (mut flow, id) in flows {
            let socket = cx.engine.socket(id).and_then(AppSocket::hand_over);
            match socket.filter(|_| complete(&mut flow, id)) {
                Some(socket) => {
                    flow.socket = socket;
                    bond.flows.push(flow);
                    kept.push(id);
                }
                None => bond.end(flow.number, FlowCode::ShuttingDown),
            }
        }
        (bond, kept)
    });
    each.collect()
}

/// Watches the sockets of flows that were taken over.
pub(crate) fn watch<R: Role>(cx: &mut WorkerContext<'_, R>, flows: &[FlowId]) {
    for &flow in flows {
        cx.watch_flow(flow);
    }
}
