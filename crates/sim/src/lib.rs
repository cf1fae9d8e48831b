//! The tunnel in virtual time: hosts with real engines, joined by links, driven by one event queue.
//!
//! Nothing here waits. A [`Network`] knows what happens next (a datagram arrives, a timer fires, an application wakes)
//! and jumps there. A run is a function of its seed: the same seed gives the same events at the same times, in every
//! process, with and without optimisation. (TLS keys come from the operating system, so ciphertext differs from run to
//! run; its length does not.)
//!
//! [`predict`] answers one question on its own: the rate that the tunnel reaches on a given link.
//!
//! # Order of use
//!
//! 1. Create a [`Network`] with [`Network::new`] and a [`Seed`]. If the run fails, the seed prints how to repeat it.
//! 2. [`config::server`] and [`config::client`] return engine configurations with self-signed TLS credentials. Change
//!    the settings that the test is about, then call [`Network::add_server`] and [`Network::add_client`].
//!    [`Network::add_guest`] adds a program of the caller's own ([`Guest`]).
//! 3. [`Network::link`] joins two hosts with one [`LinkConfig`] per direction. Links count the lengths of IP packets.
//!    Routers ([`Network::add_router`]) join hosts over several links; a [`Network::dumbbell`] makes hosts share one
//!    bottleneck. Packets between hosts without a route are lost. [`Network::add_plain`] and [`Network::add_traffic`]
//!    add cross traffic.
//! 4. [`Host::serve`] defines what a token leads to: the result of the dial ([`SimulatedDial`]) and what the
//!    application there does ([`Script`]).
//! 5. [`Network::open`] connects an application to a client, and the client opens a flow for it.
//! 6. [`Network::run_for`] and [`Network::run_until`] let time pass. In between, change the network:
//!    [`Network::set_link`], [`Network::black_hole`], [`Network::move_host`], [`Network::rebind`],
//!    [`Network::drop_port`], [`Network::set_filter`], [`Network::cut_tcp`], [`Network::silence_tcp`], [`Network::stop`], [`Network::sleep`], [`Network::replace`], [`Network::command`].
//! 7. [`Network::outcome`] returns what an application has observed, [`Host::events`] the engine's events,
//!    [`Network::traffic`] the result of cross traffic, and [`Transcript`] the whole run as text. With the feature
//!    `evidence`, `Network::pcapng` returns the packets for Wireshark.
//!
//! # A failing run
//!
//! A test that panics prints its seed, the end of the transcript, and one command. The command repeats the run and
//! writes two files to a directory: the whole transcript (`.txt`) and the packets with the keys to decrypt them
//! (`.pcapng`).
//!
//! # The path of a packet
//!
//! ```text
//!  Host, Guest, Plain ─► next link on the way (topology) ─► its fate (link) ─► packets (in_flight)
//!      ▲                               ▲                                              │
//!      └──── it has arrived ───────────┴──────────────── it is at a router ◄──────────┘
//! ```
//!
//! ```
//! use std::time::Duration;
//! use quictun_sim::{config, LinkConfig, Network, Script, Seed, SimulatedDial, WriteStep};
//!
//! let mut network = Network::new(Seed::fixed(1));
//! let server = network.add_server("server", config::server(1));
//! let client = network.add_client("client", config::client(1), server);
//! let wire = LinkConfig { delay: Duration::from_millis(10), ..LinkConfig::default() };
//! network.link(client, server, wire.clone(), wire);
//! network.host(server).serve("echo", SimulatedDial::connects(), Script::echo());
//!
//! let app = network.open(client, "echo", Script::echoed(7).write([WriteStep::Send(1000), WriteStep::Finish]));
//! network.run_until(Duration::from_secs(5), |network| network.outcome(app).is_over());
//! assert!(network.outcome(app).is_clean());
//! assert_eq!(network.outcome(app).received, 1000);
//! ```
#![forbid(unsafe_code)]

mod addresses;
mod app;
pub mod config;
mod constant;
mod dial;
#[cfg(feature = "evidence")]
mod evidence;
mod faults;
mod filter;
mod host;
mod host_engine;
mod in_flight;
mod network;
mod node;
mod packet;
mod pattern;
mod plain;
mod predict;
mod run;
mod script;
mod seed;
mod socket;
mod tcp;
mod tls;
mod topology;
mod transcript;
mod wakeups;

pub use app::{App, AppOutcome, IncomingState, OutgoingState};
pub use dial::SimulatedDial;
pub use filter::{FilterRule, PathFilter};
pub use host::Host;
pub use host_engine::HostEngine;
pub use network::{AppId, HostId, Network, TrafficId};
pub use node::Guest;
pub use packet::OutgoingPacket;
pub use plain::CrossTraffic;
pub use predict::{Experiment, PredictError, Prediction, predict};
pub use quictun_engine as engine;
pub use quictun_link::{
    Change, Codel, ConfigError, Counters, GilbertElliott, LinkConfig, LossAt, Outage, Policer,
    Queue, Reorder, Setting,
};
pub use script::{ReadStep, Script, WriteStep};
pub use seed::{Random, Seed};
pub use socket::MemSocket;
pub use tcp::{Tcp, TcpCut, TrafficReport};
pub use transcript::{Transcript, TranscriptDetail};
