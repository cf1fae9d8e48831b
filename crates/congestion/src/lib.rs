//! Congestion control behind one seam.
//!
//! The engine sends what a [`Gauge`] allows. A controller inside quinn-proto feeds the gauge, but is not
//! obeyed by the library: the adapter reports a window the library never fills, and the engine holds
//! data back itself, before it becomes packets. That keeps the queue in the application's socket, lets
//! acknowledgements and probes pass at any time, and paces by the controller's rate rather than the
//! library's.
//!
//! # Order of use
//!
//! 1. [`Gauge::new`], for every connection of its own, then [`QuinnController::factory`] with it and with the [`Ensemble`]
//!    of its peer.
//! 2. While sending: [`Gauge::set_limited`] and [`Gauge::set_counting`] before each batch, and a time for
//!    it that no other batch has.
//! 3. [`Gauge::limits`], [`Gauge::in_flight`] and [`Gauge::lost`] say what may be sent, [`Pacer::allowance`] how much now.
//! 4. [`Gauge::resume_point`] and [`Gauge::reordering`] are what the next connection to the same peer may begin with.
//!
//! [`Repeat`] and [`HandshakeCopies`] send a second time what is likely to be lost and waited for; a [`PathMemory`] keeps
//! what connections learn of paths, and has an [`Ensemble`] for those to one peer; [`Liveness`] tells whether the peer
//! still answers.
//!
//! A [`Model`] knows nothing of the library; `docs/CONGESTION.md` tells how [`Auto`] works.
#![forbid(unsafe_code)]

mod algorithm;
mod auto;
mod bytes;
mod curve;
mod ensemble;
mod fixed;
mod gauge;
mod handshake_copies;
mod liveness;
mod loss_based;
mod model;
mod pacer;
mod path_memory;
mod quinn;
mod reordering;
mod repeat;
mod resume;
mod sampler;

pub use algorithm::Algorithm;
pub use auto::Auto;
pub use ensemble::{Ensemble, Member};
pub use fixed::Fixed;
pub use gauge::Gauge;
pub use handshake_copies::HandshakeCopies;
pub use liveness::{Back, Liveness, Verdict};
pub use loss_based::LossBased;
pub use model::{Limits, Loss, Model, View};
pub use pacer::Pacer;
pub use path_memory::{Known, NOTE_EVERY, PathMemory, Peer};
pub use quinn::QuinnController;
pub use reordering::Reordering;
pub use repeat::Repeat;
pub use resume::Resume;
