//! A strict parser of both formats. It rejects text that Prometheus' own parsers might accept.

use super::MetricsFormat;

#[derive(Debug)]
pub(super) struct Exposition {
    pub(super) families: Vec<MetricFamily>,
}

#[derive(Debug, Default)]
pub(super) struct MetricFamily {
    pub(super) name: String,
    pub(super) kind: String,
    unit: Option<String>,
    pub(super) samples: Vec<MetricSample>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct MetricSample {
    pub(super) name: String,
    pub(super) labels: Vec<(String, String)>,
    value: f64,
}

impl Exposition {
    /// Parses a whole answer, and panics if it violates the format.
    #[track_caller]
    pub(super) fn parse(format: MetricsFormat, text: &str) -> Self {
        let open = format == MetricsFormat::OpenMetrics;
        let body = if open {
            text.strip_suffix("# EOF\n").expect("a last line")
        } else {
            text
        };
        assert!(body.ends_with('\n') && !body.contains("# EOF"), "{body}");
        let mut families = Vec::<MetricFamily>::new();
        for line in body.lines() {
            if let Some(comment) = line.strip_prefix("# ") {
                read_comment(open, &mut families, comment);
            } else {
                let family = families.last_mut().expect("a family before its samples");
                assert!(!family.kind.is_empty(), "no TYPE before {line}");
                family.samples.push(MetricSample::parse(line));
            }
        }
        for family in &families {
            family.check(open);
        }
        Self { families }
    }

    pub(super) fn samples(&self) -> Vec<MetricSample> {
        let families = self.families.iter();
        families.flat_map(|family| family.samples.clone()).collect()
    }
}

/// Reads a comment line. Each family begins with HELP, followed by TYPE and, in `OpenMetrics`, UNIT.
fn read_comment(open: bool, families: &mut Vec<MetricFamily>, comment: &str) {
    let mut words = comment.splitn(3, ' ');
    let mut word = || words.next().expect("three words").to_owned();
    let (what, name, content) = (word(), word(), word());
    if what == "HELP" {
        assert!(is_name(&name) && !content.is_empty(), "{comment}");
        let known = families.iter().any(|family| family.name == name);
        assert!(!known, "{name} has two HELP lines");
        families.push(MetricFamily {
            name,
            ..MetricFamily::default()
        });
        return;
    }
    let family = families.last_mut().expect("HELP comes first");
    assert_eq!(name, family.name, "{comment}");
    assert!(family.samples.is_empty(), "a sample precedes {comment}");
    match &*what {
        "TYPE" => {
            assert!(family.kind.is_empty(), "a second TYPE: {comment}");
            let kinds = ["counter", "gauge", "histogram"];
            let info = open && content == "info";
            assert!(kinds.contains(&&*content) || info, "{comment}");
            family.kind = content;
        }
        "UNIT" => {
            assert!(open && family.unit.is_none(), "{comment}");
            assert!(name.ends_with(&format!("_{content}")), "{comment}");
            family.unit = Some(content);
        }
        _ => panic!("{comment}"),
    }
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_lowercase())
        && bytes.all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
}

impl MetricSample {
    fn parse(line: &str) -> Self {
        let end = line.find(['{', ' ']).expect("a value");
        let (name, rest) = line.split_at(end);
        assert!(is_name(name), "{line}");
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => read_labels(rest),
            None => (Vec::new(), rest),
        };
        let value = value.strip_prefix(' ').expect("one space");
        assert!(!value.contains(' '), "a time stamp: {line}");
        Self {
            name: name.to_owned(),
            labels,
            value: value.parse().expect("a number"),
        }
    }

    fn bound(&self) -> Option<&str> {
        let mut labels = self.labels.iter();
        labels
            .find(|(name, _)| name == "le")
            .map(|(_, bound)| &**bound)
    }
}

/// Reads labels up to the closing brace, and returns them with the text after it.
fn read_labels(mut rest: &str) -> (Vec<(String, String)>, &str) {
    let mut labels = Vec::<(String, String)>::new();
    loop {
        let (name, behind) = rest.split_once("=\"").expect("a label");
        assert!(is_name(name) && labels.iter().all(|(known, _)| known != name));
        let (value, behind) = read_value(behind);
        labels.push((name.to_owned(), value));
        match behind.split_at(1) {
            (",", behind) => rest = behind,
            ("}", behind) => return (labels, behind),
            _ => panic!("{behind}"),
        }
    }
}

fn read_value(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match letters.next() {
                Some((_, 'n')) => '\n',
                Some((_, letter @ ('\\' | '"'))) => letter,
                other => panic!("escaped: {other:?}"),
            }),
            letter => value.push(letter),
        }
    }
    panic!("no quotation mark ends {text}");
}

impl MetricFamily {
    fn check(&self, open: bool) {
        let name = &self.name;
        let full = match &*self.kind {
            "counter" if open => format!("{name}_total"),
            "info" => format!("{name}_info"),
            "histogram" => return self.check_histogram(),
            _ => name.clone(),
        };
        let total = self.kind == "counter";
        assert_eq!(full.ends_with("_total"), total, "{full}");
        for sample in &self.samples {
            assert_eq!(sample.name, full);
            assert!(sample.bound().is_none(), "{sample:?}");
            assert!(
                sample.value.is_finite() && sample.value >= 0.0,
                "{sample:?}"
            );
        }
        let mut labels: Vec<_> = self.samples.iter().map(|it| &it.labels).collect();
        labels.sort();
        labels.dedup();
        assert_eq!(labels.len(), self.samples.len(), "{name}: repeated labels");
    }

    /// Checks a histogram that has no labels of its own.
    fn check_histogram(&self) {
        let name = &self.name;
        let (mut least, mut below) = (f64::NEG_INFINITY, 0.0);
        let [buckets @ .., count, sum] = &self.samples[..] else {
            panic!("{name} has no count and sum");
        };
        for bucket in buckets {
            assert_eq!(
                (&bucket.name, bucket.labels.len()),
                (&format!("{name}_bucket"), 1)
            );
            let text = bucket.bound().expect("a bound");
            assert!(
                text == "+Inf" || text.contains('.'),
                "not canonical: {text}"
            );
            let bound: f64 = text.parse().expect("a number");
            assert!(bound > least && bucket.value >= below, "{bucket:?}");
            (least, below) = (bound, bucket.value);
        }
        assert!(least.is_infinite(), "{name} has no bucket for all");
        let ends = [("_count", count), ("_sum", sum)];
        for (suffix, sample) in ends {
            assert_eq!(
                (&sample.name, sample.labels.len()),
                (&format!("{name}{suffix}"), 0)
            );
        }
        assert!((count.value - below).abs() < f64::EPSILON, "{count:?}");
        assert_eq!(sum.value > 0.0, count.value > 0.0, "{sum:?}");
    }
}
