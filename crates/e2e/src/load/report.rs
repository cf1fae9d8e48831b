//! Figures and their limits, shown as a table or as JSON.

use std::fmt;

use serde_json::{Value, json};

/// The result of a load.
#[derive(Clone, Debug)]
pub struct LoadReport {
    title: String,
    rows: Vec<ReportRow>,
}

#[derive(Clone, Debug)]
struct ReportRow {
    what: String,
    value: f64,
    unit: &'static str,
    limit: Option<Limit>,
    /// True if only the JSON shows this row.
    detail: bool,
}

/// The limit of a figure.
#[derive(Clone, Copy, Debug)]
enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

impl Limit {
    fn value(self) -> f64 {
        match self {
            Self::AtMost(value) | Self::AtLeast(value) => value,
        }
    }
}

impl ReportRow {
    fn is_kept(&self) -> bool {
        self.limit.is_none_or(|limit| match limit {
            Limit::AtMost(most) => self.value <= most,
            Limit::AtLeast(least) => self.value >= least,
        })
    }
}

impl LoadReport {
    /// Creates an empty report.
    pub fn new(title: String) -> Self {
        Self {
            title,
            rows: Vec::new(),
        }
    }

    /// Adds a figure without a limit.
    pub fn add(&mut self, what: impl Into<String>, value: f64, unit: &'static str) {
        self.rows.push(ReportRow {
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

    /// Adds a figure that may not exceed its limit; without a limit it is only shown.
    pub fn add_limited(
        &mut self,
        what: impl Into<String>,
        value: f64,
        unit: &'static str,
        limit: Option<f64>,
    ) {
        self.rows.push(ReportRow {
            what: what.into(),
            value,
            unit,
            limit: limit.map(Limit::AtMost),
            detail: false,
        });
    }

    /// Adds a ratio that may not be below its limit.
    pub fn add_floor(&mut self, what: impl Into<String>, value: f64, least: f64) {
        self.rows.push(ReportRow {
            what: what.into(),
            value,
            unit: "",
            limit: Some(Limit::AtLeast(least)),
            detail: false,
        });
    }

    /// Returns the value of a figure.
    pub fn value(&self, what: &str) -> Option<f64> {
        self.rows
            .iter()
            .find(|row| row.what == what)
            .map(|row| row.value)
    }

    /// Returns true if every limit is kept.
    pub fn is_kept(&self) -> bool {
        self.rows.iter().all(ReportRow::is_kept)
    }

    /// Returns the report as one JSON object.
    pub fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            json!({
                "what": row.what, "value": row.value, "unit": row.unit,
                "limit": row.limit.map(Limit::value), "kept": row.is_kept(),
            })
        });
        json!({ "title": self.title, "kept": self.is_kept(), "rows": rows.collect::<Vec<_>>() })
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        let width = self
            .rows
            .iter()
            .map(|row| row.what.chars().count())
            .max()
            .unwrap_or(0);
        for row in self.rows.iter().filter(|row| !row.detail) {
            // Ratios have no unit and differ by hundredths.
            let digits = if row.unit.is_empty() { 3 } else { 1 };
            write!(f, "  {:width$}  ", row.what)?;
            write!(f, "{:>12.digits$} {}", row.value, row.unit)?;
            match (row.limit, row.is_kept()) {
                (None, _) => {}
                (Some(limit), true) => write!(f, "  (limit {:.digits$}: kept)", limit.value())?,
                (Some(Limit::AtMost(most)), false) => {
                    write!(f, "  (limit {most:.digits$}: EXCEEDED)")?;
                }
                (Some(Limit::AtLeast(least)), false) => {
                    write!(f, "  (limit {least:.digits$}: NOT REACHED)")?;
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Converts a count to a figure.
#[expect(
    clippy::cast_precision_loss,
    reason = "figures are shown with a few digits"
)]
pub(crate) fn figure(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_at_its_limit_passes_and_shows_the_limit() {
        let mut report = LoadReport::new("load".to_owned());
        report.add("flows", 3.0, "");
        report.add_limited("memory", 12.0, "KiB", Some(12.0));
        assert!(report.is_kept());
        report.add_limited("time", 12.1, "us", Some(12.0));
        assert!(!report.is_kept());
        let shown = report.to_string();
        assert!(shown.contains("12.1 us  (limit 12.0: EXCEEDED)"), "{shown}");
        assert_eq!(report.json()["rows"][2]["kept"], false);
        assert_eq!(report.value("flows"), Some(3.0));
    }

    #[test]
    fn a_figure_at_its_lower_limit_passes() {
        let mut report = LoadReport::new("load".to_owned());
        report.add_floor("ratio", 0.97, 0.97);
        assert!(report.is_kept());
        report.add_floor("other", 0.969, 0.97);
        assert!(!report.is_kept());
        let shown = report.to_string();
        assert!(
            shown.contains("0.969   (limit 0.970: NOT REACHED)"),
            "{shown}"
        );
    }
}
