//! Chooses the format of an answer by the `Accept` fields of the request (RFC 9110 section 12.5.1).

const OPEN_METRICS_VERSION: &str = "1.0.0";

/// A weight of 1, in thousandths.
const WHOLE: u16 = 1000;

/// The format of a metrics answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricsFormat {
    /// Prometheus' own text format, for people and for programs that name no format.
    Text,
    /// The format that Prometheus requests.
    OpenMetrics,
}

/// A range of media types in an `Accept` field.
#[derive(Clone, Copy, Debug)]
struct MediaRange<'a> {
    kind: &'a str,
    version: Option<&'a str>,
    /// The weight of the range, in thousandths.
    weight: u16,
}

impl MetricsFormat {
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Returns the preferred format by these `Accept` fields. A client that accepts neither gets text, which anyone can
    /// read.
    pub(crate) fn accepted<'a>(fields: impl Iterator<Item = &'a str>) -> Self {
        let ranges: Vec<MediaRange<'_>> = fields
            .flat_map(|field| field.split(','))
            .filter_map(MediaRange::parse)
            .collect();
        let open_metrics = ranges.iter().filter(|range| range.is_open_metrics());
        let open_metrics = open_metrics.map(|range| range.weight).max().unwrap_or(0);
        if open_metrics > 0 && open_metrics >= weight_of_text(&ranges) {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }
}

/// Returns the weight of the text format, from the range that names it most precisely.
fn weight_of_text(ranges: &[MediaRange<'_>]) -> u16 {
    let weight = |kind| {
        let ranges = ranges
            .iter()
            .filter(|range| range.kind.eq_ignore_ascii_case(kind));
        ranges.map(|range| range.weight).max()
    };
    let kinds = ["text/plain", "text/*", "*/*"];
    kinds.into_iter().find_map(weight).unwrap_or(0)
}

impl<'a> MediaRange<'a> {
    /// Parses a range. Returns `None` if its weight is not valid.
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let mut range = Self {
            kind: parts.next()?,
            version: None,
            weight: WHOLE,
        };
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            if name.eq_ignore_ascii_case("q") {
                range.weight = thousandths(value)?;
            } else if name.eq_ignore_ascii_case("version") {
                range.version = Some(value.trim_matches('"'));
            }
        }
        Some(range)
    }

    /// Returns true if the range names this version of `OpenMetrics`. Accepting everything, as `curl` does, does not
    /// count.
    fn is_open_metrics(&self) -> bool {
        self.kind
            .eq_ignore_ascii_case("application/openmetrics-text")
            && self
                .version
                .is_none_or(|version| version == OPEN_METRICS_VERSION)
    }
}

/// Parses `0` or `1`, with up to three decimals, into thousandths.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = decimals.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || decimals.len() > 3 || !matches!(whole, "0" | "1") {
        return None;
    }
    let weight = format!("{whole}{decimals:0<3}").parse().ok()?;
    (weight <= WHOLE).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The `Accept` fields of Prometheus 2.42 and 3.5.
    const PROMETHEUS_2: &str = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    const PROMETHEUS_3: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";

    #[track_caller]
    fn check(format: MetricsFormat, fields: &[&str]) {
        assert_eq!(
            MetricsFormat::accepted(fields.iter().copied()),
            format,
            "{fields:?}"
        );
    }

    #[test]
    fn prometheus_gets_open_metrics_and_others_get_text() {
        check(MetricsFormat::OpenMetrics, &[PROMETHEUS_2]);
        check(MetricsFormat::OpenMetrics, &[PROMETHEUS_3]);
        check(MetricsFormat::Text, &[]);
        check(MetricsFormat::Text, &["*/*"]);
        check(
            MetricsFormat::Text,
            &["text/html,application/xhtml+xml,*/*;q=0.8"],
        );
        check(
            MetricsFormat::Text,
            &["text/plain;version=0.0.4;q=1,*/*;q=0.1"],
        );
        check(MetricsFormat::Text, &["application/json"]);
    }

    #[test]
    fn the_highest_weight_wins_and_a_named_format_wins_ties() {
        let open_metrics = "application/openmetrics-text";
        check(MetricsFormat::OpenMetrics, &[open_metrics]);
        check(
            MetricsFormat::OpenMetrics,
            &["Application/OpenMetrics-Text ; Version=\"1.0.0\" ; Q=0.001"],
        );
        check(
            MetricsFormat::OpenMetrics,
            &["text/plain, application/openmetrics-text"],
        );
        check(MetricsFormat::OpenMetrics, &["*/*", open_metrics]);
        check(
            MetricsFormat::Text,
            &["text/plain", "application/openmetrics-text;q=0.999"],
        );
        check(
            MetricsFormat::OpenMetrics,
            &["text/plain;q=0.2, text/*;q=0.9, application/openmetrics-text;q=0.5"],
        );
        check(MetricsFormat::Text, &["application/openmetrics-text;q=0"]);
        check(
            MetricsFormat::Text,
            &["application/openmetrics-text;q=0.000, */*;q=0"],
        );
    }

    #[test]
    fn other_versions_and_broken_weights_count_for_nothing() {
        for version in ["0.0.1", "2.0.0", ""] {
            check(
                MetricsFormat::Text,
                &[&format!("application/openmetrics-text; version={version}")],
            );
        }
        for weight in ["", "2", "1.001", "0.1234", "-1", "0.x", "one", ".5"] {
            check(
                MetricsFormat::Text,
                &[&format!("application/openmetrics-text;q={weight}")],
            );
        }
    }
}
