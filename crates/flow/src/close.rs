//! The ways in which a direction, and a whole flow, can end.

use quictun_wire::code::{CloseCode, FlowCode};

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
    /// The peer refused to open the flow, or to continue it on another connection.
    PeerRefused(FlowCode),
    /// The peer closed the connection that carried the flow, for this reason.
    PeerClosed(CloseCode),
    /// This side refused or abandoned the flow.
    Abandoned(FlowCode),
    /// This side refused or abandoned the flow, because it has reached a limit of its own.
    LimitReached(LocalLimit),
    /// The flow waited for a connection to the peer, and none was established in time.
    NoConnection,
}

/// A limit of this side that ends flows, or keeps them from being opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalLimit {
    /// There is no memory for another flow.
    Memory,
    /// Client: the largest number of flows wait for a connection to the server.
    WaitingFlows,
    /// The flow waited for another connection, as did too many flows of the same client.
    DetachedFlows,
    /// The flow waited for another connection when memory got short.
    DetachedMemory,
    /// The client did not answer, and the flow gave way to another one that the client opened at a limit.
    GaveWay,
    /// Received data of the flow takes more memory than the credit of the peer permits.
    ReceivedPieces,
}

impl Ending {
    /// Returns the code that tells the peer why the flow has ended.
    pub fn code(self) -> FlowCode {
        match self {
            Self::Finished | Self::AppReset | Self::PeerReset(None) => FlowCode::AppReset,
            Self::PeerReset(Some(code)) | Self::PeerRefused(code) | Self::Abandoned(code) => code,
            Self::LimitReached(_) => FlowCode::Limit,
            // There is no stream that could carry a code.
            Self::NoConnection | Self::PeerClosed(_) => FlowCode::ConnectionLost,
        }
    }
}

impl From<FlowCode> for Ending {
    fn from(code: FlowCode) -> Self {
        Self::Abandoned(code)
    }
}

impl From<LocalLimit> for Ending {
    fn from(limit: LocalLimit) -> Self {
        Self::LimitReached(limit)
    }
}
