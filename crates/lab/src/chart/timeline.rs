//! Timelines: tracks of lines above each other, and a band of phases below them.

use maud::{Markup, PreEscaped, html};

use super::axis::{ValueAxis, XAxis, count, trimmed};
use super::{STYLE, Series, XDivision, path};
use crate::put;
use crate::writing::tenth;

/// CSS rules of timelines, in addition to [`STYLE`].
const WIDE: &str = include_str!("timeline.css");

/// Width of a picture, and the margins for labels left and right of the axes.
const WIDTH: f64 = 900.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;

/// Heights of the heading, of a track's title with its legend, of a row of the band, and of the time axis's labels.
const HEAD: f64 = 34.0;
const TITLE: f64 = 28.0;
const ROW: f64 = 15.0;
const FOOT: f64 = 40.0;

/// Approximate width of a letter, for placing the entries of a legend side by side.
const LETTER: f64 = 6.4;

/// Number of stripe colours: those of lines and one more.
const COLOURS: usize = 7;

/// Approximate distance between two grid lines.
const STEP: f64 = 25.0;

/// Minimum width of a stripe, so that it stays visible.
const STRIPE_LEAST: f64 = 0.6;

/// Tracks over the same time axis, with a band below them, as a self-contained picture.
#[derive(Debug)]
pub struct Timeline {
    /// The title of the picture.
    pub heading: String,
    /// The end of the time axis, in seconds. The axis begins at 0.
    pub seconds: f64,
    /// The tracks, from top to bottom.
    pub tracks: Vec<Track>,
    /// The band of phases below the tracks.
    pub band: Band,
}

/// Lines over the same axes, all of them without marks.
#[derive(Debug)]
pub struct Track {
    /// The quantity on the y axis, with its unit.
    pub title: String,
    /// Height of the drawing area, without the title.
    pub height: f64,
    /// Minimum upper end of the y axis, which begins at zero.
    pub room: f64,
    /// The lines. Their x values are seconds.
    pub lines: Vec<Series>,
}

/// Phases over time, one row per phase.
#[derive(Debug)]
pub struct Band {
    /// The heading above the rows.
    pub title: String,
    /// The rows, from top to bottom.
    pub rows: Vec<PhaseRow>,
}

/// The times at which one phase was active.
#[derive(Debug)]
pub struct PhaseRow {
    /// The name of the phase.
    pub name: String,
    /// Index of the colour.
    pub style: usize,
    /// Begin and end of each active period, in seconds.
    pub stripes: Vec<(f64, f64)>,
}

impl Timeline {
    /// Returns the picture as SVG.
    pub fn svg(&self) -> String {
        let x = XAxis::new(&XDivision::Seconds, [self.seconds].into_iter());
        let mut top = HEAD;
        let mut placed = Vec::new();
        for track in &self.tracks {
            placed.push((top + TITLE, track));
            top += TITLE + track.height;
        }
        let rows = top + TITLE;
        let bottom = rows + ROW * count(self.band.rows.len());
        let height = bottom + FOOT;
        let picture = html! {
            svg.plot xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (WIDTH) " " (height) } width=(WIDTH) height=(height) role="img" aria-label=(self.heading) {
                style { (PreEscaped(STYLE)) (PreEscaped(WIDE)) }
                rect.p width="100%" height="100%" {}
                text.h x=(LEFT) y="22" { (self.heading) }
                @for (value, name) in x.marks() {
                    @let at = tenth(x_position(&x, value));
                    @for (top, track) in &placed { path.g d={ "M" (at) " " (top) "v" (track.height) } {} }
                    path.g d={ "M" (at) " " (rows) "V" (bottom) } {}
                    text.x x=(at) y=(bottom + 16.0) { (name) }
                }
                text.x x=((LEFT + WIDTH - RIGHT) / 2.0) y=(bottom + 33.0) { "time since the start" }
                @for (top, track) in &placed { (self::track(&x, *top, track)) }
                text x=(LEFT) y=(rows - 8.0) { (self.band.title) }
                @for (number, row) in self.band.rows.iter().enumerate() {
                    @let middle = rows + ROW * (count(number) + 0.5);
                    text.y x=(LEFT - 6.0) y=(middle + 4.0) { (row.name) }
                    path class={ "b s" (row.style % COLOURS) } d=(stripes(&x, middle, row)) {}
                }
            }
        };
        picture.into_string() + "\n"
    }
}

