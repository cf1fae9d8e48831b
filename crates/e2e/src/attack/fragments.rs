//! Little data that costs much to hold: single bytes with gaps between them, and single bytes that keep a whole
//! received batch alive.

use anyhow::Result;
use bytes::Bytes;
use quinn_proto::{StreamId, VarInt};

use super::crowd::Manner;
use super::frame;
use super::ground::Trust;
use super::outcome::Outcome;
use super::peer::Phase;
use super::session::{self, Tamper};
use super::stage::{self, Stage, Terms};
use super::targets::{self, open_frame};

/// Datagrams in one send call, at most; one in so many carries a byte.
const SEGMENTS: usize = 40;

/// The longest STREAM frame with one byte.
const BYTE_FRAME: usize = 1 + 8 + 8 + 1 + 1;

/// Streams with one byte at every other offset.
///
/// # Errors
///
/// See [`stage::attack`].
pub fn tiny_gaps(terms: &Terms, connections: usize, streams: u64) -> Result<Outcome> {
    run(terms, "tiny-gaps", connections, streams, false)
}

/// Batches of datagrams of which one carries one byte.
///
/// # Errors
///
/// See [`stage::attack`].
pub fn pinned_batches(terms: &Terms, connections: usize, streams: u64) -> Result<Outcome> {
    run(terms, "pinned-batches", connections, streams, true)
}

fn run(
    terms: &Terms,
    name: &str,
    connections: usize,
    streams: u64,
    batches: bool,
) -> Result<Outcome> {
    let sink = targets::sink()?;
    let open = open_frame(&sink.target())?;
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
        stage.connect(connections)?;
        let mut writers = Vec::new();
        for peer in 0..connections {
            let mut opened = Vec::new();
            while (opened.len() as u64) < streams
                && let Some(stream) = stage.open(peer)
            {
                stage.crowd.peer(peer).write(stream, &open);
                opened.push((stream, open.len() as u64 + 1));
            }
            let spent = (opened.len() * (open.len() + 1)) as u64;
            writers.push(Writer {
                streams: opened,
                next: 0,
                in_batch: 0,
                credit: stage.crowd.granted().saturating_sub(spent),
                kept: None,
            });
        }
        stage.flush()?;
        while send(stage, &mut writers, batches)? {}
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
}

impl Writer {
    /// The next datagram's content, of this many bytes at most; `None` without credit.
    fn content(&mut self, room: usize, batches: bool) -> Option<Bytes> {
        if let Some(kept) = self.kept.take() {
            return Some(kept);
        }
        let mut frames = Vec::with_capacity(room);
        if batches {
            if self.in_batch == 0 {
                self.put_byte(&mut frames)?;
            } else {
                frames.push(frame::PING);
            }
            self.in_batch = (self.in_batch + 1) % SEGMENTS;
            // Batches consist of datagrams of one size.
            frames.resize(room, 0);
        } else {
            while frames.len() + BYTE_FRAME <= room && self.put_byte(&mut frames).is_some() {}
        }
        (!frames.is_empty()).then(|| session::disguised(&frames))
    }

    /// Appends a frame with one byte, behind a gap of one.
    fn put_byte(&mut self, frames: &mut Vec<u8>) -> Option<()> {
        self.credit = self.credit.checked_sub(2)?;
        let count = self.streams.len();
        let (stream, offset) = self.streams.get_mut(self.next)?;
        self.next = (self.next + 1) % count;
        frame::put_stream(
            frames,
            VarInt::from(*stream).into_inner(),
            *offset,
            b"x",
            false,
        );
        *offset += 2;
        Some(())
    }
}

/// Lets every connection send what it may; tells whether there is more.
fn send(stage: &mut Stage<'_>, writers: &mut [Writer], batches: bool) -> Result<bool> {
    let mut left = false;
    for (peer, writer) in writers.iter_mut().enumerate() {
        let peer = stage.crowd.peer(peer);
        let room = peer.frame_room().saturating_sub(session::DISGUISE);
        while let Some(content) = writer.content(room, batches) {
            if !peer.send_frames(content.clone()) {
                writer.kept = Some(content);
                left |= *peer.phase() == Phase::Connected;
                break;
            }
        }
    }
    Ok(stage.turn()? && left)
}
