//! The client's part: it keeps connections to its servers open permanently.
//!
//! Each server has its own connections, in use or not. New flows go to the server that `choice.rs` has chosen. A flow
//! and its bond stay with their server. Every wanted connection is a slot:
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
//! Addresses are resolved again for every race, and raced a quarter of a second apart (RFC 8305). If no server answers,
//! further attempts start beside the first ones: the library's timers back off, and the network may be back long
//! before. An unresponsive connection leaves its slot, so that a new one is made, but lives on with its flows.

mod action;
mod bonds;
mod carriers;
mod choice;
mod extra_attempts;
mod ladder;
mod network_change;
mod race;
mod redial_limiter;
mod server_changes;
mod servers;
mod slot;
mod spares;
mod transfer_carrier;
mod transfers;
mod waiting;
mod ways;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use quictun_congestion::TimeoutAction;
use quictun_flow::{ConnectionKey, FlowKey, Socket};
use quictun_wire::code::FlowCode;
use rand_chacha::ChaCha20Rng;
use rand_core::RngCore;

use crate::config::ClientRole;
use crate::connection::Hello;
use crate::event::{ClientEvent, EngineEvent};
use crate::loss::LossReason;
use crate::report::ServerId;
use crate::role::{Moment, Role, RoleSteps};
use crate::traffic::{Contact, DatagramRecipient, Traffic};

use action::SlotAction;
use redial_limiter::RedialLimiter;
use servers::Servers;
use slot::{AfterEnd, NextAttempt, Slot};

/// Compatibility: the original dials one target after the other. An answer this late may mean that one dead target
/// holds up all later requests on the same connection.
const ANSWER_LATE: Duration = Duration::from_secs(2);

/// The addresses that a name has resolved to, or the resolver's error.
pub type ResolveResult = Result<Vec<SocketAddr>, String>;

/// The role of a client: an engine that dials servers.
#[derive(Debug)]
pub struct Client {
    role: ClientRole,
    pub(crate) servers: Servers,
    slots: Vec<Slot>,
    stopped: bool,
    waiting: VecDeque<FlowKey>,
    /// The value of `Flows::removed` at the latest search of the full queue for flows that have ended.
    searched_at: Option<u64>,
    sweep_at: Option<Instant>,
    redial: RedialLimiter,
    /// Randomness for the pauses between attempts.
    rng: ChaCha20Rng,
}

impl Client {
    pub(crate) fn new(role: ClientRole, rng: ChaCha20Rng) -> Result<Self, LossReason> {
        let servers = Servers::new(&role.servers)?;
        let wanted = |server| (0..role.connections.max(1)).map(move |_| Slot::new(server, false));
        let dialled = |server: &ServerId| servers.place(*server).is_some_and(|it| it.wanted);
        let slots = servers.ids().filter(dialled).flat_map(wanted).collect();
        Ok(Self {
            role,
            servers,
            slots,
            stopped: false,
            waiting: VecDeque::new(),
            searched_at: None,
            sweep_at: None,
            redial: RedialLimiter::default(),
            rng,
        })
    }

    fn slot_of(&self, key: ConnectionKey) -> Option<usize> {
        self.slots.iter().position(|slot| slot.has(key))
    }

    /// Sets the addresses of the proxy through which TLS over TCP leads to a server.
    pub(crate) fn set_proxy(
        &mut self,
        now: Instant,
        server: ServerId,
        proxy: Option<ResolveResult>,
    ) {
        self.servers.set_proxy(now, server, proxy);
    }

