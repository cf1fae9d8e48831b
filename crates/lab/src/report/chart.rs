//! Plots as SVG that stands in the page itself: no script, colours from the page, legible on a telephone.
//!
//! The picture is as wide as a telephone, so that its letters are never smaller than they are drawn.

use super::put;
use crate::number::shown;

/// A line of a plot.
#[derive(Debug)]
pub(super) struct Series {
    /// Which of the colours and marks, as in the legend.
    pub(super) style: usize,
    /// For each place on the x axis, if there is one.
    pub(super) points: Vec<Option<Point>>,
}

/// A value and the interval around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// A line over time.
#[derive(Debug)]
pub(super) struct Trace {
    pub(super) style: usize,
    pub(super) points: Vec<(f64, f64)>,
}

/// Colours and marks that the page has.
pub(super) const STYLES: usize = 6;

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 256.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 42.0;

/// Largest over smallest from which an axis is logarithmic.
const LOGARITHMIC: f64 = 15.0;

/// Letters of an x label that fit, by how many labels there are.
const LETTERS: usize = 48;

/// What a plot is of, and along what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'a> {
    pub(super) title: &'a str,
    pub(super) along: &'a str,
}

/// Values against named places, with whiskers.
pub(super) fn places(words: Words<'_>, names: &[&str], series: &[Series]) -> String {
    let all = series.iter().flat_map(|one| one.points.iter().flatten());
    let axis = Axis::of(all.flat_map(|point| [point.value, point.low, point.high]));
    let mut svg = opened(words, &axis);
    let slot = (WIDTH - LEFT - RIGHT) / count(names.len().max(1));
    let x = |at: usize| LEFT + slot * (count(at) + 0.5);
    for (at, name) in names.iter().enumerate() {
        let short: String = name.chars().take(LETTERS / names.len()).collect();
        let text = super::html::escaped(&short);
        put(
            &mut svg,
            format_args!(
                r#"<text x="{:.1}" y="{:.1}" class="x">{text}</text>"#,
                x(at),
                HEIGHT - 25.0
            ),
        );
    }
    for (number, one) in series.iter().enumerate() {
        // Side by side, so that whiskers do not hide each other.
        let shift = (count(number) - (count(series.len()) - 1.0) / 2.0) * (slot / 12.0).min(5.0);
        let style = one.style % STYLES;
        let known: Vec<(f64, &Point)> = one
            .points
            .iter()
            .enumerate()
            .filter_map(|(at, point)| Some((x(at) + shift, point.as_ref()?)))
            .collect();
        let line = known.iter().map(|(x, point)| (*x, axis.y(point.value)));
        put(
            &mut svg,
            format_args!(r#"<path class="l s{style}" d="{}"/>"#, path(line)),
        );
        for (x, point) in known {
            let (low, high) = (axis.y(point.low), axis.y(point.high));
            put(
                &mut svg,
                format_args!(
                    r#"<path class="w s{style}" d="M{x:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h6M{:.1} {high:.1}h6"/>"#,
                    x - 3.0,
                    x - 3.0
                ),
            );
            put(
                &mut svg,
                format_args!(
                    r#"<path class="m s{style}" d="{}"><title>{} [{}, {}]</title></path>"#,
                    mark(style, x, axis.y(point.value)),
                    shown(point.value),
                    shown(point.low),
                    shown(point.high)
                ),
            );
        }
    }
    svg + "</svg>"
}

/// Values over time, in seconds, on an axis that has room for `most`.
pub(super) fn times(words: Words<'_>, traces: &[Trace], most: f64) -> String {
    let all = traces.iter().flat_map(|trace| &trace.points);
    let until = all.clone().map(|(at, _)| *at).fold(0.1, f64::max);
    let axis = Axis::of(all.map(|(_, value)| *value).chain([0.0, most]));
    let mut svg = opened(words, &axis);
    let x = |at: f64| LEFT + (WIDTH - LEFT - RIGHT) * (at / until).clamp(0.0, 1.0);
    let step = nice(until / 7.0);
    let ticks = (0_u32..).map(|at| f64::from(at) * step);
    for tick in ticks.take_while(|tick| *tick <= until * 1.0001) {
        // The last one would leave the picture.
        let anchor = if tick > 0.96 * until { "end" } else { "middle" };
        put(
            &mut svg,
            format_args!(
                r#"<text x="{:.1}" y="{:.1}" class="x" style="text-anchor:{anchor}">{} s</text>"#,
                x(tick),
                HEIGHT - 25.0,
                trimmed(tick)
            ),
        );
    }
    for trace in traces {
        let line = trace
            .points
            .iter()
            .map(|(at, value)| (x(*at), axis.y(*value)));
        let style = trace.style % STYLES;
        put(
            &mut svg,
            format_args!(r#"<path class="t s{style}" d="{}"/>"#, path(line)),
        );
    }
    svg + "</svg>"
}

/// The swatch that stands in a legend for a style.
pub(super) fn swatch(style: usize) -> String {
    let style = style % STYLES;
    let mark = mark(style, 14.0, 6.0);
    format!(
        r#"<svg class="swatch" viewBox="0 0 28 12" aria-hidden="true"><path class="l s{style}" d="M0 6H28"/><path class="m s{style}" d="{mark}"/></svg>"#
    )
}

struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
    ticks: Vec<f64>,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        if !high.is_finite() || high <= 0.0 {
            return Self {
                low: 0.0,
                high: 1.0,
                logarithmic: false,
                ticks: vec![0.0, 1.0],
            };
        }
        if low > 0.0 && high / low > LOGARITHMIC {
            return Self::logarithmic(low, high);
        }
        let step = nice(high / 4.0);
        let steps = (high / step).ceil().max(1.0);
        let ticks = (0_u32..)
            .map(|at| f64::from(at) * step)
            .take_while(|tick| *tick <= steps * step * 1.0001);
        // From zero: else a difference of two percent would look like one of a half.
        Self {
            low: 0.0,
            high: steps * step,
            logarithmic: false,
            ticks: ticks.take(20).collect(),
        }
    }

    fn logarithmic(low: f64, high: f64) -> Self {
        let decades = (low.log10().floor(), high.log10().ceil());
        let mut ticks = Vec::new();
        let mut decade = 10_f64.powf(decades.0);
        while decade <= 10.0 * high && ticks.len() < 40 {
            ticks.extend([1.0, 2.0, 5.0].map(|factor| decade * factor));
            decade *= 10.0;
        }
        let below = ticks
            .iter()
            .copied()
            .filter(|tick| *tick <= low)
            .reduce(f64::max)
            .unwrap_or(low);
        let above = ticks
            .iter()
            .copied()
            .filter(|tick| *tick >= high)
            .fold(f64::INFINITY, f64::min);
        let above = if above.is_finite() { above } else { high };
        ticks.retain(|tick| (below..=above).contains(tick));
        // Of many only the powers of ten.
        if ticks.len() > 8 {
            ticks.retain(|tick| (tick.log10() - tick.log10().round()).abs() < 1e-9);
        }
        Self {
            low: below,
            high: above,
            logarithmic: true,
            ticks,
        }
    }

    fn y(&self, value: f64) -> f64 {
        let scale = |value: f64| {
            if self.logarithmic {
                value.max(self.low).log10()
            } else {
                value
            }
        };
        let (low, high) = (scale(self.low), scale(self.high));
        let part = (scale(value) - low) / (high - low).max(1e-12);
        HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * part.clamp(0.0, 1.0)
    }
}

