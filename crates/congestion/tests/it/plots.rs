//! Pictures of the controller at work, for `docs/CONGESTION.md`: rates, delays and phases on six links.
//!
//! After an intended change, draw them again with `QUICTUN_BLESS=1 cargo test -p quictun-congestion --test it plots`,
//! and check that the text beside them is still true.

use std::path::PathBuf;
use std::time::Duration;

use quictun_lab::chart::{Band, PhaseRow, Series, Stroke, Timeline, Track};
use quictun_link::LinkConfig;

use crate::bbr;
use crate::links::{auto, cubic, link, sender};
use crate::simulation::{Jitter, SenderConfig, SimulatedFlow, Simulation};

/// Interval at which phase and delays are sampled. It is short enough to show a probe of one round trip.
const SAMPLE_EVERY: Duration = Duration::from_millis(5);

/// Duration of the slots of the means in most pictures.
const SLOT: Duration = Duration::from_millis(100);

/// The name of each phase, and the colour of its stripes.
const PHASES: [(&str, usize); 7] = [
    ("startup", 3),
    ("drain", 5),
    ("cruise", 2),
    ("up", 1),
    ("down", 0),
    ("rest", 4),
    ("rival", 6),
];

/// A picture of senders on one link. The first sender is the `auto` sender.
struct Picture {
    /// File name of the picture in `docs/congestion`.
    file: &'static str,
    heading: &'static str,
    seconds: u64,
    /// Slot over which rates and delays are averaged: at least a round trip.
    slot: Duration,
    link: LinkConfig,
    senders: Vec<(&'static str, SenderConfig)>,
    /// Changes of the link and of its senders in order, each with the number of seconds after which it happens.
    changes: Vec<(u64, PictureChange)>,
    /// Another sender for comparison, alone on the same link.
    instead: Option<(&'static str, SenderConfig)>,
}

enum PictureChange {
    /// The link's rate in Mbit/s from now on. Its queue holds the same number of bytes as before.
    Rate(u64),
    /// The flow that stops.
    Stop(usize),
}

/// The results of a scene.
#[derive(Default)]
struct PictureData {
    /// Means of a slot: the time in seconds, and in milliseconds how long packets wait and how long the first
    /// sender's round trips take.
    waits: Vec<(f64, f64)>,
    trips: Vec<(f64, f64)>,
    /// Phases of the first sender, each with its start and end in seconds.
    phases: Vec<(&'static str, f64, f64)>,
    /// Rates of each flow, as pairs of seconds and Mbit/s.
    rates: Vec<Vec<(f64, f64)>>,
}

impl Picture {
    fn run(&self) -> PictureData {
        let senders = self.senders.iter().map(|(_, sender)| *sender).collect();
        let mut sim = Simulation::new(self.link.clone(), 1, senders);
        sim.slot = self.slot;
        let mut seen = PictureData::default();
        let mut changes = self.changes.iter().peekable();
        let mut now = Duration::ZERO;
        while now < Duration::from_secs(self.seconds) {
            if let Some((_, change)) = changes.next_if(|(at, _)| now >= Duration::from_secs(*at)) {
                match change {
                    PictureChange::Rate(mbit) => sim.reconfigure(LinkConfig {
                        rate: Some(mbit * 125_000),
                        ..self.link.clone()
                    }),
                    PictureChange::Stop(flow) => sim.stop(*flow),
                }
            }
            let middle = (now + sim.slot / 2).as_secs_f64();
            let (mut wait, mut trip) = (0.0, 0.0);
            let samples = (sim.slot.as_nanos() / SAMPLE_EVERY.as_nanos()) as u32;
            for _ in 0..samples {
                let began = now.as_secs_f64();
                now += SAMPLE_EVERY;
                sim.run_until(now);
                wait += sim.bottleneck.wait(sim.now).as_secs_f64();
                trip += sim.flows[0].latest_rtt.as_secs_f64();
                seen.phase(sim.flows[0].model.view().phase, began, now.as_secs_f64());
            }
            seen.waits.push((middle, wait / f64::from(samples) * 1e3));
            seen.trips.push((middle, trip / f64::from(samples) * 1e3));
        }
        let flows = sim.flows.iter();
        seen.rates = flows.map(|flow| rates(flow, sim.slot)).collect();
        seen
    }

    /// Returns the rate of the sender that has the link in place of the `auto` sender.
    fn instead(&self) -> Option<Series> {
        let (name, sender) = self.instead?;
        let mut sim = Simulation::new(self.link.clone(), 1, vec![sender]);
        sim.slot = self.slot;
        sim.run_until(Duration::from_secs(self.seconds));
        let rates = rates(&sim.flows[0], sim.slot);
        Some(Series::new(name.to_owned(), 1, Stroke::Trace, rates))
    }

    /// Returns the link's rate over time, as pairs of seconds and Mbit/s.
    fn capacity(&self) -> Vec<(f64, f64)> {
        let mut rate = carries(&self.link);
        let mut steps = vec![(0.0, rate)];
        for (at, change) in &self.changes {
            if let PictureChange::Rate(mbit) = change {
                steps.push((*at as f64, rate));
                rate = *mbit as f64;
                steps.push((*at as f64, rate));
            }
        }
        steps.push((self.seconds as f64, rate));
        steps
    }

    fn svg(&self, seen: &PictureData) -> String {
        let line = |name: &str, style, stroke, points: &[_]| {
            Series::new(name.to_owned(), style, stroke, points.iter().copied())
        };
        let mut rates = vec![line("the link", 5, Stroke::Dashed, &self.capacity())];
        rates.extend(self.instead());
        for (at, (name, _)) in self.senders.iter().enumerate().rev() {
            rates.push(line(name, at, Stroke::Trace, &seen.rates[at]));
        }
        let delays = vec![
            line("round trip of our packets", 3, Stroke::Trace, &seen.trips),
            line("waiting at the bottleneck", 2, Stroke::Trace, &seen.waits),
        ];
        let row = |(name, style): (&str, usize)| {
            let is_row = |(phase, ..): &&(&str, f64, f64)| *phase == name;
            let stripes = seen.phases.iter().filter(is_row);
            PhaseRow {
                name: name.to_owned(),
                style,
                stripes: stripes.map(|(_, from, to)| (*from, *to)).collect(),
            }
        };
        let track = |title: &str, height, room, lines| Track {
            title: title.to_owned(),
            height,
            room,
            lines,
        };
        // Leave room, so that the line of the link's rate is not the edge of the picture.
        let room = 1.1 * carries(&self.link);
        Timeline {
            heading: self.heading.to_owned(),
            seconds: self.seconds as f64,
            tracks: vec![
                track("rate, Mbit/s", 150.0, room, rates),
                track("delay, ms", 90.0, 0.0, delays),
            ],
            band: Band {
                title: "phase of our sender".to_owned(),
                rows: PHASES.into_iter().map(row).collect(),
            },
        }
        .svg()
    }

    /// Compares the committed picture with the current result, or draws it. Then checks that the phases named in the
    /// text occur in the picture.
    fn hold(&self) {
        let (file, seen) = (self.file, self.run());
        let svg = self.svg(&seen);
        assert!(svg.len() < 60_000, "{file}: {} bytes", svg.len());
        let docs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let path = docs.join("congestion").join(file);
        if std::env::var_os("QUICTUN_BLESS").is_some() {
            std::fs::write(&path, svg).expect("the picture is written");
        } else {
            let committed = std::fs::read_to_string(&path).expect("the picture is committed");
            assert!(committed == svg, "{file} differs from what is drawn now");
        }
        let text = std::fs::read_to_string(docs.join("CONGESTION.md")).expect("the document");
        let (_, told) = text
            .split_once(&format!("](congestion/{file})"))
            .expect("CONGESTION.md shows the picture");
        let (told, _) = told.split_once("\n#").unwrap_or((told, ""));
        for (phase, _) in PHASES {
            if told.contains(&format!("`{phase}`")) {
                let is_seen = seen.phases.iter().any(|(name, ..)| *name == phase);
                assert!(is_seen, "{file}: the text names {phase}, which is not seen");
            }
        }
    }
}

impl PictureData {
    fn phase(&mut self, phase: &'static str, from: f64, to: f64) {
        match self.phases.last_mut() {
            Some((name, _, end)) if *name == phase => *end = to,
            _ => self.phases.push((phase, from, to)),
        }
    }
}

fn mbit(rate: f64) -> f64 {
    rate / 125_000.0
}

fn carries(link: &LinkConfig) -> f64 {
    mbit(link.rate.unwrap_or(0) as f64)
}

/// Returns the rate of a flow, as pairs of the middle of a slot in seconds and Mbit/s.
fn rates(flow: &SimulatedFlow, slot: Duration) -> Vec<(f64, f64)> {
    let slot_s = slot.as_secs_f64();
    let slots = flow.series.iter().enumerate();
    slots
        .map(|(at, bytes)| ((at as f64 + 0.5) * slot_s, mbit(*bytes as f64 / slot_s)))
        .collect()
}

#[test]
fn a_clean_link() {
    Picture {
        file: "clean.svg",
        heading: "A clean link: 100 Mbit/s, 40 ms",
        seconds: 12,
        slot: Duration::from_millis(40),
        link: link(100, 40.0, 1.0),
        senders: vec![("auto", sender(auto, 40.0, 0.0))],
        changes: Vec::new(),
        instead: None,
    }
    .hold();
}

#[test]
fn a_link_that_loses_packets() {
    let lossy = |model| SenderConfig {
        loss_after: 0.01,
        ..sender(model, 100.0, 0.0)
    };
    Picture {
        file: "loss.svg",
        heading: "A link that loses one packet of a hundred: 100 Mbit/s, 100 ms",
        seconds: 12,
        slot: SLOT,
        link: link(100, 100.0, 1.0),
        senders: vec![("auto", lossy(auto))],
        changes: Vec::new(),
        instead: Some(("CUBIC alone on the same link", lossy(cubic))),
    }
    .hold();
}

#[test]
fn a_link_with_jitter() {
    let ours = SenderConfig {
        jitter: Jitter {
            even: Duration::from_millis(20),
            ..Jitter::default()
        },
        ..sender(auto, 40.0, 0.0)
    };
    Picture {
        file: "jitter.svg",
        heading: "A link with jitter: 100 Mbit/s, 40 ms, up to 20 ms more each way",
        seconds: 12,
        slot: SLOT,
        link: link(100, 40.0, 1.5),
        senders: vec![("auto", ours)],
        changes: Vec::new(),
        instead: None,
    }
    .hold();
}

#[test]
fn a_cubic_flow_that_comes_and_goes() {
    Picture {
        file: "cubic.svg",
        heading: "Beside a CUBIC flow that comes after 4 s and leaves after 20 s: 100 Mbit/s, 30 ms",
        seconds: 35,
        slot: SLOT,
        link: link(100, 30.0, 1.0),
        senders: vec![
            ("auto", sender(auto, 30.0, 0.0)),
            ("CUBIC", sender(cubic, 30.0, 4.0)),
        ],
        changes: vec![(20, PictureChange::Stop(1))],
        instead: None,
    }
    .hold();
}

#[test]
fn a_bbr_flow() {
    Picture {
        file: "bbr.svg",
        heading: "Beside a flow of BBR version 1 that comes after 4 s: 100 Mbit/s, 30 ms",
        seconds: 40,
        slot: SLOT,
        link: link(100, 30.0, 1.0),
        senders: vec![
            ("auto", sender(auto, 30.0, 0.0)),
            ("BBR", sender(bbr::model, 30.0, 4.0)),
        ],
        changes: Vec::new(),
        instead: None,
    }
    .hold();
}

#[test]
fn a_link_that_changes_its_rate() {
    Picture {
        file: "steps.svg",
        heading: "A link that changes its rate: 100, 25 and again 100 Mbit/s, 40 ms",
        seconds: 20,
        slot: SLOT,
        link: link(100, 40.0, 1.0),
        senders: vec![("auto", sender(auto, 40.0, 0.0))],
        changes: vec![(6, PictureChange::Rate(25)), (14, PictureChange::Rate(100))],
        instead: None,
    }
    .hold();
}
