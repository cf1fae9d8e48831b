//! Named links, compared with BBR on the same links.
//!
//! Data goes down and acknowledgements go up, each over the link for that direction. The results are in `named.txt`,
//! written like `grid.txt`.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use quictun_congestion::Model;
use quictun_link::{Link, LinkConfig, NamedLink};

use crate::bbr;
use crate::changes::{seconds, wait_ms};
use crate::gated::gated;
use crate::grid::{compare, expect};
use crate::kernel::median;
use crate::links::{auto, sender};
use crate::probe::ProbeTimer;
use crate::simulation::Simulation;

const FROM_S: f64 = 5.0;
const TO_S: f64 = 30.0;
const SEEDS: [u64; 3] = [1, 2, 3];

/// Minimum rate over BBR's rate: for the median seed, and for each seed.
const SHARE: f64 = 0.97;
const SHARE_LEAST: f64 = 0.95;
/// Maximum wait over the wait of BBR's packets.
const WAIT: f64 = 0.6;

/// Returns the wait in milliseconds that 95 of 100 packets may have on a link on which BBR's packets wait `theirs_ms`.
fn most_ms(link: NamedLink, theirs_ms: f64) -> f64 {
    let none = (0.3 * f64::from(idle_ms(link))).max(5.0);
    (WAIT * theirs_ms).max(none)
}

/// Returns the round-trip time of an idle link, in milliseconds.
fn idle_ms(link: NamedLink) -> u32 {
    match link {
        NamedLink::Lte => 50,
        NamedLink::FiveG => 25,
        NamedLink::Satellite => 40,
        NamedLink::Wifi => 18,
    }
}

/// Returns the Mbit/s that arrive, and the wait in milliseconds that 95 of 100 packets do not exceed.
fn run(link: NamedLink, seed: u64, model: fn(Instant) -> Box<dyn Model>) -> (f64, f64) {
    let [up, down] = link.directions(seed);
    across(link, [down, up], seed, model)
}

/// Returns the same for a link with the configuration of each direction: that of the data, and that of the
/// acknowledgements.
fn across(
    link: NamedLink,
    [there, back]: [LinkConfig; 2],
    seed: u64,
    model: fn(Instant) -> Box<dyn Model>,
) -> (f64, f64) {
    let mut sim = Simulation::new(there, seed, vec![sender(model, 0.0, 0.0)]);
    sim.outages = true;
    let flow = &mut sim.flows[0];
    flow.back = Link::new(back, seed + 1000, sim.origin);
    flow.probe = ProbeTimer::new(sim.origin, Duration::from_millis(idle_ms(link).into()));
    sim.run_until(seconds(FROM_S));
    sim.trail = Some(Vec::new());
    sim.run_until(seconds(TO_S));
    let rate = sim.flows[0].rate(sim.slot, seconds(FROM_S), seconds(TO_S));
    let wait_ms = wait_ms(sim.trail.as_deref().unwrap_or_default());
    (rate / 125_000.0, wait_ms)
}

#[test]
fn named_links_are_filled_as_the_table_says() {
    let mut table =
        "link       seed  bbr Mbit/s  wait p95 ms  auto Mbit/s  wait p95 ms  share %  wait %\n"
            .to_owned();
    for &(name, link) in NamedLink::ALL {
        let shares = SEEDS.map(|seed| {
            let (theirs, theirs_ms) = run(link, seed, bbr::model);
            let (ours, ours_ms) = run(link, seed, auto);
            let (share, wait) = (ours / theirs * 100.0, ours_ms / theirs_ms * 100.0);
            let most_ms = most_ms(link, theirs_ms);
            let cell = format!("{name}, seed {seed}: {share} %, {ours_ms} ms, not {most_ms} ms");
            expect(share >= SHARE_LEAST * 100.0 && ours_ms <= most_ms, cell);
            writeln!(
                table,
                "{name:<9}  {seed:>4}  {theirs:>10.1}  {theirs_ms:>11.1}  {ours:>11.1}  {ours_ms:>11.1}  {share:>7.1}  {wait:>6.0}"
            ).expect("writing to a string");
            share
        });
        expect(
            median(shares) >= SHARE * 100.0,
            format!("{name}: {shares:.1?} %"),
        );
    }
    compare("named.txt", &table);
}

