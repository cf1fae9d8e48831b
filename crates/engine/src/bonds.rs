//! Bonds: the state that a client and a server keep for each other between connections (PROTOCOL section 5.8).
//!
//! A bond has one connection after the other. The numbers of its flows are the same on all of them. A client has one
//! bond for each connection that it wants. A server has the bonds that its workers were asked for. The bonds of one
//! client, and the memory that they keep, are limited: see [`Holder`].

mod bond;
mod holder;
mod kept;
mod move_limiter;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use fxhash::FxHashMap;
use quictun_flow::{BondKey, ConnectionKey, FlowKey};
use quictun_wire::bond::{BOND_ID_LEN, SECRET_LEN, TICKET_LEN};
use quictun_wire::code::FlowCode;
use quictun_wire::handover::{HandedBond, HandedHolder};
use rand_chacha::ChaCha20Rng;
use rand_core::RngCore;

use crate::ranking::Ranking;
use crate::report::ServerId;

pub(crate) use bond::Bond;
pub use holder::ClientProofs;
pub(crate) use holder::{Holder, ProvenIdentity};
pub(crate) use kept::{KeptMemory, KeptPart};

use holder::HolderUsage;

/// Limit for the flows of one client that wait for a connection on one worker, after it has lost one. Beyond it, the
/// oldest flows end. Many machines may share a secret, or an address if they need not identify themselves.
const DETACHED_OF_ONE_MAX: usize = 4096;

/// The same limit for all clients, because each flow holds a socket and memory. Beyond it, the client with the most
/// waiting flows loses its oldest.
const DETACHED_MAX: usize = 32 * 1024;

/// Limit for the bonds of one client, or of one address, on one worker of a server. Each connection that a client wants
/// has a bond, and a restarted client leaves some behind.
const BONDS_OF_ONE_MAX: usize = 2048;

/// Limit for the bonds on one worker. It exceeds the default limit of 10 000 connections.
const BONDS_MAX: usize = 16 * 1024;

/// Retained memory beyond its limit is reduced to this part less than the limit. The search over all clients is then
/// repeated only after flows have retained as much again.
const RELIEF_PART: u64 = 8;

/// All bonds of an engine.
#[derive(Debug)]
pub(crate) struct Bonds {
    pub(crate) by_key: BTreeMap<BondKey, Bond>,
    by_id: FxHashMap<[u8; BOND_ID_LEN], BondKey>,
    /// The bonds without a connection.
    unconnected: BTreeSet<BondKey>,
    holders: BTreeMap<Holder, HolderUsage>,
    /// Number of flows that wait for a connection.
    waiting: Ranking<Holder>,
    /// Latest turn given to a waiting flow. The oldest waiting flow has the lowest turn.
    turn: u64,
    /// Memory that flows retain for peers.
    kept: KeptMemory,
    /// Memory of the bonds themselves, in bytes.
    memory: u64,
    next: usize,
    rng: ChaCha20Rng,
    /// Index of this worker.
    pub(crate) worker: u8,
    /// Longest time that a flow may be without a connection. A client obeys the server if the server's limit is
    /// shorter.
    pub(crate) ttl: Duration,
}

