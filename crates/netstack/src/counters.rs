//! What a stack has seen.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Malformed,
    Oversized,
    /// It is a part of a packet: who sends TCP through a device of ours has no reason to.
    Fragment,
    NotTcp,
    Checksum,
    Spoofed,
    TooManyFlows,
    NoMemory,
}

/// Totals since the stack was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames taken in.
    pub received: u64,
    /// Frames given out.
    pub sent: u64,
    /// Frames whose lengths or fields contradict each other.
    pub malformed: u64,
    /// Frames that are longer than an IP packet can be.
    pub oversized: u64,
    /// Frames that hold a part of a packet.
    pub fragments: u64,
    /// Frames that carry something else than TCP, and than datagrams that somebody wants.
    pub not_tcp: u64,
    /// Frames with a wrong checksum.
    pub bad_checksums: u64,
    /// Frames that nobody can have sent, or that nobody can be sent.
    pub spoofed: u64,
    /// Frames that would open one flow more than there may be.
    pub too_many_flows: u64,
    /// Frames that found no buffers; TCP repeats them.
    pub no_memory: u64,
    /// Segments that belong to no flow; each but a reset is answered with a reset.
    pub strays: u64,
    /// Answers that were dropped because nobody fetched those before.
    pub replies_dropped: u64,
    /// Datagrams that were dropped, either way, because nobody fetched those before.
    pub datagrams_dropped: u64,
    /// Flows offered.
    pub offered: u64,
    /// Flows whose hand-shake was completed.
    pub opened: u64,
    /// Flows that gave their buffers back for a while.
    pub slept: u64,
    /// Flows that exchanged small buffers for large ones.
    pub grown: u64,
}

impl Counters {
    pub(crate) fn refuse(&mut self, refusal: Refusal) {
        let counter = match refusal {
            Refusal::Malformed => &mut self.malformed,
            Refusal::Oversized => &mut self.oversized,
            Refusal::Fragment => &mut self.fragments,
            Refusal::NotTcp => &mut self.not_tcp,
            Refusal::Checksum => &mut self.bad_checksums,
            Refusal::Spoofed => &mut self.spoofed,
            Refusal::TooManyFlows => &mut self.too_many_flows,
            Refusal::NoMemory => &mut self.no_memory,
        };
        *counter += 1;
    }
}
