//! Why a flow is refused.

use std::net::IpAddr;

use quictun_wire::target::Target;
use thiserror::Error;

use super::closed::Closed;

/// Why a flow is refused. Each message says what would allow it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Denied {
    /// Open mode, Unix socket.
    #[error(
        "Unix sockets are closed to clients without a name: start the server with --allow-unix, or name the client and give it the rule {rule:?}"
    )]
    Unix {
        /// The rule that would allow it to a named client.
        rule: String,
    },
    /// Open mode, link-local address.
    #[error(
        "link-local addresses such as {addr} are closed to clients without a name: start the server with --allow-link-local, or name the client and give it the rule {rule:?}"
    )]
    LinkLocal {
        /// The address that was to be dialled.
        addr: IpAddr,
        /// The rule that would allow it to a named client.
        rule: String,
    },
    /// Open mode, another closed address.
    #[error(
        "{addr} is closed to clients without a name, because it is {closed}: name the client and give it the rule {rule:?}"
    )]
    Closed {
        /// The address that was to be dialled.
        addr: IpAddr,
        /// Why it is closed.
        closed: Closed,
        /// The rule that would allow it to a named client.
        rule: String,
    },
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
        "the client is none that the server knows: give it the key or secret of a named client that has the rule {rule:?}"
    )]
    UnknownClient {
        /// The rule that the client would need.
        rule: String,
    },
    /// No rule names the target.
    #[error("the client {client:?} has no rule for {target}: {rule:?} would allow it")]
    NoRule {
        /// Who asked.
        client: String,
        /// For what.
        target: Target,
        /// The rule that would allow it.
        rule: String,
    },
    /// A name, where all rules are addresses, networks and Unix sockets.
    #[error(
        "the client {client:?} has rules for addresses only, and {target} is not looked up for it: {rule:?} would allow it"
    )]
    NoNames {
        /// Who asked.
        client: String,
        /// For what.
        target: Target,
        /// The rule that would allow it.
        rule: String,
    },
    /// No rule names the address behind the target's name.
    #[error("the client {client:?} has no rule for {target} at {addr}: {rule:?} would allow it")]
    NoRuleForAddr {
        /// Who asked.
        client: String,
        /// For what.
        target: Target,
        /// Where the name leads.
        addr: IpAddr,
        /// The rule that would allow it.
        rule: String,
    },
    /// A closed address that no rule names itself.
    #[error(
        "{target} leads to {addr}, which is {closed} and not reached by a name, a wildcard or a wide network: {rule:?} would allow it to the client {client:?}"
    )]
    ClosedByName {
        /// Who asked.
        client: String,
        /// For what.
        target: Target,
        /// Where it leads.
        addr: IpAddr,
        /// Why that is closed.
        closed: Closed,
        /// The rule that would allow it.
        rule: String,
    },
    /// The Unix socket of this server's HTTP interface, without a rule for exactly that path.
    #[error(
        "{target} is this server's own HTTP interface and not reached by a wildcard: {rule:?} would allow it to the client {client:?}"
    )]
    ClosedPathByWildcard {
        /// Who asked.
        client: String,
        /// For what.
        target: Target,
        /// The rule that would allow it.
        rule: String,
    },
    /// A wildcard lets any name in, and this one leads into the server's own or a private network.
    #[error(
        "{target} leads to {addr}, and a wildcard opens no loopback or private address to names: {rule:?} would allow it to the client {client:?}"
    )]
    InternalByWildcard {
        /// Who asked.
        client: String,
        /// For what.
        target: Target,
        /// Where the name leads.
        addr: IpAddr,
        /// The rule that would allow it.
        rule: String,
    },
    /// A path that could climb out of the directory that a rule opens.
    #[error(
        "{target} holds '.', '..' or a doubled slash and so is matched by no directory rule: {rule:?} would allow it to the client {client:?}"
    )]
    CrookedPath {
        /// Who asked.
        client: String,
        /// For what.
        target: Target,
        /// The rule that would allow it.
        rule: String,
    },
}
