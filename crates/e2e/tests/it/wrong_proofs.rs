//! Strangers that show wrong proofs (PROTOCOL AUTH-4).

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use quictun_e2e::attack::crowd::{Crowd, CrowdBehaviour};
use quictun_e2e::attack::known;
use quictun_e2e::attack::peer::PeerState;
use quictun_e2e::attack::victim::{Trust, Victim};

/// Half of the time that a client has which shows no identity at all.
const SOON: Duration = Duration::from_secs(5);

fn turns_until(crowd: &mut Crowd, done: impl Fn(&PeerState) -> bool) -> Result<()> {
    let begun = Instant::now();
    while !done(crowd.peers()[0].phase()) {
        crowd.turn(Duration::from_millis(5))?;
        ensure!(begun.elapsed() < SOON, "{:?}", crowd.peers()[0].phase());
    }
    Ok(())
}

#[test]
fn a_client_with_wrong_proofs_soon_loses_its_place() -> Result<()> {
    let mut victim = Victim::new(Trust::Secret, None, &[])?;
    for proofs in [1, 10] {
        let mut crowd = Crowd::new(victim.address, CrowdBehaviour::default())?;
        crowd.connect()?;
        turns_until(&mut crowd, |phase| *phase == PeerState::Connected)?;
        for _ in 0..proofs {
            let echo = victim.echo().to_owned();
            known::open_with_wrong_proof(crowd.peer(0), &echo)?;
        }
        turns_until(&mut crowd, |phase| matches!(phase, PeerState::Lost(_)))?;
        if proofs == 1 {
            ensure!(crowd.counts().refused == 1, "the flow was not refused");
        }
    }
    victim.silence();
    Ok(())
}
