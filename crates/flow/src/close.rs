//! How a direction, and how a whole flow, ends.

use quictun_wire::code::FlowCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Bytes may still come.
    Open,
    /// Ended by FIN, and the FIN was passed on.
    Finished,
    /// Cut: nothing more is read from its source.
    Closed,
}

/// How a whole flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Both directions by FIN.
    Finished,
    /// The application reset its connection, or it failed.
    AppReset,
    /// The peer cut it, with this code where it is known to us.
    PeerReset(Option<FlowCode>),
    /// We refused or abandoned it.
    Abandoned(FlowCode),
    /// It waited for a connection to the peer, and none came about in time.
    NoConnection,
}
