//! The limits in a `[[client]]` table.

use std::fmt::Display;

use quictun_trust::limits::end_of;
use quictun_trust::settings::ClientLimits;

use super::file::{ClientTable, Date};
use crate::fault::Fault;
use crate::file::Text;
use crate::options::Why;
use crate::values;

/// Lowest rate. At a lower rate a packet would take seconds.
const RATE_MIN: &str = "8kbit";
/// Highest rate: faster than any machine, and small enough that no sum overflows.
const RATE_MAX: &str = "1000gbit";
const QUOTA_MIN: &str = "1B";
const QUOTA_MAX: &str = "1000000TB";
const FLOWS_MAX: u64 = 10_000_000;

/// Reads the limits of a client. `what` names the table in messages.
pub(super) fn of(what: &str, table: &ClientTable) -> Result<ClientLimits, Fault> {
    let fault = |key: &str, why: &dyn Display| Fault::usage(what, format!("{key}: {why}"));
    let rate = |key: &str, text| {
        let rate = |text: &str| values::rate_between(text, RATE_MIN, RATE_MAX);
        read(text, rate).map_err(|Why(why)| fault(key, &why))
    };
    let both = rate("rate", table.rate.as_ref())?;
    let up = rate("rate_up", table.rate_up.as_ref())?;
    let down = rate("rate_down", table.rate_down.as_ref())?;
    if both.is_some() && (up.is_some() || down.is_some()) {
        return Err(Fault::usage(
            what,
            "rate is both rate_up and rate_down: give it alone, or these two",
        ));
    }
    let flows = |text: &str| values::number(text, 1..=FLOWS_MAX);
    let flows = read(table.max_flows.as_ref(), flows);
    let quota = |text: &str| values::size_between(text, QUOTA_MIN, QUOTA_MAX);
    let quota = read(table.quota.as_ref(), quota);
    let expires = table.expires.as_ref().map(|date| match date {
        Date::Text(text) => end_of(text),
        Date::Toml(date) => end_of(&date.to_string()),
    });
    Ok(ClientLimits {
        max_flows: flows.map_err(|Why(why)| fault("max_flows", &why))?,
        rate_up: up.or(both),
        rate_down: down.or(both),
        quota: quota.map_err(|Why(why)| fault("quota", &why))?,
        expires: expires.transpose().map_err(|why| fault("expires", &why))?,
    })
}

fn read<T>(
    text: Option<&Text>,
    read: impl FnOnce(&str) -> Result<T, Why>,
) -> Result<Option<T>, Why> {
    text.map(|Text(text)| read(text)).transpose()
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
    fn what_makes_no_sense_is_refused_with_its_key() {
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
