//! Data that the receiver does not take: targets that do not read, peers that do not read or acknowledge.

use anyhow::Result;

use super::crowd::Manner;
use super::ground::Trust;
use super::outcome::Outcome;
use super::session::Tamper;
use super::stage::{self, Stage, Terms};
use super::targets::{Targets, open_frame};

/// The length of `OPEN_ACK`: stream bytes from this offset on come from the target.
const AFTER_ACK: u64 = 2;

/// The offset of a byte in an early packet of a download, but not in the first.
const EARLY: u64 = 20_000;

/// Practically unlimited credit, in bytes.
const ENDLESS: u64 = 1 << 40;

/// The side that does not take the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// The target reads nothing of an upload.
    Upload,
    /// The client grants no credit for a download.
    Unread,
    /// The client grants unlimited credit for a download and acknowledges none of it.
    Unacknowledged,
}

/// Opens flows whose data stays with the server.
///
/// # Errors
///
/// Fails as [`stage::attack`] does.
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

/// Starts downloads of which one early packet is never acknowledged.
///
/// # Errors
///
/// Fails as [`stage::attack`] does.
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

/// Opens `flows` flows on every connection, in turn, until all are open or there is no progress.
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
