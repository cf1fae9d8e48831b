//! Queueing disciplines for packets that leave a device: loss and delay (netem), then rate and queue (TBF).

use std::io;
use std::time::Duration;

use crate::netlink::{Request, attribute, attributes, u32_at};
use crate::network::{CREATE, Network};

#[cfg(test)]
mod tests;

/// Length of `struct tcmsg`.
const HEADER: usize = 20;

/// Longest name of a discipline, without its end: `IFNAMSIZ` applies to them, too.
const KIND_MAX: usize = 15;

/// Delay and loss. Both are applied before the packet reaches the [`TokenBucket`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Netem {
    /// Delay added to each packet.
    pub delay: Duration,
    /// Share of packets lost, 0 to 1. A super-packet is lost as one.
    pub loss: f64,
    /// Share of packets duplicated, 0 to 1.
    pub duplicate: f64,
    /// Packets that may be delayed at a time. More are dropped.
    pub limit: u32,
    /// Seed of the random losses, used from Linux 6.6 on.
    pub seed: u64,
}

/// A rate limit with a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Rate in bytes per second.
    pub rate: u64,
    /// Bytes counted for each packet beyond its Ethernet header.
    pub overhead: u16,
    /// Bytes that may be sent at once after a pause.
    pub burst: u32,
    /// Bytes that may wait in the queue.
    pub limit: u32,
}

/// Counters of a queueing discipline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discipline {
    /// Name of the discipline: `netem` or `tbf`.
    pub kind: String,
    /// Bytes sent, including Ethernet headers.
    pub bytes: u64,
    /// Packets sent. A super-packet counts as its number of packets.
    pub packets: u64,
    /// Packets dropped. For a discipline that contains another, this includes the packets that the inner one dropped.
    pub dropped: u64,
}

impl Network {
    /// Applies the disciplines to packets that leave a device. Works once per device. Fails with `NotFound` also if the
    /// kernel does not have such a discipline.
    pub fn shape(
        &mut self,
        device: &str,
        netem: Option<&Netem>,
        bucket: Option<&TokenBucket>,
    ) -> io::Result<()> {
        let index = self.index(device)?;
        let mut parent = TC_H_ROOT;
        if let Some(netem) = netem {
            let options = |request: Request| {
                request
                    .raw(&netem_options(netem))
                    .with(TCA_NETEM_LATENCY64, &nanos(netem.delay).to_ne_bytes())
                    .with(TCA_NETEM_PRNG_SEED, &netem.seed.to_ne_bytes())
            };
            self.add_discipline(index, "netem", parent, NETEM_HANDLE, options)?;
            parent = NETEM_HANDLE | 1;
        }
        if let Some(bucket) = bucket {
            let options = |request: Request| {
                request
                    .with(TCA_TBF_PARMS, &bucket_options(bucket))
                    .with(TCA_TBF_RATE64, &bucket.rate.to_ne_bytes())
                    .with_u32(TCA_TBF_BURST, bucket.burst)
            };
            self.add_discipline(index, "tbf", parent, BUCKET_HANDLE, options)?;
        }
        Ok(())
    }

    /// Returns the counters of a device's disciplines.
    pub fn disciplines(&mut self, device: &str) -> io::Result<Vec<Discipline>> {
        let index = self.index(device)?;
        let mut all = Vec::new();
        let request = Request::new(libc::RTM_GETQDISC, 0, &header(index, 0, 0));
        // The kernel lists the disciplines of all devices, whatever the request asks for.
        self.netlink.dump(request, |kind, content| {
            if kind == libc::RTM_NEWQDISC && u32_at(content, 4) == Some(index) {
                all.extend(discipline(content));
            }
        })?;
        Ok(all)
    }

    fn add_discipline(
        &mut self,
        index: u32,
        kind: &str,
        parent: u32,
        handle: u32,
        options: impl FnOnce(Request) -> Request,
    ) -> io::Result<()> {
        let request = Request::new(libc::RTM_NEWQDISC, CREATE, &header(index, parent, handle))
            .with_text(libc::TCA_KIND, kind)
            .nested(libc::TCA_OPTIONS, options);
        self.netlink.execute(request)
    }
}

// Missing from the libc crate, or defined there with another type.
const TC_H_ROOT: u32 = u32::MAX;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_NETEM_LATENCY64: u16 = 10;
const TCA_NETEM_PRNG_SEED: u16 = 14;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;

/// `1:`, whose only class is `1:1`.
const NETEM_HANDLE: u32 = 1 << 16;

/// Handle of the token bucket: `2:`.
const BUCKET_HANDLE: u32 = 2 << 16;

/// The way in which lengths are counted: `TC_LINKLAYER_ETHERNET`. Without it the kernel requires a table of times.
const ETHERNET: u8 = 1;

fn header(index: u32, parent: u32, handle: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&handle.to_ne_bytes());
    header[12..16].copy_from_slice(&parent.to_ne_bytes());
    header
}

/// `struct tc_netem_qopt`: latency in ticks (left 0, because an attribute has it in nanoseconds), limit, loss, gap,
/// duplicate, jitter.
fn netem_options(netem: &Netem) -> [u8; 24] {
    let mut options = [0; 24];
    options[4..8].copy_from_slice(&netem.limit.to_ne_bytes());
    options[8..12].copy_from_slice(&of_all(netem.loss).to_ne_bytes());
    options[16..20].copy_from_slice(&of_all(netem.duplicate).to_ne_bytes());
    options
}

/// `struct tc_tbf_qopt`: two `struct tc_ratespec` (the second, for a peak rate, is not used), limit, and the burst as a
/// time (left 0, because an attribute has it in bytes).
fn bucket_options(bucket: &TokenBucket) -> [u8; 36] {
    let mut options = [0; 36];
    options[1] = ETHERNET;
    options[2..4].copy_from_slice(&bucket.overhead.to_ne_bytes());
    // A rate beyond 32 bits is in an attribute. This field must be all ones then.
    let rate = u32::try_from(bucket.rate).unwrap_or(u32::MAX);
    options[8..12].copy_from_slice(&rate.to_ne_bytes());
    options[24..28].copy_from_slice(&bucket.limit.to_ne_bytes());
    options
}

/// Converts a share to the kernel's units: 32 bits represent 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates"
)]
fn of_all(share: f64) -> u32 {
    (share * f64::from(u32::MAX)).round() as u32
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

fn discipline(content: &[u8]) -> Option<Discipline> {
    let content = content.get(HEADER..)?;
    let kind = attribute(content, libc::TCA_KIND)?
        .split(|byte| *byte == 0)
        .next()?;
    let kind = kind.get(..KIND_MAX.min(kind.len()))?;
    let mut found = Discipline {
        kind: String::from_utf8_lossy(kind).into_owned(),
        ..Discipline::default()
    };
    for (kind, value) in attributes(attribute(content, libc::TCA_STATS2).unwrap_or_default()) {
        match kind {
            // struct gnet_stats_basic: bytes (64 bits), packets.
            TCA_STATS_BASIC => {
                found.bytes = u64::from_ne_bytes(value.get(..8)?.try_into().ok()?);
                found.packets = u32_at(value, 8)?.into();
            }
            // struct gnet_stats_queue: packets and bytes that wait, drops.
            TCA_STATS_QUEUE => found.dropped = u32_at(value, 8)?.into(),
            _ => {}
        }
    }
    Some(found)
}
