//! One worker of the tunnel, without IO: a QUIC endpoint, its connections and those over TCP, and their flows.
//!
//! An [`Engine`] takes datagrams and the current time. It returns datagrams to send and the time at which it needs to
//! run again. It reaches applications through [`quictun_flow::Socket`], which the caller implements over kernel sockets
//! or memory. The same engine therefore runs behind an epoll loop and in virtual time.
//!
//! The role of an engine is a part of its type: a [`ClientEngine`] dials servers, and a [`ServerEngine`] accepts clients.
//! Each has the functions of both roles and those of its own, and reports [`ClientEvent`]s or [`ServerEvent`]s.
//!
//! # Order of calls
//!
//! Every method that takes `now` must be given a time that never goes back. The caller may make any number of these
//! calls:
//!
//! * inputs: [`Engine::handle_datagram`], [`Engine::handle_timeout`], [`Engine::handle_socket`],
//!   [`Engine::handle_carrier_socket`], [`Engine::handle_dialed`], [`Engine::handle_resolved`],
//! * commands: [`Engine::open_flow`], [`Engine::close_connection`], [`Engine::drain`].
//!
//! After them the caller calls [`Engine::drive`], which does the resulting work. It then drains the outputs:
//! [`Engine::poll_transmit`] until it returns `None` or the UDP socket is full, and [`Engine::poll_event`] until it
//! returns `None`. Then the caller sleeps until [`Engine::next_timeout`] or the next input. Received data never waits
//! for room in the UDP socket: call `drive` first, whether or not anything can be sent.
//!
//! ```
//! use std::net::SocketAddr;
//! use std::time::Instant;
//!
//! use bytes::BytesMut;
//! use quictun_engine::{Datagrams, Engine, Role, Socket};
//!
//! /// A turn of a loop: returns the time of the next turn without an input.
//! fn turn<S: Socket, R: Role>(
//!     engine: &mut Engine<S, R>,
//!     now: Instant,
//!     arrived: Vec<(SocketAddr, BytesMut)>,
//!     mut send: impl FnMut(Datagrams, &[u8]),
//!     mut answer: impl FnMut(&mut Engine<S, R>, R::Event),
//! ) -> Option<Instant> {
//!     for (remote, data) in arrived {
//!         engine.handle_datagram(now, remote, None, None, data);
//!     }
//!     if engine.next_timeout().is_some_and(|due| due <= now) {
//!         engine.handle_timeout(now);
//!     }
//!     engine.drive(now);
//!     let mut buffer = Vec::new();
//!     while let Some(datagrams) = engine.poll_transmit(now, &mut buffer) {
//!         send(datagrams, &buffer[..datagrams.size]);
//!     }
//!     while let Some(event) = engine.poll_event() {
//!         answer(engine, event);
//!     }
//!     engine.next_timeout()
//! }
//! ```
//!
//! An answer to an event is an input: if there was an event, the next turn follows at once.
//! `cargo run -p quictun-engine --example over_mio` shows a client and a server in one loop of mio.
//!
//! # A flow's life
//!
//! ```text
//! client: open_flow ─► waiting for a connection ─► open sent, bytes follow at once ─► ack ─► bridged
//!                              ▲                        │
//!                              └─ connection stuck, ◄───┘
//!                                 no bytes sent yet
//! server: stream opened ─► open being read ─► ServerEvent::Open ─► handle_dialed ─► ack sent ─► bridged
//! reverse: open_incoming ─► INCOMING sent, bytes follow at once ─► ack ─► bridged          (server)
//!          stream opened ─► INCOMING being read ─► ClientEvent::Incoming ─► handle_dialed ─► ...  (client)
//! both:   bridged ─► both directions ended ─► Event::FlowClosed
//! ```
//!
//! # What it does not do
//!
//! An engine opens no sockets, resolves no names and dials no targets: events ask its caller for that. It has no rules
//! about clients and targets: the caller decides on [`ServerEvent::Hello`] and [`ServerEvent::Open`]. It starts no
//! threads and belongs to one; a process with several workers has an engine for each.
//!
//! # Parts
//!
//! ```text
//! Engine ─► Client or Server ─► Traffic ─► Connections ─► Connection ─► admission, control, streams, credit
//!                                  │                          └────► Carrier ─► QUIC: library, packets
//!                                  │                                          └► TLS over TCP: records, sockets
//!                                  └─────► Flows ─► FlowEntry ─► Flow (crate `flow`)
//! ```
//!
//! `Engine` fixes the order of calls, and `Client` and `Server` implement the steps in which the roles differ. `Traffic`
//! implements what both sides have in common, and depends on neither side. Connections that have ended wait in a queue
//! until the client or server part handles them.
#![forbid(unsafe_code)]

mod bonds;
mod carrier;
mod client;
mod clients;
mod config;
mod congestion_notice;
mod connection;
mod connections;
mod datagram_flows;
mod datagrams;
mod durations;
mod engine;
mod event;
mod grants;
mod handshake_queue;
mod histogram;
mod keep_alives;
mod loss;
mod path;
mod places;
mod ranking;
mod revoke;
mod role;
mod server;
mod shared_batch;
mod strangers;
mod traffic;

pub mod report;

pub use bonds::ClientProofs;
pub use carrier::quic::{asks_for_bond, worker_of};
pub use carrier::tls::UNSENT_FIRST;
pub use client::{Client, ResolveResult};
pub use config::{
    CarrierChoice, ClientRole, EngineConfig, Joiner, LocalAddress, PathMtu, Prover, Rank,
    ServerPlace, ServerRole, ServerToDial, Surroundings, TraceWriter, Tracer, Transport,
};
pub use datagrams::Datagrams;
#[cfg(feature = "check")]
pub use engine::check::{BondedFlow, FlowResources, MemoryUsage};
pub use engine::{ClientEngine, Engine, ServerEngine};
pub use event::{
    ClientEvent, EngineEvent, Event, IncomingFlow, LeaveReason, OpenRequest, SendState, ServerEvent,
};
pub use loss::{LocalError, LossReason, ProtocolError};
pub use path::PathSummary;
pub use quictun_congestion::{Algorithm, ControllerView, PathMemory};
pub use quictun_flow::{
    Account, Allowance, AllowanceLimits, ClientUsage, ConnectionId, Ending, FlowId, FlowPlace,
    FlowRequest, FlowSummary, LocalLimit, Socket,
};
pub use revoke::{ClientCredentials, RequestedFlow};
pub use role::Role;
pub use server::Server;
pub use strangers::places_for_strangers;
pub use traffic::carrier_sockets::AcceptedTcp;
pub use traffic::listeners::OpenOutcome;
