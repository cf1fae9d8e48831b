//! The crates by floor.

use super::canvas::{Arrow, Canvas};

/// A floor: its name, and its crates with their purposes.
type Floor = (&'static str, &'static [(&'static str, &'static str)]);

/// The floors from top to bottom.
pub(super) const FLOORS: &[Floor] = &[
    (
        "programs",
        &[
            ("cli", "commands"),
            ("e2e", "end-to-end tests"),
            ("testbed", "ground of tests"),
        ],
    ),
    (
        "measuring",
        &[
            ("perf", "traffic"),
            ("emu", "links, real time"),
            ("lab-run", "lab and link"),
            ("bench", "cost of parts"),
        ],
    ),
    ("flags", &[("args", "flags, environment, files")]),
    (
        "running",
        &[
            ("tunnel", "workers, control"),
            ("stackd", "TUN, netstackd"),
            ("control", "HTTP, metrics"),
            ("trust", "TLS, rules"),
            ("io", "epoll, UDP"),
        ],
    ),
    (
        "platform",
        &[
            ("ipc", "calls"),
            ("shmq", "shared memory"),
            ("sys", "Linux"),
            ("skip", "skipped tests"),
        ],
    ),
    (
        "sans-IO",
        &[
            ("engine", "QUIC of a worker"),
            ("tls", "TLS 1.3 records"),
            ("sim", "virtual time"),
        ],
    ),
    (
        "pure",
        &[
            ("wire", "byte formats"),
            ("flow", "bridged flow"),
            ("congestion", "sending rate"),
            ("link", "delay, loss"),
            ("netstack", "TCP/IP"),
            ("mux", "streams"),
            ("http2", "CONNECT"),
            ("lab", "findings"),
        ],
    ),
];

/// Distance from floor to floor, and the place of the first crate of a floor.
const STEP: f64 = 80.0;
const LEFT: f64 = 134.0;

/// Gap between two crates.
const GAP: f64 = 8.0;

pub(super) fn draw() -> String {
    let names = FLOORS.iter().map(|(floor, crates)| {
        let crates: Vec<&str> = crates.iter().map(|(name, _)| *name).collect();
        format!("{floor} {}", crates.join(", "))
    });
    let description = format!(
        "From top to bottom: {}. A crate knows crates of its own floor and of lower floors only.",
        names.collect::<Vec<_>>().join("; ")
    );
    let mut canvas = Canvas::new(620, "Crates by floor", &description);
    let mut top = 16.0;
    for (floor, crates) in FLOORS {
        canvas.rect("f", [36.0, top, 672.0, 72.0], 8);
        canvas.text("t", [48.0, top + 40.0], floor);
        let width = match crates.len() {
            ..=3 => 182.0,
            4 => 135.5,
            5 => 106.8,
            6 => 87.6,
            _ => 73.9,
        };
        let mut left = LEFT;
        for &(name, purpose) in *crates {
            let class = if matches!(name, "sys" | "shmq") {
                "b u"
            } else {
                "b"
            };
            let area = [left, top + 12.0, width, 48.0];
            canvas.block_of(class, "s m", area, name, &[purpose]);
            left += width + GAP;
        }
        top += STEP;
    }
    canvas.arrow(Arrow::Bytes, &[[20.0, 24.0], [20.0, top - 16.0]]);
    let rule = "Each crate knows crates of its own floor and of the floors below only (arrow).";
    canvas.text("", [36.0, top + 14.0], rule);
    canvas.rect("b u", [36.0, top + 26.0, 16.0, 12.0], 2);
    let marked = "has unsafe code; no other crate may";
    canvas.text("", [60.0, top + 36.0], marked);
    canvas.finish()
}
