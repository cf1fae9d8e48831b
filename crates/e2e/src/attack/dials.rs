//! Flows that are reset before their target answers.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::crowd::CrowdBehaviour;
use super::outcome::AttackOutcome;
use super::process;
use super::run::{self, AttackOptions};
use super::targets::open_frame;
use super::victim::Trust;
use quictun_testbed::application::BlackHole;

/// The time limit for dials to start; a dial that has not started by then never starts.
const BEGINS: Duration = Duration::from_millis(500);

/// The delay after the resets before the remains of the flows are counted.
const AFTER: Duration = Duration::from_secs(1);

/// Opens flows to a target that does not answer SYNs, and resets them.
///
/// # Errors
///
/// Fails as [`run::attack`] does.
pub fn open_reset(terms: &AttackOptions, flows: u64) -> Result<AttackOutcome> {
    let hole = BlackHole::new()?;
    let open = open_frame(&hole.target())?;
    let behaviour = CrowdBehaviour::default();
    run::attack("open-reset", Trust::Open, terms, behaviour, flows, |run| {
        run.connect(1)?;
        while run.opened < flows && run.goes_on() {
            let mut wave = Vec::new();
            while run.opened < flows
                && let Some(stream) = run.open(0)
            {
                run.crowd.peer(0).write(stream, &open);
                wave.push(stream);
            }
            let (before, begun) = (process::syn_sent()?, Instant::now());
            while begun.elapsed() < BEGINS && process::syn_sent()? < before + wave.len() {
                run.flush()?;
            }
            for stream in wave {
                run.crowd.peer(0).reset(stream);
            }
            run.flush()?;
        }
        run.hold(AFTER)?;
        run.note_left()
    })
}
