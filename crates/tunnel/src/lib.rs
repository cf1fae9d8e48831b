//! The tunnel around the engine: workers, listeners, dials, token sources, reloads.
//!
//! Two threads of control never meet on the path of a byte. Each *worker* is one thread with one epoll
//! loop, one UDP socket and one engine ([`quictun_engine::Engine`]). The *control plane* is tokio on the
//! calling thread: names, token sources, HTTP, signals. They talk through bounded queues.
//!
//! # Order of use
//!
//! Build [`settings::ClientSettings`] or [`settings::ServerSettings`], then call [`client::run`], [`client::connect`] or
//! [`server::run`]; each returns when the process should end, with a [`failure::Failure`] where that was not asked for.
#![forbid(unsafe_code)]

pub mod client;
pub mod failure;
pub mod join;
pub mod reload;
pub mod server;
pub mod settings;
pub mod transparent;

mod allowances;
mod answers;
mod app_addr;
mod app_socket;
mod asked;
mod banner;
mod bonds;
mod client_duty;
mod control;
mod dial;
mod duty;
mod launch;
mod listener;
mod lookups;
mod mailbox;
mod moves;
mod name_questions;
mod network_watch;
mod once;
mod probe;
mod proxy;
mod qlog;
mod question_socket;
mod refusal;
mod requests;
mod resolve;
mod reverse;
mod server_duty;
mod servers;
mod service;
mod terminal;
mod token_source;
mod trouble;
mod tun_port;
mod turns;
mod usage;
mod worker;
