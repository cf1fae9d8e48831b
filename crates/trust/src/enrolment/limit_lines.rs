//! The limits of a client as lines of its file, in the form in which the configuration has them.

use crate::limits::{ClientLimits, parse_expiry, timestamp};

/// Start of the line behind the limits.
pub(crate) const NEXT: &str = "allow = [";

/// Formats each limit as one line, with its end.
pub(crate) fn lines(limits: &ClientLimits) -> String {
    let number = |key: &str, value: Option<u64>| value.map(|value| format!("{key} = {value}\n"));
    let rate = |key: &str, value: Option<u64>| {
        value.map(|bytes| format!("{key} = \"{}bit\"\n", bytes.saturating_mul(8)))
    };
    let expires = limits.expires.map(timestamp);
    let lines = [
        number("max_flows", limits.max_flows),
        rate("rate_up", limits.rate_up),
        rate("rate_down", limits.rate_down),
        number("quota", limits.quota),
        expires.map(|at| format!("expires = \"{at}\"\n")),
    ];
    lines.into_iter().flatten().collect()
}

/// Reads the limits at the start of a text. Returns them and the text behind them, or `None` if [`lines`] has not
/// written them.
pub(crate) fn split(text: &str) -> Option<(ClientLimits, &str)> {
    let (written, rest) = text.split_at(text.find(NEXT)?);
    let mut limits = ClientLimits::default();
    for line in written.lines() {
        let (key, value) = line.split_once(" = ")?;
        let number = |text: &str| text.parse().ok().filter(|&number: &u64| number > 0);
        let quoted = || value.strip_prefix('"')?.strip_suffix('"');
        let rate = || Some(number(quoted()?.strip_suffix("bit")?)? / 8);
        match key {
            "max_flows" => limits.max_flows = Some(number(value)?),
            "rate_up" => limits.rate_up = Some(rate()?),
            "rate_down" => limits.rate_down = Some(rate()?),
            "quota" => limits.quota = Some(number(value)?),
            "expires" => limits.expires = Some(parse_expiry(quoted()?).ok()?),
            _ => return None,
        }
    }
    (lines(&limits) == written).then_some((limits, rest))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn limits_are_read_as_they_were_written_and_in_no_other_form() {
        let all = ClientLimits {
            max_flows: Some(10),
            rate_up: Some(2_500_000),
            rate_down: Some(1000),
            quota: Some(500_000_000_000),
            expires: Some(SystemTime::UNIX_EPOCH + Duration::from_hours(24)),
        };
        let text = "max_flows = 10\nrate_up = \"20000000bit\"\nrate_down = \"8000bit\"\nquota = 500000000000\nexpires = \"1970-01-02T00:00:00Z\"\n";
        assert_eq!(lines(&all), text);
        assert_eq!(
            split(&format!("{text}allow = [\n")),
            Some((all, "allow = [\n"))
        );
        let none = ClientLimits::default();
        assert_eq!(split("allow = [\n]\n"), Some((none, "allow = [\n]\n")));
        for bad in [
            "max_flows = 0\n",
            "max_flows = 010\n",
            "max_flows = 1\nmax_flows = 1\n",
            "quota = 1\nmax_flows = 1\n",
            "rate_up = \"7bit\"\n",
            "rate_up = \"1mbit\"\n",
            "rate_up = 8\n",
            "expires = \"1970-01-01\"\n",
            "listen = 1\n",
            "max_flows = 1",
            "\n",
        ] {
            assert_eq!(split(&format!("{bad}allow = [\n")), None, "{bad:?}");
        }
        assert_eq!(split(text), None, "no rules follow");
    }
}
