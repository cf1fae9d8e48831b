//! Invariants that must hold for every frame: a function that panics if one is violated.
//!
//! The fuzz target in `fuzz/` calls this function, and so do the tests. This module is not part of the crate's public
//! interface.

use bytes::Bytes;
use quictun_sys::VnetHeader;

use crate::frame::{Frame, HEADERS_MAX};
use crate::segments::part;

/// Checks the parts cut from an arbitrary frame. The input is ten bytes of virtio header, four bytes that choose a run
/// of segments, and a frame. For any input, the lengths and offsets of the result must agree, and payloads must be
/// unchanged.
pub fn segments(bytes: &[u8]) {
    let Some((control, frame)) = bytes.split_at_checked(14) else {
        return;
    };
    let word = |at| u16::from_le_bytes([control[at], control[at + 1]]);
    let header = VnetHeader {
        flags: control[0],
        gso_type: control[1],
        hdr_len: word(2),
        gso_size: word(4),
        csum_start: word(6),
        csum_offset: word(8),
    };
    let Ok(frame) = Frame::new(header, Bytes::copy_from_slice(frame)) else {
        return;
    };
    let count = frame.segments();
    assert!(count >= 1 && frame.segments_max() >= 1);
    for index in 0..count {
        assert!(frame.wire_length(index) <= frame.bytes.len());
    }
    let start = usize::from(word(10)) % count;
    let length = 1 + usize::from(word(12)) % frame.segments_max().min(count - start);
    for marked in [false, true] {
        whole_part(&frame, start..start + length, marked);
    }
}

fn whole_part(frame: &Frame, run: std::ops::Range<usize>, marked: bool) {
    let mut scratch = [0; HEADERS_MAX];
    let part = part(frame, run.clone(), marked, &mut scratch);
    assert!(frame.bytes.ends_with(part.rest) || run.end < frame.segments());
    let network = frame.shape.network;
    let total = part.headers.len() + part.rest.len();
    let wire: usize = run.clone().map(|index| frame.wire_length(index)).sum();
    match frame.shape.cut {
        // Each segment except the first shares the headers of the first.
        Some(cut) => {
            let headers = cut.payload - cut.jumbo - network;
            let big = run.len() == frame.segments() && !frame.is_big();
            let shared = (run.len() - 1) * headers;
            assert_eq!(
                total - network,
                wire - shared + if big { cut.jumbo } else { 0 }
            );
        }
        None => assert_eq!(total - network, wire),
    }
}
