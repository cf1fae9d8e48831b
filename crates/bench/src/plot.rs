//! Panels one below the other, each with its legend, in the colours of whatever shows them: light or dark.
//!
//! The picture is about as wide as a telephone, so that its letters are not much smaller there than they are drawn; where
//! there is more room it grows up to a limit.

use std::fmt::Write as _;

const WIDTH: f64 = 460.0;
const LEFT: f64 = 62.0;
/// Where titles begin.
const MARGIN: f64 = 10.0;
const RIGHT: f64 = 18.0;
/// Of a panel: its title, the plot, and the labels below.
const TITLE: f64 = 28.0;
const PLOT: f64 = 220.0;
const LABELS: f64 = 26.0;
/// A line of a legend, which has two columns.
const LEGEND: f64 = 20.0;
const HEAD: f64 = 30.0;

/// Colours by number of the style.
const COLORS: &str = "\
text{fill:#1c1f24;font:12px system-ui,sans-serif}.f{fill:#5d6570}.b{font-weight:600}.p{fill:#fdfdfc}.g{stroke:#d9dde2}
.l{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}.d{stroke-dasharray:5 4}.m{fill:currentColor}
.s0{color:#0b62a8}.s1{color:#c2410c}.s2{color:#7ab3de}.s3{color:#e6a07c}.s4{color:#15803d}.s5{color:#a16207}.bad{fill:#b42318}
@media(prefers-color-scheme:dark){text{fill:#e6e9ed}.f{fill:#9aa4b0}.p{fill:#14171b}.g{stroke:#353c45}
.s0{color:#6cb6ff}.s1{color:#ff9a5c}.s2{color:#3f7cb0}.s3{color:#a8633c}.s4{color:#57d27f}.s5{color:#f0c14b}.bad{fill:#ff8a7a}}";

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// By powers of two, from 1.
    Doublings,
    /// By powers of ten.
    Powers,
    /// Evenly, from 0 to at least 1.
    Even,
    /// One place after the other, whatever their values.
    Places,
}

/// A line.
#[derive(Debug)]
pub(crate) struct Series {
    name: String,
    style: usize,
    dashed: bool,
    points: Vec<(f64, f64)>,
}

impl Series {
    /// Through points whose x does not fall.
    pub(crate) fn new(
        name: String,
        style: usize,
        dashed: bool,
        points: impl Iterator<Item = (f64, f64)>,
    ) -> Self {
        Self {
            name,
            style,
            dashed,
            points: points.collect(),
        }
    }

    fn class(&self) -> String {
        format!("l s{}{}", self.style, if self.dashed { " d" } else { "" })
    }
}

/// Lines over the same axes.
#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x: Scale,
    pub(crate) y: Scale,
    pub(crate) series: Vec<Series>,
}

/// All of them as SVG, those without a line left out.
pub(crate) fn draw(machine: &str, noise: Option<&str>, panels: &[Panel]) -> String {
    let mut body = String::new();
    put(&mut body, &label(MARGIN, 18.0, "f", "start", machine));
    let mut top = HEAD;
    if let Some(noise) = noise {
        put(&mut body, &label(MARGIN, top + 4.0, "bad", "start", noise));
        top += LEGEND;
    }
    for panel in panels {
        let series: Vec<&Series> = panel
            .series
            .iter()
            .filter(|one| !one.points.is_empty())
            .collect();
        if !series.is_empty() {
            top = one(&mut body, panel, &series, top);
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {top}\" width=\"100%\" style=\"max-width:60rem\">\n\
         <style>{COLORS}</style>\n<rect class=\"p\" width=\"100%\" height=\"100%\"/>\n{body}</svg>\n"
    )
}

/// Draws one panel below `top`; where it ends.
fn one(body: &mut String, panel: &Panel, series: &[&Series], top: f64) -> f64 {
    let points = || series.iter().flat_map(|one| &one.points);
    let across = Axis::of(panel.x, points().map(|point| point.0));
    let up = Axis::of(panel.y, points().map(|point| point.1));
    let (above, below) = (top + TITLE, top + TITLE + PLOT);
    let x = |value: f64| LEFT + (WIDTH - LEFT - RIGHT) * across.share(value);
    let y = |value: f64| below - PLOT * up.share(value);
    put(body, &label(MARGIN, top + 18.0, "b", "start", &panel.title));
    for (value, name) in up.marks() {
        let at = y(value);
        put(
            body,
            &format!(
                "<path class=\"g\" d=\"M{LEFT} {at:.1}H{}\"/>",
                WIDTH - RIGHT
            ),
        );
        put(body, &label(LEFT - 6.0, at + 4.0, "f", "end", &name));
    }
    for (value, name) in across.marks() {
        put(body, &label(x(value), below + 17.0, "f", "middle", &name));
    }
    for one in series {
        let mut path = String::new();
        for (at, (across, up)) in one.points.iter().enumerate() {
            let step = if at == 0 { 'M' } else { 'L' };
            let (x, y) = (x(*across), y(*up).max(above));
            let written = write!(path, "{step}{x:.1} {y:.1}");
            debug_assert!(written.is_ok(), "a String takes everything");
        }
        put(
            body,
            &format!("<path class=\"{}\" d=\"{path}\"/>", one.class()),
        );
        let dots = one.points.iter().filter(|_| !one.dashed);
        for (across, up) in dots {
            let (x, y) = (x(*across), y(*up).max(above));
            put(
                body,
                &format!(
                    "<circle class=\"m s{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\"/>",
                    one.style
                ),
            );
        }
    }
    legend(body, series, below + LABELS + 10.0)
}

/// Draws it below `top`; where it ends.
fn legend(body: &mut String, series: &[&Series], top: f64) -> f64 {
    let mut at = top;
    for pair in series.chunks(2) {
        let columns = [LEFT, LEFT + (WIDTH - LEFT) / 2.0];
        for (one, from) in pair.iter().zip(columns) {
            put(
                body,
                &format!("<path class=\"{}\" d=\"M{from} {at}h24\"/>", one.class()),
            );
            put(body, &label(from + 30.0, at + 4.0, "", "start", &one.name));
        }
        at += LEGEND;
    }
    at
}

struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    /// For [`Scale::Places`].
    places: Vec<f64>,
}

impl Axis {
    fn of(scale: Scale, values: impl Iterator<Item = f64>) -> Self {
        let mut places: Vec<f64> = values.collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let least = places.first().copied().unwrap_or(1.0);
        let most = places.last().copied().unwrap_or(1.0);
        let (low, high) = match scale {
            Scale::Doublings => (0.0, most.max(2.0).log2()),
            Scale::Powers => {
                let low = least.max(1.0).log10().floor();
                (low, most.max(1.0).log10().ceil().max(low + 1.0))
            }
            Scale::Even => (0.0, most.max(1.0)),
            Scale::Places => (0.0, count(places.len().max(2) - 1)),
        };
        Self {
            scale,
            low,
            high,
            places,
        }
    }

    /// How far along it is, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let at = match self.scale {
            Scale::Doublings => value.max(1.0).log2(),
            Scale::Powers => value.max(1.0).log10(),
            Scale::Even => value,
            Scale::Places => count(self.places.partition_point(|place| *place < value)),
        };
        (at - self.low) / (self.high - self.low)
    }

    fn marks(&self) -> Vec<(f64, String)> {
        let steps = |base: f64| {
            std::iter::successors(Some(self.low), |at| Some(at + 1.0))
                .take_while(|at| *at <= self.high)
                .map(move |at| base.powf(at))
        };
        match self.scale {
            Scale::Doublings => steps(2.0).map(|value| (value, value.to_string())).collect(),
            Scale::Powers => steps(10.0)
                .map(|value| (value, value.to_string()))
                .collect(),
            Scale::Even => [0.0, 0.25, 0.5, 0.75, 1.0]
                .map(|value| (value, value.to_string()))
                .into(),
            Scale::Places => self
                .places
                .iter()
                .map(|value| (*value, value.to_string()))
                .collect(),
        }
    }
}

fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::MAX, f64::from)
}

fn label(x: f64, y: f64, class: &str, anchor: &str, text: &str) -> String {
    let text = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" text-anchor=\"{anchor}\">{text}</text>"
    )
}

fn put(body: &mut String, line: &str) {
    body.push_str(line);
    body.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(x: Scale, y: Scale, points: &[(f64, f64)]) -> Panel {
        let series = Series::new("a <b>".to_owned(), 0, true, points.iter().copied());
        Panel {
            title: "one".to_owned(),
            x,
            y,
            series: vec![series],
        }
    }

    #[test]
    fn everything_is_inside_and_what_is_empty_is_left_out() {
        let panels = [
            panel(
                Scale::Doublings,
                Scale::Powers,
                &[(1.0, 700.0), (512.0, 40.0)],
            ),
            panel(
                Scale::Places,
                Scale::Even,
                &[(0.0, 1.0), (3.0, 0.5), (30.0, 0.0)],
            ),
            panel(Scale::Doublings, Scale::Powers, &[]),
        ];
        let svg = draw("a machine", Some("noise"), &panels);
        assert_eq!(svg.matches("class=\"b\"").count(), 2, "{svg}");
        assert!(svg.contains("a &lt;b&gt;") && !svg.contains("NaN"), "{svg}");
        let (width, height) = (
            WIDTH,
            HEAD + LEGEND + 2.0 * (TITLE + PLOT + LABELS + 10.0 + LEGEND),
        );
        assert!(
            svg.contains(&format!("viewBox=\"0 0 {width} {height}\"")),
            "{svg}"
        );
        for path in svg.split(" d=\"M").skip(1) {
            let path = path.split('"').next().expect("its end");
            for point in path.split(['L', 'H', 'h']) {
                let numbers = point
                    .split(' ')
                    .map(|number| number.parse::<f64>().expect("a number"));
                assert!(
                    numbers.into_iter().all(|at| (0.0..=height).contains(&at)),
                    "{path}"
                );
            }
        }
    }
}
