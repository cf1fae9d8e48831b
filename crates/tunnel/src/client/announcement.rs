//! The lines at the start of a client: for a log, or for a person at a terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quictun_control::systemd;
use tracing::info;

use crate::banner;
use crate::settings::{Address, Forward};

/// Returns the announcement of the start. With `say`, it prints the lines for a person.
pub(super) fn announce(
    addresses: Vec<String>,
    forwards: Vec<Forward>,
    servers: Vec<Address>,
    started: Arc<AtomicBool>,
    say: Option<fn(&str)>,
) -> Box<dyn FnOnce()> {
    Box::new(move || {
        started.store(true, Ordering::Relaxed);
        let destinations = forwards.iter().map(|forward| forward.to.to_string());
        let pairs: Vec<_> = addresses.into_iter().zip(destinations).collect();
        for (address, _) in &pairs {
            systemd::notify(&format!("{}={address}", systemd::LISTEN));
        }
        if let Some(say) = say {
            return say(banner::client(&servers, &pairs).trim_end());
        }
        for (address, to) in pairs {
            info!(target: "quictun", { "listen address" = address, to }, "Client endpoint start up successful");
        }
    })
}
