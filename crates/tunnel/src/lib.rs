//! The tunnel around the engine: worker threads, listeners, token plugins, identity, REST and metrics.
//!
//! Two threads of control never meet on the path of a byte. Each *worker* is one thread with one epoll
//! loop, one UDP socket and one engine ([`quictun_engine::Engine`]). The *control plane* is tokio on the
//! calling thread: names, token sources, HTTP, signals. They talk through bounded queues.
//!
//! # Order of use
//!
//! Build [`settings::ClientSettings`] or [`settings::ServerSettings`], then call [`client::run`] or
//! [`server::run`]; both return when the process should end.
#![forbid(unsafe_code)]

pub mod access;
pub mod client;
pub mod confinement;
pub mod crash;
pub mod detour;
pub mod gather;
pub mod identity;
pub mod keeper;
pub mod log;
pub mod metrics;
pub mod netstackd;
pub mod pin;
pub mod psk;
pub mod reload;
pub mod resolve;
pub mod rest;
pub mod server;
pub mod settings;
pub mod shares;
pub mod snapshot;
pub mod spin;
pub mod systemd;
pub mod tls;
pub mod token_source;
pub mod tun_device;
pub mod udp_port;

mod app_socket;
mod asked;
mod client_duty;
mod congestion_log;
mod control;
mod descriptors;
mod dial;
mod flow_log;
mod flow_uuids;
mod launch;
mod line_budget;
mod listener;
mod lookups;
mod mailbox;
mod name_questions;
mod own_stack;
mod poller;
mod qlog;
mod refusal;
mod server_duty;
mod stack_socket;
mod tun_port;
mod turns;
mod worker;

/// An error and its causes in one line.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
