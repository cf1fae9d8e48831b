//! Dials: what happens when a host dials a target.

use std::time::Duration;

use quictun_wire::code::FlowCode;

/// The result of a dial to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulatedDial {
    /// The dial succeeds after a while.
    Connects {
        /// Duration of the dial.
        after: Duration,
    },
    /// The dial fails after a while.
    Fails {
        /// Duration of the dial.
        after: Duration,
        /// The reason for the failure.
        code: FlowCode,
    },
    /// The target never answers; the dial fails with a timeout.
    Never,
}

impl SimulatedDial {
    /// Returns a dial that succeeds at once.
    pub fn connects() -> Self {
        Self::Connects {
            after: Duration::ZERO,
        }
    }

    /// Returns a dial that is refused at once.
    pub fn refused() -> Self {
        Self::Fails {
            after: Duration::ZERO,
            code: FlowCode::Refused,
        }
    }
}