    pub(crate) fn handle_resolved<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        server: ServerId,
        tenant: u32,
        resolved: &ResolveResult,
    ) {
        let place = self.servers.place(server);
        if place.is_none_or(|place| place.tenant != tenant) {
            return;
        }
        let unresolved = self.servers.note_resolved(server, resolved);
        let ways = self.ways(
            now,
            traffic,
            server,
            resolved.as_deref().unwrap_or_default(),
        );
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            if slot.server != server {
                continue;
            }
            match (slot.is_resolving(), ways.is_empty()) {
                (true, true) => {
                    let error = unresolved.clone().or_else(|| resolved.clone().err());
                    let error = error.unwrap_or_default();
                    self.fail(now, traffic, index, None, LossReason::Resolve(error));
                }
                (true, false) => {
                    slot.race(now, &ways, unresolved.clone());
                    self.attempt(now, traffic, index);
                }
                (false, is_empty) => {
                    if let Some(error) = &unresolved {
                        slot.note_unresolved(error);
                    }
                    if !is_empty {
                        slot.join_race(now, &ways);
                    }
                }
            }
        }
    }

    /// Begins a race: asks for the addresses, and meanwhile dials the address that has fallen silent, if there is one.
    fn race<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>, index: usize) {
        let slot = &self.slots[index];
        let (server, silent) = (slot.server, slot.silent());
        if let Some(silent) = silent {
            let ways = self.ways(now, traffic, server, &[silent]);
            self.slots[index].race_early(now, &ways);
            self.attempt(now, traffic, index);
        }
        self.want_addresses(traffic, self.slots[index].server);
    }

    fn attempt<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>, index: usize) {
        loop {
            let candidate = match self.slots[index].next_candidate(now) {
                NextAttempt::Candidate(candidate) => candidate,
                NextAttempt::Wait => return,
                NextAttempt::Failed(remote, reason) => {
                    return self.fail(now, traffic, index, remote, reason);
                }
            };
            match self.connect(now, traffic, index, candidate) {
                Ok(key) => {
                    let jitter = self.jitter();
                    return self.slots[index].add_attempt(now, key, jitter);
                }
                Err(reason) => self.slots[index].note_failure(candidate.address, reason),
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
        for attempt in self.slots[index].under_way() {
            traffic.end_attempt(now, attempt);
        }
        let retry_in = self.back_off(now, index, &reason);
        let server = self.slots[index].server;
        self.servers.note_failure(server, &reason);
        traffic.events.push(ClientEvent::ConnectFailed {
            server,
            remote,
            reason,
            retry_in,
        });
    }

    pub(super) fn back_off(&mut self, now: Instant, index: usize, reason: &LossReason) -> Duration {
        let jitter = self.jitter();
        self.slots[index].back_off(now, jitter, reason)
    }

    /// Returns a random number from 0 to 1.
    fn jitter(&mut self) -> f64 {
        f64::from(self.rng.next_u32()) / f64::from(u32::MAX)
    }

    /// Handles the end of a handshake. The first connection of a race wins.
    fn handle_connected<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        key: ConnectionKey,
    ) {
        let for_transfers = self.slot_of_transfers(key);
        let Some(index) = for_transfers.or_else(|| self.slot_of(key)) else {
            return;
        };
        let awaits_proof = for_transfers.is_none() && self.awaits_proof(now, traffic, index, key);
        if for_transfers.is_none() && !awaits_proof {
            self.note_carrier(now, traffic, index, key);
            self.redial.handle_success();
        }
        if let Some(connection) = traffic.connections.get_mut(key) {
            connection.beside = awaits_proof;
        }
        let of_slot = self.slots[index].bond;
        let bond = self.bond_of(traffic, index);
        if awaits_proof && of_slot.is_some() {
            // The slot has a connection of that bond.
            self.slots[index].bond = of_slot;
        }
        let prover = self.servers.prover(self.slots[index].server);
        let hello = Hello {
            prover,
            joiner: self.role.joiner.as_ref(),
            reverse: self.role.reverse && for_transfers.is_none(),
        };
        traffic.begin_control(now, key, hello, bond);
        self.place_waiting(now, traffic);
    }
}

impl Role for Client {
    type Event = ClientEvent;

    fn event(event: EngineEvent) -> Option<ClientEvent> {
        match event {
            EngineEvent::Shared(event) => Some(ClientEvent::Shared(event)),
            EngineEvent::Client(event) => Some(event),
            EngineEvent::Server(_) => None,
        }
    }
}

impl RoleSteps for Client {
    fn next_timeout(&self) -> Option<Instant> {
        if self.stopped {
            return None;
        }
        let slots = self.slots.iter().filter_map(Slot::next_timeout);
        let others = [
            self.sweep_at,
            self.redial.next_timeout(),
            self.servers.next_timeout(),
        ];
        slots.chain(others.into_iter().flatten()).min()
    }

