//! What passed through one direction.

/// Counts of one direction since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that arrived, super-packets as one.
    pub frames_in: u64,
    /// Packets on the wire that they stand for.
    pub segments_in: u64,
    /// Bytes of these packets, without the link's overhead.
    pub bytes_in: u64,
    /// Frames that left, super-packets as one.
    pub frames_out: u64,
    /// Packets on the wire that they stand for, copies included.
    pub segments_out: u64,
    /// Bytes of these packets.
    pub bytes_out: u64,
    /// Copies among these packets.
    pub copies_out: u64,
    /// Packets that are under way.
    pub under_way: u64,
    /// Packets that were dropped without the link having decided so.
    pub unintended: Unintended,
}

/// Drops that are the emulator's fault, or the host's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unintended {
    /// Frames that came faster than they were read.
    pub not_read: u64,
    /// Frames too long to be read, or that the kernel could not describe.
    pub not_readable: u64,
    /// Super-packets whose headers make no sense.
    pub malformed: u64,
    /// Packets for which there was no memory left: see [`crate::Plan`].
    pub over_limit: u64,
    /// Packets that the kernel did not take back.
    pub not_sent: u64,
    /// Frames that a device dropped on their way in or out.
    pub by_device: u64,
}

impl Unintended {
    /// All of them, and what each is called.
    pub fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("not read in time", self.not_read),
            ("not readable", self.not_readable),
            ("malformed", self.malformed),
            ("over the memory limit", self.over_limit),
            ("not sent", self.not_sent),
            ("dropped by a device", self.by_device),
        ]
    }

    /// How many.
    pub fn total(&self) -> u64 {
        self.named().iter().map(|(_, count)| count).sum()
    }
}
