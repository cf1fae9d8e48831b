//! Writes values as Go does: programs that were written for the original's REST interface may parse these forms.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use jiff::Zoned;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// Formats a time as `time.Time.String()`: local time, nanoseconds without trailing zeros, offset, zone, and the
/// monotonic clock.
///
/// `since_start` is the reading of the monotonic clock, which starts with the process.
pub(super) fn time_string(at: &Zoned, since_start: Duration) -> String {
    let mut text = at.strftime("%Y-%m-%d %H:%M:%S").to_string();
    let fraction = format!("{:09}", at.subsec_nanosecond());
    let fraction = fraction.trim_end_matches('0');
    if !fraction.is_empty() {
        text.push('.');
        text.push_str(fraction);
    }
    write!(
        text,
        " {} m=+{}.{:09}",
        at.strftime("%z %Z"),
        since_start.as_secs(),
        since_start.subsec_nanos()
    )
    .expect("invariant: writing to a String does not fail");
    text
}

/// Serializes a value as `json.Marshal()`: compact, with `<`, `>`, `&`, U+2028 and U+2029 escaped in strings.
pub(super) fn json(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    value
        .serialize(&mut Serializer::with_formatter(&mut bytes, GoEscapes))
        .expect("invariant: these structs serialize, and writing to a Vec does not fail");
    bytes
}

/// Compact output that also escapes the characters that Go escapes for use in HTML.
struct GoEscapes;

impl Formatter for GoEscapes {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut written = 0;
        for (at, special) in fragment.match_indices(['<', '>', '&', '\u{2028}', '\u{2029}']) {
            let code = special.chars().next().map_or(0, u32::from);
            write!(writer, "{}\\u{code:04x}", &fragment[written..at])?;
            written = at + special.len();
        }
        writer.write_all(&fragment.as_bytes()[written..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use jiff::tz::{TimeZone, offset};

    /// Each expected form was compared with the output of Go.
    #[test]
    fn times_are_written_as_go_writes_them() {
        let tokyo = TimeZone::posix("JST-9").expect("a zone");
        let half_hour = TimeZone::posix("<+0330>-3:30").expect("a zone");
        let table = [
            (
                1_785_585_600,
                123_456_789,
                TimeZone::UTC,
                86,
                90_000_000,
                "2026-08-01 12:00:00.123456789 +0000 UTC m=+86.090000000",
            ),
            (
                1_785_585_600,
                120_000_000,
                tokyo,
                0,
                1,
                "2026-08-01 21:00:00.12 +0900 JST m=+0.000000001",
            ),
            (
                1_785_585_600,
                0,
                half_hour,
                1_234_567_890,
                5,
                "2026-08-01 15:30:00 +0330 +0330 m=+1234567890.000000005",
            ),
        ];
        for (second, nanosecond, zone, since_s, since_ns, expected) in table {
            let at = Timestamp::new(second, nanosecond)
                .expect("in range")
                .to_zoned(zone);
            assert_eq!(time_string(&at, Duration::new(since_s, since_ns)), expected);
        }
        let fixed = Timestamp::UNIX_EPOCH.to_zoned(TimeZone::fixed(offset(-2)));
        assert!(time_string(&fixed, Duration::ZERO).starts_with("1969-12-31 22:00:00 -0200 "));
    }

    #[test]
    fn strings_are_escaped_as_go_escapes_them() {
        let text = "<a href=\"x\">&\u{2028}\u{2029}é\n\t\u{1}\u{7f}</a>";
        let expected = "\"\\u003ca href=\\\"x\\\"\\u003e\\u0026\\u2028\\u2029é\\n\\t\\u0001\u{7f}\\u003c/a\\u003e\"";
        assert_eq!(String::from_utf8(json(&text)).expect("UTF-8"), expected);
        assert_eq!(json(&None::<()>), b"null");
    }
}
