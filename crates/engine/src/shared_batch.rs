//! Batches that several connections share.
//!
//! Keep-alives and acknowledgements have a few bytes, and a send call for one of them costs more than its contents.
//! Small datagrams of different connections that go to the same address leave in one call. They keep their order.

use std::mem;

use crate::datagrams::Datagrams;

/// Longest datagram that shares a batch. Keep-alives and acknowledgements are shorter.
const DATAGRAM_MAX: usize = 64;

/// Maximum number of datagrams in a shared batch. The first one waits until the last one is encrypted, and its
/// round-trip sample is too long by that time.
const DATAGRAMS_MAX: usize = 16;

/// The batch that follows a shared batch, because it does not fit in.
#[derive(Debug, Default)]
pub(crate) struct NextBatch {
    datagrams: Option<Datagrams>,
    bytes: Vec<u8>,
}

impl NextBatch {
    /// Takes the batch, if there is one, and writes its bytes to `buffer`.
    pub(crate) fn take(&mut self, buffer: &mut Vec<u8>) -> Option<Datagrams> {
        let datagrams = self.datagrams.take()?;
        mem::swap(buffer, &mut self.bytes);
        Some(datagrams)
    }

    /// Appends the batches that `poll` returns to `batch`, whose bytes are in `buffer`, until one does not fit. That
    /// one is kept, and must be taken before the next call.
    pub(crate) fn share(
        &mut self,
        batch: &mut Datagrams,
        buffer: &mut Vec<u8>,
        max_segments: usize,
        mut poll: impl FnMut(&mut Vec<u8>) -> Option<Datagrams>,
    ) {
        buffer.truncate(batch.size);
        while has_room(batch, max_segments) {
            self.bytes.clear();
            let Some(next) = poll(&mut self.bytes) else {
                return;
            };
            if !fits(batch, &next) {
                self.datagrams = Some(next);
                return;
            }
            batch.segment_size.get_or_insert(batch.size);
            batch.size += next.size;
            buffer.extend_from_slice(&self.bytes[..next.size]);
        }
    }
}

/// Returns whether another datagram may follow those of the batch.
fn has_room(batch: &Datagrams, max_segments: usize) -> bool {
    let segment = batch.segment_size.unwrap_or(batch.size);
    // Only the last datagram may be shorter than the others.
    let whole = segment > 0 && batch.size.is_multiple_of(segment);
    whole && segment <= DATAGRAM_MAX && batch.count() < max_segments.min(DATAGRAMS_MAX)
}

fn fits(batch: &Datagrams, next: &Datagrams) -> bool {
    let segment = batch.segment_size.unwrap_or(batch.size);
    next.segment_size.is_none()
        && next.size <= segment
        && next.destination == batch.destination
        && next.source == batch.source
        && next.ecn == batch.ecn
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(port: u16, size: usize) -> Datagrams {
        Datagrams {
            destination: ([192, 0, 2, 1], port).into(),
            source: None,
            ecn: Some(2),
            size,
            segment_size: None,
        }
    }

    /// Returns the batches that result if connections send `datagrams`, as lists of lengths. The bytes of each datagram
    /// are its index.
    fn batches(datagrams: &[Datagrams], max_segments: usize) -> Vec<Vec<usize>> {
        let mut rest = datagrams.iter().enumerate();
        let mut poll = |buffer: &mut Vec<u8>| {
            let (index, datagrams) = rest.next()?;
            let index = u8::try_from(index).expect("few datagrams");
            buffer.resize(datagrams.size, index);
            Some(*datagrams)
        };
        let (mut next, mut buffer) = (NextBatch::default(), Vec::new());
        let (mut batches, mut order) = (Vec::new(), Vec::new());
        loop {
            buffer.clear();
            let first = next.take(&mut buffer).or_else(|| poll(&mut buffer));
            let Some(mut batch) = first else { break };
            next.share(&mut batch, &mut buffer, max_segments, &mut poll);
            assert_eq!(buffer.len(), batch.size);
            let segment = batch.segment_size.unwrap_or(batch.size);
            let segments = buffer.chunks(segment);
            order.extend(segments.clone().map(|bytes| usize::from(bytes[0])));
            batches.push(segments.map(<[u8]>::len).collect());
        }
        // The segments of one batch have one index.
        order.dedup();
        let all: Vec<usize> = (0..datagrams.len()).collect();
        assert_eq!(order, all, "each datagram leaves once and in order");
        batches
    }

    #[test]
    fn small_datagrams_to_one_address_share_a_batch_until_one_is_shorter_or_longer() {
        let sizes = [35, 35, 35, 33, 35, 36, 36];
        let datagrams = sizes.map(|size| datagram(7500, size));
        let shared = [vec![35, 35, 35, 33], vec![35], vec![36, 36]];
        assert_eq!(batches(&datagrams, 64), shared);
        assert_eq!(batches(&datagrams, 1).len(), 7, "without segmentation");
    }

    #[test]
    fn datagrams_to_other_addresses_and_with_other_marks_leave_alone() {
        let other_ecn = Datagrams {
            ecn: None,
            ..datagram(7500, 35)
        };
        let other_source = Datagrams {
            source: Some([192, 0, 2, 2].into()),
            ..datagram(7500, 35)
        };
        let datagrams = [
            datagram(7500, 35),
            datagram(7501, 35),
            other_ecn,
            other_source,
        ];
        assert_eq!(batches(&datagrams, 64), vec![vec![35]; 4]);
    }

    #[test]
    fn data_leaves_alone_and_a_shared_batch_is_limited() {
        let large = datagram(7500, 1200);
        let segmented = Datagrams {
            segment_size: Some(30),
            ..datagram(7500, 60)
        };
        let datagrams = [large, large, datagram(7500, 35), segmented];
        let apart = [vec![1200], vec![1200], vec![35], vec![30, 30]];
        assert_eq!(batches(&datagrams, 64), apart);
        let lengths: Vec<usize> = batches(&[datagram(7500, 35); 40], 64)
            .iter()
            .map(Vec::len)
            .collect();
        assert_eq!(lengths, [16, 16, 8]);
    }
}
