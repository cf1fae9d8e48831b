//! Reasons for refusing a flow.

use std::net::IpAddr;

use quictun_wire::target::Target;
use thiserror::Error;

use super::closed::ClosedReason;

/// A refused request of a named client, and the rule that would allow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedRequest {
    /// The name of the client that made the request.
    pub client: String,
    /// The target that the client asked for.
    pub target: Target,
    /// A rule that would allow the target.
    pub rule: String,
}

/// The reason for refusing a flow. Each message says what would allow the flow.
///
/// An `IpAddr` is the address that would have been dialled. A `String` is the rule that would allow the target to a
/// named client.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AccessDenied {
    /// In open mode, the target is a Unix socket.
    #[error(
        "Unix sockets are closed to clients without a name: start the server with --allow-unix, or name the client and give it the rule {0:?}"
    )]
    Unix(String),
    /// In open mode, the target is a UDP port.
    #[error("UDP is closed to clients without a name: name the client and give it the rule {0:?}")]
    Datagrams(String),
    /// In open mode, the target leads to a link-local address.
    #[error(
        "link-local addresses such as {0} are closed to clients without a name: start the server with --allow-link-local, or name the client and give it the rule {1:?}"
    )]
    LinkLocal(IpAddr, String),
    /// In open mode, the target leads to another closed address.
    #[error(
        "{0} is closed to clients without a name, because it is {1}: name the client and give it the rule {2:?}"
    )]
    Closed(IpAddr, ClosedReason, String),
    /// In open mode, the target is the Unix socket of this server's HTTP interface.
    #[error(
        "{path} is this server's own HTTP interface: name the client and give it the rule {rule:?}"
    )]
    ClosedPath {
        /// The path as the client asked for it.
        path: String,
        /// A rule that would allow the path to a named client.
        rule: String,
    },
    /// The client has not proven that it is one of the named clients.
    #[error(
        "the server does not know this client: give it the key or secret of a named client that has the rule {0:?}"
    )]
    UnknownClient(String),
    /// No rule of the client names the target.
    #[error("the client {:?} has no rule for {}: {:?} would allow it", .0.client, .0.target, .0.rule)]
    NoRule(DeniedRequest),
    /// The target is a host name, but all rules of the client are addresses, networks and Unix sockets.
    #[error(
        "the client {:?} has rules for addresses only, and {} is not looked up for it: {:?} would allow it",
        .0.client, .0.target, .0.rule
    )]
    NoNames(DeniedRequest),
    /// No rule of the client names the address to which the target's name resolves.
    #[error("the client {:?} has no rule for {} at {}: {:?} would allow it", .0.client, .0.target, .1, .0.rule)]
    NoRuleForAddr(DeniedRequest, IpAddr),
    /// The target leads to a closed address, and no rule names that address itself.
    #[error(
        "{} leads to {}, which is {}, and no name, wildcard or wide network opens it: {:?} would allow it to the client {:?}",
        .0.target, .1, .2, .0.rule, .0.client
    )]
    ClosedByName(DeniedRequest, IpAddr, ClosedReason),
    /// The target is the Unix socket of this server's HTTP interface, and no rule names exactly that path.
    #[error(
        "{} is this server's own HTTP interface, and no wildcard opens it: {:?} would allow it to the client {:?}",
        .0.target, .0.rule, .0.client
    )]
    ClosedPathByWildcard(DeniedRequest),
    /// Only a wildcard allows the target's name, and the name leads to the server itself or into a private network.
    #[error(
        "{} leads to {}, and a wildcard opens no loopback or private address to names: {:?} would allow it to the client {:?}",
        .0.target, .1, .0.rule, .0.client
    )]
    InternalByWildcard(DeniedRequest, IpAddr),
    /// The path could climb out of the directory that a rule opens.
    #[error(
        "{} contains '.', '..' or a doubled slash, so no directory rule matches it: {:?} would allow it to the client {:?}",
        .0.target, .0.rule, .0.client
    )]
    NonCanonicalPath(DeniedRequest),
}
