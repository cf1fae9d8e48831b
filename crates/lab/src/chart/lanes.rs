//! Values of several systems under several conditions: one lane per value, in groups one below the other.
//!
//! A lane has the system's name, a bar up to the median, whiskers, a dot for each run, and the value. On a logarithmic
//! axis there is no bar, only the mark at the median. The lane's full text is its tooltip, and a line above the chart
//! while the lane has the keyboard focus. Neither needs a script.

use maud::{Markup, PreEscaped, html};

use super::axis::{LaneAxis, WIDTH, count, trimmed};
use super::{STYLE, mark};
use crate::put;
use crate::writing::{shown, tenth};

/// CSS rules of lanes, in addition to [`STYLE`].
pub(crate) const LANES: &str = include_str!("lanes.css");

/// Number of colours that [`LANES`] and [`STYLE`] define.
pub(crate) const COLOURS: usize = 10;

/// Heights of a lane, of a group's name, of the line for the focused lane, and of the axis with its title.
const LANE: f64 = 15.0;
const GROUP: f64 = 19.0;
const TOP: f64 = 20.0;
const AXIS: f64 = 38.0;

/// Height of the title of a self-contained picture.
const TITLE: f64 = 22.0;

/// Approximate width of a letter.
const LETTER: f64 = 6.6;

/// Maximum width of the lanes' names, and the space for the values at the right.
const NAMES_MOST: f64 = 120.0;
const VALUES: f64 = 52.0;

/// Half of a mark's width.
const MARK: f64 = 4.0;

/// Maximum number of dots in a lane. If there are more runs, only a sample of them is drawn.
const DOTS: usize = 40;

/// Ratio of the largest to the smallest value above which the axis is logarithmic. At this ratio the shortest bar is
/// narrower than a letter.
const LOGARITHMIC: f64 = 200.0;

/// A chart of groups of lanes.
#[derive(Debug)]
pub(crate) struct LaneChart {
    /// The measured quantity, with its unit.
    pub(crate) title: String,
    /// The quantity that distinguishes the groups, for example `packet loss rate`.
    pub(crate) by: String,
    /// The groups, from top to bottom.
    pub(crate) groups: Vec<LaneGroup>,
}

/// The lanes under one condition.
#[derive(Debug)]
pub(crate) struct LaneGroup {
    /// The condition's name. Empty if there is only one condition.
    pub(crate) name: String,
    pub(crate) lanes: Vec<ValueLane>,
}

/// The value of one system under one condition.
#[derive(Debug)]
pub(crate) struct ValueLane {
    pub(crate) name: String,
    /// Index of the colour and of the mark.
    pub(crate) style: usize,
    pub(crate) middle: f64,
    /// The interval around the median, if there are enough runs for one.
    pub(crate) ends: Option<[f64; 2]>,
    pub(crate) runs: Vec<f64>,
    pub(crate) published: Option<f64>,
    /// The lane's full text, for the tooltip and for screen readers.
    pub(crate) tooltip: String,
}

impl LaneChart {
    /// Draws the chart for a page that includes [`STYLE`] and [`LANES`].
    pub(crate) fn plot(&self) -> Markup {
        let height = self.height();
        html! {
            svg.plot viewBox={ "0 0 " (WIDTH) " " (height) } role="group" aria-label=(self.title) {
                (self.body(height))
            }
        }
    }

