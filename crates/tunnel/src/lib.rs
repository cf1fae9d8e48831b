//! The tunnel around the engine: workers, listeners, dials, token sources, reloads.
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

pub mod client;
pub mod reload;
pub mod resolve;
pub mod server;
pub mod settings;
pub mod token_source;

mod app_socket;
mod asked;
mod client_duty;
mod congestion_log;
mod control;
mod dial;
mod launch;
mod listener;
mod lookups;
mod mailbox;
mod name_questions;
mod qlog;
mod refusal;
mod server_duty;
mod tun_port;
mod turns;
mod worker;
