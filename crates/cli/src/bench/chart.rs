//! The figure: cycles per call against calls under way, both on a logarithmic scale, the published curve dashed.

use std::fmt::Write as _;

use super::peer::Kind;
use super::published;
use super::run::{Placement, Results};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 250.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 60.0;

struct Series {
    name: String,
    color: &'static str,
    dashed: bool,
    /// Calls under way, cycles.
    points: Vec<(f64, f64)>,
}

/// The figure as SVG.
pub(super) fn draw(results: &Results) -> String {
    let all = series(results);
    let points = || all.iter().flat_map(|series| &series.points);
    let most_calls = points().map(|point| point.0).fold(2.0, f64::max);
    let least = points()
        .map(|point| point.1)
        .fold(f64::INFINITY, f64::min)
        .clamp(1.0, 1e9);
    let most = points().map(|point| point.1).fold(10.0, f64::max);
    let (low, high) = (least.log10().floor(), most.log10().ceil());
    let x = |calls: f64| LEFT + (WIDTH - LEFT - RIGHT) * calls.log2() / most_calls.log2();
    let y = |cycles: f64| {
        TOP + (HEIGHT - TOP - BOTTOM) * (high - cycles.log10()) / (high - low).max(1.0)
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let mut put = |line: String| {
        svg.push_str(&line);
        svg.push('\n');
    };
    let noise = results.noise.as_ref().map_or(String::new(), |_| {
        " NOT TO BE PUBLISHED: noisy machine".to_owned()
    });
    put(text(
        LEFT,
        22.0,
        "start",
        &format!("Cycles per call, by calls under way.{noise}"),
    ));
    put(text(
        LEFT,
        38.0,
        "start",
        &escape(&format!(
            "{}, Linux {}",
            results.machine.cpu, results.machine.kernel
        )),
    ));
    let mut power = low;
    while power <= high {
        let at = y(10_f64.powf(power));
        put(format!(
            "<path d=\"M{LEFT:.1} {at:.1}H{:.1}\" stroke=\"#ddd\"/>",
            WIDTH - RIGHT
        ));
        put(text(
            LEFT - 6.0,
            at + 4.0,
            "end",
            &format!("{:.0}", 10_f64.powf(power)),
        ));
        power += 1.0;
    }
    let mut calls = 1.0;
    while calls <= most_calls {
        put(text(
            x(calls),
            HEIGHT - BOTTOM + 18.0,
            "middle",
            &format!("{calls:.0}"),
        ));
        calls *= 2.0;
    }
    put(text(LEFT, HEIGHT - 14.0, "start", "calls under way"));
    for (number, series) in (0_u8..).zip(&all) {
        let dash = if series.dashed {
            " stroke-dasharray=\"5 4\""
        } else {
            ""
        };
        let mut path = String::new();
        for (index, (calls, cycles)) in series.points.iter().enumerate() {
            let step = if index == 0 { 'M' } else { 'L' };
            let written = write!(path, "{step}{:.1} {:.1}", x(*calls), y(*cycles));
            debug_assert!(written.is_ok(), "a String takes everything");
        }
        let color = series.color;
        put(format!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"{dash}/>"
        ));
        let (from, at) = (WIDTH - RIGHT + 16.0, TOP + 20.0 * f64::from(number));
        put(format!(
            "<path d=\"M{from} {at}h24\" stroke=\"{color}\" stroke-width=\"2\"{dash}/>"
        ));
        put(text(from + 30.0, at + 4.0, "start", &escape(&series.name)));
    }
    svg.push_str("</svg>\n");
    svg
}

fn series(results: &Results) -> Vec<Series> {
    let mut all = Vec::new();
    let last = results
        .options
        .concurrency
        .iter()
        .copied()
        .max()
        .unwrap_or(1);
    for (placement, color) in [
        (Placement::OneCore, "#1f6fb2"),
        (Placement::TwoCores, "#c0392b"),
    ] {
        let rows = || {
            results
                .rows
                .iter()
                .filter(move |row| row.cell.placement == placement && row.cell.load == 0)
        };
        let mut curve: Vec<_> = rows()
            .filter(|row| {
                row.cell.kind == Kind::Asynchronous && row.cell.policy == results.options.policy
            })
            .map(|row| (row.cell.concurrency, row.cycles[0]))
            .collect();
        curve.sort_by_key(|(calls, _)| *calls);
        let theirs = curve.iter().filter_map(|(calls, _)| {
            published::asynchronous(placement, *calls)
                .map(|cycles| (number(*calls), f64::from(cycles)))
        });
        all.push(Series {
            name: format!("published async, {}", placement.word()),
            color,
            dashed: true,
            points: theirs.collect(),
        });
        all.push(Series {
            name: format!("async, {}", placement.word()),
            color,
            dashed: false,
            points: curve
                .iter()
                .map(|(calls, cycles)| (number(*calls), *cycles))
                .collect(),
        });
        let kinds = [
            (Kind::Futex, ["#7fb2d9", "#e39b93"]),
            (Kind::SeqPacket, ["#2e8b57", "#b8860b"]),
        ];
        for (kind, colors) in kinds {
            let one = rows().find(|row| row.cell.kind == kind && row.cell.concurrency == 1);
            all.extend(one.map(|row| Series {
                name: format!("{}, {}", kind.word(), placement.word()),
                color: colors[usize::from(placement == Placement::TwoCores)],
                dashed: false,
                points: vec![(1.0, row.cycles[0]), (number(last), row.cycles[0])],
            }));
        }
    }
    all
}

fn number(calls: usize) -> f64 {
    u32::try_from(calls).map_or(f64::MAX, f64::from)
}

fn text(x: f64, y: f64, anchor: &str, text: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
