//! Charts as SVG: no script, colours from a style sheet, legible on a phone.
//!
//! A picture is as wide as a phone's screen, so that its letters are never scaled down. `plot` returns a chart for a
//! page that includes `STYLE`; [`sheet`] returns a self-contained picture. A timeline is wide and self-contained.

mod axis;
mod lanes;
#[cfg(any(test, feature = "evidence"))]
mod timeline;

use maud::{Markup, PreEscaped, html};

use crate::put;
use crate::writing::{shown, tenth};
pub use axis::XDivision;
use axis::{HEIGHT, LEFT, RIGHT, ValueAxis, WIDTH, XAxis, count, trimmed};
pub(crate) use lanes::{COLOURS, LANES, LaneChart, LaneGroup, ValueLane};
#[cfg(any(test, feature = "evidence"))]
pub use timeline::{Band, PhaseRow, Timeline, Track};

/// The style sheet of charts (CSS): colours and strokes.
pub(crate) const STYLE: &str = include_str!("chart.css");

/// Number of distinct mark shapes.
const MARKS: usize = 6;

/// Heights within a sheet: the heading, a panel's title, and one line of the legend, which has two columns.
const HEAD: f64 = 30.0;
const TITLE: f64 = 24.0;
const LEGEND: f64 = 20.0;

/// Space above a plot for the title of the y axis: a line of text above the label of the highest tick.
const UP: f64 = 14.0;

/// A chart: several lines over the same axes.
#[derive(Debug)]
pub struct Panel {
    /// The title above the chart.
    pub title: String,
    /// The quantity on the y axis, with its unit. Empty if the title says it.
    pub y_title: String,
    /// The quantity on the x axis.
    pub x_title: String,
    /// The division of the x axis.
    pub x_division: XDivision,
    /// Values that the y axis must include, besides those of the lines. A zero keeps the axis linear.
    pub room: Vec<f64>,
    /// The lines, drawn in this order.
    pub lines: Vec<Series>,
}

/// One line of a chart.
#[derive(Debug)]
pub struct Series {
    /// The line's name in the legend of a sheet.
    pub name: String,
    /// Index of the colour and of the mark.
    pub style: usize,
    /// The line's stroke and marks.
    pub stroke: Stroke,
    /// Text of the line's tooltip. Empty for no tooltip.
    pub tooltip: String,
    /// The points, from left to right.
    pub(crate) points: Vec<Point>,
}

/// The stroke and marks of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stroke {
    /// A line with a mark and whiskers at each point.
    Marked,
    /// A dashed line without marks.
    Dashed,
    /// A thin line without marks.
    Trace,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    /// Position on the x axis. For [`XDivision::Categories`], the index of the category.
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// The lower and upper end of the interval.
    pub(crate) ends: [f64; 2],
}

impl Series {
    /// Creates a line through values without intervals.
    pub fn new(
        name: String,
        style: usize,
        stroke: Stroke,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        let exact = |(x, y)| Point { x, y, ends: [y; 2] };
        Self {
            name,
            style,
            stroke,
            tooltip: String::new(),
            points: points.into_iter().map(exact).collect(),
        }
    }

    fn class(&self) -> String {
        let kind = match self.stroke {
            Stroke::Marked => "l",
            Stroke::Dashed => "l d",
            Stroke::Trace => "t",
        };
        format!("{kind} s{}", self.style % COLOURS)
    }

    fn swatch(&self, x: f64, y: f64) -> Markup {
        html! {
            path class=(self.class()) d={ "M" (x) " " (y) "h28" } {}
            @if self.stroke == Stroke::Marked { (mark(self.style, x + 14.0, y)) }
        }
    }
}

pub(crate) fn plot(panel: &Panel) -> Markup {
    html! {
        svg.plot viewBox={ "0 0 " (WIDTH) " " (HEIGHT + UP) } role="img" aria-label=(panel.title) {
            text x="4" y="12" { (panel.y_title) }
            g transform={ "translate(0 " (UP) ")" } { (body(panel)) }
        }
    }
}

pub(crate) fn swatch(style: usize) -> Markup {
    let line = Series::new(String::new(), style, Stroke::Marked, []);
    html! { svg.swatch viewBox="0 0 28 12" aria-hidden="true" { (line.swatch(0.0, 6.0)) } }
}

