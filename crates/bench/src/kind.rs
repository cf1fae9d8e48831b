//! The kinds of calls, and the cores that they run on.

use crate::words::words;

words! {
    /// The way in which calls are made.
    Kind {
        /// One call at a time in shared memory; both sides sleep in between.
        Futex = "sync-futex",
        /// One call at a time, through the kernel.
        SeqPacket = "sync-seqpacket",
        Asynchronous = "async",
    }
}

words! {
    /// The cores on which the two processes run.
    Placement {
        OneCore = "one core",
        TwoCores = "two cores",
    }
}
