//! Why a process could not give something up.

use std::io;

use landlock::PathFdError;

/// Why something could not be given up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfineError {
    /// The system's.
    #[error("giving up rights: {0}")]
    Rights(#[from] io::Error),
    /// Landlock's.
    #[error("giving up files: {0}")]
    Files(#[from] landlock::RulesetError),
    /// A directory that would be kept.
    #[error("giving up files but for some: {0}")]
    Kept(#[from] PathFdError),
    /// Seccomp's.
    #[error("giving up system calls: {0}")]
    Calls(#[from] seccompiler::Error),
    /// No filter can be made for this processor.
    #[error("giving up system calls: {0}")]
    Filter(#[from] seccompiler::BackendError),
}
