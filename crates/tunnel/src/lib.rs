//! The tunnel around the engine: workers, listeners, dials, token sources, reloads.
//!
//! Each *worker* is one thread with one epoll loop, one UDP socket and one engine ([`quictun_engine::Engine`]); a byte
//! of a flow never crosses to another thread. The *control plane* runs tokio on the calling thread and handles names,
//! token sources, HTTP and signals. Workers and control plane communicate through bounded queues.
//!
//! # Order of use
//!
//! Build [`settings::ClientSettings`] or [`settings::ServerSettings`], then call [`client::run`], [`client::connect`]
//! or [`server::run`]. Each returns when the process should end, with a [`failure::Failure`] if the end was not
//! requested.
#![forbid(unsafe_code)]

pub mod client;
pub mod failure;
pub mod handover;
pub mod join;
pub mod outbound_proxy;
pub mod reach;
pub mod reload;
pub mod server;
pub mod settings;
pub mod transparent;

mod acme;
mod allowances;
mod app_addr;
mod app_socket;
mod banner;
mod blocking_lookup;
mod bond_notice;
mod carrier_dials;
mod carrier_listeners;
mod carrier_notice;
mod carrier_sockets;
mod client_worker;
mod control;
mod damaged_file;
mod datagram_burst;
mod datagram_socket;
mod dial;
mod disk_queue;
mod dns_queries;
mod fair_queue;
mod flow_records;
mod flow_source;
mod forward_listener;
mod launch;
mod left_flows;
#[cfg(test)]
mod line_counter;
mod listener;
mod login_delays;
mod lookup_threads;
mod lookups;
mod mailbox;
mod marked_sockets;
mod memory_budget;
mod moves;
mod network_watch;
mod outage_log;
mod probe;
mod proxy;
mod public_certificate;
mod qlog;
mod query_socket;
mod rate_limited_warning;
mod refusal;
mod refusals;
mod refused_sources;
mod rejections;
mod request_handler;
mod requests;
mod resolve;
mod reverse;
mod role;
mod server_sockets;
mod server_worker;
mod servers;
mod service;
mod short_client;
mod single_flow;
mod tcp_socket;
mod terminal;
mod token_source;
mod tun_port;
mod usage;
mod worker;
mod zone;
