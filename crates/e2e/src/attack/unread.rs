//! Data that the receiver does not take: targets that do not read, peers that do not read or acknowledge.

use anyhow::Result;

use super::crowd::CrowdBehaviour;
use super::outcome::AttackOutcome;
use super::run::{self, AttackOptions, AttackRun};
use super::session::Tamper;
use super::targets::{Targets, open_frame};
use super::victim::Trust;

/// The length of `OPEN_ACK`: stream bytes from this offset on come from the target.
const AFTER_ACK: u64 = 2;

/// The offset of a byte in an early packet of a download, but not in the first.
const EARLY: u64 = 20_000;

/// Practically unlimited credit, in bytes.
const ENDLESS: u64 = 1 << 40;

/// The side that does not take the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum UnreadSide {
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
/// Fails as [`run::attack`] does.
pub fn stalled(
    terms: &AttackOptions,
    connections: usize,
    flows: u64,
    way: UnreadSide,
) -> Result<AttackOutcome> {
    let all = connections as u64 * flows;
    let mut targets = if way == UnreadSide::Upload {
        Targets::stalled(usize::try_from(all)?)?
    } else {
        Targets::sources(usize::try_from(all)?)?
    };
    let (name, behaviour) = behaviour(way);
    run::attack(name, Trust::Open, terms, behaviour, all, |run| {
        run.connect(connections)?;
        each(run, flows, way == UnreadSide::Upload, &mut targets)
    })
}

/// Starts downloads of which one early packet is never acknowledged.
///
/// # Errors
///
/// Fails as [`run::attack`] does.
pub fn no_acks(terms: &AttackOptions, connections: usize, flows: u64) -> Result<AttackOutcome> {
    let all = connections as u64 * flows;
    let mut targets = Targets::sources(usize::try_from(all)?)?;
    let tamper = Tamper {
        miss: EARLY..EARLY + 1,
        ..Tamper::default()
    };
    let behaviour = CrowdBehaviour {
        tamper,
        credit: ENDLESS,
        stream_credit: ENDLESS,
        ..CrowdBehaviour::default()
    };
    run::attack("no-acks", Trust::Open, terms, behaviour, all, |run| {
        run.connect(connections)?;
        each(run, flows, false, &mut targets)
    })
}

fn behaviour(way: UnreadSide) -> (&'static str, CrowdBehaviour) {
    let behaviour = CrowdBehaviour::default();
    match way {
        UnreadSide::Upload => ("stalled upload", behaviour),
        UnreadSide::Unread => (
            "stalled unread",
            CrowdBehaviour {
                reads: false,
                credit: ENDLESS,
                stream_credit: AFTER_ACK,
                ..behaviour
            },
        ),
        UnreadSide::Unacknowledged => (
            "stalled unacknowledged",
            CrowdBehaviour {
                reads: false,
                credit: ENDLESS,
                stream_credit: ENDLESS,
                tamper: Tamper {
                    miss: AFTER_ACK..u64::MAX,
                    ..Tamper::default()
                },
                ..behaviour
            },
        ),
    }
}

/// Opens `flows` flows on every connection, in turn, until all are open or there is no progress.
fn each(run: &mut AttackRun<'_>, flows: u64, pour: bool, targets: &mut Targets) -> Result<()> {
    for _ in 0..flows {
        for peer in 0..run.crowd.peers().len() {
            let Some(stream) = run.open(peer) else {
                continue;
            };
            let frame = open_frame(targets.next_target())?;
            run.crowd.peer(peer).write(stream, &frame);
            if pour {
                run.crowd.peer(peer).pour(stream);
            }
        }
        if !run.turn()? {
            return Ok(());
        }
    }
    run.until_quiet()
}
