//! Bonds: what a client and a server keep of each other between connections (PROTOCOL section 5.8).
//!
//! A bond has one connection after the other. Its flows have numbers that hold for all of them. A client has one bond for each
//! connection that it wants; a server has those that its workers were asked for. What one client can have of them, and keep
//! by them, is limited: see [`Holder`].

mod bond;
mod holder;
mod pace;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use aws_lc_rs::hmac;
use fxhash::FxHashMap;
use quictun_flow::{BondKey, FlowKey};
use quictun_wire::bond::{BOND_ID_LEN, SECRET_LEN, TICKET_LEN};
use quictun_wire::code::FlowCode;
use rand_chacha::ChaCha20Rng;
use rand_core::RngCore;

use crate::report::ServerId;

pub(crate) use bond::Bond;
pub(crate) use holder::{Holder, Owner};

use holder::Share;

/// Flows of one client that may wait for a connection on one worker, once it has lost one. Of more the oldest end.
const DETACHED_OF_ONE_MAX: usize = 1024;

/// The same of an address, behind which may be many clients that need not show who they are.
const DETACHED_OF_ADDRESS_MAX: usize = 4096;

/// The same of all clients: each holds a socket, and memory. Of more the client with the most loses its oldest.
const DETACHED_MAX: usize = 32 * 1024;

/// Bonds of one client on one server worker. Each connection that a client wants has one, and one that is restarted leaves
/// some behind.
const BONDS_OF_ONE_MAX: usize = 64;

/// The same of an address.
const BONDS_OF_ADDRESS_MAX: usize = 1024;

/// Bonds on one worker: more than connections, of which there are 10 000 by default.
const BONDS_MAX: usize = 16 * 1024;

/// All bonds of an engine.
#[derive(Debug)]
pub(crate) struct Bonds {
    pub(crate) by_key: BTreeMap<BondKey, Bond>,
    by_id: FxHashMap<[u8; BOND_ID_LEN], BondKey>,
    holders: BTreeMap<Holder, Share>,
    /// Flows that wait for a connection.
    waiting: usize,
    /// Turns of flows that wait: the oldest has the least.
    turn: u64,
    /// Memory that flows keep for peers, bytes.
    kept: u64,
    /// Memory of the bonds themselves, bytes.
    memory: u64,
    next: usize,
    rng: ChaCha20Rng,
}

impl Bonds {
    pub(crate) fn new(rng: ChaCha20Rng) -> Self {
        Self {
            by_key: BTreeMap::new(),
            by_id: FxHashMap::default(),
            holders: BTreeMap::new(),
            waiting: 0,
            turn: 0,
            kept: 0,
            memory: 0,
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
    pub(crate) fn create(&mut self, server: ServerId) -> BondKey {
        self.add(Bond::of_server(server))
    }

    fn add(&mut self, bond: Bond) -> BondKey {
        let key = BondKey(self.next);
        self.next += 1;
        self.memory += bond.memory();
        self.holders.entry(bond.holder.clone()).or_default().bonds += 1;
        self.by_key.insert(key, bond);
        key
    }

    /// Server: a bond of `holder`; `None`: it has as many as it may, or all have.
    pub(crate) fn grant(&mut self, holder: Holder, ttl: Duration) -> Option<BondKey> {
        let most = match holder {
            Holder::Known(_) => BONDS_OF_ONE_MAX,
            Holder::At(_) => BONDS_OF_ADDRESS_MAX,
        };
        let own = self.holders.get(&holder).map_or(0, |share| share.bonds);
        if own >= most || self.by_key.len() >= BONDS_MAX {
            return None;
        }
        let (mut id, mut secret) = ([0; BOND_ID_LEN], [0; SECRET_LEN]);
        self.rng.fill_bytes(&mut id);
        self.rng.fill_bytes(&mut secret);
        let key = self.add(Bond::granted(id, secret, holder, ttl));
        self.by_id.insert(id, key);
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
        (right && bond.holder.owner() == owner).then_some(key)
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
        debug_assert_eq!(bond.count(), 0, "flows of a bond that is forgotten");
        self.by_id.remove(&bond.id);
        self.memory -= bond.memory();
        if let Some(share) = self.holders.get_mut(&bond.holder) {
            share.bonds -= 1;
            if share.bonds == 0 {
                self.holders.remove(&bond.holder);
            }
        }
    }

    /// Client: whether the next connection can ask for this bond. One that an earlier connection has still to be granted is
    /// left to that: each would be granted another.
    pub(crate) fn is_to_ask_for(&self, key: BondKey) -> bool {
        let bond = self.by_key.get(&key);
        bond.is_some_and(|bond| bond.granted || bond.connections.is_empty())
    }

    /// Client: bonds without a connection, and whether flows wait for one.
    pub(crate) fn alone(&self) -> impl Iterator<Item = (BondKey, bool)> {
        let alone = self.by_key.iter();
        let alone = alone.filter(|(_, bond)| bond.connections.is_empty());
        alone.map(|(&key, bond)| (key, bond.granted && bond.count() > 0))
    }

    /// Client: the server does not keep the bond; the next connection asks for a new one.
    pub(crate) fn renew(&mut self, key: BondKey) {
        if let Some(bond) = self.by_key.get_mut(&key) {
            bond.granted = false;
        }
    }

    /// Server: knows its bonds no more when they are asked for.
    #[cfg(feature = "check")]
    pub(crate) fn disown(&mut self) {
        self.by_id.clear();
    }

    /// Memory of the bonds themselves and of what they remember, bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.memory
    }
}

/// Flows.
impl Bonds {
    /// Adds a flow. `false`: there is one with this number, or was.
    pub(crate) fn insert(&mut self, key: BondKey, number: u64, flow: FlowKey) -> bool {
        let bond = self.by_key.get_mut(&key);
        bond.is_some_and(|bond| bond.insert(number, flow))
    }

