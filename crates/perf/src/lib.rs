//! Generates traffic for measurements: TCP, TLS, QUIC and UDP; streams, requests and connections. Every byte is
//! compared.
//!
//! A server ([`server::run`]) listens on one port. A client ([`client::run`]) sends it a [`Plan`] over a control
//! connection to that port, moves the bytes, and combines both ends' counts into a [`Report`]. The transports differ as
//! follows:
//!
//! | transport | data | threads at each end |
//! |---|---|---|
//! | TCP, TLS | connections to the same port, blocking calls of 128 KiB | one for each flow |
//! | QUIC | the tunnel's engine and UDP port; ALPN `perf` of draft-banks-quic-performance | one |
//! | UDP | numbered datagrams | one |
//!
//! Rates are those of the receiving application after the warm-up. Latencies of an open loop count from the time at
//! which a request was due. No data is compressed, guessed or skipped; `pattern` documents how bytes are compared.
#![forbid(unsafe_code)]

mod bulk;
mod channel;
pub mod client;
mod error;
mod exchange;
mod hello;
mod latency;
mod meter;
mod pace;
mod path;
mod pattern;
pub mod plan;
mod ports;
mod quic;
pub mod report;
pub mod server;
mod session;
mod stop;
mod threads;
mod trust;
mod udp;

pub use error::PerfError;
pub use latency::Latency;
pub use pace::UnansweredTransactions;
pub use path::Path;
pub use plan::{Amount, EventLoop, Mode, Plan, PlanError, Transport};
pub use report::Report;
pub use stop::Stop;
