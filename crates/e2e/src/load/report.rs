//! Figures, their limits, and both in a table or as JSON.

use std::fmt;

use serde_json::{Value, json};

/// What a load came to.
#[derive(Clone, Debug)]
pub struct Report {
    title: String,
    rows: Vec<Row>,
}

#[derive(Clone, Debug)]
struct Row {
    what: String,
    value: f64,
    unit: &'static str,
    limit: Option<f64>,
    /// Only in the JSON.
    detail: bool,
}

impl Row {
    fn is_kept(&self) -> bool {
        self.limit.is_none_or(|limit| self.value <= limit)
    }
}

impl Report {
    /// An empty one.
    pub fn new(title: String) -> Self {
        Self {
            title,
            rows: Vec::new(),
        }
    }

    /// Adds a figure.
    pub fn add(&mut self, what: impl Into<String>, value: f64, unit: &'static str) {
        self.rows.push(Row {
            what: what.into(),
            value,
            unit,
            limit: None,
            detail: false,
        });
    }

    /// Adds a figure that only the JSON shows.
    pub fn add_detail(&mut self, what: impl Into<String>, value: f64, unit: &'static str) {
        self.add(what, value, unit);
        if let Some(row) = self.rows.last_mut() {
            row.detail = true;
        }
    }

    /// Adds a figure that may not be above its limit; without a limit it is only shown.
    pub fn add_limited(
        &mut self,
        what: impl Into<String>,
        value: f64,
        unit: &'static str,
        limit: Option<f64>,
    ) {
        self.rows.push(Row {
            what: what.into(),
            value,
            unit,
            limit,
            detail: false,
        });
    }

    /// The value of a figure.
    pub fn value(&self, what: &str) -> Option<f64> {
        self.rows
            .iter()
            .find(|row| row.what == what)
            .map(|row| row.value)
    }

    /// Whether every limit is kept.
    pub fn is_kept(&self) -> bool {
        self.rows.iter().all(Row::is_kept)
    }

    /// As one JSON object.
    pub fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            json!({
                "what": row.what, "value": row.value, "unit": row.unit,
                "limit": row.limit, "kept": row.is_kept(),
            })
        });
        json!({ "title": self.title, "kept": self.is_kept(), "rows": rows.collect::<Vec<_>>() })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        let width = self
            .rows
            .iter()
            .map(|row| row.what.chars().count())
            .max()
            .unwrap_or(0);
        for row in self.rows.iter().filter(|row| !row.detail) {
            write!(f, "  {:width$}  {:>12.1} {}", row.what, row.value, row.unit)?;
            match row.limit {
                Some(limit) if row.is_kept() => write!(f, "  (limit {limit:.1}: kept)")?,
                Some(limit) => write!(f, "  (limit {limit:.1}: EXCEEDED)")?,
                None => {}
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// A count as a figure.
#[expect(
    clippy::cast_precision_loss,
    reason = "figures are shown with a few digits"
)]
pub(crate) fn figure(count: u64) -> f64 {
    count as f64
}

/// The value below which `share` of the sorted values are.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index into a slice"
    )]
    let at = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_kept_up_to_its_value_and_shown() {
        let mut report = Report::new("load".to_owned());
        report.add("flows", 3.0, "");
        report.add_limited("memory", 12.0, "KiB", Some(12.0));
        assert!(report.is_kept());
        report.add_limited("files", 12.1, "", Some(12.0));
        assert!(!report.is_kept());
        assert!(
            report.to_string().contains("12.1   (limit 12.0: EXCEEDED)"),
            "{report}"
        );
        assert_eq!(report.json()["rows"][2]["kept"], false);
        assert_eq!(report.value("flows"), Some(3.0));
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let sorted: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_eq!(
            (percentile(&sorted, 0.5), percentile(&sorted, 0.99)),
            (50.0, 99.0)
        );
        assert!(percentile(&[], 0.5).is_nan());
    }
}
