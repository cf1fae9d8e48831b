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
//! 1. [`Gauge::new`], then [`QuinnController::factory`] with it, for every connection of its own.
//! 2. While sending: [`Gauge::set_counting`] before each batch, [`Gauge::set_window_limited`] whenever
//!    data had to wait for the window.
//! 3. [`Gauge::window`], [`Gauge::in_flight`] and [`Gauge::lost`] say what may be sent.
//!
//! A [`Model`] knows nothing of the library: [`Auto`], [`LossBased`], [`Fixed`].
#![forbid(unsafe_code)]

mod auto;
mod bytes;
mod curve;
mod fixed;
mod gauge;
mod loss_based;
mod model;
mod quinn;
mod sampler;

pub use auto::Auto;
pub use fixed::Fixed;
pub use gauge::Gauge;
pub use loss_based::LossBased;
pub use model::{Limits, Loss, Model, View};
pub use quinn::QuinnController;

/// The controllers there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// CUBIC (RFC 9438), quinn-proto's.
    #[default]
    Cubic,
    /// `NewReno` (RFC 9002 section 7), quinn-proto's.
    NewReno,
}
