//! Random frames: no panic, nothing left behind, no growth.

use quictun_netstack::check::{SplitMix, packets};

use crate::simulation::base;

/// Number of frames; `QUICTUN_FUZZ_FRAMES` overrides it.
const FRAMES: u64 = 1_000_000;

#[test]
fn random_frames_do_no_harm() {
    let wanted = std::env::var("QUICTUN_FUZZ_FRAMES").ok();
    let wanted = wanted.map_or(FRAMES, |text| {
        text.parse().expect("QUICTUN_FUZZ_FRAMES is a number")
    });
    let mut frames = 0;
    for seed in 0.. {
        frames += packets(base(), SplitMix::new(seed).take(200_000));
        if frames >= wanted {
            break;
        }
    }
}
