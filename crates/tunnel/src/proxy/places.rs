//! The places for connections to a proxy that are not flows, shared between the hosts that connect.
//!
//! A host that opens many connections and sends no request takes no place from hosts with few ([`quictun_trust::shares`]).

use quictun_trust::shares::{CommonShares, Holder};

use crate::app_socket::AppSocket;

/// A host gets another place while it has fewer than four for each free one: a single host gets four fifths of all.
const WEIGHT: usize = 4;

#[derive(Debug)]
pub(super) struct Places(CommonShares);

/// A place, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct TakenPlace {
    shares: CommonShares,
    holder: Holder,
}

impl Places {
    pub(super) fn new(most: usize) -> Self {
        Self(CommonShares::new(most, WEIGHT))
    }

    /// Takes a place for the host that has connected. The programs of this machine over Unix sockets count as one host.
    pub(super) fn take(&self, socket: &AppSocket) -> Option<TakenPlace> {
        let address = socket.peer_address();
        let holder = address.map_or(Holder::Own, |address| Holder::at(address.ip()));
        self.0.take(&holder).then(|| TakenPlace {
            shares: self.0.clone(),
            holder,
        })
    }
}

impl Drop for TakenPlace {
    fn drop(&mut self) {
        self.shares.give_back(&self.holder);
    }
}
