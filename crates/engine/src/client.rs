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

mod placing;
mod reopen;
mod spares;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quictun_congestion::Gauge;
use quictun_flow::Socket;
use quictun_wire::code::CloseCode;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{ClientConfig, ConnectionHandle};
use rand_core::RngCore;

use crate::ConnectionId;
use crate::client::spares::SPARE_IDLE;
use crate::config::{ClientRole, Prover};
use crate::connection::{Connection, First};
use crate::engine::{Engine, Role, close_code};
use crate::event::{Event, LossReason};
use crate::memory::Peer;
use crate::report::Side;

/// Head start of one address over the next (RFC 8305 section 5).
const RACE_STEP: Duration = Duration::from_millis(250);

/// Longest wait between attempts; the first retry comes at once.
const BACK_OFF_MAX: Duration = Duration::from_secs(5);
const BACK_OFF_FIRST: Duration = Duration::from_millis(200);

/// Failures after which the wait has reached its longest.
const FAILURES_MAX: u32 = 8;

/// What a name resolved to.
pub type Resolved = Result<Vec<SocketAddr>, String>;

/// State of the client side.
pub(crate) struct Client {
    role: ClientRole,
    crypto: Arc<QuicClientConfig>,
    /// See [`ClientRole::fallback`].
    fallback: Option<Arc<QuicClientConfig>>,
    slots: Vec<Slot>,
    resolving: bool,
    stopped: bool,
    /// Keys of flows that wait for a connection.
    waiting: VecDeque<usize>,
    /// When to look at spares again.
    sweep_at: Option<Instant>,
}

/// One wanted connection.
struct Slot {
    state: State,
    failures: u32,
    /// Attempts that timed out since there was a connection.
    timeouts: u32,
    spare: bool,
}

enum State {
    Idle,
    Resolving,
    Racing(Race),
    Up(usize),
    Waiting(Instant),
}

/// Attempts under way.
struct Race {
    attempts: Vec<usize>,
    next: VecDeque<SocketAddr>,
    next_at: Instant,
    last: Option<(SocketAddr, LossReason)>,
    /// An attempt has timed out.
    timed_out: bool,
}

impl Client {
    pub(crate) fn new(role: ClientRole, _now: Instant) -> Result<Self, LossReason> {
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
        })
    }

    pub(crate) fn prover(&self) -> Option<Prover> {
        self.role.prover.clone()
    }

    /// Connections that are made from now on use these.
    fn set_identity(
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

    /// No more connections are made.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
        self.slots.clear();
        self.sweep_at = None;
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        if self.stopped {
            return None;
        }
        let slots = self.slots.iter().filter_map(|slot| match &slot.state {
            State::Racing(race) if !race.next.is_empty() => Some(race.next_at),
            State::Waiting(until) => Some(*until),
            State::Idle | State::Resolving | State::Racing(_) | State::Up(_) => None,
        });
        slots.chain(self.sweep_at).min()
    }

    /// TLS for the next attempt of a slot: the fall-back for every other one after a time-out.
    fn crypto_of(&self, index: usize) -> &Arc<QuicClientConfig> {
        match &self.fallback {
            Some(fallback) if self.slots[index].timeouts % 2 == 1 => fallback,
            _ => &self.crypto,
        }
    }

    fn slot_of(&self, handle: usize) -> Option<usize> {
        self.slots.iter().position(|slot| match &slot.state {
            State::Up(up) => *up == handle,
            State::Racing(race) => race.attempts.contains(&handle),
            State::Idle | State::Resolving | State::Waiting(_) => false,
        })
    }
}

/// A TLS configuration as QUIC needs it.
fn quic_crypto(tls: &Arc<rustls::ClientConfig>) -> Result<Arc<QuicClientConfig>, LossReason> {
    match QuicClientConfig::try_from(rustls::ClientConfig::clone(tls)) {
        Ok(crypto) => Ok(Arc::new(crypto)),
        Err(error) => Err(LossReason::Local(error.to_string())),
    }
}

impl Slot {
    fn new(spare: bool) -> Self {
        Self {
            state: State::Idle,
            failures: 0,
            timeouts: 0,
            spare,
        }
    }
}

impl<S: Socket> Engine<S> {
    /// Client: connections that are made from now on trust and prove this. Flows on open ones carry the new proof too,
    /// so that a server which learns of it later knows the client still.
    ///
    /// # Errors
    ///
    /// [`LossReason::Local`] where the configuration has no cipher suite for QUIC's first packets, or this is a server.
    pub fn set_client_identity(
        &mut self,
        crypto: &Arc<rustls::ClientConfig>,
        fallback: Option<&Arc<rustls::ClientConfig>>,
        prover: Option<Prover>,
    ) -> Result<(), LossReason> {
        match &mut self.role {
            Role::Client(client) => client.set_identity(crypto, fallback, prover),
            Role::Server(_) => Err(LossReason::Local("not a client".to_owned())),
        }
    }

