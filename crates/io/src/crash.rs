//! Abnormal exits after which a restart is safe: neither a wrong configuration nor an obstacle outside the program
//! caused them.

use std::error::Error;
use std::io;

/// A fault of the program itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Crash {
    /// One of the program's threads has panicked.
    #[error("a thread panicked: please report this as a bug")]
    Panic,
    /// The two processes of a TUN device cannot understand each other, or the other process is gone.
    #[error("the network stack process is gone or sent invalid data")]
    Netstack,
    /// The process that reopens files for the confined process is gone.
    #[error("the process that opens files again, quictun-keeper, has died")]
    Keeper,
}

impl Crash {
    /// Finds the crash that caused `error`, in the error or its chain of sources.
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(cause) = next {
            let inner = cause
                .downcast_ref::<io::Error>()
                .and_then(io::Error::get_ref);
            if let Some(crash) = inner.and_then(|inner| inner.downcast_ref()) {
                return Some(*crash);
            }
            next = cause.source();
        }
        None
    }
}

impl From<Crash> for io::Error {
    fn from(crash: Crash) -> Self {
        Self::other(crash)
    }
}
