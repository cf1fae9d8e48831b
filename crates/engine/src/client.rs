//! The client's part: connections to the server, kept up for ever.
//!
//! Every wanted connection is a slot:
//!
//! ```text
//!          ┌────────────── back-off over ◄────────────┐
//!          ▼                                          │
//!   ──► Idle ──► Resolving ──► Racing ──► Up      Waiting
//!          ▲          │           │        │          ▲
//!          │          └── failed ─┴────────┼──────────┘
//!          └────── lost or unresponsive ───┘
//! ```
//!
//! Addresses are resolved anew for every attempt and raced a quarter of a second apart (RFC 8305). An
//! unresponsive connection leaves its slot, so that a new one is made, but lives on with its flows.

mod bonds;
mod haste;
mod network_change;
mod slot;
mod spares;
mod waiting;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quictun_flow::{ConnectionKey, FlowKey, Socket};
use quinn_proto::crypto::rustls::QuicClientConfig;
use rand_chacha::ChaCha20Rng;
use rand_core::RngCore;

use crate::config::{ClientRole, Prover};
use crate::event::Event;
use crate::loss::LossReason;
use crate::quic_config::quic_crypto;
use crate::traffic::Traffic;

use bonds::route_of;
use haste::Haste;
use slot::{AfterEnd, Next, Slot, Step};

/// Compatibility: the original dials one target after the other, so an answer this late may mean that
/// one dead target holds up all that follow on the same connection.
const ANSWER_LATE: Duration = Duration::from_secs(2);

/// What a name resolved to.
pub type Resolved = Result<Vec<SocketAddr>, String>;

pub(crate) struct Client {
    role: ClientRole,
    crypto: Arc<QuicClientConfig>,
    fallback: Option<Arc<QuicClientConfig>>,
    slots: Vec<Slot>,
    resolving: bool,
    stopped: bool,
    waiting: VecDeque<FlowKey>,
    sweep_at: Option<Instant>,
    haste: Haste,
    /// For waits between attempts.
    rng: ChaCha20Rng,
}

impl Client {
    pub(crate) fn new(role: ClientRole, rng: ChaCha20Rng) -> Result<Self, LossReason> {
        let crypto = quic_crypto(&role.crypto)?;
        let fallback = role.fallback.as_ref().map(quic_crypto).transpose()?;
        let slots = (0..role.connections.max(1))
            .map(|_| Slot::new(false))
            .collect();
        Ok(Self {
            role,
            crypto,
            fallback,
            slots,
            resolving: false,
            stopped: false,
            waiting: VecDeque::new(),
            sweep_at: None,
            haste: Haste::default(),
            rng,
        })
    }

    /// Connections that are made from now on use these.
    pub(crate) fn set_identity(
        &mut self,
        crypto: &Arc<rustls::ClientConfig>,
        fallback: Option<&Arc<rustls::ClientConfig>>,
        prover: Option<Prover>,
    ) -> Result<(), LossReason> {
        let quic_fallback = fallback.map(quic_crypto).transpose()?;
        self.crypto = quic_crypto(crypto)?;
        self.fallback = quic_fallback;
        self.role.crypto = crypto.clone();
        self.role.fallback = fallback.cloned();
        self.role.prover = prover;
        Ok(())
    }

    pub(crate) fn stop(&mut self) {
        self.stopped = true;
        self.slots.clear();
        self.sweep_at = None;
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        if self.stopped {
            return None;
        }
        let slots = self.slots.iter().filter_map(Slot::next_timeout);
        let others = [self.sweep_at, self.haste.next_timeout()];
        slots.chain(others.into_iter().flatten()).min()
    }

    fn slot_of(&self, key: ConnectionKey) -> Option<usize> {
        self.slots.iter().position(|slot| slot.has(key))
    }