/// Draws panels one below the other, each with its legend, as a self-contained picture. Leaves out panels without
/// points.
pub fn sheet(heading: &str, warning: Option<&str>, panels: &[Panel]) -> String {
    let mut top = HEAD + warning.map_or(0.0, |_| LEGEND);
    let mut placed = Vec::new();
    for panel in panels {
        let lines: Vec<&Series> = panel
            .lines
            .iter()
            .filter(|line| !line.points.is_empty())
            .collect();
        if !lines.is_empty() {
            let legend = TITLE + HEIGHT + LEGEND / 2.0;
            let height = legend + LEGEND * count(lines.len().div_ceil(2));
            placed.push((top, legend, panel, lines));
            top += height;
        }
    }
    let picture = html! {
        svg.plot xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (WIDTH) " " (top) } width="100%" style="max-width:60rem" {
            style { (PreEscaped(STYLE)) }
            rect.p width="100%" height="100%" {}
            text x=(RIGHT) y="18" { (heading) }
            @if let Some(warning) = warning { text.bad x=(RIGHT) y="36" { (warning) } }
            @for (begin, legend, panel, lines) in &placed {
                g transform={ "translate(0 " (begin) ")" } {
                    text.h x=(RIGHT) y="16" { (panel.title) }
                    g transform={ "translate(0 " (TITLE) ")" } { (body(panel)) }
                    @for (at, line) in lines.iter().enumerate() {
                        @let (x, y) = (LEFT + (WIDTH - LEFT) / 2.0 * count(at % 2), legend + LEGEND * count(at / 2));
                        (line.swatch(x, y))
                        text x=(x + 34.0) y=(y + 4.0) { (line.name) }
                    }
                }
            }
        }
    };
    picture.into_string() + "\n"
}

fn body(panel: &Panel) -> Markup {
    let points = || panel.lines.iter().flat_map(|line| &line.points);
    let values = points().flat_map(|point| [point.y, point.ends[0], point.ends[1]]);
    let up = ValueAxis::of(values.chain(panel.room.iter().copied()));
    let x = XAxis::new(&panel.x_division, points().map(|point| point.x));
    html! {
        text.x x=(tenth((LEFT + WIDTH - RIGHT) / 2.0)) y=(HEIGHT - 7.0) { (panel.x_title) }
        @if up.is_logarithmic() { text.y x=(WIDTH - RIGHT) y="9" { "logarithmic scale" } }
        @for tick in &up.ticks {
            @let y = up.y(*tick);
            path.g d={ "M" (LEFT) " " (tenth(y)) "H" (WIDTH - RIGHT) } {}
            text.y x=(LEFT - 5.0) y=(tenth(y + 4.0)) { (trimmed(*tick)) }
        }
        @for (value, name) in x.marks() {
            @let at = x.at(value);
            // A centred label of the last mark would extend beyond the picture.
            @let anchor = if at > 0.97 * (WIDTH - RIGHT) { "end" } else { "middle" };
            text x=(tenth(at)) y=(HEIGHT - 25.0) text-anchor=(anchor) { (name) }
        }
        @for (number, line) in panel.lines.iter().enumerate() {
            // Shift the lines sideways, so that whiskers do not hide each other.
            @let shift = x.spacing() * (count(number) - (count(panel.lines.len()) - 1.0) / 2.0);
            @let at = |point: &Point| x.at(point.x) + shift;
            path class=(line.class()) d=(path(line.points.iter().map(|point| (at(point), up.y(point.y))))) {
                @if !line.tooltip.is_empty() { title { (line.tooltip) } }
            }
            @for point in line.points.iter().filter(|_| line.stroke == Stroke::Marked) {
                (marked(line.style, at(point), &up, point))
            }
        }
    }
}

fn marked(style: usize, x: f64, up: &ValueAxis, point: &Point) -> Markup {
    let [low, high] = point.ends;
    let has_whiskers = low < high;
    let whiskers = [low, high]
        .map(|end| format!("M{:.1} {:.1}h6", x - 3.0, up.y(end)))
        .concat();
    html! {
        @if has_whiskers {
            path class={ "w s" (style % COLOURS) } d={ "M" (tenth(x)) " " (tenth(up.y(low))) "V" (tenth(up.y(high))) (whiskers) } {}
        }
        g {
            title {
                (shown(point.y))
                @if has_whiskers { " [" (shown(low)) ", " (shown(high)) "]" }
            }
            (mark(style, x, up.y(point.y)))
        }
    }
}

