//! The stack's counters, and the reasons for refusing a frame.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketRefusal {
    Malformed,
    Oversized,
    /// The frame holds a fragment of TCP, which programs have no reason to cut, or one that continues no datagram.
    Fragment,
    NotTcp,
    Checksum,
    Spoofed,
    TooManyFlows,
    NoMemory,
}

/// Totals since the stack was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that the stack received.
    pub received: u64,
    /// Frames that the stack sent.
    pub sent: u64,
    /// Frames whose lengths or fields contradict each other.
    pub malformed: u64,
    /// Frames that are longer than an IP packet can be.
    pub oversized: u64,
    /// Frames that hold a fragment of TCP, or of a datagram whose other fragments are missing.
    pub fragments: u64,
    /// Frames that carry neither TCP nor UDP.
    pub not_tcp: u64,
    /// Frames with a wrong checksum.
    pub bad_checksums: u64,
    /// Frames with an address or port that is not valid for a sender or a receiver.
    pub spoofed: u64,
    /// Frames that would open more flows than allowed.
    pub too_many_flows: u64,
    /// Frames for which there were no buffers; TCP retransmits them.
    pub no_memory: u64,
    /// Segments that belong to no flow. Each of them except a reset is answered with a reset.
    pub strays: u64,
    /// Replies dropped because too many earlier ones were waiting to be sent, or had been sent.
    pub replies_dropped: u64,
    /// Datagrams dropped in either direction because too many earlier ones were waiting.
    pub datagrams_dropped: u64,
    /// Flows offered to the user.
    pub offered: u64,
    /// Flows that completed their handshake.
    pub opened: u64,
    /// Times that a flow returned its buffers to sleep.
    pub slept: u64,
    /// Times that a flow exchanged small buffers for large ones.
    pub grown: u64,
}

impl Counters {
    pub(crate) fn refuse(&mut self, refusal: PacketRefusal) {
        let counter = match refusal {
            PacketRefusal::Malformed => &mut self.malformed,
            PacketRefusal::Oversized => &mut self.oversized,
            PacketRefusal::Fragment => &mut self.fragments,
            PacketRefusal::NotTcp => &mut self.not_tcp,
            PacketRefusal::Checksum => &mut self.bad_checksums,
            PacketRefusal::Spoofed => &mut self.spoofed,
            PacketRefusal::TooManyFlows => &mut self.too_many_flows,
            PacketRefusal::NoMemory => &mut self.no_memory,
        };
        *counter += 1;
    }
}
