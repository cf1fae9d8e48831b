//! Small amounts of data that are expensive to hold: single bytes with gaps between them, and bytes or packets that
//! keep a whole received batch in memory.

use anyhow::Result;
use bytes::Bytes;
use quictun_sys::set_sysctl;
use quinn_proto::{StreamId, VarInt};

use super::crowd::CrowdBehaviour;
use super::frame;
use super::outcome::AttackOutcome;
use super::peer::PeerState;
use super::run::{self, AttackOptions, AttackRun};
use super::session::{self, Tamper};
use super::targets::{self, Targets, open_frame};
use super::victim::Trust;

/// The maximum number of datagrams in one send call; one in each such batch carries data.
const SEGMENTS: usize = 40;

/// The size of the longest STREAM frame with one byte of data.
const BYTE_FRAME: usize = 1 + 8 + 8 + 1 + 1;

/// The size of the longest STREAM header for a frame that fills a packet.
const HEADER_MAX: usize = 1 + 8 + 8 + 2;

/// The way in which the data is expensive to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FragmentPattern {
    /// Every datagram is full of single bytes with gaps between them.
    Gaps,
    /// One datagram per batch carries one byte after a gap, the others carry PING.
    Byte,
    /// One datagram per batch is full of in-order data for a target that does not read, the others carry PING.
    Packet,
}

/// Sends one byte at every other offset of each stream.
///
/// # Errors
///
/// Fails as [`run::attack`] does.
pub fn tiny_gaps(terms: &AttackOptions, connections: usize, streams: u64) -> Result<AttackOutcome> {
    run(
        terms,
        "tiny-gaps",
        connections,
        streams,
        FragmentPattern::Gaps,
    )
}

/// Sends batches of datagrams of which one carries one byte.
///
/// # Errors
///
/// Fails as [`run::attack`] does.
pub fn pinned_batches(
    terms: &AttackOptions,
    connections: usize,
    streams: u64,
) -> Result<AttackOutcome> {
    run(
        terms,
        "pinned-batches",
        connections,
        streams,
        FragmentPattern::Byte,
    )
}

/// Sends batches of datagrams of which one is full of data, for targets that do not read.
///
/// # Errors
///
/// Fails as [`run::attack`] does.
pub fn pinned_packets(
    terms: &AttackOptions,
    connections: usize,
    streams: u64,
) -> Result<AttackOutcome> {
    run(
        terms,
        "pinned-packets",
        connections,
        streams,
        FragmentPattern::Packet,
    )
}

fn run(
    terms: &AttackOptions,
    name: &str,
    connections: usize,
    streams: u64,
    way: FragmentPattern,
) -> Result<AttackOutcome> {
    let sink = targets::sink()?;
    let mut stalled = match way {
        FragmentPattern::Gaps | FragmentPattern::Byte => None,
        FragmentPattern::Packet => Some(Targets::stalled(connections * usize::try_from(streams)?)?),
    };
    let tamper = Tamper {
        frames: true,
        ..Tamper::default()
    };
    let behaviour = CrowdBehaviour {
        tamper,
        ..CrowdBehaviour::default()
    };
    let flows = connections as u64 * streams;
    run::attack(name, Trust::Open, terms, behaviour, flows, |run| {
        if way == FragmentPattern::Packet {
            // With small send buffers the kernel takes little, so unread data stays in the server process.
            set_sysctl("net/ipv4/tcp_wmem", "4096 4096 4096")?;
        }
        run.connect(connections)?;
        let mut writers = Vec::new();
        for peer in 0..connections {
            let (mut opened, mut spent) = (Vec::new(), 0);
            while (opened.len() as u64) < streams
                && let Some(stream) = run.open(peer)
            {
                let open = match &mut stalled {
                    None => open_frame(&sink.target())?,
                    Some(targets) => open_frame(targets.next_target())?,
                };
                run.crowd.peer(peer).write(stream, &open);
                let gap = u64::from(way != FragmentPattern::Packet);
                let next = open.len() as u64 + gap;
                opened.push((stream, next));
                spent += next;
            }
            writers.push(Writer {
                streams: opened,
                next: 0,
                in_batch: 0,
                credit: run.crowd.granted().saturating_sub(spent),
                kept: None,
                way,
            });
        }
        run.flush()?;
        while send(run, &mut writers)? {}
        run.until_quiet()
    })
}

/// The state of one connection's writer.
struct Writer {
    /// The streams, with the next offset of each.
    streams: Vec<(StreamId, u64)>,
    next: usize,
    /// Datagrams sent in the current batch.
    in_batch: usize,
    /// The connection-level credit that is left, in bytes.
    credit: u64,
    /// Content that did not fit into the send queue and is sent next.
    kept: Option<Bytes>,
    way: FragmentPattern,
}

impl Writer {
    /// Returns the content of the next datagram, of at most `room` bytes; `None` when the credit is used up.
    fn content(&mut self, room: usize) -> Option<Bytes> {
        if let Some(kept) = self.kept.take() {
            return Some(kept);
        }
        let mut frames = Vec::with_capacity(room);
        match (self.way, self.in_batch) {
            (FragmentPattern::Gaps, _) => {
                while frames.len() + BYTE_FRAME <= room && self.put(&mut frames, 1, 1).is_some() {}
            }
            (FragmentPattern::Byte, 0) => self.put(&mut frames, 1, 1)?,
            (FragmentPattern::Packet, 0) => {
                self.put(&mut frames, room.saturating_sub(HEADER_MAX), 0)?;
            }
            (FragmentPattern::Byte | FragmentPattern::Packet, _) => frames.push(frame::PING),
        }
        if self.way != FragmentPattern::Gaps {
            self.in_batch = (self.in_batch + 1) % SEGMENTS;
            // All datagrams of a batch have the same size.
            frames.resize(room, 0);
        }
        (!frames.is_empty()).then(|| session::disguised(&frames))
    }

    /// Appends a STREAM frame of `bytes` bytes for the next stream, and skips `gap` bytes after it.
    fn put(&mut self, frames: &mut Vec<u8>, bytes: usize, gap: u64) -> Option<()> {
        let after = bytes as u64 + gap;
        self.credit = self.credit.checked_sub(after)?;
        let count = self.streams.len();
        let (stream, offset) = self.streams.get_mut(self.next)?;
        self.next = (self.next + 1) % count;
        frame::put_stream(
            frames,
            VarInt::from(*stream).into_inner(),
            *offset,
            &vec![b'x'; bytes],
            false,
        );
        *offset += after;
        Some(())
    }
}

/// Lets every connection send as much as it may; returns true if some data is left to send.
fn send(run: &mut AttackRun<'_>, writers: &mut [Writer]) -> Result<bool> {
    let mut left = false;
    for (peer, writer) in writers.iter_mut().enumerate() {
        let peer = run.crowd.peer(peer);
        let room = peer.frame_room().saturating_sub(session::DISGUISE);
        while let Some(content) = writer.content(room) {
            if !peer.send_frames(content.clone()) {
                writer.kept = Some(content);
                left |= *peer.phase() == PeerState::Connected;
                break;
            }
        }
    }
    Ok(run.turn()? && left)
}
