//! TLS connections of this crate with each other, and with rustls on the other end.

mod foreign;
mod foreign_peer;
mod hostile;
mod key_update;
mod pairs;
