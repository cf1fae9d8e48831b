//! The parts from which the workers of a client are built, each on its own thread.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use quictun_control::flow_log::FlowLog;
use quictun_control::line_budget::LineBudget;
use quictun_control::rest::ReverseForwards;
use quictun_control::settings::Phrases;
use quictun_engine::report::Side;
use quictun_engine::{ClientRole, Engine};
use quictun_trust::logins::Logins;
use quictun_trust::settings::HeaderTargets;
use quictun_wire::listening::HOLDER_LEN;

use super::tun_setup::TunSetup;
use crate::carrier_dials::CarrierDials;
use crate::client_worker::reverse::ReverseForwarder;
use crate::client_worker::{ClientWorker, FlowsToContinue, Forwards, ServerDialling};
use crate::forward_listener::ForwardListener;
use crate::handover::TakenFlows;
use crate::launch::{self, WorkerInputs};
use crate::marked_sockets::MarkedSockets;
use crate::moves::Moves;
use crate::outbound_proxy::OpenProxy;
use crate::reload::dialled::DialledServers;
use crate::reload::forwards::ForwardNumber;
use crate::servers::Servers;
use crate::service::Services;
use crate::settings::Reverse;
use crate::single_flow::SingleFlow;
use crate::worker::WorkerParts;

/// The parts that all workers have.
#[derive(Clone)]
pub(super) struct ClientTemplate {
    pub(super) role: ClientRole,
    pub(super) servers: Arc<Servers>,
    pub(super) forwards: BTreeMap<ForwardNumber, ForwardListener>,
    pub(super) logins: Option<Logins>,
    pub(super) sends_sources: bool,
    pub(super) header_targets: HeaderTargets,
    pub(super) reverse_shown: ReverseForwards,
    pub(super) lines: LineBudget,
    pub(super) phrases: Phrases,
    pub(super) tcp_congestion: Option<String>,
    pub(super) outbound_proxy: Option<Arc<OpenProxy>>,
    pub(super) dialled: Arc<DialledServers>,
    pub(super) services: Services,
    /// The flows of the previous process.
    pub(super) taken: TakenFlows,
}

/// The sources of flows that only the first worker has.
#[derive(Default)]
pub(super) struct FirstSources {
    pub(super) tun: Option<TunSetup>,
    pub(super) reverse: Vec<Reverse>,
    pub(super) single_flow: Option<SingleFlow>,
}

impl ClientTemplate {
    pub(super) fn build(
        self,
        inputs: WorkerInputs,
        first: FirstSources,
        marked: Option<MarkedSockets>,
    ) -> Result<WorkerParts<ClientWorker>> {
        let phrases = self.phrases;
        let dialled = self.role.servers.len();
        let config = inputs.config(self.role, launch::random()?)?;
        let control = inputs.requests.clone();
        let proxy = (self.logins, self.sends_sources);
        let mut worker = ClientWorker {
            forwards: Forwards::new(control.clone(), self.forwards, proxy, phrases),
            reverse: ReverseForwarder::new(
                (control.clone(), inputs.index == 0),
                (first.reverse, self.header_targets),
                holder()?,
                (self.reverse_shown, self.lines),
            ),
            tun: first.tun.map(|tun| tun.build(phrases)).transpose()?,
            single_flow: first.single_flow,
            dialling: ServerDialling::new(control, self.servers, dialled),
            moves: Moves::default(),
            log: FlowLog::new(Side::Client, inputs.index, phrases),
            carriers: CarrierDials::new(self.tcp_congestion, marked, self.outbound_proxy),
            dialled: self.dialled,
            services: self.services,
            taken: FlowsToContinue::default(),
        };
        let mut engine = Engine::client(config)?;
        let taken = self.taken.take(inputs.index, inputs.siblings.len());
        worker.take_over(&mut engine, Instant::now(), taken);
        let mut parts = inputs.parts(engine, worker);
        // Each worker has its own address, so no datagram reaches the wrong worker.
        parts.siblings.truncate(1);
        Ok(parts)
    }
}

/// Returns the identifier of this process, by which the server knows the holder of its listeners.
fn holder() -> Result<[u8; HOLDER_LEN]> {
    let mut holder = [0; HOLDER_LEN];
    holder.copy_from_slice(&launch::random()?[..HOLDER_LEN]);
    Ok(holder)
}
