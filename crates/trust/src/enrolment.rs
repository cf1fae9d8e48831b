//! How a client becomes known by an invitation (PROTOCOL section 5.7).
//!
//! ```text
//! `quictun invite`: Directory::invite ─► NAME.toml, pending ─┬─► Directory::enrol: NAME.toml with the client's key
//!        the code, to a person ───────────────┐              ├─► too late: no code leads to it any more
//!        `quictun join`: Secret::join ◄───────┘              └─► Directory::revoke: gone
//! ```
//!
//! A client that is invited, and the one that it becomes, is one file of the state directory. Storing the key and using
//! up the code are one rename of it, so that of several who have the code one wins, whatever dies at which moment.
//!
//! The code's secret is the seed of a signing key, of which the file has the public half only: who reads the file
//! cannot join. The signature names the client's key. So a server that has lost itself to an attacker can enrol nobody:
//! the [keeper](crate::keeper) checks the signature again.

mod attempt;
mod directory;
mod entry;
mod error;
#[cfg(test)]
mod tests;

pub use attempt::{Attempt, Secret};
pub use directory::{Directory, Enrolled, Invited};
pub use entry::{Entry, is_pending};
pub use error::{InviteError, Refused};

/// Most rules of an invitation: the client is told all of them in one frame.
pub const MAX_RULES: usize = quictun_wire::join::MAX_RULES;

/// Invitations that may be pending: more than a person has in view, and few enough to look at each time.
pub const MAX_PENDING: usize = 64;

/// Clients in the directory. A configuration of so many is the most that is read.
pub const MAX_CLIENTS: usize = 10_000;

/// Longest file of a client, bytes: 64 rules of the longest kind.
pub const MAX_ENTRY: u64 = 128 << 10;
