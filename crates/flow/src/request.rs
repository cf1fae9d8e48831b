//! The request for a flow, as a client makes it.

use std::net::SocketAddr;

/// The parameters of a flow that a client opens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowRequest {
    /// The token or target that is sent to the server.
    pub token: String,
    /// The application's name in reports.
    pub client_app: String,
    /// The address from which the application has connected, if the server is to learn it (PROTOCOL section 5.10).
    pub source: Option<SocketAddr>,
}