    pub(crate) fn handle_resolved<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        resolved: &Resolved,
    ) {
        self.resolving = false;
        for index in 0..self.slots.len() {
            if !self.slots[index].is_resolving() {
                if let Ok(addresses) = resolved {
                    self.slots[index].join_race(now, addresses);
                }
                continue;
            }
            let reason = match resolved {
                Ok(addresses) if !addresses.is_empty() => {
                    self.slots[index].race(now, addresses);
                    self.attempt(now, traffic, index);
                    continue;
                }
                Ok(_) => "the name has no address".to_owned(),
                Err(error) => error.clone(),
            };
            self.fail(now, traffic, index, None, LossReason::Resolve(reason));
        }
    }

    /// Starts what is due: look-ups, attempts, the end of idle spares.
    pub(crate) fn drive<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>) {
        if self.stopped {
            return;
        }
        self.adopt_bonds(now, traffic);
        if self.haste.is_due(now) {
            self.hurry(now);
        }
        let mut resolve = false;
        for index in 0..self.slots.len() {
            match self.slots[index].step(now) {
                Step::Nothing => {}
                Step::Resolve => resolve = true,
                Step::Attempt => self.attempt(now, traffic, index),
                Step::Doubt => traffic.events.push_back(Event::Unanswered),
                Step::Check(key) => self.check_up(now, traffic, index, key),
            }
        }
        if resolve && !std::mem::replace(&mut self.resolving, true) {
            traffic.events.push_back(Event::Resolve);
        }
        self.sweep_spares(now, traffic);
    }

    fn attempt<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>, index: usize) {
        loop {
            let slot = &mut self.slots[index];
            let address = match slot.next_address(now) {
                Next::Address(address) => address,
                Next::Wait => return,
                Next::Failed(remote, reason) => {
                    return self.fail(now, traffic, index, remote, reason);
                }
            };
            let crypto = match &self.fallback {
                Some(fallback) if slot.wants_fallback() => fallback,
                _ => &self.crypto,
            };
            let name = &self.role.server_name;
            let route = route_of(&self.slots[index], traffic);
            let route = route.map(|route| (route, &mut self.rng));
            let connected = traffic.connect(now, address, crypto.clone(), name, route);
            let slot = &mut self.slots[index];
            match connected {
                Ok(key) => return slot.add_attempt(key),
                Err(reason) => slot.note_failure(address, reason),
            }
        }
    }

    fn fail<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        index: usize,
        remote: Option<SocketAddr>,
        reason: LossReason,
    ) {
        let retry_in = self.back_off(now, index);
        traffic.events.push_back(Event::ConnectFailed {
            remote,
            reason,
            retry_in,
        });
    }

    fn back_off(&mut self, now: Instant, index: usize) -> Duration {
        let jitter = f64::from(self.rng.next_u32()) / f64::from(u32::MAX);
        self.slots[index].back_off(now, jitter)
    }

    /// A handshake is done: the first of a race wins.
    pub(crate) fn handle_connected<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        key: ConnectionKey,
    ) {
        let Some(index) = self.slot_of(key) else {
            return;
        };
        for other in self.slots[index].handle_connected(key) {
            traffic.abandon_attempt(now, other);
        }
        self.haste.handle_success();
        let bond = self.bond_of(traffic, index);
        traffic.begin_control(now, key, &self.role, bond);
        self.place_waiting(now, traffic);
    }

    pub(crate) fn note_ended<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>) {
        while let Some(ended) = traffic.ended.pop_front() {
            let Some(index) = self.slot_of(ended.key) else {
                continue;
            };
            let refused = matches!(
                ended.reason,
                LossReason::NotAuthorized | LossReason::Revoked
            );
            if let Some(bond) = self.slots[index].bond.filter(|_| refused) {
                // The server will not let them move.
                traffic.give_up_waiting(now, bond);
            }
            match self.slots[index].handle_ended(now, &ended) {
                AfterEnd::Nothing => {}
                AfterEnd::BackOff => {
                    self.back_off(now, index);
                }
                AfterEnd::Attempt => self.attempt(now, traffic, index),
            }
        }
    }
}
