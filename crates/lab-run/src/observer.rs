//! What every cell is observed with.

use crate::client::Patience;
use crate::processors::HostThreads;

/// Waits for the programs of cells, and sees the kernel's threads meanwhile.
#[derive(Debug)]
pub(crate) struct Observer {
    pub(crate) patience: Patience,
    pub(crate) host: HostThreads,
}
