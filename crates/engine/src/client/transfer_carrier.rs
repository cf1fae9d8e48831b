//! The connection over TLS that carries the transfers of a slot, beside the slot's own connection.
//!
//! Beside QUIC, [`Transfers`] decides whether there is one. The code here measures for it, connects, and moves the flows.
//! Beside TLS, transfers have a connection of their own as soon as there are other flows.

use std::time::{Duration, Instant};

use fxhash::FxHashMap;
use quictun_flow::{BondKey, ConnectionKey, FlowKey, Socket};

use super::Client;
use super::transfers::{Sample, TransferStep, Transfers};
use crate::connection::Connection;
use crate::event::ClientEvent;
use crate::loss::LossReason;
use crate::report::{CarrierKind, TransferReason, TransfersOverTls};
use crate::traffic::{EndedConnection, Traffic};

/// Bytes from which on a flow counts as a transfer, and the least part of all bytes that it moves: a part that each of
/// many transfers has.
const TRANSFER_BYTES: u64 = 1 << 20;
const TRANSFER_PART: u64 = 256;

/// Time after which transfers follow the other flows from TLS to QUIC. A network may let a handshake pass, and little
/// else.
const CLIMB_LATER: Duration = Duration::from_secs(5);

/// The transfers of one slot.
#[derive(Debug)]
pub(super) struct TransferCarrier {
    transfers: Transfers,
    /// The connection over TLS, if there is one.
    pub(super) connection: Option<ConnectionKey>,
    /// The flows of the bond at the latest sample.
    counted: FxHashMap<FlowKey, Counted>,
    /// The packets that each of the two connections had lost by then.
    lost: [u64; 2],
    /// The flows of the trial.
    tried: Vec<FlowKey>,
    /// Transfers that follow the other flows from TLS to QUIC at this time.
    climbing: Option<(Instant, Vec<FlowKey>)>,
}

/// The bytes that a flow has moved.
#[derive(Clone, Copy, Debug)]
struct Counted {
    total: u64,
    /// The bytes of the latest samples. Each sample later, an eighth of them is forgotten.
    recent: u64,
}

impl Counted {
    fn is_transfer(&self) -> bool {
        self.total >= TRANSFER_BYTES && self.recent > 0
    }
}

/// The result of one sample of the flows of a bond.
struct Measured {
    sample: Sample,
    /// The transfers on the connection by QUIC.
    transfers: Vec<FlowKey>,
}

impl TransferCarrier {
    pub(super) fn new() -> Self {
        Self {
            transfers: Transfers::new(),
            connection: None,
            counted: FxHashMap::default(),
            lost: [0; 2],
            tried: Vec::new(),
            climbing: None,
        }
    }

    pub(super) fn over_tls(&self) -> Option<TransfersOverTls> {
        self.transfers.over_tls()
    }

    /// Forgets what was counted. What the flows move from now on belongs to another time.
    fn rest(&mut self) {
        self.counted.clear();
        self.transfers.rest();
    }

    pub(super) fn handle_network_change(&mut self, now: Instant) {
        self.transfers.handle_network_change(now);
    }

    /// Counts what the flows of `bond` have moved since the previous sample: on `beside` if transfers use it, and else on
    /// `up`.
    fn measure<S: Socket>(
        &mut self,
        traffic: &Traffic<S>,
        bond: BondKey,
        (up, beside): (ConnectionKey, Option<ConnectionKey>),
    ) -> Measured {
        let on_tls = beside.filter(|_| self.transfers.uses_tls());
        let measured = on_tls.unwrap_or(up);
        let (mut sample, mut all, mut moved) = (Sample::default(), 0, Vec::new());
        let mut counted = FxHashMap::default();
        for (flow, on, total) in traffic.bytes_moved(bond) {
            let new = Counted { total, recent: 0 };
            let before = self.counted.get(&flow).copied().unwrap_or(new);
            let bytes = total.saturating_sub(before.total);
            let recent = before.recent / 8 * 7 + bytes;
            let now = Counted { total, recent };
            counted.insert(flow, now);
            all += recent;
            if on == measured {
                sample.bytes += bytes;
            }
            if on == up && now.is_transfer() {
                moved.push((flow, recent));
            }
        }
        // A flow between two connections goes on.
        let lives = |flow: &FlowKey| traffic.flows.contains(*flow);
        sample.ended = !self.tried.iter().all(lives);
        self.counted = counted;
        for (key, lost) in [Some(up), beside].into_iter().zip(&mut self.lost) {
            let now = key.map_or(0, |key| traffic.packets_lost(key));
            let before = std::mem::replace(lost, now);
            if key == Some(measured) {
                sample.lost = now.saturating_sub(before);
            }
        }
        let path = traffic.connections.get(measured).map(Connection::path);
        sample.min_rtt = path.map_or(Duration::MAX, |path| path.min_rtt);
        moved.retain(|&(_, recent)| recent * TRANSFER_PART >= all);
        Measured {
            sample,
            transfers: moved.into_iter().map(|(flow, _)| flow).collect(),
        }
    }
}

