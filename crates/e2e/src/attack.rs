//! Hostile clients and what they cost a server of ours: what `quictun-attack` runs, and the tests in small.
//!
//! A [`ground::Ground`] is a server with a memory budget, an honest client of it and their targets. A
//! [`crowd::Crowd`] is thousands of QUIC connections on one thread; [`session`] lets them do what no library
//! does: withhold a byte for ever, never acknowledge one packet, send any frame. Each attack is a function of a
//! [`stage::Stage`], which watches the server's memory and stops an attack that has already shown its point.
//!
//! The order of calls: [`stage::Stage::new`], an attack, [`stage::Stage::end`], which gives an
//! [`outcome::Outcome`]. [`matrix`] does that for every attack and budget.

pub mod crowd;
pub mod crowding;
pub mod dials;
pub mod fragments;
pub mod frame;
pub mod ground;
pub mod held;
pub mod honest;
pub mod matrix;
pub mod outcome;
pub mod peer;
pub mod process;
pub mod session;
pub mod stage;
pub mod targets;
pub mod unread;