/// 1, 2 or 5 times a power of ten, at least so much.
fn nice(step: f64) -> f64 {
    let decade = 10_f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * decade)
        .find(|nice| *nice >= step * 0.9999)
        .unwrap_or(step)
}

/// The frame, the y axis, and the name of the other.
fn opened(words: Words<'_>, axis: &Axis) -> String {
    let [title, along] = [words.title, words.along].map(super::html::escaped);
    let mut svg = format!(
        r#"<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}"><text x="{:.1}" y="{:.1}" class="x">{along}</text>"#,
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 7.0
    );
    for tick in &axis.ticks {
        let y = axis.y(*tick);
        put(
            &mut svg,
            format_args!(
                r#"<path class="g" d="M{LEFT} {y:.1}H{:.1}"/><text x="{:.1}" y="{:.1}" class="y">{}</text>"#,
                WIDTH - RIGHT,
                LEFT - 5.0,
                y + 4.0,
                trimmed(*tick)
            ),
        );
    }
    svg
}

/// Without zeros that say nothing.
fn trimmed(tick: f64) -> String {
    if tick >= 10_000.0 {
        return format!("{}k", tick / 1000.0);
    }
    let text = format!("{tick:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (at, (x, y)) in points.enumerate() {
        let command = if at == 0 { 'M' } else { 'L' };
        put(&mut path, format_args!("{command}{x:.1} {y:.1}"));
    }
    path
}

