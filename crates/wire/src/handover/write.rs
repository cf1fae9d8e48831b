//! Writes the state of a server or a client.

use std::net::{IpAddr, SocketAddr};

use super::{HandedBond, HandedFlow, HandedHolder, HandedSocket, HandedVisitor, Handover};
use crate::listening::IncomingPeer;
use crate::open::put_bytes;
use crate::varint;

/// The bits of a flow's flags.
pub(super) const SENT_FINISHED: u64 = 1;
pub(super) const WHOLE: u64 = 1 << 1;
pub(super) const RECEIVED_FINISHED: u64 = 1 << 2;
pub(super) const END_REPORTED: u64 = 1 << 3;
pub(super) const HAS_CLIENT: u64 = 1 << 4;
pub(super) const HAS_SOURCE: u64 = 1 << 5;
pub(super) const HAS_VISITOR: u64 = 1 << 6;
pub(super) const ANSWERED: u64 = 1 << 7;
pub(super) const ASKED: u64 = 1 << 8;
pub(super) const FLAGS: u64 = (1 << 9) - 1;

/// The kinds of sockets, of holders and of addresses.
pub(super) const TCP: u64 = 0;
pub(super) const UNIX: u64 = 1;
pub(super) const DATAGRAMS: u64 = 2;
pub(super) const RESET: u64 = 1;
pub(super) const HALF_CLOSED: u64 = 1 << 1;
pub(super) const BY_SOURCE: u64 = 0;
pub(super) const BY_NAME: u64 = 1;
pub(super) const BY_CERTIFICATE: u64 = 2;
pub(super) const BY_SERVER: u64 = 3;
pub(super) const V4: u64 = 4;
pub(super) const V6: u64 = 6;
pub(super) const NO_ADDRESS: u64 = 0;

pub(super) fn body(state: &Handover, out: &mut Vec<u8>) {
    put_bytes(state.month.as_bytes(), out);
    number(state.usage.len() as u64, out);
    for (name, used) in &state.usage {
        put_bytes(name.as_bytes(), out);
        number(*used, out);
    }
    number(state.workers.len() as u64, out);
    for bonds in &state.workers {
        number(bonds.len() as u64, out);
        for it in bonds {
            record(out, |out| bond(it, out));
        }
    }
}

/// Appends a record with its length in front.
fn record(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = Vec::new();
    write(&mut bytes);
    put_bytes(&bytes, out);
}

pub(super) fn number(number: u64, out: &mut Vec<u8>) {
    varint::encode(number, out);
}

fn bond(bond: &HandedBond, out: &mut Vec<u8>) {
    out.extend_from_slice(&bond.id);
    out.extend_from_slice(&bond.secret);
    match &bond.holder {
        HandedHolder::Source(address) => {
            number(BY_SOURCE, out);
            ip(*address, out);
        }
        HandedHolder::Named(name) => {
            number(BY_NAME, out);
            put_bytes(name.as_bytes(), out);
        }
        HandedHolder::Certificate(digest) => {
            number(BY_CERTIFICATE, out);
            out.extend_from_slice(digest);
        }
        HandedHolder::Server { address, route } => {
            number(BY_SERVER, out);
            put_bytes(address.as_bytes(), out);
            number((*route).into(), out);
        }
    }
    number(bond.proofs.len() as u64, out);
    out.extend(bond.proofs.iter().flatten());
    number(bond.ttl_s, out);
    number(bond.next_number, out);
    number(bond.ended.len() as u64, out);
    for (flow, code) in &bond.ended {
        number(*flow, out);
        number(*code, out);
    }
    number(bond.flows.len() as u64, out);
    for it in &bond.flows {
        record(out, |out| flow(it, out));
    }
}

fn flow(flow: &HandedFlow, out: &mut Vec<u8>) {
    let (sent, received) = (&flow.sent, &flow.received);
    let flags = [
        (sent.finished, SENT_FINISHED),
        (received.whole, WHOLE),
        (received.finished, RECEIVED_FINISHED),
        (received.end_reported, END_REPORTED),
        (flow.client.is_some(), HAS_CLIENT),
        (flow.source.is_some(), HAS_SOURCE),
        (flow.visitor.is_some(), HAS_VISITOR),
        (flow.answered, ANSWERED),
        (flow.asked, ASKED),
    ];
    let flags = flags
        .into_iter()
        .filter_map(|(set, bit)| set.then_some(bit));
    for value in [flow.number, flow.leg, flags.sum()] {
        number(value, out);
    }
    for text in [&flow.token, &flow.client_app, &flow.server_app] {
        put_bytes(text.as_bytes(), out);
    }
    if let Some(client) = &flow.client {
        put_bytes(client.as_bytes(), out);
    }
    address(flow.remote, out);
    if let Some(source) = flow.source {
        address(source, out);
    }
    for value in [flow.age_ms, flow.wait_ms, flow.stalled_ms] {
        number(value, out);
    }
    for value in [sent.bytes, sent.seen, sent.kept_from] {
        number(value, out);
    }
    put_bytes(&sent.kept, out);
    number(received.delivered, out);
    put_bytes(&received.waiting, out);
    match flow.socket {
        HandedSocket::Tcp { reset, half_closed } => {
            number(TCP, out);
            let reset = if reset { RESET } else { 0 };
            number(reset + if half_closed { HALF_CLOSED } else { 0 }, out);
        }
        HandedSocket::Unix => number(UNIX, out),
        HandedSocket::Datagrams(target) => {
            number(DATAGRAMS, out);
            address(target, out);
        }
    }
    if let Some(HandedVisitor { peer, asked }) = &flow.visitor {
        match peer {
            IncomingPeer::Ip(at) => address(*at, out),
            IncomingPeer::Unix => number(NO_ADDRESS, out),
        }
        put_bytes(asked.to_string().as_bytes(), out);
    }
}

fn ip(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(v4) => {
            number(V4, out);
            out.extend(v4.octets());
        }
        IpAddr::V6(v6) => {
            number(V6, out);
            out.extend(v6.octets());
        }
    }
}

pub(super) fn address(address: SocketAddr, out: &mut Vec<u8>) {
    ip(address.ip(), out);
    number(address.port().into(), out);
    if let SocketAddr::V6(v6) = address {
        number(v6.scope_id().into(), out);
    }
}
