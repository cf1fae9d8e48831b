//! Bonds: what a client and a server keep of each other between connections (PROTOCOL section 5.8).
//!
//! A bond has one connection after the other. Its flows have numbers that hold for all of them. A client has one bond for each
//! connection that it wants; a server has those that its workers were asked for.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use aws_lc_rs::{digest, hmac};
use fxhash::FxHashMap;
use quictun_flow::{BondKey, FlowKey};
use quictun_wire::bond::{Ask, BOND_ID_LEN, BondGrant, SECRET_LEN, TICKET_LEN};
use quictun_wire::code::FlowCode;
use quictun_wire::control::{FINISHED, Gone};
use rand_chacha::ChaCha20Rng;
use rand_core::RngCore;
use rustls::pki_types::CertificateDer;

use crate::event::Left;
use crate::report::BondId;

/// Flows of a bond that may be without a connection. Of more the oldest end.
pub(crate) const DETACHED_MAX: usize = 1024;

/// Bonds of one client on one server worker. Each connection that a client wants has one.
const BONDS_OF_ONE_MAX: usize = 64;

/// Ended flows of a bond that are remembered, so that the peer can be told.
const ENDED_MAX: usize = 1024;

/// All bonds of an engine.
#[derive(Debug)]
pub(crate) struct Bonds {
    pub(crate) by_key: BTreeMap<BondKey, Bond>,
    by_id: FxHashMap<[u8; BOND_ID_LEN], BondKey>,
    next: usize,
    rng: ChaCha20Rng,
}

/// One bond.
#[derive(Debug)]
pub(crate) struct Bond {
    pub(crate) id: [u8; BOND_ID_LEN],
    secret: [u8; SECRET_LEN],
    /// Whether the peer has agreed to the bond.
    pub(crate) granted: bool,
    /// Server: the client that the bond belongs to.
    owner: Owner,
    /// Longest time that a flow may be without a connection.
    pub(crate) ttl: Duration,
    /// Client: the server's worker that has it.
    pub(crate) route: u8,
    /// Open connections that belong to it.
    pub(crate) connections: usize,
    /// Time at which the bond lost its last connection, if it has none.
    pub(crate) alone_since: Option<Instant>,
    /// Reason for which its flows wait for another connection.
    pub(crate) left: Option<Left>,
    flows: BTreeMap<u64, FlowKey>,
    next_number: u64,
    /// Flows that have ended, the latest last; no code: by both FINs.
    ended: VecDeque<(u64, Option<FlowCode>)>,
}

/// Identity that a client has proven.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Owner {
    /// None: the server asks for no proof.
    #[default]
    Anyone,
    /// A client that the configuration names.
    Named(String),
    /// The holder of this certificate's key, by the certificate's SHA-256.
    Certificate(Vec<u8>),
}

impl Owner {
    pub(crate) fn new(name: Option<&str>, certificates: Option<&[CertificateDer<'_>]>) -> Self {
        match (name, certificates.and_then(<[_]>::first)) {
            (Some(name), _) => Self::Named(name.to_owned()),
            (None, Some(leaf)) => {
                let digest = digest::digest(&digest::SHA256, leaf);
                Self::Certificate(digest.as_ref().to_vec())
            }
            (None, None) => Self::Anyone,
        }
    }
}

impl Bonds {
    pub(crate) fn new(rng: ChaCha20Rng) -> Self {
        Self {
            by_key: BTreeMap::new(),
            by_id: FxHashMap::default(),
            next: 0,
            rng,
        }
    }

    pub(crate) fn get(&self, key: BondKey) -> Option<&Bond> {
        self.by_key.get(&key)
    }

