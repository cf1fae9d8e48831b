//! A flame graph as inline SVG: one box per function, as wide as its share of the samples, on top of its caller. The
//! box's tooltip holds the full name, which may not fit into the box.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::writing::tenth;

const LETTER: f64 = 6.8;
const WIDTH: f64 = 1000.0;
const ROW: f64 = 17.0;

/// Boxes narrower than this are left out.
const NARROW: f64 = 2.0;

/// Maximum number of rows that are drawn.
const DEPTH: usize = 60;

#[derive(Debug, Default)]
struct Node<'a> {
    samples: u64,
    called: BTreeMap<&'a str, Node<'a>>,
}

/// Draws stacks with their number of samples. A stack lists functions from the outermost to the innermost, separated by
/// `;`. Functions in `named` are highlighted.
pub(super) fn graph(stacks: &[(String, u64)], named: &[&str]) -> Markup {
    let mut root = Node::default();
    for (stack, samples) in stacks {
        root.samples += samples;
        let mut node = &mut root;
        for function in stack.split(';').take(DEPTH) {
            node = node.called.entry(function).or_default();
            node.samples += samples;
        }
    }
    let scale = WIDTH / float(root.samples.max(1));
    let height = ROW * count(root.rows(scale)) + 2.0;
    let mut at = FlameLayout {
        x: 0.0,
        row: 0,
        scale,
        height,
        all: root.samples,
        named,
    };
    let mut boxes = Vec::new();
    root.draw(&mut at, &mut boxes);
    html! {
        svg.flame viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-label="flame graph" {
            @for one in boxes { (one) }
        }
    }
}

struct FlameLayout<'a> {
    x: f64,
    row: usize,
    scale: f64,
    height: f64,
    all: u64,
    named: &'a [&'a str],
}

impl Node<'_> {
    fn rows(&self, scale: f64) -> usize {
        let wide = |node: &&Node<'_>| float(node.samples) * scale >= NARROW;
        let above = self.called.values().filter(wide);
        above.map(|node| 1 + node.rows(scale)).max().unwrap_or(0)
    }

    fn draw(&self, at: &mut FlameLayout<'_>, boxes: &mut Vec<Markup>) {
        let begin = at.x;
        for (name, node) in &self.called {
            let width = float(node.samples) * at.scale;
            if width >= NARROW {
                boxes.push(boxed(name, node.samples, width, at));
                let here = at.x;
                at.row += 1;
                node.draw(at, boxes);
                at.row -= 1;
                at.x = here;
            }
            at.x += width;
        }
        at.x = begin;
    }
}

fn boxed(name: &str, samples: u64, width: f64, at: &FlameLayout<'_>) -> Markup {
    let y = at.height - ROW * count(at.row + 1) - 1.0;
    let hash = |sum: u32, byte: u8| sum.wrapping_mul(31) + u32::from(byte);
    let class = if at.named.contains(&name) {
        "named".to_owned()
    } else {
        format!("f{}", name.bytes().fold(0, hash) % SHADES)
    };
    let share = 100.0 * float(samples) / float(at.all.max(1));
    let fits = letters(width);
    let shown: String = if name.chars().count() <= fits {
        name.to_owned()
    } else {
        name.chars()
            .take(fits.saturating_sub(1))
            .chain(['\u{2026}'])
            .collect()
    };
    html! {
        g {
            title { (name) ": " (samples) " of " (at.all) " samples (" (tenth(share)) " %)" }
            rect class=(class) x=(tenth(at.x)) y=(tenth(y)) width=(tenth((width - 0.4).max(0.3))) height=(tenth(ROW - 1.0)) {}
            @if fits >= 4 { text x=(tenth(at.x + 3.0)) y=(tenth(y + 12.0)) { (shown) } }
        }
    }
}

/// Number of colours that the page defines for boxes.
const SHADES: u32 = 5;

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most 1000 wide"
)]
fn letters(width: f64) -> usize {
    ((width - 6.0) / LETTER).max(0.0) as usize
}

#[expect(clippy::cast_precision_loss, reason = "samples of minutes")]
fn float(samples: u64) -> f64 {
    samples as f64
}

fn count(rows: usize) -> f64 {
    float(rows as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(all: &[(&str, u64)], named: &[&str]) -> String {
        let all = all
            .iter()
            .map(|(stack, count)| ((*stack).to_owned(), *count));
        graph(&all.collect::<Vec<_>>(), named).into_string()
    }

    #[test]
    fn a_box_has_the_width_of_its_share_and_is_above_its_caller() {
        let svg = drawn(&[("main;read", 3), ("main;write<u8>", 1)], &["read"]);
        for part in [
            "<title>main: 4 of 4 samples (100.0 %)</title>",
            r#"x="0.0" y="18.0" width="999.6""#,
            "<title>read: 3 of 4 samples (75.0 %)</title>",
            r#"x="0.0" y="1.0" width="749.6""#,
            "write&lt;u8&gt;: 1 of 4",
            r#"x="750.0" y="1.0" width="249.6""#,
        ] {
            assert!(svg.contains(part), "{part}\n{svg}");
        }
        assert_eq!(svg.matches("<g>").count(), svg.matches("</g>").count());
        let named: Vec<_> = svg.match_indices(r#"<rect class="named""#).collect();
        let read = svg.find("<title>read").expect("a box");
        assert!(matches!(named[..], [(at, _)] if at > read), "{svg}");
    }

    #[test]
    fn narrow_and_deep_boxes_are_left_out_and_an_empty_profile_gives_no_graph() {
        let svg = drawn(&[("wide", 10_000), ("narrow", 1)], &[]);
        assert!(svg.contains("wide") && !svg.contains("narrow"));
        let deep = vec!["f"; 200].join(";");
        assert_eq!(drawn(&[(&deep, 1)], &[]).matches("<rect").count(), DEPTH);
        assert!(!drawn(&[], &[]).contains("<rect"));
    }
}
