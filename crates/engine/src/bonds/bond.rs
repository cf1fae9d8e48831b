//! A single bond: its agreement, its connections, and its flows.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use quictun_flow::{ConnectionKey, FlowKey};
use quictun_wire::bond::{
    BOND_ID_LEN, BondGrant, BondRequest, SECRET_LEN, SERVER_NUMBERS, TICKET_LEN,
};
use quictun_wire::code::FlowCode;
use quictun_wire::control::{FINISHED, FlowEnd};
use quictun_wire::handover::{HandedBond, HandedHolder};

use super::holder::{ClientProofs, Holder, ProvenIdentity};
use super::kept::{KeptMemory, KeptPart};
use super::move_limiter::MoveLimiter;
use crate::event::LeaveReason;
use crate::report::{BondId, ServerId};

/// Limit for the ended flows that a bond remembers in order to report them to the peer.
pub(super) const ENDED_MAX: usize = 1024;

/// The state of one bond.
#[derive(Debug)]
pub(crate) struct Bond {
    pub(crate) id: [u8; BOND_ID_LEN],
    secret: [u8; SECRET_LEN],
    /// True if the peer has agreed to the bond.
    pub(crate) granted: bool,
    /// Server: the client for which the bond counts.
    pub(super) holder: Holder,
    /// Server: the proofs of the client that the bond belongs to, if the client has a name.
    pub(super) proofs: ClientProofs,
    /// Longest time that a flow may be without a connection.
    pub(crate) ttl: Duration,
    /// Client: the server that keeps the bond.
    pub(crate) server: ServerId,
    /// The worker of that server that keeps the bond.
    pub(crate) route: u8,
    /// Open connections of the bond, the latest last: one, and two for a while.
    pub(crate) connections: Vec<ConnectionKey>,
    /// Time at which the bond lost its last connection, if it has none.
    pub(crate) alone_since: Option<Instant>,
    /// Reason why its flows wait for another connection.
    pub(crate) leave_reason: Option<LeaveReason>,
    flows: BTreeMap<u64, MemberFlow>,
    /// Memory that its flows retain for the peer.
    kept: KeptMemory,
    /// Memory that its waiting flows hold for received data, in bytes.
    held: u64,
    moves: MoveLimiter,
    /// The number of the next flow that this side opens.
    next_number: u64,
    /// Ended flows, the latest last. The code is `None` if both FINs have ended the flow.
    ended: VecDeque<(u64, Option<FlowCode>)>,
}

/// The entry of a flow in its bond.
#[derive(Debug)]
pub(super) struct MemberFlow {
    flow: FlowKey,
    /// Memory that the flow retains for the peer.
    kept: KeptMemory,
    /// Memory that the flow holds for received data while it waits, in bytes.
    held: u64,
    /// The flow's turn among the flows that wait for a connection, if it waits.
    pub(super) turn: Option<u64>,
}

impl MemberFlow {
    fn new(flow: FlowKey) -> Self {
        Self {
            flow,
            kept: KeptMemory::default(),
            held: 0,
            turn: None,
        }
    }

    pub(super) fn waits(&self) -> bool {
        self.turn.is_some()
    }
}

impl Default for Bond {
    fn default() -> Self {
        Self {
            id: [0; BOND_ID_LEN],
            secret: [0; SECRET_LEN],
            granted: false,
            holder: Holder::Identified(ProvenIdentity::Anyone),
            proofs: ClientProofs::default(),
            ttl: Duration::ZERO,
            server: ServerId::default(),
            route: 0,
            connections: Vec::new(),
            alone_since: None,
            leave_reason: None,
            flows: BTreeMap::new(),
            kept: KeptMemory::default(),
            held: 0,
            moves: MoveLimiter::default(),
            next_number: 0,
            ended: VecDeque::new(),
        }
    }
}

impl Bond {
    /// Server: creates a bond to be granted to a client.
    pub(super) fn granted(
        id: [u8; BOND_ID_LEN],
        secret: [u8; SECRET_LEN],
        holder: Holder,
        ttl: Duration,
    ) -> Self {
        Self {
            id,
            secret,
            granted: true,
            holder,
            ttl,
            next_number: SERVER_NUMBERS,
            ..Self::default()
        }
    }

    /// Client: creates a bond with a server that has not agreed to it yet.
    pub(super) fn of_server(server: ServerId) -> Self {
        Self {
            server,
            ..Self::default()
        }
    }

