//! The request for a flow, as a client makes it.

use std::net::SocketAddr;

/// The wish for a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowRequest {
    /// Token or target.
    pub token: String,
    /// The application, as reports name it.
    pub client_app: String,
    /// The address from which the application has connected, where the server is to be told (PROTOCOL section 5.10).
    pub source: Option<SocketAddr>,
}
