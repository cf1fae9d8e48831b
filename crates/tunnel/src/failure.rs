//! The error type of a client or server process.

use std::io;

use quictun_io::crash::Crash;
use quictun_trust::access::AccessError;

/// The reason why a client or server ended, other than by one signal.
#[derive(Debug)]
pub enum Failure {
    /// Rules, clients or their secrets are invalid.
    Access(AccessError),
    /// The running process cannot be taken over. It goes on, and only a restart replaces it.
    NotTakenOver(anyhow::Error),
    /// A second signal interrupted the drain, on request.
    Interrupted,
    /// The program has a bug.
    Crashed(anyhow::Error),
    /// The environment caused the failure.
    Other(anyhow::Error),
}

impl Failure {
    /// Classifies the error of a failed worker.
    pub(crate) fn of_workers(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::Interrupted {
            return Self::Interrupted;
        }
        let crashed = Crash::of(&error).is_some();
        let error = anyhow::Error::new(error).context("a worker failed");
        if crashed {
            Self::Crashed(error)
        } else {
            Self::Other(error)
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

impl From<AccessError> for Failure {
    fn from(error: AccessError) -> Self {
        Self::Access(error)
    }
}
