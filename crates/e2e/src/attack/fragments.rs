//! Little data that costs much to hold: single bytes with gaps between them, and bytes or packets that keep a whole
//! received batch in memory.

use anyhow::Result;
use bytes::Bytes;
use quictun_sys::set_sysctl;
use quinn_proto::{StreamId, VarInt};

use super::crowd::Manner;
use super::frame;
use super::ground::Trust;
use super::outcome::Outcome;
use super::peer::Phase;
use super::session::{self, Tamper};
use super::stage::{self, Stage, Terms};
use super::targets::{self, Targets, open_frame};

/// Datagrams in one send call, at most; one in so many carries a byte.
const SEGMENTS: usize = 40;

/// The longest STREAM frame with one byte.
const BYTE_FRAME: usize = 1 + 8 + 8 + 1 + 1;

/// The longest header of a STREAM frame with as much as a packet carries.
const HEADER_MAX: usize = 1 + 8 + 8 + 2;

/// How the data costs much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Every datagram is full of single bytes with gaps between them.
    Gaps,
    /// One datagram of a batch carries one byte behind a gap, the others PING.
    Byte,
    /// One datagram of a batch carries as much as it can, in order, for a target that does not read; the others PING.
    Packet,
}

/// Streams with one byte at every other offset.
///
/// # Errors
///
/// See [`stage::attack`].
pub fn tiny_gaps(terms: &Terms, connections: usize, streams: u64) -> Result<Outcome> {
    run(terms, "tiny-gaps", connections, streams, Way::Gaps)
}

/// Batches of datagrams of which one carries one byte.
///
/// # Errors
///
/// See [`stage::attack`].
pub fn pinned_batches(terms: &Terms, connections: usize, streams: u64) -> Result<Outcome> {
    run(terms, "pinned-batches", connections, streams, Way::Byte)
}

/// Batches of datagrams of which one carries as much as it can, for targets that do not read.
///
/// # Errors
///
/// See [`stage::attack`].
pub fn pinned_packets(terms: &Terms, connections: usize, streams: u64) -> Result<Outcome> {
    run(terms, "pinned-packets", connections, streams, Way::Packet)
}

fn run(terms: &Terms, name: &str, connections: usize, streams: u64, way: Way) -> Result<Outcome> {
    let sink = targets::sink()?;
    let mut stalled = match way {
        Way::Gaps | Way::Byte => None,
        Way::Packet => Some(Targets::stalled(connections * usize::try_from(streams)?)?),
    };
    let tamper = Tamper {
        frames: true,
        ..Tamper::default()
    };
    let manner = Manner {
        tamper,
        ..Manner::default()
    };
    let flows = connections as u64 * streams;
    stage::attack(name, Trust::Open, terms, manner, flows, |stage| {
        if way == Way::Packet {
            // With small send buffers the kernel takes little, so unread data stays in the server process.
            set_sysctl("net/ipv4/tcp_wmem", "4096 4096 4096")?;
        }
        stage.connect(connections)?;
        let mut writers = Vec::new();
        for peer in 0..connections {
            let (mut opened, mut spent) = (Vec::new(), 0);
            while (opened.len() as u64) < streams
                && let Some(stream) = stage.open(peer)
            {
                let open = match &mut stalled {
                    None => open_frame(&sink.target())?,
                    Some(targets) => open_frame(targets.next_target())?,
                };
                stage.crowd.peer(peer).write(stream, &open);
                let gap = u64::from(way != Way::Packet);
                let next = open.len() as u64 + gap;
                opened.push((stream, next));
                spent += next;
            }
            writers.push(Writer {
                streams: opened,
                next: 0,
                in_batch: 0,
                credit: stage.crowd.granted().saturating_sub(spent),
                kept: None,
                way,
            });
        }
        stage.flush()?;
        while send(stage, &mut writers)? {}
        stage.until_quiet()
    })
}

/// What one connection writes next.
struct Writer {
    /// Streams, and the next offset of each.
    streams: Vec<(StreamId, u64)>,
    next: usize,
    /// Datagrams of this batch so far.
    in_batch: usize,
    /// Bytes of all streams together that the server still takes.
    credit: u64,
    /// What found no room.
    kept: Option<Bytes>,
    way: Way,
}

impl Writer {
    /// The next datagram's content, of this many bytes at most; `None` without credit.
    fn content(&mut self, room: usize) -> Option<Bytes> {
        if let Some(kept) = self.kept.take() {
            return Some(kept);
        }
        let mut frames = Vec::with_capacity(room);
        match (self.way, self.in_batch) {
            (Way::Gaps, _) => {
                while frames.len() + BYTE_FRAME <= room && self.put(&mut frames, 1, 1).is_some() {}
            }
            (Way::Byte, 0) => self.put(&mut frames, 1, 1)?,
            (Way::Packet, 0) => self.put(&mut frames, room.saturating_sub(HEADER_MAX), 0)?,
            (Way::Byte | Way::Packet, _) => frames.push(frame::PING),
        }
        if self.way != Way::Gaps {
            self.in_batch = (self.in_batch + 1) % SEGMENTS;
            // Batches consist of datagrams of one size.
            frames.resize(room, 0);
        }
        (!frames.is_empty()).then(|| session::disguised(&frames))
    }

    /// Appends a frame of the next stream with so many bytes, before a gap of `gap` bytes.
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

/// Lets every connection send what it may; tells whether there is more.
fn send(stage: &mut Stage<'_>, writers: &mut [Writer]) -> Result<bool> {
    let mut left = false;
    for (peer, writer) in writers.iter_mut().enumerate() {
        let peer = stage.crowd.peer(peer);
        let room = peer.frame_room().saturating_sub(session::DISGUISE);
        while let Some(content) = writer.content(room) {
            if !peer.send_frames(content.clone()) {
                writer.kept = Some(content);
                left |= *peer.phase() == Phase::Connected;
                break;
            }
        }
    }
    Ok(stage.turn()? && left)
}
