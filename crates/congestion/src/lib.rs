//! Congestion control as an interface between the engine and quinn-proto.
//!
//! The engine sends only what a [`Gauge`] allows. A controller inside quinn-proto updates the gauge, but the library
//! itself does not enforce the controller's limits. The adapter reports a window that the library never fills, and the
//! engine holds data back before the data becomes packets. This has three advantages. The queue stays in the
//! application's socket, acknowledgements and probes can leave at any time, and pacing follows the controller's rate
//! rather than the library's.
//!
//! # Order of use
//!
//! 1. Create one [`Gauge::new`] for each connection. Pass it to [`QuinnController::factory`], together with the
//!    [`Ensemble`] of the peer.
//! 2. Before each batch, call [`Gauge::set_limited`] and [`Gauge::set_counting`]. Give each batch a send time that no
//!    other batch has.
//! 3. [`Gauge::limits`], [`Gauge::in_flight`] and [`Gauge::lost`] say what may be sent, and [`Pacer::allowance`] says
//!    how much may leave now.
//! 4. [`Gauge::resume_point`] and [`Gauge::reordering`] return what the next connection to the same peer may start
//!    with.
//!
//! [`TailRepeat`] and [`HandshakeCopies`] send a second copy of datagrams whose loss would make the application wait. A
//! [`PathMemory`] keeps what connections learn about paths, and holds one [`Ensemble`] for the connections to each
//! peer. [`Liveness`] decides whether the peer still answers.
//!
//! A [`Model`] does not depend on the library. `docs/CONGESTION.md` describes how [`Auto`] works. A sender without
//! quinn-proto reports its packets and asks for the limits:
//!
//! ```
//! use std::time::{Duration, Instant};
//!
//! use quictun_congestion::{Auto, Model as _};
//!
//! let sent = Instant::now();
//! let mut controller = Auto::new(sent, 1200);
//! assert!(controller.limits().window >= 1200, "the first packet may leave");
//! controller.on_sent(sent, 1200, false);
//!
//! let arrived = sent + Duration::from_millis(40);
//! controller.on_acked(arrived, sent, 1200);
//! controller.on_ack_end(arrived, 0);
//! let view = controller.view();
//! assert_eq!((view.min_rtt, view.phase), (Some(Duration::from_millis(40)), "startup"));
//! ```
//!
//! `cargo run -p quictun-congestion --example on_a_link` shows a controller that fills a link.
//!
//! # States
//!
//! [`ControllerView::phase`] names the phase of a controller. Those of [`Auto`] are:
//!
//! ```text
//!  startup ─► drain ─► cruise ─► up ─► down ─► cruise ─► …      every ten seconds: cruise ─► rest ─► cruise
//!     ▲                  │
//!     └── after probes that found more bandwidth
//! ```
//!
//! # What it does not do
//!
//! The crate sends nothing, reads no clock and sets no timers. It does not detect losses: the library declares packets
//! lost, and [`Reordering`] only adapts how late a packet may be. It limits neither memory nor the rates of
//! clients: that is the part of the crate `quictun-flow`.
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
pub use liveness::{LateAnswer, Liveness, Recovery, TimeoutAction};
pub use loss_based::LossBased;
pub use model::{ControllerView, Limits, Loss, Model};
pub use pacer::Pacer;
pub use path_memory::{NOTE_EVERY, PathKnowledge, PathMemory, PeerKey};
pub use quinn::QuinnController;
pub use reordering::Reordering;
pub use repeat::TailRepeat;
pub use resume::Resume;
