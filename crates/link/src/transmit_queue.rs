//! The packets that wait for transmission, as lengths and departure times.

use std::collections::VecDeque;

use crate::config::Queue;

/// Cap on the number of waiting packets, whatever the configuration says: 24 MiB for this list, and more for the
/// caller's packets.
const MAX_WAITING: usize = 1 << 20;

/// The waiting packets, in the order in which they leave.
#[derive(Clone, Debug, Default)]
pub(crate) struct TransmitQueue {
    packets: VecDeque<Entry>,
    /// Bytes of all packets, including all bytes of the packet in transmission.
    pub(crate) bytes: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Time at which the first bit leaves.
    pub(crate) begins: u64,
    /// Time at which the last bit has left.
    pub(crate) ends: u64,
    pub(crate) bytes: u64,
}

impl TransmitQueue {
    pub(crate) fn leave(&mut self, now: u64) {
        while let Some(head) = self.packets.front()
            && head.ends <= now
        {
            self.bytes -= head.bytes;
            self.packets.pop_front();
        }
    }

    pub(crate) fn fits(&self, now: u64, queue: Queue, bytes: u64) -> bool {
        let room = match queue {
            Queue::Bytes(limit) => {
                let room = (limit as u64).saturating_sub(bytes);
                // Counting the unsent bytes takes a division, so do it only if the result matters.
                self.bytes <= room || self.unsent(now) <= room
            }
            Queue::Packets(limit) => self.packets.len() < limit,
        };
        self.packets.is_empty() || (room && self.packets.len() < MAX_WAITING)
    }

    pub(crate) fn enter(&mut self, entry: Entry) {
        self.bytes += entry.bytes;
        self.packets.push_back(entry);
    }

    pub(crate) fn unsent(&self, now: u64) -> u64 {
        let mut bytes = self.bytes;
        for packet in &self.packets {
            if packet.ends > now {
                let time = now.saturating_sub(packet.begins);
                let all = packet.ends - packet.begins;
                let sent = u128::from(packet.bytes) * u128::from(time) / u128::from(all.max(1));
                return bytes - u64::try_from(sent).unwrap_or(bytes).min(packet.bytes);
            }
            bytes -= packet.bytes;
        }
        bytes
    }
}
