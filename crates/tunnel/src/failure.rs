//! Why a client or server has ended, other than by one signal.

use std::io;

use quictun_io::crash::Crash;
use quictun_trust::access::AccessError;

/// Why a client or server has ended, other than by one signal.
#[derive(Debug)]
pub enum Failure {
    /// Rules, clients or their secrets cannot be used.
    Access(AccessError),
    /// A second signal cut the drain short: that was asked for.
    Interrupted,
    /// A fault of the program itself.
    Crashed(anyhow::Error),
    /// Something of the world stood in the way.
    Other(anyhow::Error),
}

impl Failure {
    /// The end of the workers that failed.
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