    /// Client: the answer to [`Event::Resolve`].
    pub fn handle_resolved(&mut self, now: Instant, resolved: &Resolved) {
        let Role::Client(client) = &mut self.role else {
            return;
        };
        client.resolving = false;
        for index in 0..client.slots.len() {
            let Role::Client(client) = &mut self.role else {
                return;
            };
            if !matches!(client.slots[index].state, State::Resolving) {
                continue;
            }
            match resolved {
                Ok(addresses) if !addresses.is_empty() => {
                    client.slots[index].state = State::Racing(Race {
                        attempts: Vec::new(),
                        next: addresses.iter().copied().collect(),
                        next_at: now,
                        last: None,
                        timed_out: false,
                    });
                    self.race(now, index);
                }
                Ok(_) => {
                    let reason = LossReason::Resolve("the name has no address".to_owned());
                    self.back_off(now, index, None, reason);
                }
                Err(error) => {
                    self.back_off(now, index, None, LossReason::Resolve(error.clone()));
                }
            }
        }
    }

    /// Starts what is due: look-ups, attempts, the end of idle spares.
    pub(crate) fn drive_client(&mut self, now: Instant) {
        let Role::Client(client) = &mut self.role else {
            return;
        };
        if client.stopped {
            return;
        }
        let mut resolve = false;
        for index in 0..client.slots.len() {
            let Role::Client(client) = &mut self.role else {
                return;
            };
            let slot = &mut client.slots[index];
            if let State::Waiting(until) = slot.state
                && until <= now
            {
                slot.state = State::Idle;
            }
            match &slot.state {
                State::Idle => {
                    slot.state = State::Resolving;
                    resolve = true;
                }
                State::Racing(race) if !race.next.is_empty() && race.next_at <= now => {
                    self.race(now, index);
                }
                State::Up(handle) => {
                    let handle = *handle;
                    self.check_up(now, index, handle);
                }
                State::Resolving | State::Racing(_) | State::Waiting(_) => {}
            }
        }
        let Role::Client(client) = &mut self.role else {
            return;
        };
        if resolve && !std::mem::replace(&mut client.resolving, true) {
            self.events.push_back(Event::Resolve);
        }
        self.sweep_spares(now);
    }

    /// A connection that no longer answers gives up its slot.
    fn check_up(&mut self, now: Instant, index: usize, handle: usize) {
        let connection = self.connections.get(handle).and_then(Option::as_ref);
        if connection.is_some_and(|connection| connection.liveness.unresponsive())
            && let Role::Client(client) = &mut self.role
        {
            client.slots[index].state = State::Idle;
            client.sweep_at.get_or_insert(now + SPARE_IDLE);
        }
    }

    /// Starts the next attempt of a slot.
    fn race(&mut self, now: Instant, index: usize) {
        loop {
            let Role::Client(client) = &mut self.role else {
                return;
            };
            let State::Racing(race) = &mut client.slots[index].state else {
                return;
            };
            let Some(address) = race.next.pop_front() else {
                if race.attempts.is_empty() {
                    let timed_out = race.timed_out;
                    let (remote, reason) = match race.last.take() {
                        Some((remote, reason)) => (Some(remote), reason),
                        None => (None, LossReason::TimedOut),
                    };
                    if timed_out {
                        let timeouts = &mut client.slots[index].timeouts;
                        *timeouts = timeouts.saturating_add(1);
                    }
                    self.back_off(now, index, remote, reason);
                }
                return;
            };
            race.next_at = now + RACE_STEP;
            match self.connect(now, index, address) {
                Ok(handle) => {
                    if let Role::Client(client) = &mut self.role
                        && let State::Racing(race) = &mut client.slots[index].state
                    {
                        race.attempts.push(handle);
                    }
                    return;
                }
                Err(reason) => {
                    if let Role::Client(client) = &mut self.role
                        && let State::Racing(race) = &mut client.slots[index].state
                    {
                        race.last = Some((address, reason));
                    }
                }
            }
        }
    }

