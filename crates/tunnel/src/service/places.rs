//! The places of a service: the number that each of its servers has in the engines.
//!
//! A server keeps its place as long as a record names it. If no record names it any more, its place is free, but its
//! flows continue until another server needs the place. The module is pure: times and draws are arguments.

use std::time::Instant;

use quictun_engine::report::ServerId;
use quictun_engine::{Rank, ServerPlace};
use quictun_wire::srv::SrvRecord;

use super::order::order;
use crate::settings::{Address, HostPort, SERVERS_MAX};

/// Returns the addresses to dial: each server once, and each service once for each of its places.
pub(crate) fn expand_services(addresses: &[Address]) -> Vec<Address> {
    let services = addresses.iter().filter(|address| address.at().is_none());
    let services = services.count();
    let left = SERVERS_MAX.saturating_sub(addresses.len() - services);
    let places = left.checked_div(services).unwrap_or_default().max(1);
    let each = addresses.iter().flat_map(|address| {
        let count = address.at().map_or(places, |_| 1);
        std::iter::repeat_n(address.clone(), count)
    });
    each.collect()
}

/// The places of one service.
#[derive(Debug)]
pub(super) struct ServicePlaces {
    first: ServerId,
    each: Vec<ServicePlace>,
    /// All records, in the drawn order. As many of them are used as there are places.
    ordered: Vec<SrvRecord>,
}

#[derive(Clone, Debug, Default)]
struct ServicePlace {
    /// The server in this place, or the last one that was in it.
    target: Option<HostPort>,
    /// TCP port of that server, if it is another one than that of `target`.
    tls_port: Option<u16>,
    tenant: u32,
    /// The record of the server and its index in the order, or `None` if no record names the server.
    record: Option<(SrvRecord, usize)>,
    left_at: Option<Instant>,
}

/// The contents of a place, for the engines and for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlaceContents {
    pub(super) server: ServerId,
    pub(super) place: ServerPlace,
    /// The record of the server, or `None` if no record names it.
    pub(super) record: Option<SrvRecord>,
}

impl ServicePlaces {
    pub(super) fn new(first: ServerId, count: usize) -> Self {
        Self {
            first,
            each: vec![ServicePlace::default(); count],
            ordered: Vec::new(),
        }
    }

    /// Returns the server to dial in a place.
    pub(super) fn target(&self, server: ServerId) -> Option<HostPort> {
        let index = server.0.checked_sub(self.first.0)?;
        self.each.get(index)?.target.clone()
    }

    /// Puts a server into a place before records are known, because flows lead to it. Returns its place, or `None` if all
    /// have other servers.
    pub(super) fn reserve(&mut self, now: Instant, target: HostPort) -> Option<ServerId> {
        let has_target = |place: &ServicePlace| place.target.as_ref() == Some(&target);
        let known = self.each.iter().position(has_target);
        let free = || self.each.iter().position(|place| place.target.is_none());
        let index = known.or_else(free)?;
        let place = &mut self.each[index];
        place.target = Some(target);
        // If the records do not name the server, others have its place last.
        place.left_at = Some(now);
        Some(ServerId(self.first.0 + index))
    }

    /// Returns whether records are known.
    pub(super) fn is_known(&self) -> bool {
        !self.ordered.is_empty()
    }

    /// Applies the records of an answer. Returns whether anything has changed. For `draw` see [`order`].
    pub(super) fn update(
        &mut self,
        now: Instant,
        records: Vec<SrvRecord>,
        draw: &mut dyn FnMut(u32) -> u32,
    ) -> bool {
        let ordered = self.reorder(without_duplicates(records), draw);
        if ordered.is_empty() || ordered == self.ordered {
            return false;
        }
        self.ordered = ordered;
        let count = self.each.len();
        for place in &mut self.each {
            let Some(target) = &place.target else {
                continue;
            };
            let mut used = self.ordered.iter().take(count);
            let named = used.position(|record| is_of(record, target));
            if named.is_none() && place.record.is_some() {
                place.left_at = Some(now);
            }
            place.record = named.map(|order| (self.ordered[order].clone(), order));
            // A server that no record names any more keeps its port.
            if let Some((record, _)) = &place.record {
                place.tls_port = record.tls_port;
            }
        }
        for order in 0..self.ordered.len().min(count) {
            self.assign(order);
        }
        true
    }

