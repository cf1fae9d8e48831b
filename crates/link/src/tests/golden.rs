//! The same seed gives the same fates on every machine, with and without optimisation.
//!
//! The figures were computed once. A change that alters them alters every run of every user's seeds. The commit
//! must state that.

use super::*;

fn everything() -> LinkConfig {
    LinkConfig {
        rate: Some(1_234_567),
        overhead: 38,
        delay: 10 * MS,
        jitter: 3 * MS,
        loss: 0.02,
        bursts: Some(GilbertElliott::from_mean(0.02, 3.0)),
        reorder: Reorder {
            share: 0.03,
            extra: 4 * MS,
        },
        duplicate: 0.03,
        queue: Queue::Bytes(30_000),
        codel: Some(Codel {
            ecn: true,
            ..Codel::default()
        }),
        mark_above: Some(20 * MS),
        policer: Some(Policer {
            rate: 1_020_000,
            burst: 40_000,
        }),
        mtu: 1450,
        outages: vec![Outage {
            from: 1000 * MS,
            until: 1100 * MS,
        }],
        changes: vec![
            Change {
                at: 2000 * MS,
                to: Setting::Rate(Some(765_432)),
            },
            Change {
                at: 3000 * MS,
                to: Setting::Delay(5 * MS),
            },
            Change {
                at: 4000 * MS,
                to: Setting::Loss(0.1),
            },
        ],
        ..LinkConfig::default()
    }
}

/// Returns one line per packet: its delivery time in nanoseconds, or the reason for which it was dropped.
fn fates(seed: u64) -> Vec<String> {
    let start = Instant::now();
    let mut link = Link::new(everything(), seed, start);
    let at = |time: Instant| (time - start).as_nanos();
    let fates = (0..5000u32).map(|index| {
        let packet = Packet {
            length: 200 + usize::try_from(index * 7919 % 1252).expect("small"),
            ecn_capable: index % 3 == 0,
        };
        let now = start + Duration::from_micros(800) * index;
        match link.send(now, packet) {
            Fate::Delivered {
                at: out,
                copy,
                marked,
            } => {
                let copy = copy.map_or_else(String::new, |copy| format!(" and {}", at(copy)));
                let mark = if marked { " CE" } else { "" };
                format!("{}{copy}{mark}", at(out))
            }
            Fate::Dropped(reason) => format!("{reason:?}"),
        }
    });
    fates.collect()
}

/// Returns the FNV-1a hash of all lines.
pub(crate) fn digest(lines: &[String]) -> u64 {
    let bytes = lines.iter().flat_map(|line| line.bytes().chain([b'\n']));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[test]
fn a_seed_gives_the_same_events_everywhere() {
    let story_of_one = fates(1);
    assert_eq!(story_of_one[..4], FIRST);
    let reasons = [
        "Random",
        "Burst",
        "Policer",
        "QueueFull",
        "Codel",
        "Outage",
        "TooLong",
    ];
    for reason in reasons {
        assert!(
            story_of_one.iter().any(|line| line == reason),
            "no packet was dropped for {reason}"
        );
    }
    for mark in [" CE", " and "] {
        assert!(
            story_of_one.iter().any(|line| line.contains(mark)),
            "no line contains `{mark}`"
        );
    }
    assert_eq!([1, 2, u64::MAX].map(|seed| digest(&fates(seed))), DIGESTS);
}

const FIRST: [&str; 4] = ["10600338", "14255504", "14255504", "16357786"];

const DIGESTS: [u64; 3] = [
    12_620_762_379_011_167_283,
    6_117_419_144_849_235_541,
    14_182_368_984_275_655_798,
];