impl Bonds {
    pub(crate) fn new(rng: ChaCha20Rng, worker: u8, ttl: Duration) -> Self {
        Self {
            by_key: BTreeMap::new(),
            by_id: FxHashMap::default(),
            unconnected: BTreeSet::new(),
            holders: BTreeMap::new(),
            waiting: Ranking::default(),
            turn: 0,
            kept: KeptMemory::default(),
            memory: 0,
            next: 0,
            rng,
            worker,
            ttl,
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

    /// Client: adds a bond that the server has not agreed to yet.
    pub(crate) fn create(&mut self, server: ServerId) -> BondKey {
        self.add(Bond::of_server(server))
    }

    fn add(&mut self, bond: Bond) -> BondKey {
        let key = BondKey(self.next);
        self.next += 1;
        self.memory += bond.memory();
        let usage = self.holders.entry(bond.holder.clone()).or_default();
        usage.bonds.insert(key);
        self.by_key.insert(key, bond);
        self.unconnected.insert(key);
        key
    }

    /// Server: adds a bond for `holder`. Returns `None` if the holder, or all holders together, have reached the limit.
    pub(crate) fn grant(&mut self, holder: Holder) -> Option<BondKey> {
        let own = self
            .holders
            .get(&holder)
            .map_or(0, |usage| usage.bonds.len());
        if own >= BONDS_OF_ONE_MAX || self.by_key.len() >= BONDS_MAX {
            return None;
        }
        let (mut id, mut secret) = ([0; BOND_ID_LEN], [0; SECRET_LEN]);
        self.rng.fill_bytes(&mut id);
        self.rng.fill_bytes(&mut secret);
        let key = self.add(Bond::granted(id, secret, holder, self.ttl));
        self.by_id.insert(id, key);
        Some(key)
    }

    /// Returns the bonds whose other side `holder` returns, each as another process reads it, without its flows.
    pub(crate) fn hand_over(
        &self,
        holder: impl Fn(&Bond) -> Option<HandedHolder>,
    ) -> impl Iterator<Item = (HandedBond, &Bond)> {
        let bonds = self.by_key.values();
        bonds.filter_map(move |bond| Some((bond.hand_over(holder(bond)?), bond)))
    }

    /// Adds a bond that another process has handed over, on a client one with `server`. No limit refuses it: its memory is
    /// in use already.
    pub(crate) fn take_over(&mut self, handed: &HandedBond, server: ServerId) -> BondKey {
        let key = self.add(Bond::take_over(handed, server));
        self.by_id.insert(handed.id, key);
        key
    }

    /// Server: returns the oldest bond of `holder` without a connection. It gives way to a new one if the holder has
    /// reached its limit: a client that was restarted again and again asks for none of its earlier bonds.
    pub(crate) fn oldest_unconnected(&self, holder: &Holder) -> Option<BondKey> {
        let own = self.holders.get(holder)?.bonds.iter();
        let mut unconnected = own.filter(|key| self.unconnected.contains(key));
        unconnected.next().copied()
    }

    /// Server: returns the flow of a bond's client that has waited for longest, unless the client is moving that flow.
    pub(crate) fn oldest_left(&self, key: BondKey) -> Option<FlowKey> {
        let holder = &self.by_key.get(&key)?.holder;
        let oldest = self.holders.get(holder)?.oldest()?;
        let left = self.unconnected.contains(&oldest.0);
        left.then(|| self.flow_at(oldest)).flatten()
    }

    /// Server: returns the bond that a client asks for, if the client owns it and the ticket is right.
    pub(crate) fn find(
        &self,
        id: &[u8; BOND_ID_LEN],
        ticket: &[u8; TICKET_LEN],
        exporter: &[u8; 32],
        (identity, proofs): (&ProvenIdentity, &[[u8; 32]]),
    ) -> Option<BondKey> {
        let key = *self.by_id.get(id)?;
        let bond = self.by_key.get(&key)?;
        let right = hmac::verify(&bond.key(), exporter, ticket).is_ok();
        (right && bond.belongs_to(identity, proofs)).then_some(key)
    }

    /// Server: sets the present name and proofs of the client that has the bond. From now on, the bond and its flows
    /// count for that name.
    pub(crate) fn set_owner(&mut self, key: BondKey, name: &str, proofs: &ClientProofs) {
        let Some(bond) = self.by_key.get_mut(&key) else {
            return;
        };
        bond.proofs = proofs.clone();
        let holder = Holder::Identified(ProvenIdentity::Named(name.to_owned()));
        if bond.holder == holder {
            return;
        }
        let before = std::mem::replace(&mut bond.holder, holder.clone());
        let mut moved = BTreeMap::new();
        if let Some(usage) = self.holders.get_mut(&before) {
            usage.bonds.remove(&key);
            moved = usage.take_waiting(key);
            if usage.bonds.is_empty() {
                self.holders.remove(&before);
            }
        }
        for _ in &moved {
            self.waiting.subtract(&before);
            self.waiting.add(&holder);
        }
        let usage = self.holders.entry(holder).or_default();
        usage.bonds.insert(key);
        usage.waiting.append(&mut moved);
    }

    /// Server: forgets a bond that has neither a connection nor a flow.
    pub(crate) fn remove_unused(&mut self, key: BondKey) {
        let bond = self.by_key.get(&key);
        if bond.is_some_and(|bond| bond.connections.is_empty() && bond.count() == 0) {
            self.remove(key);
        }
    }

    /// Client: forgets a bond that has no flows.
    pub(crate) fn remove(&mut self, key: BondKey) {
        let Some(bond) = self.by_key.remove(&key) else {
            return;
        };
        debug_assert_eq!(bond.count(), 0, "a bond with flows must not be forgotten");
        self.unconnected.remove(&key);
        self.by_id.remove(&bond.id);
        self.memory -= bond.memory();
        if let Some(usage) = self.holders.get_mut(&bond.holder) {
            usage.bonds.remove(&key);
            if usage.bonds.is_empty() {
                self.holders.remove(&bond.holder);
            }
        }
    }

    /// Client: returns whether the next connection can ask for this bond. A bond that an earlier connection is still
    /// waiting for is left to that connection: otherwise each would be granted a bond of its own.
    pub(crate) fn can_be_requested(&self, key: BondKey) -> bool {
        let bond = self.by_key.get(&key);
        bond.is_some_and(|bond| bond.granted || bond.connections.is_empty())
    }

    /// Client: returns the bonds without a connection, and whether flows wait for one.
    pub(crate) fn unconnected(&self) -> impl Iterator<Item = (BondKey, bool)> {
        let bonds = self.unconnected.iter();
        bonds.filter_map(|key| {
            let bond = self.by_key.get(key)?;
            Some((*key, bond.granted && bond.count() > 0))
        })
    }

    /// Adds a connection to a bond.
    pub(crate) fn add_connection(&mut self, key: BondKey, connection: ConnectionKey) {
        if let Some(bond) = self.by_key.get_mut(&key) {
            bond.add_connection(connection);
            self.unconnected.remove(&key);
        }
    }

    /// Removes a connection that has ended from its bond.
    pub(crate) fn lose_connection(
        &mut self,
        now: Instant,
        key: BondKey,
        connection: ConnectionKey,
    ) {
        if let Some(bond) = self.by_key.get_mut(&key) {
            bond.lose_connection(now, connection);
            if bond.connections.is_empty() {
                self.unconnected.insert(key);
            }
        }
    }

    /// Client: records that the server does not keep the bond. The next connection asks for a new one, in which the
    /// server's flow numbers begin again.
    pub(crate) fn request_new(&mut self, key: BondKey) {
        if let Some(bond) = self.by_key.get_mut(&key) {
            bond.granted = false;
        }
        self.forget_ended(key);
    }

    /// Server: refuses every later request for the current bonds.
    #[cfg(feature = "check")]
    pub(crate) fn forget_ids(&mut self) {
        self.by_id.clear();
    }

    /// Returns the memory of the bonds themselves, including their record of ended flows, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.memory
    }
}

/// The flows of bonds.
impl Bonds {
    /// Adds a flow. Returns false if the bond has, or had, a flow with this number.
    pub(crate) fn insert(&mut self, key: BondKey, number: u64, flow: FlowKey) -> bool {
        let bond = self.by_key.get_mut(&key);
        bond.is_some_and(|bond| bond.insert(number, flow))
    }