/// The rate of a radio link varies within a few round trips, in both directions. A sender that keeps no queue finds a
/// higher rate too late, and a lower rate only by the queue that it causes.
#[test]
fn a_rate_that_varies_is_followed_both_ways() {
    for link in [NamedLink::Lte, NamedLink::FiveG] {
        for upwards in [false, true] {
            let results = [4, 5, 6, 7, 8, 9].map(|seed| {
                let mut directions = link.directions(seed);
                if !upwards {
                    directions.reverse();
                }
                let [theirs, ours] =
                    [bbr::model, auto].map(|model| across(link, directions.clone(), seed, model));
                (ours.0 / theirs.0, ours.1 / theirs.1)
            });
            let share = results.map(|one| one.0).iter().sum::<f64>() / results.len() as f64;
            // In single runs the sender meets a rival that does not exist before it follows.
            let short = results.iter().filter(|one| one.1 <= WAIT).count();
            let case = format!("{link:?}, upwards: {upwards}: {results:.2?}");
            assert!(share >= 0.97 && short >= 5, "{case}");
        }
    }
}

/// An application that sends in bursts leaves gaps between them. The first packets after a gap say nothing about the
/// path's rate.
#[test]
fn gaps_between_bursts_do_not_slow_down_a_sender_that_follows() {
    const BURSTS_S: f64 = 15.0;
    fn bursts(model: Box<dyn Model>, start: Instant) -> Box<dyn Model> {
        gated(model, start, |s| s < BURSTS_S || s % 0.4 < 0.15)
    }
    for link in [NamedLink::Lte, NamedLink::FiveG] {
        let results = [1, 2, 3, 4, 5, 6].map(|seed| {
            let [up, down] = link.directions(seed);
            let rate = |model: fn(Instant) -> Box<dyn Model>| {
                let mut sim = Simulation::new(down.clone(), seed, vec![sender(model, 0.0, 0.0)]);
                sim.outages = true;
                let flow = &mut sim.flows[0];
                flow.back = Link::new(up.clone(), seed + 1000, sim.origin);
                flow.probe =
                    ProbeTimer::new(sim.origin, Duration::from_millis(idle_ms(link).into()));
                sim.run_until(seconds(TO_S));
                sim.flows[0].rate(sim.slot, seconds(BURSTS_S + 1.0), seconds(TO_S))
            };
            let ours = rate(|now| bursts(auto(now), now));
            ours / rate(|now| bursts(bbr::model(now), now))
        });
        let mean = results.iter().sum::<f64>() / results.len() as f64;
        assert!(mean >= 0.85, "{link:?}: {results:.2?}");
    }
}

/// Each handover of a satellite link stops the path, changes its delay and its rate, and loses packets for a while. None
/// of this is a queue, a rival or a policer.
#[test]
fn handovers_between_satellites_cost_little() {
    for seed in 8..=20 {
        let [theirs, ours] =
            [bbr::model, auto].map(|model| run(NamedLink::Satellite, seed, model).0);
        let share = ours / theirs;
        assert!(share >= 0.93, "seed {seed}: {ours} of {theirs} Mbit/s");
    }
}

/// The stations of a Wi-Fi network wait for access again and again, for longer than half of the shortest round trip. A
/// window of twice that round trip would limit the rate, and the bandwidth that is then measured would limit the next
/// window. Single seeds differ by chance.
#[test]
fn waits_for_access_do_not_limit_the_window() {
    let shares = [17, 18, 19, 20, 21, 22].map(|seed| {
        let [theirs, ours] = [bbr::model, auto].map(|model| run(NamedLink::Wifi, seed, model).0);
        assert!(
            ours >= 0.75 * theirs,
            "seed {seed}: {ours} of {theirs} Mbit/s"
        );
        ours / theirs
    });
    let mean = shares.iter().sum::<f64>() / 6.0;
    assert!(mean >= 0.93, "{shares:.2?}");
}