/// Styles differ in shape as well as in colour.
fn mark(style: usize, x: f64, y: f64) -> String {
    match style {
        0 => format!("M{:.1} {y:.1}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", x - 4.0),
        1 => format!("M{:.1} {:.1}h7v7h-7z", x - 3.5, y - 3.5),
        2 => format!("M{x:.1} {:.1}l5 5l-5 5l-5 -5z", y - 5.0),
        3 => format!("M{x:.1} {:.1}l5 8.5h-10z", y - 5.0),
        4 => format!("M{x:.1} {:.1}l5 -8.5h-10z", y + 5.0),
        _ => format!("M{:.1} {:.1}h10v3h-10z", x - 5.0, y - 1.5),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a handful")]
fn count(of: usize) -> f64 {
    of as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_holds_all_values_between_ticks_that_people_use() {
        for (values, logarithmic, ticks) in [
            (&[0.0, 37.0][..], false, &[0.0, 10.0, 20.0, 30.0, 40.0][..]),
            (&[561.0, 602.0], false, &[0.0, 200.0, 400.0, 600.0, 800.0]),
            (
                &[12.8, 601.0],
                true,
                &[10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0],
            ),
            (&[], false, &[0.0, 1.0]),
            (&[0.0], false, &[0.0, 1.0]),
        ] {
            let axis = Axis::of(values.iter().copied());
            assert_eq!(
                (axis.logarithmic, &*axis.ticks),
                (logarithmic, ticks),
                "{values:?}"
            );
            for value in values {
                let y = axis.y(*value);
                assert!((TOP..=HEIGHT - BOTTOM).contains(&y), "{value} at {y}");
            }
        }
    }

    #[test]
    fn every_point_is_there_and_a_gap_is_none() {
        let point = |value| {
            Some(Point {
                value,
                low: value - 1.0,
                high: value + 1.0,
            })
        };
        let series = [
            Series {
                style: 0,
                points: vec![point(5.0), None, point(7.0)],
            },
            Series {
                style: 7,
                points: vec![None, point(6.0), None],
            },
        ];
        let words = Words {
            title: "x \"quoted\"",
            along: "packet loss rate",
        };
        let svg = places(words, &["a", "<b>", "c"], &series);
        assert!(
            svg.contains(r#"aria-label="x &quot;quoted&quot;""#),
            "{svg}"
        );
        assert!(svg.contains(">packet loss rate</text>"), "{svg}");
        assert_eq!(svg.matches("<title>").count(), 3);
        assert!(svg.contains("&lt;b&gt;") && svg.contains("m s1"), "{svg}");
        let trace = |until| Trace {
            style: 2,
            points: vec![(0.5, 1e6), (until, 2e6)],
        };
        let svg = times(words, &[trace(12.03)], 0.0);
        for part in ["t s2", ">0 s<", ">2 s<", ">12 s<"] {
            assert!(svg.contains(part), "{part}\n{svg}");
        }
        let higher = times(words, &[trace(12.03)], 8e6);
        assert!(!svg.contains(">8000k<") && higher.contains(">8000k<"));
    }
}
