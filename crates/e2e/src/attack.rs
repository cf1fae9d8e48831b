//! Hostile clients and their cost to a server of this workspace. `quictun-attack` runs these attacks, and the tests run
//! smaller ones.
//!
//! A [`victim::Victim`] is a server with a memory budget, its honest client and their targets. A [`crowd::Crowd`] is
//! thousands of QUIC connections on one thread. [`session`] lets them do what no library does: withhold a byte
//! permanently, never acknowledge a packet, send any frame. Each attack is a function of a [`run::AttackRun`], which
//! watches the server's memory and stops an attack once it has proved its point. A [`tcp_crowd::TcpCrowd`] is thousands of
//! TCP connections on one thread, each of which sends any bytes in any pace, in TLS or without.
//!
//! The order of calls: `AttackRun::new`, an attack, `AttackRun::end`, which returns an [`outcome::AttackOutcome`].
//! [`matrix`] runs every attack with every budget.

pub mod crowd;
pub mod crowding;
pub mod dials;
pub mod fragments;
pub mod frame;
pub mod half_open;
pub mod held;
pub mod honest;
pub mod https;
pub mod https_session;
pub mod known;
pub mod matrix;
pub mod outcome;
pub mod peer;
pub mod process;
pub mod records;
pub mod run;
pub mod session;
pub mod sharing;
pub mod targets;
pub mod tcp_crowd;
pub mod tcp_peer;
pub mod tls_session;
pub mod unread;
pub mod victim;
