//! Makes a client known to the server by an invitation (PROTOCOL section 5.7).
//!
//! ```text
//! `quictun invite`: Directory::invite ─► NAME.toml, pending ─┬─► Directory::enrol: NAME.toml with the client's key
//!        the code, to a person ───────────────┐              ├─► expired: no code refers to it any more
//!        `quictun join`: Secret::join ◄───────┘              └─► Directory::revoke: removed
//! ```
//!
//! An invited client and the enrolled client that it becomes are the same file of the state directory. One rename of
//! that file both stores the key and uses up the code. If several clients have the code, exactly one of them joins,
//! even if a process dies at any moment.
//!
//! The code's secret is the seed of a signing key. The file holds only the public half of that key, so reading the file
//! is not enough to join. The signature covers the client's key. A server that an attacker has taken over can therefore
//! enrol no client, because the [keeper](crate::keeper) checks the signature itself.

mod attempt;
mod directory;
mod entry;
mod error;
pub(crate) mod limit_lines;
#[cfg(test)]
mod tests;

pub use attempt::{InviteSecret, JoinAttempt};
pub use directory::{Directory, Enrolment, NewInvitation, NewLogin, StateFile};
pub use entry::{Entry, is_pending};
pub use error::{InviteError, JoinRefusal};

/// Largest number of rules in an invitation: one frame carries all of them to the client.
pub const MAX_RULES: usize = quictun_wire::join::MAX_RULES;

/// Maximum number of pending invitations: more than a person keeps track of, and few enough to read them all for each
/// new one.
pub const MAX_PENDING: usize = 64;

/// Maximum number of clients in the directory. A configuration may have the same number.
pub const MAX_CLIENTS: usize = 10_000;

/// Longest file of a client, bytes: it has room for 64 rules of the longest kind.
pub const MAX_ENTRY: u64 = 128 << 10;