    /// Server: returns the client, as another process reads it.
    pub(crate) fn hand_over_holder(&self) -> HandedHolder {
        self.holder.hand_over()
    }

    /// Returns the bond with `holder` for another process, without its flows.
    pub(super) fn hand_over(&self, holder: HandedHolder) -> HandedBond {
        let number = |code: &Option<FlowCode>| code.map_or(FINISHED, FlowCode::to_u64);
        let ended = self.ended.iter();
        HandedBond {
            id: self.id,
            secret: self.secret,
            holder,
            proofs: self.proofs.to_vec(),
            ttl_s: self.ttl.as_secs(),
            next_number: self.next_number,
            ended: ended.map(|(flow, code)| (*flow, number(code))).collect(),
            flows: Vec::new(),
        }
    }

    /// Makes the bond that another process has handed over, without its flows. `server` is the server of a client's.
    pub(super) fn take_over(handed: &HandedBond, server: ServerId) -> Self {
        let code = |number| match number {
            FINISHED => None,
            // A newer program may know more codes.
            number => Some(FlowCode::from_u64(number).unwrap_or(FlowCode::AppReset)),
        };
        let ended = handed.ended.iter().rev().take(ENDED_MAX).rev();
        let route = match handed.holder {
            HandedHolder::Server { route, .. } => route,
            _ => 0,
        };
        Self {
            server,
            route,
            proofs: handed.proofs.as_slice().into(),
            next_number: handed.next_number,
            ended: ended.map(|&(flow, number)| (flow, code(number))).collect(),
            ..Self::granted(
                handed.id,
                handed.secret,
                Holder::take_over(&handed.holder),
                Duration::from_secs(handed.ttl_s),
            )
        }
    }

    /// Returns whether flows have ended by a reset, of which the peer may not know.
    pub(crate) fn has_resets(&self) -> bool {
        self.ended.iter().any(|(_, code)| code.is_some())
    }

    /// Returns the short id, by which people refer to the bond.
    pub(crate) fn short_id(&self) -> BondId {
        let [a, b, c, d, ..] = self.id;
        BondId([a, b, c, d])
    }

    /// Returns the name of the client that owns the bond, if it has one.
    pub(crate) fn client(&self) -> Option<&str> {
        match self.holder.identity() {
            ProvenIdentity::Named(name) => Some(name),
            ProvenIdentity::Anyone | ProvenIdentity::Certificate(_) => None,
        }
    }

    /// Server: returns whether the bond belongs to this client. A named client is recognized by what it can prove: a
    /// reload may give its name to another client.
    pub(super) fn belongs_to(&self, client: &ProvenIdentity, proofs: &[[u8; 32]]) -> bool {
        match (self.holder.identity(), client) {
            (ProvenIdentity::Named(_), ProvenIdentity::Named(_)) => {
                self.proofs.iter().any(|proof| proofs.contains(proof))
            }
            (holder, client) => holder == client,
        }
    }