impl Client {
    /// Watches the transfers of each slot, and moves them to the connection that suits them.
    pub(super) fn watch_transfers<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>) {
        for index in 0..self.slots.len() {
            if let Some(span) = self.slots[index].transfers.transfers.take_due(now) {
                self.sample_transfers(now, traffic, index, span);
            }
        }
    }

    fn sample_transfers<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        index: usize,
        span: Duration,
    ) {
        let slot = &mut self.slots[index];
        let ready = |key| traffic.connections.get(key).filter(|it| it.is_ready());
        let kind = slot.up().and_then(ready).map(|up| up.carrier.kind());
        let (Some(up), Some(kind), Some(bond)) = (slot.up(), kind, slot.bond) else {
            return slot.transfers.rest();
        };
        let connection = slot.transfers.connection;
        let found = connection.and_then(|key| traffic.connections.get(key));
        if found.is_some_and(Connection::is_to_leave) {
            return self.leave_transfer_carrier(now, traffic, index);
        }
        let usable = found.is_some_and(|it| it.bond == Some(bond) && it.is_ready());
        let pair = (up, connection.filter(|_| usable));
        let mut measured = slot.transfers.measure(traffic, bond, pair);
        measured.sample.small_buffers = self.role.surroundings.small_buffers;
        let server = slot.server;
        if kind == CarrierKind::Tls {
            slot.transfers.transfers.rest();
            self.separate_transfers(now, traffic, index, pair, &measured.transfers);
        } else if let Some(ladder) = self.servers.ladder(server)
            && ladder.chooses()
        {
            self.judge_transfers(now, traffic, index, pair, span, &measured);
        }
    }

    /// Handles a climb from the connection `left` to QUIC. Transfers stay on TLS for a while. Returns whether they need
    /// `left` for that.
    pub(super) fn keep_for_transfers<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        index: usize,
        left: ConnectionKey,
    ) -> bool {
        let slot = &mut self.slots[index];
        let Some(bond) = slot.bond else {
            return false;
        };
        let counted = &slot.transfers.counted;
        let is_transfer = |flow: &FlowKey| counted.get(flow).is_some_and(Counted::is_transfer);
        let flows = traffic.bytes_moved(bond).map(|(flow, ..)| flow);
        let later: Vec<FlowKey> = flows.filter(is_transfer).collect();
        if later.is_empty() {
            return false;
        }
        slot.transfers.climbing = Some((now + CLIMB_LATER, later));
        if slot.transfers.connection.is_some() {
            return false;
        }
        let Some(left_connection) = traffic.connections.get_mut(left) else {
            return false;
        };
        left_connection.for_transfers = true;
        slot.transfers.connection = Some(left);
        true
    }

    /// Gives transfers over TLS a connection of their own if there are other flows, which would wait behind them.
    fn separate_transfers<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        index: usize,
        (up, beside): (ConnectionKey, Option<ConnectionKey>),
        transfers: &[FlowKey],
    ) {
        if let Some(beside) = beside {
            return traffic.move_chosen(now, transfers, beside);
        }
        let flows = traffic.connections.get(up).map_or(0, |up| up.streams.len());
        if flows > transfers.len() {
            self.connect_for_transfers(now, traffic, index, up, transfers);
        }
    }

    /// Moves transfers from QUIC to TLS, or back, as [`Transfers`] decides.
    fn judge_transfers<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        index: usize,
        (up, beside): (ConnectionKey, Option<ConnectionKey>),
        span: Duration,
        Measured { sample, transfers }: &Measured,
    ) {
        let carrier = &mut self.slots[index].transfers;
        match (beside, carrier.transfers.uses_tls()) {
            // The connection over TLS was closed while there were no transfers.
            (None, true) => return self.connect_for_transfers(now, traffic, index, up, transfers),
            (Some(tls), false) => {
                if !transfers.is_empty() && carrier.transfers.handle_connected(now) {
                    carrier.tried.clone_from(transfers);
                    return traffic.move_chosen(now, transfers, tls);
                }
                // QUIC passes again, so that they need not be apart.
                if let Some((at, later)) = &carrier.climbing
                    && now < *at
                {
                    let flows = traffic.connections.get(tls).map(|tls| tls.streams.flows());
                    let mut flows = flows.unwrap_or_default();
                    flows.retain(|flow| !later.contains(flow));
                    carrier.transfers.rest();
                    return traffic.move_chosen(now, &flows, up);
                }
                if carrier.climbing.take().is_some() {
                    return self.retire_transfer_carrier(now, traffic, index);
                }
                traffic.move_all(now, tls, up);
            }
            (Some(tls), true) if carrier.transfers.over_tls().is_some() => {
                traffic.move_chosen(now, transfers, tls);
            }
            (None, false) if transfers.is_empty() => return,
            (None, false) | (Some(_), true) => {}
        }
        match carrier.transfers.handle_sample(now, span, *sample) {
            TransferStep::Stay => {}
            TransferStep::Connect if beside.is_some() => {}
            TransferStep::Connect => self.connect_for_transfers(now, traffic, index, up, transfers),
            TransferStep::Keep(kept) => {
                carrier.tried.clear();
                self.report_transfers(traffic, index, Some(kept), kept.reason);
            }
            TransferStep::Return(reason) => {
                carrier.tried.clear();
                if let Some(tls) = beside {
                    traffic.move_all(now, tls, up);
                }
                if let Some(reason) = reason {
                    self.report_transfers(traffic, index, None, reason);
                }
            }
        }
    }

    /// Gives up a connection that no longer answers. Its flows have moved, or wait to do so.
    fn leave_transfer_carrier<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        index: usize,
    ) {
        let carrier = &mut self.slots[index].transfers;
        let kept = carrier.over_tls().is_some();
        carrier.transfers.handle_failed(now);
        carrier.tried.clear();
        self.retire_transfer_carrier(now, traffic, index);
        if kept {
            self.report_transfers(traffic, index, None, TransferReason::Lost);
        }
    }

    fn retire_transfer_carrier<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        index: usize,
    ) {
        if let Some(key) = self.slots[index].transfers.connection.take() {
            if let Some(connection) = traffic.connections.get_mut(key) {
                connection.retire();
            }
            traffic.move_flows_away(now, key);
            self.sweep_at.get_or_insert(now);
        }
    }

    /// Connects over TLS for `transfers`, if there are any and no attempt is under way or has just failed.
    fn connect_for_transfers<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        index: usize,
        up: ConnectionKey,
        transfers: &[FlowKey],
    ) {
        let carrier = &self.slots[index].transfers;
        let busy = carrier.connection.is_some() || carrier.transfers.is_held(now);
        if busy || transfers.is_empty() {
            return;
        }
        // The port of a connection over TLS may be another one than that of the server's address.
        let address = traffic.connections.get(up).map(|up| up.resolved);
        let server = self.slots[index].server;
        let way = address.and_then(|address| self.servers.way_by_tls(server, address));
        let Some(candidate) = way else {
            return self.slots[index].transfers.transfers.handle_failed(now);
        };
        match self.connect(now, traffic, index, candidate) {
            Ok(key) => {
                if let Some(connection) = traffic.connections.get_mut(key) {
                    connection.for_transfers = true;
                }
                self.slots[index].transfers.connection = Some(key);
                self.sweep_at.get_or_insert(now + super::spares::SPARE_IDLE);
            }
            Err(_) => self.slots[index].transfers.transfers.handle_failed(now),
        }
    }

    /// Returns the slot whose transfers the connection is for.
    pub(super) fn slot_of_transfers(&self, key: ConnectionKey) -> Option<usize> {
        let mut slots = self.slots.iter();
        slots.position(|slot| slot.transfers.connection == Some(key))
    }

    /// Handles the end of a connection, if it was one for transfers. Returns whether it was.
    pub(super) fn handle_transfer_carrier_ended<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        ended: &EndedConnection,
    ) -> bool {
        let Some(index) = self.slot_of_transfers(ended.key) else {
            return false;
        };
        if ended.reason == LossReason::ClosedLocally {
            let carrier = &mut self.slots[index].transfers;
            carrier.connection = None;
            carrier.transfers.handle_closed();
        } else {
            self.leave_transfer_carrier(now, traffic, index);
        }
        true
    }

    fn report_transfers<S: Socket>(
        &self,
        traffic: &mut Traffic<S>,
        index: usize,
        over_tls: Option<TransfersOverTls>,
        reason: TransferReason,
    ) {
        traffic.events.push(ClientEvent::TransfersMoved {
            server: self.slots[index].server,
            over_tls,
            reason,
        });
    }
}