    /// A flow has ended; `code`: otherwise than by both FINs.
    pub(crate) fn end(&mut self, key: BondKey, number: u64, code: Option<FlowCode>) {
        self.note_attached(key, number);
        let Some(bond) = self.by_key.get_mut(&key) else {
            return;
        };
        self.kept -= bond.note_kept(number, 0);
        self.memory -= bond.memory();
        bond.end(number, code);
        self.memory += bond.memory();
    }

    /// Client: the peer knows none of the bond's flows any more.
    pub(crate) fn forget_ended(&mut self, key: BondKey) {
        if let Some(bond) = self.by_key.get_mut(&key) {
            self.memory -= bond.memory();
            bond.forget_ended();
            self.memory += bond.memory();
        }
    }
}

/// Shares.
impl Bonds {
    /// A flow waits for a connection, of its client `most` at most. Returns the flow that has to end for that: the oldest of
    /// a client with too many.
    pub(crate) fn note_detached(
        &mut self,
        key: BondKey,
        number: u64,
        most: usize,
    ) -> Option<FlowKey> {
        let bond = self.by_key.get_mut(&key)?;
        let place = bond.place_mut(number).filter(|place| !place.waits())?;
        self.turn += 1;
        place.turn = Some(self.turn);
        let share = self.holders.get_mut(&bond.holder)?;
        share.waiting.insert(self.turn, (key, number));
        self.waiting += 1;
        let share = if share.waiting.len() > most {
            share
        } else if self.waiting > DETACHED_MAX {
            let shares = self.holders.values_mut();
            shares.max_by_key(|share| share.waiting.len())?
        } else {
            return None;
        };
        let oldest = share.oldest()?;
        self.flow_at(oldest)
    }

    /// The bond has lost a connection. Returns a flow that has to end, the oldest, while too many of its client wait.
    pub(crate) fn excess(&self, key: BondKey) -> Option<FlowKey> {
        let holder = &self.by_key.get(&key)?.holder;
        let most = match holder {
            Holder::Known(_) => DETACHED_OF_ONE_MAX,
            Holder::At(_) => DETACHED_OF_ADDRESS_MAX,
        };
        let share = self.holders.get(holder)?;
        let oldest = share.oldest()?;
        let excess = share.waiting.len() > most;
        excess.then(|| self.flow_at(oldest)).flatten()
    }

    /// A flow waits no more.
    pub(crate) fn note_attached(&mut self, key: BondKey, number: u64) {
        let Some(bond) = self.by_key.get_mut(&key) else {
            return;
        };
        if let Some(place) = bond.place_mut(number)
            && let Some(turn) = place.turn.take()
        {
            self.waiting -= 1;
            bond.note_held(number, 0);
            if let Some(share) = self.holders.get_mut(&bond.holder) {
                share.waiting.remove(&turn);
            }
        }
    }

    fn flow_at(&self, (key, number): (BondKey, u64)) -> Option<FlowKey> {
        self.by_key.get(&key)?.flow(number)
    }

    /// A flow keeps so much memory for its peer by now.
    pub(crate) fn note_kept(&mut self, key: BondKey, number: u64, kept: u64) {
        if let Some(bond) = self.by_key.get_mut(&key) {
            let before = bond.note_kept(number, kept);
            self.kept = self.kept - before + bond.kept_of(number);
        }
    }

    /// A flow that waits holds so much of what it has received.
    pub(crate) fn note_held(&mut self, key: BondKey, number: u64, held: u64) {
        if let Some(bond) = self.by_key.get_mut(&key) {
            bond.note_held(number, held);
        }
    }

    /// Memory that flows keep for peers, bytes.
    pub(crate) fn kept(&self) -> u64 {
        self.kept
    }

    /// The flows that keep the most, of the client whose flows keep the most: they keep at least half of what all of its
    /// flows do.
    pub(crate) fn greediest(&self) -> Vec<FlowKey> {
        let mut sums = BTreeMap::<&Holder, (u64, usize)>::new();
        for bond in self.by_key.values() {
            let (kept, flows) = sums.entry(&bond.holder).or_default();
            *kept += bond.kept();
            *flows += bond.count();
        }
        let most = sums.into_iter().max_by_key(|(_, (kept, _))| *kept);
        let Some((holder, (kept, flows))) = most.filter(|(_, (kept, _))| *kept > 0) else {
            return Vec::new();
        };
        let least = kept / 2 / flows.max(1) as u64;
        let bonds = self.by_key.values().filter(|bond| bond.holder == *holder);
        bonds.flat_map(|bond| bond.that_keep(least)).collect()
    }

    /// Of the client whose flows keep and hold the most: the one that has waited for longest. `cost`: memory of a flow that
    /// waits beside what it keeps, bytes.
    pub(crate) fn first_to_end(&self, cost: u64) -> Option<FlowKey> {
        let mut sums = BTreeMap::<&Holder, u64>::new();
        for bond in self.by_key.values() {
            *sums.entry(&bond.holder).or_default() += bond.weight();
        }
        let waiting = self.holders.iter();
        let waiting = waiting.filter(|(_, share)| !share.waiting.is_empty());
        let (_, share) = waiting.max_by_key(|(holder, share)| {
            sums.get(holder).copied().unwrap_or(0) + cost * share.waiting.len() as u64
        })?;
        self.flow_at(share.oldest()?)
    }
}
