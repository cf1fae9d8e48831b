//! The QUIC congestion controllers, by name.

use quictun_engine::Algorithm;
use quictun_link::units::Rate;

use crate::error::PerfError;
use crate::plan::Plan;

/// The controllers without a parameter. The first is the default.
const NAMES: [(&str, Algorithm); 4] = [
    ("auto", Algorithm::Auto),
    ("cubic", Algorithm::Cubic),
    ("newreno", Algorithm::NewReno),
    ("background", Algorithm::Background),
];

const FIXED: &str = "fixed:";

/// Lowest fixed rate in bytes per second. At a lower rate, a handshake does not finish before its deadline.
const RATE_LEAST: u64 = 100_000 / 8;

pub(crate) fn congestion(plan: &Plan) -> Result<(&str, Algorithm), PerfError> {
    let Some(name) = &plan.congestion else {
        return Ok(NAMES[0]);
    };
    let named = NAMES.into_iter().find(|(known, _)| known == name);
    let fixed = || {
        let Rate(rate) = name.strip_prefix(FIXED)?.parse().ok()?;
        (rate >= RATE_LEAST).then_some((name.as_str(), Algorithm::Fixed(rate)))
    };
    named
        .or_else(fixed)
        .ok_or_else(|| PerfError::QuicCongestion(name.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Mode, Transport};

    #[test]
    fn only_known_controllers_and_rates_are_accepted() {
        let known = |name: Option<&str>| {
            let plan = Plan {
                congestion: name.map(str::to_owned),
                ..Plan::new(Transport::Quic, Mode::Stream)
            };
            let found = congestion(&plan).ok();
            found.map(|(name, algorithm)| (name.to_owned(), algorithm))
        };
        let expected = |name: &str, algorithm| Some((name.to_owned(), algorithm));
        assert_eq!(known(None), expected("auto", Algorithm::Auto));
        let cubic = expected("cubic", Algorithm::Cubic);
        assert_eq!(known(Some("cubic")), cubic);
        let fixed = expected("fixed:8mbit", Algorithm::Fixed(1_000_000));
        assert_eq!(known(Some("fixed:8mbit")), fixed);
        for wrong in ["", "bbr", "fixed:", "fixed:8", "fixed:99kbit"] {
            assert_eq!(known(Some(wrong)), None, "{wrong}");
        }
    }
}
