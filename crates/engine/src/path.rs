//! What a caller should know of the network path before it lets packets gather.

use std::time::Duration;

/// The path of an engine's connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path {
    /// The least round-trip time that any of them has seen, where there is one.
    pub round_trip: Option<Duration>,
    /// Packets should not wait: flows open or move a little at a time, as applications do that talk to one another, or a
    /// connection looks for what its path carries, which a delay would end early.
    pub talk: bool,
}