fn x_position(x: &XAxis<'_>, seconds: f64) -> f64 {
    LEFT + (WIDTH - LEFT - RIGHT) * x.part(seconds)
}

fn track(x: &XAxis<'_>, top: f64, track: &Track) -> Markup {
    let values = track.lines.iter().flat_map(|line| &line.points);
    let high = values.map(|point| point.y).fold(track.room, f64::max);
    let up = ValueAxis::from_zero(high, track.height / STEP);
    let height = |value| top + track.height * (1.0 - up.part(value));
    let mut end = WIDTH - RIGHT;
    let mut legend = Vec::new();
    for line in track.lines.iter().rev() {
        legend.push((end, line));
        end -= LETTER * count(line.name.chars().count()) + 50.0;
    }
    html! {
        text x=(LEFT) y=(top - 8.0) { (track.title) }
        @for (end, line) in legend {
            @let begin = end - LETTER * count(line.name.chars().count()) - 34.0;
            (line.swatch(begin, top - 12.0))
            text x=(begin + 34.0) y=(top - 8.0) { (line.name) }
        }
        @for tick in &up.ticks {
            @let y = height(*tick);
            path.g d={ "M" (LEFT) " " (tenth(y)) "H" (WIDTH - RIGHT) } {}
            text.y x=(LEFT - 6.0) y=(tenth(y + 4.0)) { (trimmed(*tick)) }
        }
        @for line in &track.lines {
            path class=(line.class()) d=(path(line.points.iter().map(|point| (x_position(x, point.x), height(point.y))))) {}
        }
    }
}

fn stripes(x: &XAxis<'_>, middle: f64, row: &PhaseRow) -> String {
    let mut all = String::new();
    for (from, to) in &row.stripes {
        let from = x_position(x, *from);
        let width = (x_position(x, *to) - from).max(STRIPE_LEAST);
        put!(all, "M{from:.1} {middle}h{width:.1}");
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::Stroke;
    use super::*;

    fn timeline() -> Timeline {
        let line = |name: &str, points: &[(f64, f64)]| {
            Series::new(name.to_owned(), 0, Stroke::Trace, points.iter().copied())
        };
        Timeline {
            heading: "a & b".to_owned(),
            seconds: 10.0,
            tracks: vec![
                Track {
                    title: "rate, Mbit/s".to_owned(),
                    height: 100.0,
                    room: 100.0,
                    lines: vec![line("a <b>", &[(0.0, 0.0), (5.0, 120.0), (10.0, 60.0)])],
                },
                Track {
                    title: "wait, ms".to_owned(),
                    height: 50.0,
                    room: 1.0,
                    lines: vec![line("wait", &[]), line("trip", &[(10.0, 0.25)])],
                },
            ],
            band: Band {
                title: "phase".to_owned(),
                rows: vec![PhaseRow {
                    name: "up".to_owned(),
                    style: 9,
                    stripes: vec![(0.0, 5.0), (5.0, 5.0)],
                }],
            },
        }
    }

    #[test]
    fn lines_and_stripes_are_at_their_seconds_and_values() {
        let svg = timeline().svg();
        // The drawing is 812 wide and begins at x = 64. The first track spans y = 62 to 162 for values up to 150, the
        // second y = 190 to 240 for values up to 1.
        assert!(
            svg.contains("d=\"M64.0 162.0L470.0 82.0L876.0 122.0\""),
            "{svg}"
        );
        assert!(svg.contains("d=\"M876.0 227.5\""), "{svg}");
        assert!(
            svg.contains("class=\"b s2\" d=\"M64.0 275.5h406.0M470.0 275.5h0.6\""),
            "{svg}"
        );
        for part in [
            "a &amp; b",
            "a &lt;b&gt;",
            ">rate, Mbit/s<",
            ">150<",
            ">10 s<",
            ">up<",
        ] {
            assert!(svg.contains(part), "{part}\n{svg}");
        }
        assert!(!svg.contains("NaN"), "{svg}");
    }
}