    /// Records the end of a flow. `code` is `None` if both FINs have ended it.
    pub(crate) fn end(&mut self, key: BondKey, number: u64, code: Option<FlowCode>) {
        self.note_attached(key, number);
        let Some(bond) = self.by_key.get_mut(&key) else {
            return;
        };
        self.kept -= bond.note_kept(number, KeptMemory::default());
        self.memory -= bond.memory();
        bond.end(number, code);
        self.memory += bond.memory();
    }

    /// Client: forgets the ended flows of a bond of which the peer no longer knows any flow.
    pub(crate) fn forget_ended(&mut self, key: BondKey) {
        if let Some(bond) = self.by_key.get_mut(&key) {
            self.memory -= bond.memory();
            bond.forget_ended();
            self.memory += bond.memory();
        }
    }
}

/// The use of the limits by each holder.
impl Bonds {
    /// Records that a flow waits for a connection. At most `most` flows of its client may wait. Returns the flow that
    /// has to end: the oldest of a client that exceeds a limit.
    pub(crate) fn note_detached(
        &mut self,
        key: BondKey,
        number: u64,
        most: usize,
    ) -> Option<FlowKey> {
        let bond = self.by_key.get_mut(&key)?;
        let member = bond.member_mut(number).filter(|member| !member.waits())?;
        self.turn += 1;
        member.turn = Some(self.turn);
        let usage = self.holders.get_mut(&bond.holder)?;
        usage.waiting.insert(self.turn, (key, number));
        self.waiting.add(&bond.holder);
        let of = if usage.waiting.len() > most {
            &bond.holder
        } else if self.waiting.total() > DETACHED_MAX {
            self.waiting.largest()?.0
        } else {
            return None;
        };
        let oldest = self.holders.get(of)?.oldest()?;
        self.flow_at(oldest)
    }

