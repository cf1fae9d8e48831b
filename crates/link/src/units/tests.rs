use proptest::prelude::*;

use super::*;
use crate::check;

fn rate(text: &str) -> u64 {
    text.parse::<Rate>().expect(text).0
}

#[test]
fn rates_are_read_in_bits_and_bytes() {
    assert_eq!(rate("600mbit"), 75_000_000);
    assert_eq!(rate("1.5gbit"), 187_500_000);
    assert_eq!(rate(" 100 kbit/s "), 12_500);
    assert_eq!(rate("9600bit"), 1200);
    assert_eq!(rate("600Mbps"), 75_000_000);
    assert_eq!(rate("75MB/s"), 75_000_000);
    assert_eq!(rate("0.5kB/s"), 500);
    assert_eq!(Rate(75_000_000).to_string(), "600mbit");
    assert_eq!(Rate(187_500_001).to_string(), "1.500000008gbit");
    assert_eq!(format!("{:.1}", Rate(187_500_001)), "1.5gbit");
}

#[test]
fn delays_are_read_with_units() {
    let delay = |text: &str| text.parse::<Delay>().expect(text).0;
    assert_eq!(delay("1.5ms"), Duration::from_micros(1500));
    assert_eq!(delay("20us"), Duration::from_micros(20));
    assert_eq!(delay("2s"), Duration::from_secs(2));
    assert_eq!(delay(".5 s"), Duration::from_millis(500));
    assert_eq!(delay("1.5h"), Duration::from_mins(90));
    assert_eq!(delay("7d"), Duration::from_hours(168));
    assert_eq!(delay("1D12h"), Duration::from_hours(36));
    assert_eq!(delay("1m30s"), Duration::from_secs(90));
    assert_eq!(delay("1s500ms"), Duration::from_millis(1500));
    assert_eq!(delay("0"), Duration::ZERO);
    assert_eq!(Delay(Duration::from_micros(1500)).to_string(), "1.5ms");
    assert_eq!(Delay(Duration::ZERO).to_string(), "0ns");
    let long = Delay(Duration::from_micros(1_999_960));
    assert_eq!(long.to_string(), "1.99996s");
    assert_eq!(format!("{long:.2}"), "2.00s");
}

#[test]
fn sizes_are_read_in_binary_and_decimal_units() {
    for (text, bytes) in [
        ("0", 0),
        ("4096", 4096),
        ("17B", 17),
        ("64KiB", 65_536),
        ("64 KiB", 65_536),
        ("1.5GiB", 3 << 29),
        ("2TiB", 2 << 40),
        ("64M", 64 << 20),
        ("64kB", 64_000),
        ("64KB", 64_000),
        ("3MB", 3_000_000),
        ("1TB", 1_000_000_000_000),
        ("18446744073709551615", u64::MAX),
        ("16777215TiB", 16_777_215 << 40),
    ] {
        assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
    }
    for text in [
        "",
        "KiB",
        "64kib",
        "64Mb",
        "1.5B",
        "0.5",
        "-1",
        "1GiBx",
        "1 GiB 2",
        "0x10",
        "18446744073709551616",
        "16777216TiB",
    ] {
        assert!(text.parse::<Size>().is_err(), "{text}");
    }
}

#[test]
fn shares_are_read_in_percent_or_as_fractions() {
    let share = |text: &str| text.parse::<Share>().expect(text).0;
    for (text, value) in [("0.1%", 0.001), ("0.001", 0.001), ("100%", 1.0), ("0", 0.0)] {
        assert_eq!(share(text).to_bits(), f64::to_bits(value), "{text}");
    }
    assert_eq!(Share(0.003).to_string(), "0.3%");
    assert_eq!(Share(0.07).to_string(), "7%");
    assert_eq!(Share(0.0).to_string(), "0%");
    assert_eq!(Share(1.5).to_string(), "150%");
    assert_eq!(format!("{:.2}", Share(1.0 / 3.0)), "33.33%");
}

#[test]
fn queues_are_read_in_bytes_or_packets() {
    let queue = |text: &str| text.parse::<Queue>().expect(text);
    assert_eq!(queue("64kB"), Queue::Bytes(64_000));
    assert_eq!(queue("64KB"), Queue::Bytes(64_000));
    assert_eq!(queue("1MiB"), Queue::Bytes(1 << 20));
    assert_eq!(queue("64K"), Queue::Bytes(65_536));
    assert_eq!(queue("1500B"), Queue::Bytes(1500));
    assert_eq!(queue("100p"), Queue::Packets(100));
    assert_eq!(queue("unlimited"), Queue::default());
    assert_eq!(Queue::Bytes(65_536).to_string(), "64KiB");
    assert_eq!(Queue::Bytes(64_000).to_string(), "64kB");
    assert_eq!(Queue::Bytes(0).to_string(), "0B");
}

#[test]
fn an_invalid_value_is_quoted_with_an_example() {
    let error = "600mbt".parse::<Rate>().expect_err("not a rate");
    assert_eq!(
        error.to_string(),
        "`600mbt` is not a rate; write it like 600mbit, 1.5gbit, 100kbit or 75MB/s"
    );
    for text in [
        "",
        "mbit",
        "600",
        "600mb",
        "-1mbit",
        "1e3mbit",
        "1.2.3mbit",
        "1.mbit",
        ".mbit",
        "inf",
        "99999999999999999999gbit",
        "1 mbit x",
    ] {
        assert!(text.parse::<Rate>().is_err(), "{text}");
    }
    for text in [
        "",
        "5",
        "ms",
        "-1ms",
        "1w",
        "5min",
        "1m30",
        "1m0",
        "1m-3s",
        "NaN",
        "1e400s",
        "18446744073709551616s",
        "18446744073s1s",
    ] {
        assert!(text.parse::<Delay>().is_err(), "{text}");
    }
    for text in [
        "",
        "101%",
        "1.1",
        "-0.1",
        "NaN",
        "inf",
        "%",
        "5 percent",
        "1e-3",
    ] {
        assert!(text.parse::<Share>().is_err(), "{text}");
    }
    for text in [
        "",
        "64",
        "64kb",
        "1.5p",
        "p",
        "-1B",
        "99999999999999999999GB",
    ] {
        assert!(text.parse::<Queue>().is_err(), "{text}");
    }
    let long = "9".repeat(1000);
    let error = long.parse::<Rate>().expect_err("not a rate");
    assert!(error.to_string().len() < 150);
}

proptest! {
    #[test]
    fn a_printed_value_parses_to_itself(rate in 0..=u64::MAX / 8, nanos: u64, size: usize, millionths in 0..=1_000_000u32) {
        let share = f64::from(millionths) / 1e6;
        prop_assert_eq!(Rate(rate).to_string().parse(), Ok(Rate(rate)));
        let delay = Delay(Duration::from_nanos(nanos));
        prop_assert_eq!(delay.to_string().parse(), Ok(delay));
        prop_assert_eq!(Share(share).to_string().parse(), Ok(Share(share)));
        for queue in [Queue::Bytes(size), Queue::Packets(size)] {
            prop_assert_eq!(queue.to_string().parse(), Ok(queue));
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[0-9.]{0,22} {0,2}[a-zA-Z%/µ]{0,6}|\\PC*") {
        check::units_parse(text.as_bytes());
    }
}
