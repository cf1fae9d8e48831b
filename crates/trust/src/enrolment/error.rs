//! Errors of inviting clients and of joining.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::{MAX_CLIENTS, MAX_PENDING, MAX_RULES};

/// The reason why a client cannot be invited or revoked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InviteError {
    /// The name cannot be the name of a client's file.
    #[error(transparent)]
    Name(#[from] quictun_wire::invitation::ContentError),
    /// The client has joined already.
    #[error("the client {0:?} has joined already: revoke it first, or choose another name")]
    Enrolled(String),
    /// The rule has characters that TOML would escape.
    #[error(
        "the rule {0:?} has a quotation mark, a backslash or a control character: write a [[client]] table for it"
    )]
    Rule(String),
    /// The invitation has more rules than one frame to the client can hold.
    #[error("{0} rules are too many: an invitation has at most {MAX_RULES}")]
    Rules(usize),
    /// A limit has no form in which the client's file can hold it.
    #[error(
        "the client's file cannot hold its limits: give a time of expiry before the year 9999, in whole seconds"
    )]
    Limits,
    /// Too many invitations are pending.
    #[error("{MAX_PENDING} invitations are pending: revoke those that are no longer needed")]
    Pending,
    /// The directory holds the most clients that it may.
    #[error("there are already {MAX_CLIENTS} clients: revoke those that are no longer needed")]
    Clients,
    /// The directory has neither a client nor an invitation of this name.
    #[error("no client or invitation has the name {0:?}")]
    UnknownName(String),
    /// The directory cannot be created, opened, locked or read, or the system gives no random numbers.
    #[error("cannot use the directory {}", .0.display())]
    Directory(PathBuf, #[source] io::Error),
    /// The client's file cannot be written.
    #[error("cannot write {}", .0.display())]
    Write(PathBuf, #[source] io::Error),
}

/// The reason why an attempt to join was refused, for the server's log. The client does not learn it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JoinRefusal {
    /// No invitation has this name.
    #[error("no invitation has this name: it was revoked, or never made")]
    Unknown,
    /// Another client has used the invitation.
    #[error(
        "the invitation has been used already, or an earlier client of this name was revoked and the server has not been reloaded since"
    )]
    Used,
    /// The signature was made with another secret.
    #[error("the code is not that of the invitation")]
    Wrong,
    /// The invitation has expired by the server's clock.
    #[error("the invitation has expired")]
    Late,
    /// The invitation's file was edited.
    #[error("the invitation's file was changed by hand: invite the client again")]
    Changed,
    /// The client has shown no certificate whose key could be stored.
    #[error("the client has not shown a certificate, so it has no key to store")]
    NoKey,
    /// The file system, or the process that writes to it, has failed. The code stays valid.
    #[error("the client's key cannot be stored")]
    Store(#[source] io::Error),
    /// The key is stored, but the running server cannot load it.
    #[error("the client's key is stored, but takes effect only when the server restarts")]
    NotInForce,
}
