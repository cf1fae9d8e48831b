//! One bond.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use quictun_flow::{ConnectionKey, FlowKey};
use quictun_wire::bond::{Ask, BOND_ID_LEN, BondGrant, SECRET_LEN, TICKET_LEN};
use quictun_wire::code::FlowCode;
use quictun_wire::control::{FINISHED, Gone};

use super::holder::{Holder, Owner};
use super::pace::Pace;
use crate::event::Left;
use crate::report::{BondId, ServerId};

/// Ended flows of a bond that are remembered, so that the peer can be told.
pub(super) const ENDED_MAX: usize = 1024;

/// One bond.
#[derive(Debug)]
pub(crate) struct Bond {
    pub(crate) id: [u8; BOND_ID_LEN],
    secret: [u8; SECRET_LEN],
    /// Whether the peer has agreed to the bond.
    pub(crate) granted: bool,
    /// Server: the client that the bond belongs to.
    pub(super) holder: Holder,
    /// Longest time that a flow may be without a connection.
    pub(crate) ttl: Duration,
    /// Client: the server that has it.
    pub(crate) server: ServerId,
    /// Its worker there.
    pub(crate) route: u8,
    /// Open connections that belong to it, the latest last: one, and two for a while.
    pub(crate) connections: Vec<ConnectionKey>,
    /// Time at which the bond lost its last connection, if it has none.
    pub(crate) alone_since: Option<Instant>,
    /// Reason for which its flows wait for another connection.
    pub(crate) left: Option<Left>,
    flows: BTreeMap<u64, Place>,
    /// Memory that its flows keep for the peer, bytes.
    kept: u64,
    /// Memory of what its flows that wait have received and hold, bytes.
    held: u64,
    pace: Pace,
    next_number: u64,
    /// Flows that have ended, the latest last; no code: by both FINs.
    ended: VecDeque<(u64, Option<FlowCode>)>,
}

/// A flow of a bond.
#[derive(Debug)]
pub(super) struct Place {
    flow: FlowKey,
    /// Memory that it keeps for the peer, bytes.
    kept: u64,
    /// Memory of what it has received and holds while it waits, bytes.
    held: u64,
    /// Its turn among the flows that wait for a connection, if it does.
    pub(super) turn: Option<u64>,
}

impl Place {
    fn new(flow: FlowKey) -> Self {
        Self {
            flow,
            kept: 0,
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
            holder: Holder::Known(Owner::Anyone),
            ttl: Duration::ZERO,
            server: ServerId::default(),
            route: 0,
            connections: Vec::new(),
            alone_since: None,
            left: None,
            flows: BTreeMap::new(),
            kept: 0,
            held: 0,
            pace: Pace::default(),
            next_number: 0,
            ended: VecDeque::new(),
        }
    }
}