    fn connect(
        &mut self,
        now: Instant,
        index: usize,
        address: SocketAddr,
    ) -> Result<usize, LossReason> {
        let Role::Client(client) = &mut self.role else {
            return Err(LossReason::Local("not a client".to_owned()));
        };
        let gauge = Gauge::new();
        let known = self.transport.memory.recall(now, Peer::Server(address));
        let window = self.lease.first_window(known.receive_window, 0, true);
        let first = First {
            window,
            remembered: known.receive_window,
            flows: 0,
        };
        let crypto = client.crypto_of(index).clone();
        let mut config = ClientConfig::new(crypto);
        let (transport, trace) = Connection::transport_config(
            &self.transport,
            &gauge,
            address,
            Side::Client,
            known,
            first,
            now,
        );
        config.transport_config(transport);
        let (ConnectionHandle(handle), quic) = self
            .endpoint
            .connect(now, config, address, &client.role.server_name)
            .map_err(|error| LossReason::Local(error.to_string()))?;
        let id = ConnectionId(self.next_id(handle));
        let connection = Connection::new(id, quic, gauge, &self.transport, first, trace, now);
        self.adopt(handle, connection);
        Ok(handle)
    }

    /// A slot's attempt failed: the next one follows later and later.
    fn back_off(
        &mut self,
        now: Instant,
        index: usize,
        remote: Option<SocketAddr>,
        reason: LossReason,
    ) {
        let retry_in = self.wait_for_retry(now, index);
        self.events.push_back(Event::ConnectFailed {
            remote,
            reason,
            retry_in,
        });
    }

    /// Lets a slot wait before its next attempt; the first one follows at once.
    fn wait_for_retry(&mut self, now: Instant, index: usize) -> Duration {
        let jitter = f64::from(self.rng.next_u32()) / f64::from(u32::MAX);
        let Role::Client(client) = &mut self.role else {
            return Duration::ZERO;
        };
        let slot = &mut client.slots[index];
        let wait = if slot.failures == 0 {
            Duration::ZERO
        } else {
            let exponent = slot.failures.min(FAILURES_MAX) - 1;
            let full = (BACK_OFF_FIRST * 2u32.pow(exponent)).min(BACK_OFF_MAX);
            full.mul_f64(0.5 + jitter / 2.0)
        };
        slot.failures = slot.failures.saturating_add(1);
        slot.state = State::Waiting(now + wait);
        wait
    }

    /// A handshake is done: the first of a race wins.
    pub(crate) fn client_connected(&mut self, now: Instant, handle: usize) {
        let Role::Client(client) = &mut self.role else {
            return;
        };
        let Some(index) = client.slot_of(handle) else {
            return;
        };
        let slot = &mut client.slots[index];
        slot.timeouts = 0;
        let state = std::mem::replace(&mut slot.state, State::Up(handle));
        if let State::Racing(race) = state {
            for other in race.attempts.into_iter().filter(|&other| other != handle) {
                self.abandon_attempt(now, other);
            }
        }
        self.begin_control(now, handle);
        self.place_waiting(now);
    }

    fn abandon_attempt(&mut self, now: Instant, handle: usize) {
        if let Some(Some(connection)) = self.connections.get_mut(handle) {
            connection
                .quic
                .close(now, close_code(CloseCode::Done), Bytes::new());
            connection.handshake_by = None;
            connection.handshake_copies.end();
            self.mark(handle);
        }
    }

    pub(crate) fn client_lost(&mut self, now: Instant, handle: usize, reason: &LossReason) {
        let Role::Client(client) = &mut self.role else {
            return;
        };
        let Some(index) = client.slot_of(handle) else {
            return;
        };
        let connection = self.connections.get(handle).and_then(Option::as_ref);
        let remote = connection.map(|connection| connection.remote);
        let lasted = connection.is_some_and(|connection| now >= connection.opened + BACK_OFF_MAX);
        let slot = &mut client.slots[index];
        // A server that lets us in and throws us out again must not be stormed.
        if lasted && matches!(slot.state, State::Up(_)) {
            slot.failures = 0;
        }
        if matches!(reason, LossReason::NotAuthorized | LossReason::Revoked) {
            // PROTOCOL CODE-3: only an operator can help.
            slot.failures = slot.failures.max(FAILURES_MAX);
        }
        match &mut slot.state {
            State::Up(_) => {
                self.wait_for_retry(now, index);
            }
            State::Racing(race) => {
                race.attempts.retain(|&attempt| attempt != handle);
                race.timed_out |= *reason == LossReason::TimedOut;
                race.last = remote.map(|remote| (remote, reason.clone()));
                if race.attempts.is_empty() {
                    self.race(now, index);
                }
            }
            State::Idle | State::Resolving | State::Waiting(_) => {}
        }
    }
}
