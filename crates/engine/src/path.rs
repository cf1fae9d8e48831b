//! Properties of the path that decide whether packets may be gathered. `io::gather` reads them.

use std::time::Duration;

/// The combined path of an engine's connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathSummary {
    /// The lowest round-trip time of all connections, if there is one.
    pub round_trip: Option<Duration>,
    /// True if packets should leave one by one. Either a connection still searches for the path's bandwidth, and a
    /// delay would end the search. Or other flows keep a queue full, which drops most of a burst.
    pub send_at_once: bool,
}
