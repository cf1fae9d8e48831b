//! Logs once that the server keeps no bonds although this client wants them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::info;

/// State of that message, shared by all workers of a client.
#[derive(Debug)]
pub(crate) struct BondNotice {
    wanted: bool,
    logged: AtomicBool,
}

impl BondNotice {
    /// Creates the state of the notice. With `wanted`, flows outlive their connection.
    pub(crate) fn new(wanted: bool) -> Self {
        Self {
            wanted,
            logged: AtomicBool::new(false),
        }
    }

    /// Handles that a server has accepted this client, with or without a bond.
    pub(crate) fn handle_welcome(&self, remote: SocketAddr, bonded: bool) {
        if self.is_due(bonded) {
            info!(target: "quictun", { "Server-Endpoint-Addr" = %remote }, "the server keeps no bonds: flows end with their connection");
        }
    }

    /// Returns whether to log the message: the first time, and again after a connection with a bond.
    fn is_due(&self, bonded: bool) -> bool {
        if bonded {
            // Relaxed: the flag guards no other memory.
            self.logged.store(false, Ordering::Relaxed);
        }
        self.wanted && !bonded && !self.logged.swap(true, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_bonds_is_reported_once_and_again_after_one_with_bonds() {
        let bonds = BondNotice::new(true);
        let news = [false, false, true, true, false, false].map(|bonded| bonds.is_due(bonded));
        assert_eq!(news, [true, false, false, false, true, false]);
        assert!(!BondNotice::new(false).is_due(false), "they are not wanted");
    }
}
