//! Data that a server must hold because an earlier byte is missing, and streams that occupy a place.

use anyhow::Result;

use super::crowd::CrowdBehaviour;
use super::outcome::AttackOutcome;
use super::run::{self, AttackOptions, AttackRun};
use super::session::Tamper;
use super::targets::{self, open_frame};
use super::victim::Trust;

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
/// Fails as [`run::attack`] does.
pub fn first_byte_missing(
    terms: &AttackOptions,
    flows: u64,
    missing: Missing,
) -> Result<AttackOutcome> {
    let sink = targets::sink()?;
    let open = open_frame(&sink.target())?;
    let (name, at) = match missing {
        Missing::OfStream => ("first-byte-missing of-stream", 0),
        Missing::AfterOpen => ("first-byte-missing after-open", open.len()),
    };
    run::attack(name, Trust::Open, terms, withholding(at), flows, |run| {
        run.connect(1)?;
        fill(run, flows, &open, at)
    })
}

/// Opens connections without an identity that start an OPEN on every stream they get, and never finish it.
///
/// # Errors
///
/// Fails as [`run::attack`] does.
pub fn unfinished_opens(terms: &AttackOptions, strangers: usize) -> Result<AttackOutcome> {
    let mut open = LONG_OPEN.to_vec();
    open.resize(BEGUN, b'a');
    run::attack(
        "unfinished-opens",
        Trust::Secret,
        terms,
        withholding(BEGUN),
        0,
        |run| {
            run.connect(strangers)?;
            fill(run, u64::MAX, &open, BEGUN)
        },
    )
}

/// Opens as many streams as possible on one connection without an identity, with one byte on each.
///
/// # Errors
///
/// Fails as [`run::attack`] does.
pub fn tiny_streams(terms: &AttackOptions, streams: u64) -> Result<AttackOutcome> {
    let behaviour = CrowdBehaviour::default();
    run::attack("tiny-streams", Trust::Secret, terms, behaviour, 0, |run| {
        run.connect(1)?;
        while run.opened < streams {
            let before = run.opened;
            while run.opened < streams
                && let Some(stream) = run.open(0)
            {
                run.crowd.peer(0).write(stream, &LONG_OPEN[..1]);
            }
            run.flush()?;
            if run.opened == before || !run.goes_on() {
                break;
            }
        }
        run.until_quiet()
    })
}

fn withholding(at: usize) -> CrowdBehaviour {
    let at = at as u64;
    let tamper = Tamper {
        withhold: at..at + 1,
        ..Tamper::default()
    };
    CrowdBehaviour {
        tamper,
        ..CrowdBehaviour::default()
    }
}

/// Opens up to `flows` streams on every connection, and sends all data that the credit allows on each, except the byte
/// `at`.
fn fill(run: &mut AttackRun<'_>, flows: u64, start: &[u8], at: usize) -> Result<()> {
    let mut streams = Vec::new();
    for peer in 0..run.crowd.peers().len() {
        let mut open = 0;
        while open < flows
            && let Some(stream) = run.open(peer)
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
            run.crowd.peer(peer).write(stream, part);
        }
        run.flush()?;
    }
    for &(peer, stream) in &streams {
        run.crowd.peer(peer).pour(stream);
    }
    run.until_quiet()
}
