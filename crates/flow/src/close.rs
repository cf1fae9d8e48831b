//! The ways in which a direction, and a whole flow, can end.

use quictun_wire::code::FlowCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirectionState {
    /// More bytes may follow.
    Open,
    /// The source ended with a FIN, and the FIN was passed on.
    Finished,
    /// The direction was cut: nothing more is read from its source.
    Closed,
}

/// The way in which a whole flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Both directions ended with a FIN.
    Finished,
    /// The application reset its connection, or the socket failed.
    AppReset,
    /// The peer reset or stopped the stream. The code is `None` if this version does not know it.
    PeerReset(Option<FlowCode>),
    /// This side refused or abandoned the flow.
    Abandoned(FlowCode),
    /// The flow waited for a connection to the peer, and none was established in time.
    NoConnection,
}
