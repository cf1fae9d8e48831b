//! Data that a server must hold because an earlier byte is missing, and streams that occupy a place.

use anyhow::Result;

use super::crowd::Manner;
use super::ground::Trust;
use super::outcome::Outcome;
use super::session::Tamper;
use super::stage::{self, Stage, Terms};
use super::targets::{self, open_frame};

/// The start of an OPEN: the type, a body length of 4096 bytes, a target length of 1024 (PROTOCOL OPEN-7, OPEN-11).
const LONG_OPEN: [u8; 5] = [0x01, 0x50, 0x00, 0x44, 0x00];

/// The number of bytes of a long OPEN that arrive in order.
const BEGUN: usize = 100;

/// The position of the missing byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Missing {
    /// The first byte of the stream.
    OfStream,
    /// The first byte after OPEN.
    AfterOpen,
}

/// Opens flows of one client that lack one early byte.
///
/// # Errors
///
/// Fails as [`stage::attack`] does.
pub fn first_byte_missing(terms: &Terms, flows: u64, missing: Missing) -> Result<Outcome> {
    let sink = targets::sink()?;
    let open = open_frame(&sink.target())?;
    let (name, at) = match missing {
        Missing::OfStream => ("first-byte-missing of-stream", 0),
        Missing::AfterOpen => ("first-byte-missing after-open", open.len()),
    };
    stage::attack(name, Trust::Open, terms, withholding(at), flows, |stage| {
        stage.connect(1)?;
        fill(stage, flows, &open, at)
    })
}

/// Opens connections without an identity that start an OPEN on every stream they get, and never finish it.
///
/// # Errors
///
/// Fails as [`stage::attack`] does.
pub fn unfinished_opens(terms: &Terms, strangers: usize) -> Result<Outcome> {
    let mut open = LONG_OPEN.to_vec();
    open.resize(BEGUN, b'a');
    stage::attack(
        "unfinished-opens",
        Trust::Secret,
        terms,
        withholding(BEGUN),
        0,
        |stage| {
            stage.connect(strangers)?;
            fill(stage, u64::MAX, &open, BEGUN)
        },
    )
}

/// Opens as many streams as possible on one connection without an identity, with one byte on each.
///
/// # Errors
///
/// Fails as [`stage::attack`] does.
pub fn tiny_streams(terms: &Terms, streams: u64) -> Result<Outcome> {
    let manner = Manner::default();
    stage::attack("tiny-streams", Trust::Secret, terms, manner, 0, |stage| {
        stage.connect(1)?;
        while stage.opened < streams {
            let before = stage.opened;
            while stage.opened < streams
                && let Some(stream) = stage.open(0)
            {
                stage.crowd.peer(0).write(stream, &LONG_OPEN[..1]);
            }
            stage.flush()?;
            if stage.opened == before || !stage.goes_on() {
                break;
            }
        }
        stage.until_quiet()
    })
}

fn withholding(at: usize) -> Manner {
    let at = at as u64;
    let tamper = Tamper {
        withhold: at..at + 1,
        ..Tamper::default()
    };
    Manner {
        tamper,
        ..Manner::default()
    }
}

/// Opens up to `flows` streams on every connection, and sends all data that the credit allows on each, except the byte
/// `at`.
fn fill(stage: &mut Stage<'_>, flows: u64, start: &[u8], at: usize) -> Result<()> {
    let mut streams = Vec::new();
    for peer in 0..stage.crowd.peers().len() {
        let mut open = 0;
        while open < flows
            && let Some(stream) = stage.open(peer)
        {
            streams.push((peer, stream));
            open += 1;
        }
    }
    // The missing byte gets its own frame: data before it is sent first, data after it later.
    let missing = start.get(at..=at).unwrap_or(&[0]);
    for part in [&start[..at], missing, start.get(at + 1..).unwrap_or(&[])] {
        if part.is_empty() {
            continue;
        }
        for &(peer, stream) in &streams {
            stage.crowd.peer(peer).write(stream, part);
        }
        stage.flush()?;
    }
    for &(peer, stream) in &streams {
        stage.crowd.peer(peer).pour(stream);
    }
    stage.until_quiet()
}
