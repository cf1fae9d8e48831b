//! Invariants that every parser must keep for every input: one function per parser, which panics if one is violated.
//!
//! The fuzz targets in `fuzz/` call these functions, and so do the tests that replay the committed corpora, so that
//! every input found by fuzzing stays covered. This module is not part of the crate's public interface.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use crate::config::Queue;
use crate::trace::{Trace, TracePosition};
use crate::units::{Delay, Rate, Share, Size};

/// Checks that an accepted trace is usable: packets leave in order, and never before they enter.
pub fn trace_parse(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Ok(trace) = Trace::parse(text) else {
        return;
    };
    assert!(text.lines().any(|line| !line.trim().is_empty()));
    let mut position = TracePosition::default();
    let (mut now, mut last) = (0, 0);
    for bytes in [1, 40, 1500, 1501, 9000, 1 << 32, 64, 1, 3000] {
        let opens = trace.opens(position, last.max(now));
        let sent = trace.spend(&mut position, opens, bytes);
        assert!(opens >= now && opens >= last && sent >= opens);
        last = sent;
        now = now * 3 + 7_000_001;
    }
}

/// Checks that every parsed value is printed in a form that parses to the same value.
pub fn units_parse(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    repeats::<Rate>(text);
    repeats::<Delay>(text);
    repeats::<Queue>(text);
    if let Ok(Size(bytes)) = text.parse() {
        assert_eq!(bytes.to_string().parse(), Ok(Size(bytes)));
    }
    if let Ok(Share(share)) = text.parse() {
        assert!((0.0..=1.0).contains(&share));
    }
}

fn repeats<T: FromStr<Err: Display> + Display + Debug + PartialEq>(text: &str) {
    match text.parse::<T>() {
        Ok(value) => {
            let again = value.to_string().parse().ok();
            assert_eq!(
                again.as_ref(),
                Some(&value),
                "`{text}` is printed as `{value}`, which does not parse to the same value"
            );
        }
        // The error repeats the value, but at a limited length.
        Err(error) => assert!(error.to_string().len() < 300),
    }
}
