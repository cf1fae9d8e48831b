//! Ends that were not asked for. Such a process may be started again: it was asked for nothing impossible, and
//! nothing of the world stands in its way.

use std::error::Error;
use std::io;

/// A fault of the program itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Crash {
    /// One of its threads has panicked.
    #[error("it panicked: please report this as a bug")]
    Panic,
    /// The two processes of a device do not understand each other, or the other one is gone.
    #[error("the process with the network stack is of no use any more")]
    Netstack,
    /// The process that opens files for the other is gone.
    #[error("the process that opens files again, quictun-keeper, has died")]
    Keeper,
}

impl Crash {
    /// The one that an error tells of, if it does.
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