    fn handle_datagram<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        recipient: DatagramRecipient,
    ) {
        match recipient {
            DatagramRecipient::Connection(key, contact) => {
                match contact {
                    Contact::Ongoing => {}
                    Contact::First => self.handle_answered(now, traffic, key),
                    Contact::Resumed => self.handle_back(now, traffic, key),
                }
                traffic.connections.mark(key);
            }
            DatagramRecipient::Newcomer(newcomer) => traffic.refuse(*newcomer),
            // A client has no connection of this kind.
            DatagramRecipient::Unfinished(_) => {}
        }
    }

    fn handle_moment<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        key: ConnectionKey,
        moment: Moment<'_>,
    ) {
        match moment {
            Moment::Connected => self.handle_connected(now, traffic, key),
            Moment::AdmissionLate
            | Moment::Silent(TimeoutAction::Suspect | TimeoutAction::Lost)
                if self.end_unproven(now, traffic, key) => {}
            Moment::AdmissionLate => traffic.end_admission(now, key),
            Moment::StreamsAvailable => {
                traffic.move_flows(now, key);
                self.place_waiting(now, traffic);
            }
            Moment::Silent(TimeoutAction::Lost) => {
                self.reopen_unanswered(now, traffic, key, None);
            }
            // `key` may be another connection than the one that its slot watches.
            Moment::Silent(TimeoutAction::Suspect) => self.handle_suspect(now, traffic, key),
            Moment::Silent(TimeoutAction::Fine | TimeoutAction::Ask) => {}
            Moment::Losing(reason) => {
                if *reason == LossReason::TimedOut {
                    // After a sleep, the timeout comes before the verdict that the peer is unresponsive.
                    self.reopen_unanswered(now, traffic, key, None);
                }
                self.ask_elsewhere(now, traffic, key);
            }
            Moment::Delivered => {
                self.climb(now, traffic, key);
                self.reopen_refused(now, traffic, key);
                traffic.move_flows_away(now, key);
                traffic.close_left(now, key);
            }
        }
    }

    fn handle_unanswered<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        key: FlowKey,
    ) {
        self.handle_late_answer(now, traffic, key);
    }

    fn note_ended<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>) {
        while let Some(ended) = traffic.ended.pop_front() {
            if self.handle_transfer_carrier_ended(now, traffic, &ended) {
                continue;
            }
            let Some(index) = self.slot_of(ended.key) else {
                continue;
            };
            let refused = ended.reason.is_refusal();
            if let Some(bond) = self.slots[index].bond.filter(|_| refused) {
                // The server will not let the flows move.
                traffic.give_up_waiting(now, bond, FlowCode::Unauthenticated);
            }
            if ended.established && !self.slots[index].has_probe(ended.key) {
                let server = self.slots[index].server;
                self.servers.note_failure(server, &ended.reason);
            }
            match self.slots[index].handle_ended(now, &ended) {
                AfterEnd::Nothing => {}
                AfterEnd::BackOff => {
                    self.back_off(now, index, &ended.reason);
                }
                AfterEnd::Attempt => self.attempt(now, traffic, index),
                AfterEnd::Unprobed => {
                    self.note_quic_silent(now, traffic, self.slots[index].server);
                }
            }
        }
    }

    fn stop<S: Socket>(&mut self, _: &mut Traffic<S>) {
        self.stopped = true;
        self.slots.clear();
        self.sweep_at = None;
    }

    /// Starts the work that is due: name look-ups, attempts, the closing of idle spares.
    fn drive<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>) {
        if self.stopped {
            return;
        }
        self.adopt_bonds(now, traffic);
        if self.redial.is_due(now) {
            self.redial_now(now);
        }
        self.choose_if_due(now, traffic);
        self.probe_if_due(now, traffic);
        for index in 0..self.slots.len() {
            match self.slots[index].next_action(now) {
                SlotAction::Nothing => {}
                SlotAction::Race => self.race(now, traffic, index),
                SlotAction::Attempt => self.attempt(now, traffic, index),
                SlotAction::ReportUnanswered => traffic.events.push(ClientEvent::Unanswered),
                SlotAction::AttemptAgain => self.attempt_again_beside(now, traffic, index),
            }
        }
        for key in std::mem::take(&mut traffic.suspects) {
            self.check_connection(now, traffic, key);
        }
        self.watch_transfers(now, traffic);
        self.sweep_spares(now, traffic);
    }

    fn refuse_waiting<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        code: FlowCode,
    ) {
        for key in std::mem::take(&mut self.waiting) {
            traffic.refuse_waiting(now, key, code);
        }
    }
}
