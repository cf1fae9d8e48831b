//! Reverse forwards: the server listens for its clients (PROTOCOL section 5.9).
//!
//! ```text
//! LISTEN ─► a worker judges it ─► Holders::ask ─┬─► held already: this worker watches the listener from now on
//!                                               ├─► refused
//!                                               └─► Request::Listen ─► the keeper binds ─► ServerMessage::Bound
//! ```
//!
//! A listener belongs to the client, whichever worker has its connection. [`holders`] is the table of all workers that
//! says which one accepts. [`bind`] makes listeners. The code of a server's worker is in `listen_requests.rs`,
//! `listeners.rs` and `incoming.rs` of `server_worker`, the client's part in `client_worker/reverse.rs`.

pub(crate) mod bind;
pub(crate) mod holders;
