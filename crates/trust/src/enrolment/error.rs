//! Errors of inviting and of joining.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::{MAX_CLIENTS, MAX_PENDING, MAX_RULES};

/// Why a client cannot be invited, or be taken back.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InviteError {
    /// The name is none that a file could have.
    #[error(transparent)]
    Name(#[from] quictun_wire::invitation::ContentError),
    /// The client has joined already.
    #[error("the client {0:?} has joined already: revoke it first, or choose another name")]
    Enrolled(String),
    /// A rule with characters that TOML writes in another way.
    #[error(
        "the rule {0:?} has a quotation mark, a backslash or a control character: write a [[client]] table for it"
    )]
    Rule(String),
    /// More rules than the client could be told.
    #[error("{0} rules are too many for an invitation: it has {MAX_RULES} at most")]
    Rules(usize),
    /// Too many invitations are pending.
    #[error("{MAX_PENDING} invitations are pending: revoke those that are not needed any more")]
    Pending,
    /// Too many clients.
    #[error("there are {MAX_CLIENTS} clients already")]
    Clients,
    /// No client and no invitation has this name.
    #[error("no client of the name {0:?} has been invited")]
    Nobody(String),
    /// The disk.
    #[error("cannot use the directory {}", .0.display())]
    Directory(PathBuf, #[source] io::Error),
    /// The disk.
    #[error("cannot write {}", .0.display())]
    Write(PathBuf, #[source] io::Error),
}

/// Why an attempt to join was refused: for the server's log. The client is not told which of them it was.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Refused {
    /// There is no invitation of this name.
    #[error("no invitation has this name: it was revoked, or never made")]
    Unknown,
    /// A client has used the invitation.
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
    /// The client shows no certificate whose key could be stored.
    #[error("the client shows no key")]
    NoKey,
    /// The disk, or the process that writes to it. The code is still good.
    #[error("the client's key cannot be stored")]
    Store(#[source] io::Error),
    /// The key is stored, and the running server cannot take it.
    #[error("the client's key is stored, and comes into force when the server is started again")]
    NotInForce,
}
