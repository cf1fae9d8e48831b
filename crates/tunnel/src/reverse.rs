//! Reverse forwards: the server listens for its clients (PROTOCOL section 5.9).
//!
//! ```text
//! LISTEN ─► a worker judges it ─► Holders::ask ─┬─► held already: this worker watches the listener from now on
//!                                               ├─► refused
//!                                               └─► Request::Listen ─► the keeper binds ─► Message::Bound
//! ```
//!
//! A listener is the client's, wherever its connection is: [`holders`] joins all workers, and says which one accepts.
//! [`bind`] makes listeners. What a server's worker does with them is in `server_duty/listeners.rs` and `server_duty/incoming.rs`, the client's part
//! in `client_duty/reverse.rs`.

pub(crate) mod bind;
pub(crate) mod holders;
