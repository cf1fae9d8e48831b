//! TLS connections of this crate with each other, and with rustls on the other end.

mod corpus;
mod foreign;
mod foreign_peer;
mod hostile;
mod key_update;
mod pairs;
