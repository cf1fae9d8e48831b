//! Data that nobody takes: targets that do not read, peers that do not read or acknowledge.

use anyhow::Result;

use super::crowd::Manner;
use super::ground::Trust;
use super::outcome::Outcome;
use super::session::Tamper;
use super::stage::{self, Stage, Terms};
use super::targets::{Targets, open_frame};

/// Length of `OPEN_ACK`: bytes from here on are the target's.
const AFTER_ACK: u64 = 2;

/// A byte of a packet that is early in a download, and not the first.
const EARLY: u64 = 20_000;

/// Credit without an end.
const ENDLESS: u64 = 1 << 40;

/// Who does not take the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// The target: it reads nothing of an upload.
    Upload,
    /// The client: it gives no credit for a download.
    Unread,
    /// The client: it gives all credit for a download and acknowledges none of it.
    Unacknowledged,
}

/// Flows whose data stays with the server.
///
/// # Errors
///
/// See [`stage::attack`].
pub fn stalled(terms: &Terms, connections: usize, flows: u64, way: Way) -> Result<Outcome> {
    let all = connections as u64 * flows;
    let mut targets = if way == Way::Upload {
        Targets::stalled(usize::try_from(all)?)?
    } else {
        Targets::sources(usize::try_from(all)?)?
    };
    let (name, manner) = manner(way);
    stage::attack(name, Trust::Open, terms, manner, all, |stage| {
        stage.connect(connections)?;
        each(stage, flows, way == Way::Upload, &mut targets)
    })
}

/// Downloads of which one early packet is never acknowledged.
///
/// # Errors
///
/// See [`stage::attack`].
pub fn no_acks(terms: &Terms, connections: usize, flows: u64) -> Result<Outcome> {
    let all = connections as u64 * flows;
    let mut targets = Targets::sources(usize::try_from(all)?)?;
    let tamper = Tamper {
        miss: EARLY..EARLY + 1,
        ..Tamper::default()
    };
    let manner = Manner {
        tamper,
        credit: ENDLESS,
        stream_credit: ENDLESS,
        ..Manner::default()
    };
    stage::attack("no-acks", Trust::Open, terms, manner, all, |stage| {
        stage.connect(connections)?;
        each(stage, flows, false, &mut targets)
    })
}

fn manner(way: Way) -> (&'static str, Manner) {
    let manner = Manner::default();
    match way {
        Way::Upload => ("stalled upload", manner),
        Way::Unread => (
            "stalled unread",
            Manner {
                reads: false,
                credit: ENDLESS,
                stream_credit: AFTER_ACK,
                ..manner
            },
        ),
        Way::Unacknowledged => (
            "stalled unacknowledged",
            Manner {
                reads: false,
                credit: ENDLESS,
                stream_credit: ENDLESS,
                tamper: Tamper {
                    miss: AFTER_ACK..u64::MAX,
                    ..Tamper::default()
                },
                ..manner
            },
        ),
    }
}

/// Opens so many flows on every connection, in turns, until all are open or nothing moves.
fn each(stage: &mut Stage<'_>, flows: u64, pour: bool, targets: &mut Targets) -> Result<()> {
    for _ in 0..flows {
        for peer in 0..stage.crowd.peers().len() {
            let Some(stream) = stage.open(peer) else {
                continue;
            };
            let frame = open_frame(targets.next_target())?;
            stage.crowd.peer(peer).write(stream, &frame);
            if pour {
                stage.crowd.peer(peer).pour(stream);
            }
        }
        if !stage.turn()? {
            return Ok(());
        }
    }
    stage.until_quiet()
}
