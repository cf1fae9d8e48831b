//! The facts of a path that decide whether packets may gather. `io::gather` reads them.

use std::time::Duration;

/// The path of an engine's connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path {
    /// The least round-trip time that any of them has seen, where there is one.
    pub round_trip: Option<Duration>,
    /// Packets should leave one by one: a connection still looks for the path's bandwidth, and a delay would end its search;
    /// or others keep a queue full, which drops most of what comes at once.
    pub hasty: bool,
}