/// Draws the mark of a style. Styles differ in shape as well as in colour.
fn mark(style: usize, x: f64, y: f64) -> Markup {
    let outline = match style % MARKS {
        0 => format!("M{:.1} {y:.1}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", x - 4.0),
        1 => format!("M{:.1} {:.1}h7v7h-7z", x - 3.5, y - 3.5),
        2 => format!("M{x:.1} {:.1}l5 5l-5 5l-5 -5z", y - 5.0),
        3 => format!("M{x:.1} {:.1}l5 8.5h-10z", y - 5.0),
        4 => format!("M{x:.1} {:.1}l5 -8.5h-10z", y + 5.0),
        _ => format!("M{:.1} {:.1}h10v3h-10z", x - 5.0, y - 1.5),
    };
    html! { path class={ "m s" (style % COLOURS) } d=(outline) {} }
}

fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (x, y) in points {
        let step = if path.is_empty() { 'M' } else { 'L' };
        put!(path, "{step}{x:.1} {y:.1}");
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(style: usize, stroke: Stroke, points: &[(f64, f64)]) -> Series {
        let ends = |y| {
            if stroke == Stroke::Marked {
                [y - 1.0, y + 1.0]
            } else {
                [y, y]
            }
        };
        let points = points.iter().map(|(x, y)| Point {
            x: *x,
            y: *y,
            ends: ends(*y),
        });
        Series {
            name: "a <b>".to_owned(),
            style,
            stroke,
            tooltip: String::new(),
            points: points.collect(),
        }
    }

    fn panel(x_division: XDivision, room: &[f64], lines: Vec<Series>) -> Panel {
        Panel {
            title: "x \"quoted\"".to_owned(),
            y_title: "rate (Mbit/s)".to_owned(),
            x_title: "packet loss rate".to_owned(),
            x_division,
            room: room.to_vec(),
            lines,
        }
    }

    #[test]
    fn a_chart_has_every_point_and_leaves_gaps_open() {
        let names = ["a", "<b>", "c"].map(str::to_owned).into();
        let marked = |style, points: &[_]| line(style, Stroke::Marked, points);
        let lines = vec![
            marked(0, &[(0.0, 5.0), (2.0, 7.0)]),
            marked(7, &[(1.0, 6.0)]),
        ];
        let svg = plot(&panel(XDivision::Categories(names), &[], lines)).into_string();
        assert!(
            svg.contains(r#"aria-label="x &quot;quoted&quot;""#),
            "{svg}"
        );
        for title in [">packet loss rate</text>", ">rate (Mbit/s)</text>"] {
            assert!(svg.contains(title), "{svg}");
        }
        assert_eq!(svg.matches("<title>").count(), 3);
        assert!(svg.contains("&lt;b&gt;") && svg.contains("m s7"), "{svg}");
        let trace = |room: &[f64]| {
            let lines = vec![line(2, Stroke::Trace, &[(0.5, 1e6), (12.03, 2e6)])];
            plot(&panel(XDivision::Seconds, room, lines)).into_string()
        };
        let svg = trace(&[0.0]);
        for part in ["t s2", ">0 s<", ">2 s<", ">12 s<"] {
            assert!(svg.contains(part), "{part}\n{svg}");
        }
        assert!(!svg.contains(">8000k<") && trace(&[0.0, 8e6]).contains(">8000k<"));
    }

    #[test]
    fn a_sheet_has_every_panel_and_leaves_empty_ones_out() {
        let dashed = |points: &[_]| vec![line(0, Stroke::Dashed, points)];
        let panels = [
            panel(
                XDivision::Doublings,
                &[],
                dashed(&[(1.0, 700.0), (512.0, 40.0)]),
            ),
            panel(
                XDivision::Categories(["0", "30"].map(str::to_owned).into()),
                &[0.0, 1.0],
                vec![line(1, Stroke::Marked, &[(0.0, 1.0), (1.0, 2.0)])],
            ),
            panel(XDivision::Doublings, &[], dashed(&[])),
        ];
        let svg = sheet("a machine", Some("noise"), &panels);
        assert_eq!(svg.matches(">packet loss rate<").count(), 2, "{svg}");
        assert!(svg.contains("a &lt;b&gt;") && !svg.contains("NaN"), "{svg}");
        let height = HEAD + LEGEND + 2.0 * (TITLE + HEIGHT + 1.5 * LEGEND);
        assert!(
            svg.contains(&format!("viewBox=\"0 0 {WIDTH} {height}\"")),
            "{svg}"
        );
        for path in svg.split("class=\"l d s0\" d=\"M").skip(1) {
            let path = path.split('"').next().expect("its end");
            for number in path.split(['L', 'H', 'h', ' ']) {
                let at: f64 = number.parse().expect("a number");
                assert!((0.0..=height).contains(&at), "{path}");
            }
        }
    }
}
