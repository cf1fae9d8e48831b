//! Counts frames and their length at both ends of a cell's link.

use std::fs;
use std::io;

use anyhow::{Context as _, Result};
use quictun_emu::{DEVICE, World};
use quictun_lab::{Link, Metric};
use quictun_sys::{FrameCounter, NetNamespace};

/// Maximum length of a frame without BIG TCP: the limit of the IP header's length field, plus an Ethernet header.
const LONGEST_USUAL: u32 = 65_535 + 14;

/// Counts the frames that arrive at the two ends of a cable, up and down. Counts nothing unless the scenario sets
/// `segment_limit`.
#[derive(Debug)]
pub(crate) struct FrameTally<'a>([Option<(&'a NetNamespace, FrameCounter)>; 2]);

impl<'a> FrameTally<'a> {
    /// Opens the counters. Call this before any traffic.
    pub(crate) fn open(world: &'a World, link: &Link) -> Result<Self> {
        if link.segment_limit().is_none() {
            return Ok(Self([None, None]));
        }
        let end = |network: &'a NetNamespace| {
            let counter = network
                .within(|| FrameCounter::open(DEVICE, LONGEST_USUAL))
                .context("cannot count frames")?;
            anyhow::Ok(Some((network, counter)))
        };
        Ok(Self([end(world.far())?, end(world.near())?]))
    }

    pub(crate) fn figures(self) -> io::Result<Vec<(Metric, f64)>> {
        let mut all = Vec::new();
        let metrics = [
            (Metric::BigFramesUp, Metric::FrameBytesUp),
            (Metric::BigFramesDown, Metric::FrameBytesDown),
        ];
        for (end, (big_frames, frame_bytes)) in self.0.into_iter().zip(metrics) {
            let Some((network, mut counter)) = end else {
                continue;
            };
            #[expect(clippy::cast_precision_loss, reason = "frames of an hour")]
            let big = counter.count()? as f64;
            all.push((big_frames, big));
            let text = network.within(|| fs::read_to_string("/proc/thread-self/net/dev"))?;
            let mean = mean_frame(&text).map(|mean| (frame_bytes, mean));
            all.extend(mean);
        }
        Ok(all)
    }
}

/// Returns the mean length of the received frames in bytes, from `/proc/net/dev`.
fn mean_frame(text: &str) -> Option<f64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, numbers) = lines.find(|(name, _)| name.trim() == DEVICE)?;
    let mut columns = numbers.split_whitespace();
    let bytes: f64 = columns.next()?.parse().ok()?;
    let frames: f64 = columns.next()?.parse().ok()?;
    (frames > 0.0).then(|| bytes / frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_frame_is_computed_from_the_device_counters() {
        let text = "Inter-|   Receive\n face |bytes packets\n    lo: 10 1 0\n link0: 300 4 0 0 0 0 0 0 9 9\n";
        assert_eq!(mean_frame(text), Some(75.0));
        assert_eq!(mean_frame(&text.replace("300 4", "0 0")), None);
        assert_eq!(mean_frame("nonsense"), None);
    }
}
