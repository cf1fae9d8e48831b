//! Dialling for a server's worker: name look-up, judgement of the addresses, dial.

use std::net::SocketAddr;
use std::time::Instant;

use quictun_control::log_beginning;
use quictun_engine::{FlowId, OpenRequest};
use quictun_wire::code::FlowCode;
use quictun_wire::target::{Family, Target};
use tracing::{debug, warn};

use super::ServerWorker;
use crate::dial::{DialResult, dial_unix};
use crate::flow_records::Refusal;
use crate::requests::Request;
use crate::role::ServerContext;
use quictun_control::settings::Phrases;
use quictun_io::poller::Key;
use quictun_trust::access::{DialAddress, Peer, dialled_as};
use quictun_trust::shares::Holder;

impl ServerWorker {
    pub(super) fn dial(
        &mut self,
        cx: &mut ServerContext<'_>,
        opened: &OpenRequest,
        peer: Peer,
        holder: &Holder,
        target: Target,
    ) -> Result<(), Refusal> {
        let flow = opened.flow;
        let (host, port, family) = match &target {
            Target::Unix { path } => {
                let dialled = DialAddress::Unix(path);
                let header = self.headers.of(&self.policy, &self.flows, flow, dialled);
                let below = self.policy.directory_of(&peer, path);
                let result = dial_unix(path, below.as_deref(), header).and_then(|socket| {
                    cx.poller
                        .add_flow(socket.descriptor(), Key::Flow(flow))
                        .map_err(|_| FlowCode::Limit)?;
                    Ok((socket, target.to_string()))
                });
                self.answer(cx, Some(DialResult { flow, result }));
                return Ok(());
            }
            Target::Tcp { family, host, port } => {
                (host.clone(), *port, self.dial_family(*family, &target)?)
            }
            Target::Udp { host, port } => {
                (host.clone(), *port, self.dial_family(Family::Any, &target)?)
            }
        };
        let deadline = cx.now + self.dial_timeout;
        if !self.dials.resolve(flow, holder, deadline) {
            return Err(Refusal::limit(
                "too many targets are being dialled for its client",
            ));
        }
        if target.takes_datagrams() {
            self.dials.expect_datagrams(flow);
        }
        if let Some(ip) = target.ip_literal() {
            // `may_reach` has judged the address already.
            let addresses = Ok(vec![dialled_as(SocketAddr::new(ip, port))]);
            let dialed = self
                .dials
                .handle_resolved(cx.now, cx.poller, flow, addresses);
            self.answer(cx, dialed);
            return Ok(());
        }
        let Some(wanted) = self.lookups.ask(flow, holder, peer, target) else {
            return Err(Refusal::limit(
                "too many names are being looked up for its client",
            ));
        };
        let request = Request::ResolveTarget {
            flow,
            holder: holder.clone(),
            wanted,
            host,
            port,
            family,
        };
        if self.control.send(request).is_err() {
            // The queue has room for all look-ups that have a place, so an error means that the control plane is gone.
            self.lookups.answered(flow);
            return Err(Refusal::limit("names are not looked up any more"));
        }
        Ok(())
    }

    /// Returns the family in which a target of this family is dialled.
    fn dial_family(&self, family: Family, target: &Target) -> Result<Family, Refusal> {
        let own = self.policy.dial_family();
        let literal = target.ip_literal().map(|ip| ip.to_canonical());
        let family = family.and(own);
        let family = family.filter(|_| literal.is_none_or(|ip| own.allows(ip)));
        family.ok_or_else(|| {
            let cause = "this server does not dial the target's address family (--ip)";
            Refusal::new(FlowCode::Unreachable, cause.to_owned())
        })
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
        // A reload may have changed the family since the look-up began.
        let family = self.policy.dial_family();
        addresses.retain(|address| family.allows(address.ip()));
        addresses.retain(|address| {
            let verdict = self.policy.may_reach_addr(peer, target, address.ip());
            verdict.map_err(|why| denied = Some(why)).is_ok()
        });
        match denied {
            Some(denied) if addresses.is_empty() => Err(self.refuse(now, flow, denied.into())),
            _ => Ok(addresses),
        }
    }

    pub(super) fn answer(&self, cx: &mut ServerContext<'_>, dialed: Option<DialResult>) {
        let Some(DialResult { flow, result }) = dialed else {
            return;
        };
        let id = self.flows.log.id(flow);
        match (&result, self.phrases()) {
            (Ok((_, address)), phrases) => {
                log_beginning!(phrases, { "Server-App-Addr" = address, flow = id }, "Server app connect successful", "the target has been reached");
            }
            (Err(code), Phrases::Original) => {
                let asked = self.flows.requester(flow);
                let line = asked.and_then(|(peer, remote, _)| {
                    self.flows.line_about_failure(cx.now, peer, Some(remote))
                });
                if let Some(line) = line {
                    warn!(target: "quictun", flow = id, reason = %code, lines_left_out = line.left_out(), "Failed to dial server app");
                }
            }
            (Err(code), Phrases::Own) => {
                debug!(target: "quictun", flow = id, reason = %code, "the target cannot be reached");
            }
        }
        cx.engine.handle_dialed(cx.now, flow, result);
    }
}
