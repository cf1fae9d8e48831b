//! Draws rectangles, texts and arrows as an SVG, in the reader's light or dark colours.

use std::fmt;

/// Width of each picture in pixels, which is that of a page.
const WIDTH: u32 = 720;

const STYLE: &str = include_str!("style.css");

/// Distance between the lines of a box, and from the middle of a line to its base.
const LINE: f64 = 16.0;
const BASE: f64 = 4.5;

/// Length of an arrow's head, and the part of it that its line does not reach.
const HEAD: f64 = 8.0;
const HEAD_CLEAR: f64 = 6.0;

/// A rectangle: left, top, width and height.
pub(super) type Area = [f64; 4];

/// A point: distances from the left and from the top.
pub(super) type Point = [f64; 2];

/// The meaning of an arrow.
#[derive(Clone, Copy)]
pub(super) enum Arrow {
    /// Bytes of applications, or a dependency.
    Bytes,
    /// Control between processes or parts.
    Control,
}

impl Arrow {
    /// Returns the class of its line. That of its head ends in `h`.
    fn class(self) -> &'static str {
        match self {
            Self::Bytes => "a",
            Self::Control => "c",
        }
    }
}

/// A picture under construction.
pub(super) struct Canvas {
    elements: Vec<String>,
}

impl Canvas {
    /// Creates a picture. The description is for readers who do not see it.
    pub(super) fn new(height: u32, title: &str, description: &str) -> Self {
        let size = format!(r#"viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}""#);
        let names = r#"role="img" aria-labelledby="title desc""#;
        let elements = vec![
            format!(r#"<svg xmlns="http://www.w3.org/2000/svg" {size} {names}>"#),
            format!(r#"<title id="title">{}</title>"#, escaped(title)),
            format!(r#"<desc id="desc">{}</desc>"#, escaped(description)),
            format!("<style>\n{STYLE}</style>"),
            format!(r#"<rect class="p" width="{WIDTH}" height="{height}"/>"#),
        ];
        Self { elements }
    }

    /// Draws a rectangle with round corners.
    pub(super) fn rect(&mut self, class: &str, [x, y, width, height]: Area, radius: u32) {
        let (x, y, width, height) = (Pixels(x), Pixels(y), Pixels(width), Pixels(height));
        self.elements.push(format!(
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}"/>"#
        ));
    }

    /// Writes a line of text. Without a class, the text begins at the point; `m` centres it and `e` ends it there.
    pub(super) fn text(&mut self, class: &str, [x, y]: Point, text: &str) {
        let class = match class {
            "" => String::new(),
            class => format!(r#" class="{class}""#),
        };
        let (x, y, text) = (Pixels(x), Pixels(y), escaped(text));
        self.elements
            .push(format!(r#"<text{class} x="{x}" y="{y}">{text}</text>"#));
    }

    /// Draws a box with a title and lines below it.
    pub(super) fn block(&mut self, area: Area, title: &str, lines: &[&str]) {
        self.block_of("b", "m", area, title, lines);
    }

    /// Draws a box with the class of its rectangle, and the class of the lines below its title.
    pub(super) fn block_of(
        &mut self,
        class: &str,
        line_class: &str,
        area: Area,
        title: &str,
        lines: &[&str],
    ) {
        self.rect(class, area, 6);
        let [x, y, width, height] = area;
        let centre = x + width / 2.0;
        let below: f64 = lines.iter().map(|_| LINE).sum();
        let mut base = y + height / 2.0 - below / 2.0 + BASE;
        self.text("t m", [centre, base], title);
        for line in lines {
            base += LINE;
            self.text(line_class, [centre, base], line);
        }
    }

    /// Draws an arrow to the last point.
    pub(super) fn arrow(&mut self, kind: Arrow, points: &[Point]) {
        let mut points = points.to_vec();
        self.head(kind, points.iter_mut().rev());
        self.line(kind, &points);
    }

    /// Draws an arrow with heads at both ends.
    pub(super) fn double_arrow(&mut self, kind: Arrow, points: &[Point]) {
        let mut points = points.to_vec();
        let away = points.clone();
        self.head(kind, points.iter_mut().rev());
        let mut back = away;
        self.head(kind, back.iter_mut());
        if let (Some(first), Some(start)) = (points.first_mut(), back.first()) {
            *first = *start;
        }
        self.line(kind, &points);
    }

    /// Draws an arrow head at the first point, and moves that point back to the place where the line ends.
    fn head<'a>(&mut self, kind: Arrow, mut points: impl Iterator<Item = &'a mut Point>) {
        let (Some(tip), Some(before)) = (points.next(), points.next()) else {
            return;
        };
        let [x, y] = *tip;
        let (across, down) = (x - before[0], y - before[1]);
        let length = across.hypot(down);
        let (across, down) = (across / length, down / length);
        let (back_x, back_y) = (x - HEAD * across, y - HEAD * down);
        let half = HEAD / 2.0;
        let corners = [
            [x, y],
            [back_x - half * down, back_y + half * across],
            [back_x + half * down, back_y - half * across],
        ];
        let class = kind.class();
        self.elements.push(format!(
            r#"<path class="{class}h" d="{}Z"/>"#,
            path(&corners)
        ));
        *tip = [x - HEAD_CLEAR * across, y - HEAD_CLEAR * down];
    }

    fn line(&mut self, kind: Arrow, points: &[Point]) {
        let (class, path) = (kind.class(), path(points));
        self.elements
            .push(format!(r#"<path class="{class}" d="{path}"/>"#));
    }

    /// Returns the text of the file.
    pub(super) fn finish(mut self) -> String {
        self.elements.push("</svg>\n".to_owned());
        self.elements.join("\n")
    }
}

fn path(points: &[Point]) -> String {
    let points = points
        .iter()
        .map(|[x, y]| format!("{} {}", Pixels(*x), Pixels(*y)));
    format!("M{}", points.collect::<Vec<_>>().join("L"))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// A number of pixels, written with at most one decimal.
struct Pixels(f64);

impl fmt::Display for Pixels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:.1}", self.0);
        let text = text.strip_suffix(".0").unwrap_or(&text);
        f.write_str(if text == "-0" { "0" } else { text })
    }
}
