//! Flows that are reset before their target answers.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::crowd::Manner;
use super::ground::Trust;
use super::outcome::Outcome;
use super::process;
use super::stage::{self, Terms};
use super::targets::open_frame;
use quictun_testbed::application::BlackHole;

/// The time limit for dials to start; a dial that has not started by then never starts.
const BEGINS: Duration = Duration::from_millis(500);

/// The delay after the resets before the remains of the flows are counted.
const AFTER: Duration = Duration::from_secs(1);

/// Opens flows to a target that does not answer SYNs, and resets them.
///
/// # Errors
///
/// Fails as [`stage::attack`] does.
pub fn open_reset(terms: &Terms, flows: u64) -> Result<Outcome> {
    let hole = BlackHole::new()?;
    let open = open_frame(&hole.target())?;
    let manner = Manner::default();
    stage::attack("open-reset", Trust::Open, terms, manner, flows, |stage| {
        stage.connect(1)?;
        while stage.opened < flows && stage.goes_on() {
            let mut wave = Vec::new();
            while stage.opened < flows
                && let Some(stream) = stage.open(0)
            {
                stage.crowd.peer(0).write(stream, &open);
                wave.push(stream);
            }
            let (before, begun) = (process::syn_sent()?, Instant::now());
            while begun.elapsed() < BEGINS && process::syn_sent()? < before + wave.len() {
                stage.flush()?;
            }
            for stream in wave {
                stage.crowd.peer(0).reset(stream);
            }
            stage.flush()?;
        }
        stage.hold(AFTER)?;
        stage.note_left()
    })
}
