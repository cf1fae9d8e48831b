//! Counters of the traffic of one direction.

/// Counts of one direction since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficCounts {
    /// Frames that arrived. A super-packet counts as one frame.
    pub frames_in: u64,
    /// Packets on the wire that the arrived frames stand for.
    pub segments_in: u64,
    /// Bytes of the arrived packets, without the link's overhead.
    pub bytes_in: u64,
    /// Frames that left. A super-packet counts as one frame.
    pub frames_out: u64,
    /// Packets on the wire that the frames sent stand for, copies included.
    pub segments_out: u64,
    /// Bytes of the packets sent.
    pub bytes_out: u64,
    /// Copies among the packets sent.
    pub copies_out: u64,
    /// Packets in flight: arrived and not yet due.
    pub under_way: u64,
    /// Packets that were dropped, although the link did not decide to drop them.
    pub unintended: Unintended,
}

/// Drops caused by the emulator or by the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unintended {
    /// Frames that arrived faster than they were read.
    pub not_read: u64,
    /// Frames that were too long to be read, or that the kernel could not describe.
    pub not_readable: u64,
    /// Super-packets with invalid headers.
    pub malformed: u64,
    /// Packets that exceeded the emulator's memory limit; see [`crate::EmulatorConfig`].
    pub over_limit: u64,
    /// Packets that the kernel did not accept for sending.
    pub not_sent: u64,
    /// Frames that a device dropped on their way in or out.
    pub by_device: u64,
}

impl Unintended {
    /// Returns every count with its name.
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

    /// Returns the sum of all counts.
    pub fn total(&self) -> u64 {
        self.named().iter().map(|(_, count)| count).sum()
    }
}