impl Bond {
    /// Server: a bond that the client is told of.
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
            ..Self::default()
        }
    }

    /// Client: a bond that this server has still to agree to.
    pub(super) fn of_server(server: ServerId) -> Self {
        Self {
            server,
            ..Self::default()
        }
    }

    /// The name that people know it by.
    pub(crate) fn short_id(&self) -> BondId {
        let [a, b, c, d, ..] = self.id;
        BondId([a, b, c, d])
    }

    /// The name of the client that has it, where it has one.
    pub(crate) fn client(&self) -> Option<&str> {
        match self.holder.owner() {
            Owner::Named(name) => Some(name),
            Owner::Anyone | Owner::Certificate(_) => None,
        }
    }

    pub(super) fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.secret)
    }

    /// Client: what HELLO asks for on a connection with this exporter value.
    pub(crate) fn ask(&self, exporter: &[u8; 32]) -> Ask {
        if !self.granted {
            return Ask::New;
        }
        let mut ticket = [0; TICKET_LEN];
        ticket.copy_from_slice(hmac::sign(&self.key(), exporter).as_ref());
        Ask::Again {
            id: self.id,
            ticket,
        }
    }

    /// Server: what `HELLO_ACK` says of it.
    pub(crate) fn to_grant(&self, route: u8) -> BondGrant {
        BondGrant {
            id: self.id,
            secret: self.secret,
            route,
            ttl_s: self.ttl.as_secs(),
        }
    }

    /// Client: the server has agreed. Returns whether this is the bond that there was.
    pub(crate) fn handle_granted(&mut self, grant: &BondGrant, most: Duration) -> bool {
        let same = self.granted && self.id == grant.id;
        (self.id, self.secret, self.route) = (grant.id, grant.secret, grant.route);
        self.granted = true;
        self.ttl = Duration::from_secs(grant.ttl_s).min(most);
        same
    }

    /// A connection belongs to it.
    pub(crate) fn add_connection(&mut self, key: ConnectionKey) {
        self.connections.push(key);
        self.alone_since = None;
    }

    /// A connection of it has gone.
    pub(crate) fn lose_connection(&mut self, now: Instant, key: ConnectionKey) {
        self.connections.retain(|&other| other != key);
        if self.connections.is_empty() {
            self.alone_since = Some(now);
        }
    }

    /// Server: a flow moves to another connection. `false`: its flows move too often.
    pub(crate) fn may_move(&mut self, now: Instant) -> bool {
        let flows = self.flows.len();
        self.pace.take(now, flows)
    }

    /// Memory of the bond and of what it remembers, bytes.
    pub(super) fn memory(&self) -> u64 {
        (size_of::<Self>() + 2 * self.ended.len() * size_of::<(u64, Option<FlowCode>)>()) as u64
    }

    /// Client: the number of its next flow.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    pub(crate) fn flow(&self, number: u64) -> Option<FlowKey> {
        self.flows.get(&number).map(|place| place.flow)
    }

    /// The bond's flows, in the order of their numbers.
    pub(crate) fn flows(&self) -> impl Iterator<Item = FlowKey> {
        self.flows.values().map(|place| place.flow)
    }

    pub(crate) fn count(&self) -> usize {
        self.flows.len()
    }

    pub(super) fn place_mut(&mut self, number: u64) -> Option<&mut Place> {
        self.flows.get_mut(&number)
    }

    /// Whether flows wait for a connection.
    pub(crate) fn has_waiting(&self) -> bool {
        self.flows.values().any(Place::waits)
    }

    /// Memory that its flows keep for the peer, bytes.
    pub(super) fn kept(&self) -> u64 {
        self.kept
    }

    /// The same of one flow.
    pub(super) fn kept_of(&self, number: u64) -> u64 {
        self.flows.get(&number).map_or(0, |place| place.kept)
    }

    /// A flow keeps so much by now. Returns how much it kept before.
    pub(super) fn note_kept(&mut self, number: u64, kept: u64) -> u64 {
        let Some(place) = self.flows.get_mut(&number) else {
            return 0;
        };
        let before = std::mem::replace(&mut place.kept, kept);
        self.kept = self.kept - before + kept;
        before
    }

    /// A flow that waits holds so much of what it has received.
    pub(super) fn note_held(&mut self, number: u64, held: u64) {
        if let Some(place) = self.flows.get_mut(&number) {
            self.held = self.held - place.held + held;
            place.held = held;
        }
    }

    /// Memory that its flows keep, and hold while they wait, bytes.
    pub(super) fn weight(&self) -> u64 {
        self.kept + self.held
    }

    /// Flows that keep something, at least `least` bytes.
    pub(super) fn that_keep(&self, least: u64) -> impl Iterator<Item = FlowKey> {
        let places = self.flows.values();
        let places = places.filter(move |place| place.kept > 0 && place.kept >= least);
        places.map(|place| place.flow)
    }

    /// Adds a flow. `false`: there is one with this number, or was.
    pub(super) fn insert(&mut self, number: u64, flow: FlowKey) -> bool {
        let mut ended = self.ended.iter();
        let new = self.flow(number).is_none() && ended.all(|(ended, _)| *ended != number);
        if new {
            self.flows.insert(number, Place::new(flow));
        }
        new
    }

    /// A flow has ended; `code`: otherwise than by both FINs.
    pub(super) fn end(&mut self, number: u64, code: Option<FlowCode>) {
        self.flows.remove(&number);
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back((number, code));
    }

    /// The code with which a flow has ended; `None` after both FINs, or where the flow is not known.
    pub(crate) fn ending(&self, number: u64) -> Option<FlowCode> {
        let mut ended = self.ended.iter();
        ended.find(|(ended, _)| *ended == number)?.1
    }

    /// Flows that have ended, to tell the peer: on every connection anew, as one may die before it has told.
    pub(crate) fn ended(&self) -> impl Iterator<Item = Gone> {
        self.ended.iter().map(|&(flow, code)| Gone {
            flow,
            code: code.map_or(FINISHED, FlowCode::to_u64),
        })
    }

    /// The peer knows none of its flows any more.
    pub(super) fn forget_ended(&mut self) {
        self.ended = VecDeque::new();
    }
}
