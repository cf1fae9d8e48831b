//! The limits in a `[[client]]` table, and in the flags of an invitation, which have the same spelling.

use std::fmt::Display;

use clap::ArgMatches;
use quictun_trust::limits::parse_expiry;
use quictun_trust::settings::ClientLimits;

use super::file::{ClientTable, DateValue};
use crate::fault::Fault;
use crate::file::Text;
use crate::options::InvalidValue;
use crate::values;

/// Lowest rate. At a lower rate a packet would take seconds.
const RATE_MIN: &str = "8kbit";
/// Highest rate: faster than any machine, and small enough that no sum overflows.
const RATE_MAX: &str = "1000gbit";
const QUOTA_MIN: &str = "1B";
const QUOTA_MAX: &str = "1000000TB";
const FLOWS_MAX: u64 = 10_000_000;

/// The limits as they were written.
#[derive(Debug, Default)]
struct LimitTexts<'a> {
    max_flows: Option<&'a str>,
    rate: Option<&'a str>,
    rate_up: Option<&'a str>,
    rate_down: Option<&'a str>,
    quota: Option<&'a str>,
    expires: Option<String>,
}

/// Reads the limits of a client. `what` names the table in messages.
pub(super) fn of(what: &str, table: &ClientTable) -> Result<ClientLimits, Fault> {
    let written = LimitTexts {
        max_flows: text(table.max_flows.as_ref()),
        rate: text(table.rate.as_ref()),
        rate_up: text(table.rate_up.as_ref()),
        rate_down: text(table.rate_down.as_ref()),
        quota: text(table.quota.as_ref()),
        expires: table.expires.as_ref().map(|date| match date {
            DateValue::Text(text) => text.clone(),
            DateValue::Toml(date) => date.to_string(),
        }),
    };
    read(&written, |key, why| {
        Fault::usage(what, format!("{key}: {why}"))
    })
}

/// Reads the limits in the flags of an invitation.
///
/// # Errors
///
/// Names the flag whose value is no limit.
pub fn of_flags(matches: &ArgMatches) -> Result<ClientLimits, Fault> {
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let written = LimitTexts {
        max_flows: text("max-flows"),
        rate: text("rate"),
        rate_up: text("rate-up"),
        rate_down: text("rate-down"),
        quota: text("quota"),
        expires: text("expires").map(str::to_owned),
    };
    read(&written, |key, why| {
        Fault::usage(format!("--{}", key.replace('_', "-")), why)
    })
}

fn text(text: Option<&Text>) -> Option<&str> {
    text.map(|Text(text)| text.as_str())
}

/// Reads the limits. `fault` makes the error of a key.
fn read(
    written: &LimitTexts<'_>,
    fault: impl Fn(&str, &dyn Display) -> Fault,
) -> Result<ClientLimits, Fault> {
    let rate = |key: &str, text: Option<&str>| {
        let rate = text.map(|text| values::rate_between(text, RATE_MIN, RATE_MAX));
        rate.transpose()
            .map_err(|InvalidValue(why)| fault(key, &why))
    };
    let both = rate("rate", written.rate)?;
    let up = rate("rate_up", written.rate_up)?;
    let down = rate("rate_down", written.rate_down)?;
    if both.is_some() && (up.is_some() || down.is_some()) {
        let why = "it is both rate_up and rate_down: give it alone, or these two";
        return Err(fault("rate", &why));
    }
    let flows = written.max_flows;
    let flows = flows.map(|text| values::number(text, 1..=FLOWS_MAX));
    let quota = written.quota;
    let quota = quota.map(|text| values::size_between(text, QUOTA_MIN, QUOTA_MAX));
    let expires = written.expires.as_deref().map(parse_expiry);
    Ok(ClientLimits {
        max_flows: flows
            .transpose()
            .map_err(|InvalidValue(why)| fault("max_flows", &why))?,
        rate_up: up.or(both),
        rate_down: down.or(both),
        quota: quota
            .transpose()
            .map_err(|InvalidValue(why)| fault("quota", &why))?,
        expires: expires.transpose().map_err(|why| fault("expires", &why))?,
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn read(limits: &str) -> Result<ClientLimits, String> {
        let table = format!("name = 'laptop'\n{limits}");
        let table: ClientTable = toml::from_str(&table).map_err(|error| error.to_string())?;
        of("client \"laptop\"", &table).map_err(|fault| fault.to_string())
    }

    #[test]
    fn limits_have_the_units_of_all_other_settings() {
        let limits =
            read("max_flows = 10\nrate = '20 Mbit/s'\nquota = '500 GB'\nexpires = '1970-01-01'");
        let day = SystemTime::UNIX_EPOCH + Duration::from_hours(24);
        let expected = ClientLimits {
            max_flows: Some(10),
            rate_up: Some(2_500_000),
            rate_down: Some(2_500_000),
            quota: Some(500_000_000_000),
            expires: Some(day),
        };
        assert_eq!(limits, Ok(expected));
        let apart = read("rate_up = '1mbit'\nrate_down = '1MB/s'").expect("two rates");
        assert_eq!(
            (apart.rate_up, apart.rate_down),
            (Some(125_000), Some(1_000_000))
        );
        assert_eq!(
            read("expires = 1970-01-01").expect("a date").expires,
            Some(day)
        );
        assert_eq!(read(""), Ok(ClientLimits::default()));
    }

    #[test]
    fn invalid_limits_are_refused_with_their_key() {
        for (limits, key) in [
            ("max_flows = 0", "max_flows"),
            ("max_flows = 10000001", "max_flows"),
            ("rate = '7kbit'", "rate"),
            ("rate = '1001gbit'", "rate"),
            ("rate_up = 'fast'", "rate_up"),
            ("rate = '1mbit'\nrate_up = '1mbit'", "rate_up"),
            ("quota = '0'", "quota"),
            ("quota = '2000000TB'", "quota"),
            ("expires = 'tomorrow'", "expires"),
            ("expires = 12:00:00", "expires"),
            ("quotas = '1GB'", "quotas"),
        ] {
            let why = read(limits).expect_err(limits);
            assert!(why.contains(key), "{limits}: {why}");
        }
    }
}
