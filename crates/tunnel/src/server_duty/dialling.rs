//! Dialling for a server's worker: name look-up, judgement of the addresses, dial.

use std::net::SocketAddr;
use std::time::Instant;

use quictun_control::log_beginning;
use quictun_engine::{FlowId, Opened};
use quictun_wire::code::FlowCode;
use quictun_wire::target::Target;
use tracing::{debug, warn};

use super::ServerDuty;
use crate::asked::Refusal;
use crate::dial::{Dialed, dial_unix};
use crate::duty::Io;
use crate::requests::Request;
use quictun_control::settings::Phrases;
use quictun_io::poller::Key;
use quictun_trust::access::{Dialled, Peer, dialled_as};
use quictun_trust::shares::Holder;

impl ServerDuty {
    pub(super) fn dial(
        &mut self,
        io: &mut Io<'_>,
        opened: &Opened,
        peer: Peer,
        holder: &Holder,
        target: Target,
    ) -> Result<(), Refusal> {
        let flow = opened.flow;
        let (host, port, family) = match &target {
            Target::Unix { path } => {
                let dialled = Dialled::Unix(path);
                let header = self.headers.of(&self.policy, &self.asked, flow, dialled);
                let result = dial_unix(path, header).and_then(|socket| {
                    io.poller
                        .add_flow(socket.descriptor(), Key::Flow(flow))
                        .map_err(|_| FlowCode::Limit)?;
                    Ok((socket, target.to_string()))
                });
                self.answer(io, Some(Dialed { flow, result }));
                return Ok(());
            }
            Target::Tcp { family, host, port } => (host.clone(), *port, *family),
        };
        let deadline = io.now + self.dial_timeout;
        if !self.dials.resolve(flow, holder, deadline) {
            return Err(Refusal::limit(
                "too many targets are being dialled for its client",
            ));
        }
        if let Some(ip) = target.ip_literal() {
            // `may_reach` has judged the address already.
            let addresses = Ok(vec![dialled_as(SocketAddr::new(ip, port))]);
            let dialed = self
                .dials
                .handle_resolved(io.now, io.poller, flow, addresses);
            self.answer(io, dialed);
            return Ok(());
        }
        let Some(wanted) = self.lookups.ask(flow, holder, peer, target) else {
            return Err(Refusal::limit(
                "too many names are being looked up for its client",
            ));
        };
        let request = Request::ResolveTarget {
            worker: self.index,
            flow,
            holder: holder.clone(),
            wanted,
            host,
            port,
            family,
        };
        if self.control.try_send(request).is_err() {
            // The queue has room for all look-ups that have a place, so an error means that the control plane is gone.
            self.lookups.answered(flow);
            return Err(Refusal::limit("names are not looked up any more"));
        }
        Ok(())
    }

    /// Returns the addresses of a name that the peer may be connected to, in the form in which they are dialled.
    pub(super) fn permitted(
        &mut self,
        now: Instant,
        flow: FlowId,
        peer: &Peer,
        target: &Target,
        addresses: Vec<SocketAddr>,
    ) -> Result<Vec<SocketAddr>, FlowCode> {
        let mut denied = None;
        let mut addresses: Vec<_> = addresses.into_iter().map(dialled_as).collect();
        addresses.retain(|address| {
            let verdict = self.policy.may_reach_addr(peer, target, address.ip());
            verdict.map_err(|why| denied = Some(why)).is_ok()
        });
        match denied {
            Some(denied) if addresses.is_empty() => Err(self.refuse(now, flow, denied.into())),
            _ => Ok(addresses),
        }
    }

    pub(super) fn answer(&self, io: &mut Io<'_>, dialed: Option<Dialed>) {
        let Some(Dialed { flow, result }) = dialed else {
            return;
        };
        let id = self.asked.log.id(flow);
        match (&result, self.phrases()) {
            (Ok((_, address)), phrases) => {
                log_beginning!(phrases, { "Server-App-Addr" = address, flow = id }, "Server app connect successful", "the target has been reached");
            }
            (Err(code), Phrases::Original) => {
                warn!(target: "quictun", flow = id, reason = %code, "Failed to dial server app");
            }
            (Err(code), Phrases::Own) => {
                debug!(target: "quictun", flow = id, reason = %code, "the target cannot be reached");
            }
        }
        io.engine.handle_dialed(io.now, flow, result);
    }
}