    pub(super) fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.secret)
    }

    /// Client: returns the request for HELLO on a connection with this exporter value.
    pub(crate) fn request(&self, exporter: &[u8; 32]) -> BondRequest {
        if !self.granted {
            return BondRequest::New;
        }
        let mut ticket = [0; TICKET_LEN];
        ticket.copy_from_slice(hmac::sign(&self.key(), exporter).as_ref());
        BondRequest::Resume {
            id: self.id,
            ticket,
        }
    }

    /// Server: returns the grant for `HELLO_ACK`.
    pub(crate) fn to_grant(&self, route: u8) -> BondGrant {
        BondGrant {
            id: self.id,
            secret: self.secret,
            route,
            ttl_s: self.ttl.as_secs(),
        }
    }

    /// Client: takes the server's grant. Returns whether it continues the bond that there was.
    pub(crate) fn handle_granted(&mut self, grant: &BondGrant, most: Duration) -> bool {
        let same = self.granted && self.id == grant.id;
        (self.id, self.secret, self.route) = (grant.id, grant.secret, grant.route);
        self.granted = true;
        self.ttl = Duration::from_secs(grant.ttl_s).min(most);
        same
    }

    /// Adds a connection to the bond.
    pub(super) fn add_connection(&mut self, key: ConnectionKey) {
        self.connections.push(key);
        self.alone_since = None;
    }

    /// Removes a connection that has ended.
    pub(super) fn lose_connection(&mut self, now: Instant, key: ConnectionKey) {
        self.connections.retain(|&other| other != key);
        if self.connections.is_empty() {
            self.alone_since = Some(now);
        }
    }

    /// Server: returns whether a flow may move to another connection now. Returns false if the bond's flows move too
    /// often.
    pub(crate) fn may_move(&mut self, now: Instant) -> bool {
        let flows = self.flows.len();
        self.moves.permit(now, flows)
    }

    /// Returns the memory of the bond and of its record of ended flows, in bytes.
    pub(super) fn memory(&self) -> u64 {
        (size_of::<Self>() + 2 * self.ended.len() * size_of::<(u64, Option<FlowCode>)>()) as u64
    }

    /// Returns the number for the next flow that this side opens.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    pub(crate) fn flow(&self, number: u64) -> Option<FlowKey> {
        self.flows.get(&number).map(|member| member.flow)
    }

    /// Returns the bond's flows, in the order of their numbers.
    pub(crate) fn flows(&self) -> impl Iterator<Item = FlowKey> {
        self.flows.values().map(|member| member.flow)
    }

    pub(crate) fn count(&self) -> usize {
        self.flows.len()
    }

    pub(super) fn member_mut(&mut self, number: u64) -> Option<&mut MemberFlow> {
        self.flows.get_mut(&number)
    }

    /// Returns whether flows wait for a connection.
    pub(crate) fn has_waiting(&self) -> bool {
        self.flows.values().any(MemberFlow::waits)
    }

    /// Returns the memory that its flows retain for the peer.
    pub(super) fn kept(&self) -> KeptMemory {
        self.kept
    }

    /// Returns the memory that one flow retains for the peer.
    pub(super) fn kept_of(&self, number: u64) -> KeptMemory {
        let member = self.flows.get(&number);
        member.map_or_else(KeptMemory::default, |member| member.kept)
    }

    /// Sets how much memory a flow retains. Returns the previous value.
    pub(super) fn note_kept(&mut self, number: u64, kept: KeptMemory) -> KeptMemory {
        let Some(member) = self.flows.get_mut(&number) else {
            return KeptMemory::default();
        };
        let before = std::mem::replace(&mut member.kept, kept);
        self.kept -= before;
        self.kept += kept;
        before
    }

    /// Sets how much received data a waiting flow holds.
    pub(super) fn note_held(&mut self, number: u64, held: u64) {
        if let Some(member) = self.flows.get_mut(&number) {
            self.held = self.held - member.held + held;
            member.held = held;
        }
    }

    /// Returns the memory that its flows retain, and hold while they wait, in bytes.
    pub(super) fn weight(&self) -> u64 {
        self.kept.total() + self.held
    }

    /// Returns the flows that retain something of `part`, each with its memory in bytes.
    pub(super) fn retaining(&self, part: KeptPart) -> impl Iterator<Item = (u64, FlowKey)> {
        let members = self.flows.values();
        let members = members.map(move |member| (member.kept.part(part), member.flow));
        members.filter(|(kept, _)| *kept > 0)
    }

    /// Adds a flow. Returns false if the bond has, or had, a flow with this number.
    pub(super) fn insert(&mut self, number: u64, flow: FlowKey) -> bool {
        let mut ended = self.ended.iter();
        let new = self.flow(number).is_none() && ended.all(|(ended, _)| *ended != number);
        if new {
            self.flows.insert(number, MemberFlow::new(flow));
        }
        new
    }

    /// Records the end of a flow. `code` is `None` if both FINs have ended it.
    pub(super) fn end(&mut self, number: u64, code: Option<FlowCode>) {
        self.flows.remove(&number);
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back((number, code));
    }

    /// Returns the code for a peer that moves a flow which has ended. `None` after both FINs, after the loss of the
    /// flow's connection for good, or if the flow is not known.
    pub(crate) fn ending(&self, number: u64) -> Option<FlowCode> {
        let mut ended = self.ended.iter();
        let code = ended.find(|(ended, _)| *ended == number)?.1;
        code.filter(|code| *code != FlowCode::ConnectionLost)
    }

    /// Returns the ended flows to report to the peer. Every connection reports them again, because an earlier one may
    /// have died before it did.
    pub(crate) fn ended(&self) -> impl Iterator<Item = FlowEnd> {
        self.ended.iter().map(|&(flow, code)| FlowEnd {
            flow,
            code: code.map_or(FINISHED, FlowCode::to_peer),
        })
    }

    /// Forgets the ended flows, because the peer no longer knows any flow of the bond.
    pub(super) fn forget_ended(&mut self) {
        self.ended = VecDeque::new();
    }
}