    /// Draws the chart as a self-contained picture.
    pub(crate) fn sheet(&self) -> String {
        let (body, height) = (self.height(), self.height() + TITLE);
        let picture = html! {
            svg.plot xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (WIDTH) " " (height) } width=(WIDTH) height=(height) role="img" aria-label=(self.title) {
                style { (PreEscaped(STYLE)) (PreEscaped(LANES)) }
                rect.p width="100%" height="100%" {}
                text.h x="8" y="17" { (self.title) }
                g transform={ "translate(0 " (TITLE) ")" } { (self.body(body)) }
            }
        };
        picture.into_string() + "\n"
    }

    fn height(&self) -> f64 {
        let named = self.groups.iter().filter(|group| !group.name.is_empty());
        let lanes = self.groups.iter().map(|group| group.lanes.len()).sum();
        TOP + GROUP * count(named.count()) + LANE * count(lanes) + AXIS
    }

    fn scale(&self) -> LaneAxis {
        let lanes = self.groups.iter().flat_map(|group| &group.lanes);
        let values = lanes.flat_map(|lane| {
            let ends = lane.ends.into_iter().flatten();
            let more = lane.published.into_iter().chain(ends);
            more.chain([lane.middle]).chain(lane.runs.iter().copied())
        });
        let lanes = self.groups.iter().flat_map(|group| &group.lanes);
        let names = lanes.map(|lane| lane.name.chars().count()).max();
        let left = (LETTER * count(names.unwrap_or(0)) + 16.0).min(NAMES_MOST);
        LaneAxis::new(values, LOGARITHMIC, [left, WIDTH - VALUES])
    }

    fn body(&self, height: f64) -> Markup {
        let scale = self.scale();
        let bottom = height - AXIS;
        let mut top = TOP;
        let mut placed = Vec::new();
        for group in &self.groups {
            let named = f64::from(u8::from(!group.name.is_empty()));
            placed.push((top, top + GROUP * named, group));
            top += GROUP * named + LANE * count(group.lanes.len());
        }
        html! {
            text.by x="8" y="12" { (self.by) }
            @for tick in scale.ticks() {
                @let x = tenth(scale.at(*tick));
                path.g d={ "M" (x) " " (TOP) "V" (bottom + 4.0) } {}
                text.x x=(x) y=(bottom + 16.0) { (trimmed(*tick)) }
            }
            text.x x=(tenth(scale.middle())) y=(height - 5.0) {
                (self.title)
                @if scale.is_logarithmic() { ", logarithmic scale" }
            }
            @for (name, first, group) in &placed {
                text.n x="8" y=(name + 14.0) { (group.name) }
                @for (at, lane) in group.lanes.iter().enumerate() {
                    (self::lane(&scale, first + LANE * (count(at) + 0.5), lane))
                }
            }
        }
    }
}

fn lane(scale: &LaneAxis, y: f64, lane: &ValueLane) -> Markup {
    let style = lane.style % COLOURS;
    // Leave out the condition: the group's name above the lane already shows it, and there may be no space for it.
    let said = lane
        .tooltip
        .rsplit_once(": ")
        .map_or(&*lane.tooltip, |(_, said)| said);
    let (begin, middle) = (scale.at_least(), scale.at(lane.middle));
    let [low, high] = lane
        .ends
        .unwrap_or([lane.middle; 2])
        .map(|end| scale.at(end));
    let furthest = lane
        .runs
        .iter()
        .map(|run| scale.at(*run))
        .fold(high, f64::max);
    let published = lane.published.map(|published| scale.at(published));
    // If the mark of the published value is where the text would begin, move the text to the right.
    let value = match published {
        Some(at) if (-MARK..VALUES).contains(&(at - furthest)) => at + MARK,
        _ => furthest,
    };
    html! {
        g.lane tabindex="0" role="img" aria-label=(lane.tooltip) {
            title { (lane.tooltip) }
            rect.hit x="0" y=(tenth(y - LANE / 2.0)) width=(WIDTH) height=(LANE) {}
            text.tip x=(WIDTH - 4.0) y="12" { (lane.name) ": " (said) }
            text.a x={ (tenth(begin - 6.0)) } y=(tenth(y + 4.0)) { (lane.name) }
            @if !scale.is_logarithmic() {
                path class={ "bar s" (style) } d={ "M" (tenth(begin)) " " (tenth(y - 5.0)) "H" (tenth(middle)) "v10H" (tenth(begin)) "z" } {}
            }
            @if let Some(at) = published {
                path.pub d={ "M" (tenth(at)) " " (tenth(y - 6.0)) "l3.5 6l-3.5 6l-3.5 -6z" } {}
            }
            @if low < high {
                path class={ "w s" (style) } d={ "M" (tenth(low)) " " (tenth(y - 3.0)) "v6m0 -3H" (tenth(high)) "m0 -3v6" } {}
            }
            path class={ "dots s" (style) } d=(dots(scale, y, &lane.runs)) {}
            (mark(style, middle, y))
            text.v x=(tenth(value + 6.0)) y=(tenth(y + 4.0)) { (shown(lane.middle)) }
        }
    }
}

