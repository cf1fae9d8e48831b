//! Errors of confining a process.

use std::io;

use landlock::PathFdError;

/// The reason why a process could not drop a right.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfineError {
    /// A capability could not be dropped, or a flag of the process could not be set.
    #[error("cannot drop rights: {0}")]
    Rights(#[from] io::Error),
    /// Landlock refused the rules.
    #[error("cannot restrict file access: {0}")]
    Files(#[from] landlock::RulesetError),
    /// Landlock could not open a path that should stay accessible.
    #[error("cannot keep access to a path: {0}")]
    Path(#[from] PathFdError),
    /// Seccomp refused the filter.
    #[error("cannot filter system calls: {0}")]
    Calls(#[from] seccompiler::Error),
    /// A filter cannot be made for this processor.
    #[error("cannot filter system calls: {0}")]
    Filter(#[from] seccompiler::BackendError),
}