    /// Returns the contents of each place.
    pub(super) fn contents(&self) -> impl Iterator<Item = PlaceContents> {
        let is_known = self.is_known();
        self.each.iter().enumerate().map(move |(index, place)| {
            let rank = place.record.as_ref().map(|(record, order)| Rank {
                service: self.first,
                priority: record.priority,
                order: *order,
            });
            PlaceContents {
                server: ServerId(self.first.0 + index),
                place: ServerPlace {
                    wanted: rank.is_some() || (index == 0 && !is_known),
                    tenant: place.tenant,
                    rank,
                    tls_port: place.tls_port,
                },
                record: place.record.as_ref().map(|(record, _)| record.clone()),
            }
        })
    }

    /// Puts a record into a place, unless it has one.
    fn assign(&mut self, order: usize) {
        let record = &self.ordered[order];
        let has_one = |place: &ServicePlace| {
            let held = place.record.as_ref();
            held.is_some_and(|(_, held)| *held == order)
        };
        if self.each.iter().any(has_one) {
            return;
        }
        // A place that was never used is taken first, then the one that was left first: its flows have had the longest
        // time to end.
        let free = self.each.iter_mut().filter(|place| place.record.is_none());
        let Some(place) = free.min_by_key(|place| place.left_at) else {
            return;
        };
        if place.target.is_some() {
            place.tenant += 1;
        }
        place.target = Some(HostPort {
            host: record.target.clone(),
            port: record.port,
        });
        place.tls_port = record.tls_port;
        place.record = Some((record.clone(), order));
        place.left_at = None;
    }

    /// Orders the records. The order within a priority stays if its records are the same as before.
    fn reorder(
        &self,
        mut records: Vec<SrvRecord>,
        draw: &mut dyn FnMut(u32) -> u32,
    ) -> Vec<SrvRecord> {
        let of = |all: &[SrvRecord], priority: u16| -> Vec<SrvRecord> {
            let all = all.iter().filter(|record| record.priority == priority);
            all.cloned().collect()
        };
        let keys = |all: &[SrvRecord]| {
            let mut keys: Vec<_> = all.iter().map(key).collect();
            keys.sort_unstable();
            keys
        };
        records.sort_by_key(|record| record.priority);
        let mut ordered = Vec::new();
        while ordered.len() < records.len() {
            let priority = records[ordered.len()].priority;
            let (new, known) = (of(&records, priority), of(&self.ordered, priority));
            if keys(&new) == keys(&known) {
                // The TCP ports may be others than before.
                let as_now = |known: &SrvRecord| new.iter().find(|new| key(new) == key(known));
                ordered.extend(known.iter().filter_map(as_now).cloned());
            } else {
                ordered.extend(order(new, draw));
            }
        }
        ordered
    }
}

fn key(record: &SrvRecord) -> (String, u16, u16) {
    (record.target.clone(), record.port, record.weight)
}

fn is_of(record: &SrvRecord, target: &HostPort) -> bool {
    record.target == target.host && record.port == target.port
}

/// Removes duplicates: of records that name the same server, the lowest priority number stays, with the highest weight
/// that this number has. So the answer's order, which name servers rotate, does not decide.
fn without_duplicates(mut records: Vec<SrvRecord>) -> Vec<SrvRecord> {
    records.sort_by_key(|record| record.priority);
    let mut kept: Vec<SrvRecord> = Vec::new();
    for record in records {
        let is_duplicate =
            |other: &&mut SrvRecord| (&other.target, other.port) == (&record.target, record.port);
        match kept.iter_mut().find(is_duplicate) {
            Some(duplicate) if duplicate.priority == record.priority => {
                duplicate.weight = duplicate.weight.max(record.weight);
            }
            Some(_) => {}
            None => kept.push(record),
        }
    }
    kept
}

#[cfg(test)]
mod tests;
