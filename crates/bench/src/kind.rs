//! How calls are made, and where.

/// How calls are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Asynchronous,
    /// One call at a time, in shared memory, both sides asleep in between.
    Futex,
    /// One call at a time, through the kernel.
    SeqPacket,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Futex, Self::SeqPacket, Self::Asynchronous];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Asynchronous => "async",
            Self::Futex => "sync-futex",
            Self::SeqPacket => "sync-seqpacket",
        }
    }
}

/// Where the two processes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    OneCore,
    TwoCores,
}

impl Placement {
    pub(crate) const ALL: [Self; 2] = [Self::OneCore, Self::TwoCores];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::OneCore => "one core",
            Self::TwoCores => "two cores",
        }
    }
}
