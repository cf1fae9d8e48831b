//! Why a flow is refused.

use std::net::IpAddr;

use quictun_wire::target::Target;
use thiserror::Error;

use super::closed::Closed;

/// A request of a named client, and what would allow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The name of the client.
    pub client: String,
    /// The target that it asked for.
    pub target: Target,
    /// The rule that would allow it.
    pub rule: String,
}

/// Why a flow is refused. Each message says what would allow it.
///
/// An address is the one that was to be dialled. A bare text is the rule that would allow the target to a named client.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Denied {
    /// Open mode, Unix socket.
    #[error(
        "Unix sockets are closed to clients without a name: start the server with --allow-unix, or name the client and give it the rule {0:?}"
    )]
    Unix(String),
    /// Open mode, link-local address.
    #[error(
        "link-local addresses such as {0} are closed to clients without a name: start the server with --allow-link-local, or name the client and give it the rule {1:?}"
    )]
    LinkLocal(IpAddr, String),
    /// Open mode, another closed address.
    #[error(
        "{0} is closed to clients without a name, because it is {1}: name the client and give it the rule {2:?}"
    )]
    Closed(IpAddr, Closed, String),
    /// Open mode, the Unix socket of this server's HTTP interface.
    #[error(
        "{path} is this server's own HTTP interface: name the client and give it the rule {rule:?}"
    )]
    ClosedPath {
        /// The path as asked for.
        path: String,
        /// The rule that would allow it to a named client.
        rule: String,
    },
    /// The client has not proven to be anyone.
    #[error(
        "the client is none that the server knows: give it the key or secret of a named client that has the rule {0:?}"
    )]
    UnknownClient(String),
    /// No rule names the target.
    #[error("the client {:?} has no rule for {}: {:?} would allow it", .0.client, .0.target, .0.rule)]
    NoRule(Denial),
    /// A name, where all rules are addresses, networks and Unix sockets.
    #[error(
        "the client {:?} has rules for addresses only, and {} is not looked up for it: {:?} would allow it",
        .0.client, .0.target, .0.rule
    )]
    NoNames(Denial),
    /// No rule names the address behind the target's name.
    #[error("the client {:?} has no rule for {} at {}: {:?} would allow it", .0.client, .0.target, .1, .0.rule)]
    NoRuleForAddr(Denial, IpAddr),
    /// A closed address that no rule names itself.
    #[error(
        "{} leads to {}, which is {} and not reached by a name, a wildcard or a wide network: {:?} would allow it to the client {:?}",
        .0.target, .1, .2, .0.rule, .0.client
    )]
    ClosedByName(Denial, IpAddr, Closed),
    /// The Unix socket of this server's HTTP interface, without a rule for exactly that path.
    #[error(
        "{} is this server's own HTTP interface and not reached by a wildcard: {:?} would allow it to the client {:?}",
        .0.target, .0.rule, .0.client
    )]
    ClosedPathByWildcard(Denial),
    /// A wildcard lets any name in, and this one leads into the server's own or a private network.
    #[error(
        "{} leads to {}, and a wildcard opens no loopback or private address to names: {:?} would allow it to the client {:?}",
        .0.target, .1, .0.rule, .0.client
    )]
    InternalByWildcard(Denial, IpAddr),
    /// A path that could climb out of the directory that a rule opens.
    #[error(
        "{} holds '.', '..' or a doubled slash and so is matched by no directory rule: {:?} would allow it to the client {:?}",
        .0.target, .0.rule, .0.client
    )]
    CrookedPath(Denial),
}
