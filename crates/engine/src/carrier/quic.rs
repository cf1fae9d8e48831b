//! QUIC as a carrier. Only this module and the adapter of the congestion controller know the library, quinn-proto.
//!
//! An [`Endpoint`] makes the [`QuicCarrier`]s, and passes each its datagrams.

mod bounded_handshake;
mod cid;
mod config;
mod connection;
mod credit;
mod datagrams;
mod endpoint;
mod loss;
mod peer_questions;
mod responses;
mod sending;
mod settings;
mod stream;
mod trace;

pub use cid::{asks_for_bond, worker_of};
pub(crate) use config::Setup;
pub(crate) use connection::{Packet, QuicCarrier};
pub(crate) use endpoint::{Arrival, Endpoint, Newcomer, Route};
pub(crate) use sending::BATCH_MAX;
pub(crate) use settings::{ClientCrypto, ServerSettings};
pub(crate) use stream::QuicStream;