    pub(crate) fn get_mut(&mut self, key: BondKey) -> Option<&mut Bond> {
        self.by_key.get_mut(&key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Bond> {
        self.by_key.values()
    }

    /// Client: a bond that the server has still to agree to.
    pub(crate) fn create(&mut self) -> BondKey {
        let key = BondKey(self.next);
        self.next += 1;
        self.by_key.insert(key, Bond::default());
        key
    }

    /// Server: a bond of `owner`; `None`: it has as many as it may.
    pub(crate) fn grant(&mut self, owner: Owner, ttl: Duration) -> Option<BondKey> {
        let of_one = self.by_key.values().filter(|bond| bond.owner == owner);
        if owner != Owner::Anyone && of_one.count() >= BONDS_OF_ONE_MAX {
            return None;
        }
        let key = self.create();
        let (mut id, mut secret) = ([0; BOND_ID_LEN], [0; SECRET_LEN]);
        self.rng.fill_bytes(&mut id);
        self.rng.fill_bytes(&mut secret);
        let bond = Bond {
            id,
            secret,
            granted: true,
            owner,
            ttl,
            ..Bond::default()
        };
        self.by_id.insert(id, key);
        self.by_key.insert(key, bond);
        Some(key)
    }

    /// Server: the bond that a client asks for, if it is its own and the ticket is right.
    pub(crate) fn find(
        &self,
        id: &[u8; BOND_ID_LEN],
        ticket: &[u8; TICKET_LEN],
        exporter: &[u8; 32],
        owner: &Owner,
    ) -> Option<BondKey> {
        let key = *self.by_id.get(id)?;
        let bond = self.by_key.get(&key)?;
        let right = hmac::verify(&bond.key(), exporter, ticket).is_ok();
        (right && bond.owner == *owner).then_some(key)
    }

    /// Server: forgets a bond that has neither a connection nor a flow.
    pub(crate) fn remove_unused(&mut self, key: BondKey) {
        let bond = self.by_key.get(&key);
        if bond.is_some_and(|bond| bond.connections == 0 && bond.flows.is_empty()) {
            self.remove(key);
        }
    }

    /// Client: forgets a bond.
    pub(crate) fn remove(&mut self, key: BondKey) {
        if let Some(bond) = self.by_key.remove(&key) {
            self.by_id.remove(&bond.id);
        }
    }

    /// Client: whether the next connection can ask for this bond. One that an earlier connection has still to be granted is
    /// left to that: each would be granted another.
    pub(crate) fn is_to_ask_for(&self, key: BondKey) -> bool {
        let bond = self.by_key.get(&key);
        bond.is_some_and(|bond| bond.granted || bond.connections == 0)
    }

    /// Client: bonds without a connection, and whether flows wait for one.
    pub(crate) fn alone(&self) -> impl Iterator<Item = (BondKey, bool)> {
        let alone = self.by_key.iter().filter(|(_, bond)| bond.connections == 0);
        alone.map(|(&key, bond)| (key, bond.granted && !bond.flows.is_empty()))
    }

    /// Client: the server does not keep the bond; the next connection asks for a new one.
    pub(crate) fn renew(&mut self, key: BondKey) {
        if let Some(bond) = self.by_key.get_mut(&key) {
            bond.granted = false;
        }
    }
}

impl Default for Bond {
    fn default() -> Self {
        Self {
            id: [0; BOND_ID_LEN],
            secret: [0; SECRET_LEN],
            granted: false,
            owner: Owner::Anyone,
            ttl: Duration::ZERO,
            route: 0,
            connections: 0,
            alone_since: None,
            left: None,
            flows: BTreeMap::new(),
            next_number: 0,
            ended: VecDeque::new(),
        }
    }
}

impl Bond {
    /// The name that people know it by.
    pub(crate) fn short_id(&self) -> BondId {
        let [a, b, c, d, ..] = self.id;
        BondId([a, b, c, d])
    }

    /// The name of the client that has it, where it has one.
    pub(crate) fn client(&self) -> Option<&str> {
        match &self.owner {
            Owner::Named(name) => Some(name),
            Owner::Anyone | Owner::Certificate(_) => None,
        }
    }

    fn key(&self) -> hmac::Key {
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

    /// A connection belongs to it. Returns how long it was without.
    pub(crate) fn add_connection(&mut self, now: Instant) -> Option<Duration> {
        self.connections += 1;
        let since = self.alone_since.take()?;
        Some(now.saturating_duration_since(since))
    }

    /// A connection of it has gone.
    pub(crate) fn lose_connection(&mut self, now: Instant) {
        self.connections = self.connections.saturating_sub(1);
        if self.connections == 0 {
            self.alone_since = Some(now);
        }
    }

    /// Client: the number of its next flow.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    pub(crate) fn flow(&self, number: u64) -> Option<FlowKey> {
        self.flows.get(&number).copied()
    }

    /// The bond's flows, in the order of their numbers.
    pub(crate) fn flows(&self) -> impl Iterator<Item = FlowKey> {
        self.flows.values().copied()
    }

    pub(crate) fn count(&self) -> usize {
        self.flows.len()
    }

    /// Adds a flow. `false`: there is one with this number, or was.
    pub(crate) fn insert(&mut self, number: u64, key: FlowKey) -> bool {
        let mut ended = self.ended.iter();
        let new = self.flow(number).is_none() && ended.all(|(ended, _)| *ended != number);
        if new {
            self.flows.insert(number, key);
        }
        new
    }

    /// A flow has ended; `code`: otherwise than by both FINs.
    pub(crate) fn end(&mut self, number: u64, code: Option<FlowCode>) {
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
    pub(crate) fn forget_ended(&mut self) {
        self.ended.clear();
    }
}
