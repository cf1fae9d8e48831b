//! Whether the server keeps bonds: said once where it does not, although this client would.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::info;

/// What all workers of a client know of that.
#[derive(Debug)]
pub(crate) struct Bonds {
    wanted: bool,
    told: AtomicBool,
}

impl Bonds {
    /// `wanted`: flows are to outlive their connection.
    pub(crate) fn new(wanted: bool) -> Self {
        Self {
            wanted,
            told: AtomicBool::new(false),
        }
    }

    /// A server has let this client in.
    pub(crate) fn handle_welcome(&self, remote: SocketAddr, bonded: bool) {
        if self.is_news(bonded) {
            info!(target: "quictun", { "Server-Endpoint-Addr" = %remote }, "the server keeps no bonds: flows end with their connection");
        }
    }

    /// Whether this is to be told: the first time, and again where it was otherwise meanwhile.
    fn is_news(&self, bonded: bool) -> bool {
        if bonded {
            // Only a flag: no other memory hangs on it.
            self.told.store(false, Ordering::Relaxed);
        }
        self.wanted && !bonded && !self.told.swap(true, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_bonds_is_told_once_and_again_after_one_with_them() {
        let bonds = Bonds::new(true);
        let news = [false, false, true, true, false, false].map(|bonded| bonds.is_news(bonded));
        assert_eq!(news, [true, false, false, false, true, false]);
        assert!(!Bonds::new(false).is_news(false), "they are not wanted");
    }
}
