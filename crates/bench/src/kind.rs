//! How calls are made, and where.

use crate::words::words;

words! {
    /// How calls are made.
    Kind {
        /// One call at a time, in shared memory, both sides asleep in between.
        Futex = "sync-futex",
        /// One call at a time, through the kernel.
        SeqPacket = "sync-seqpacket",
        Asynchronous = "async",
    }
}

words! {
    /// Where the two processes run.
    Placement {
        OneCore = "one core",
        TwoCores = "two cores",
    }
}