/// Returns the path of one dot per run. If there are many runs, only every n-th of the sorted runs has a dot.
fn dots(scale: &LaneAxis, y: f64, runs: &[f64]) -> String {
    let mut sorted = runs.to_vec();
    sorted.sort_by(f64::total_cmp);
    let step = sorted.len().div_ceil(DOTS).max(1);
    let mut all = String::new();
    for run in sorted.iter().step_by(step) {
        put!(all, "M{:.1} {y:.1}h0", scale.at(*run));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(middles: [f64; 2]) -> LaneChart {
        let lane = |name: &str, middle: f64| ValueLane {
            name: name.to_owned(),
            style: 7,
            middle,
            ends: Some([middle * 0.9, middle * 1.1]),
            runs: vec![middle * 0.9, middle],
            published: None,
            tooltip: format!("{name}, 5%: {middle} \"<b>\""),
        };
        LaneChart {
            title: "rate (Mbit/s)".to_owned(),
            by: "loss".to_owned(),
            groups: vec![LaneGroup {
                name: "5% & more".to_owned(),
                lanes: vec![lane("tunnel", middles[0]), lane("tcp <x>", middles[1])],
            }],
        }
    }

    #[test]
    fn every_lane_has_a_tooltip_and_is_reachable_by_keyboard() {
        let svg = chart([100.0, 50.0]).plot().into_string();
        for (name, value) in [("tunnel", "100"), ("tcp &lt;x&gt;", "50")] {
            let title = format!("<title>{name}, 5%: {value} ");
            let tip = format!(">{name}: {value} ");
            assert!(svg.contains(&title) && svg.contains(&tip), "{name}\n{svg}");
        }
        assert_eq!(svg.matches("tabindex=\"0\"").count(), 2);
        assert_eq!(svg.matches("class=\"tip\"").count(), 2);
        for part in [
            ">rate (Mbit/s)<",
            ">loss<",
            ">5% &amp; more<",
            ">100<",
            ">50.0<",
        ] {
            assert!(svg.contains(part), "{part}\n{svg}");
        }
        assert!(
            svg.contains("class=\"bar s7\"") && !svg.contains("NaN"),
            "{svg}"
        );
        assert!(
            !svg.contains("<script") && !svg.contains("onclick"),
            "{svg}"
        );
    }

    #[test]
    fn a_logarithmic_axis_says_so_and_has_no_bars() {
        let svg = chart([10_000.0, 1.0]).sheet();
        assert!(svg.contains(">rate (Mbit/s), logarithmic scale<"), "{svg}");
        assert!(!svg.contains("class=\"bar"), "{svg}");
        let svg = chart([100.0, 1.0]).sheet();
        assert!(
            !svg.contains("logarithmic") && svg.contains("class=\"bar"),
            "{svg}"
        );
    }

    #[test]
    fn a_value_is_beside_its_bar_unless_the_published_value_is_there() {
        let x = |published: f64| {
            let mut lanes = chart([100.0, 50.0]);
            lanes.groups[0].lanes[1].published = Some(published);
            let svg = lanes.plot().into_string();
            let (before, _) = svg.split_once(">50.0</text>").expect("the value");
            let (_, at) = before.rsplit_once("x=\"").expect("its place");
            let at = at.split('"').next().expect("its end");
            at.parse::<f64>().expect("a number")
        };
        let alone = x(1.0);
        assert!((x(100.0) - alone).abs() < f64::EPSILON, "far from it");
        assert!(x(60.0) > alone + MARK, "{} and {alone}", x(60.0));
    }

    #[test]
    fn many_runs_are_thinned_out_and_all_marks_stay_inside_the_chart() {
        let mut lanes = chart([100.0, 50.0]);
        lanes.groups[0].lanes[0].runs = (0..1000_u32).map(|run| f64::from(run) / 8.0).collect();
        let svg = lanes.plot().into_string();
        let dots = svg.split("class=\"dots s7\" d=\"").nth(1).expect("dots");
        let dots = dots.split('"').next().expect("its end");
        assert!((20..=DOTS).contains(&dots.matches('M').count()), "{dots}");
        for dot in dots.split('M').skip(1) {
            let x: f64 = dot.split(' ').next().expect("x").parse().expect("a number");
            assert!((0.0..=WIDTH - VALUES).contains(&x), "{dot}");
        }
    }
}