    /// Returns a flow that has to end after the bond has lost a connection: the oldest, while too many flows of its
    /// client wait.
    pub(crate) fn excess(&self, key: BondKey) -> Option<FlowKey> {
        let holder = &self.by_key.get(&key)?.holder;
        let usage = self.holders.get(holder)?;
        let oldest = usage.oldest()?;
        let excess = usage.waiting.len() > DETACHED_OF_ONE_MAX;
        excess.then(|| self.flow_at(oldest)).flatten()
    }

    /// Records that a flow no longer waits.
    pub(crate) fn note_attached(&mut self, key: BondKey, number: u64) {
        let Some(bond) = self.by_key.get_mut(&key) else {
            return;
        };
        if let Some(member) = bond.member_mut(number)
            && let Some(turn) = member.turn.take()
        {
            self.waiting.subtract(&bond.holder);
            bond.note_held(number, 0);
            if let Some(usage) = self.holders.get_mut(&bond.holder) {
                usage.waiting.remove(&turn);
            }
        }
    }

    fn flow_at(&self, (key, number): (BondKey, u64)) -> Option<FlowKey> {
        self.by_key.get(&key)?.flow(number)
    }

    /// Records how much memory a flow retains for its peer by now.
    pub(crate) fn note_kept(&mut self, key: BondKey, number: u64, kept: KeptMemory) {
        if let Some(bond) = self.by_key.get_mut(&key) {
            self.kept -= bond.note_kept(number, kept);
            self.kept += bond.kept_of(number);
        }
    }

    /// Records how much received data a waiting flow holds.
    pub(crate) fn note_held(&mut self, key: BondKey, number: u64, held: u64) {
        if let Some(bond) = self.by_key.get_mut(&key) {
            bond.note_held(number, held);
        }
    }

    /// Returns the memory that flows retain for peers.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> KeptMemory {
        self.kept
    }

    /// Returns the flows to relieve of `part` of what they retain, so that all flows retain little enough of it, or
    /// nothing if they do not retain more than `most` bytes of it. They are flows of the clients whose flows retain the
    /// most.
    pub(crate) fn flows_to_relieve(&self, part: KeptPart, most: u64) -> Vec<FlowKey> {
        let kept = self.kept.part(part);
        if kept <= most {
            return Vec::new();
        }
        let enough = most - most / RELIEF_PART;
        kept::flows_to_relieve(self.by_key.values(), part, kept - enough)
    }

    /// Returns the flow that has waited for longest, of the client whose flows retain and hold the most. `cost` is the
    /// memory of a waiting flow in addition to what it retains, in bytes.
    pub(crate) fn first_to_end(&self, cost: u64) -> Option<FlowKey> {
        let mut sums = BTreeMap::<&Holder, u64>::new();
        for bond in self.by_key.values() {
            *sums.entry(&bond.holder).or_default() += bond.weight();
        }
        let waiting = self.holders.iter();
        let waiting = waiting.filter(|(_, usage)| !usage.waiting.is_empty());
        let (_, usage) = waiting.max_by_key(|(holder, usage)| {
            sums.get(holder).copied().unwrap_or(0) + cost * usage.waiting.len() as u64
        })?;
        self.flow_at(usage.oldest()?)
    }
}
