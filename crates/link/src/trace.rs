//! Recorded links in mahimahi's trace format.
//!
//! Each line is a time in milliseconds at which 1500 bytes may be sent. Several lines with the same time are several
//! such opportunities. After the last line the trace repeats. An opportunity is lost if no bytes are ready to send. A
//! packet may take several opportunities, and the next packet uses the rest of the last one.

use std::fmt;

/// Bytes that each line of a trace lets through.
pub const OPPORTUNITY_BYTES: u64 = 1500;

/// Maximum number of lines in a trace: 12 Gbit/s for a second, or 12 Mbit/s for a quarter of an hour.
pub const MAX_OPPORTUNITIES: usize = 1 << 20;

/// Longest duration of a trace, a day: chosen so that times stay far from the limits of the arithmetic.
const MAX_PERIOD_MS: u32 = 24 * 60 * 60 * 1000;

/// A repeating list of the times at which bytes may be sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Trace {
    /// Times in order. The list is not empty, and its last time is not 0, because it is also the period.
    at_ms: Vec<u32>,
}

/// The reason for which a text is not a valid trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A line is not a time.
    #[error(
        "line {0} of the trace is not a time in whole milliseconds below {MAX_PERIOD_MS}, such as 250"
    )]
    NotATime(usize),
    /// A time is earlier than the one before it.
    #[error("line {0} of the trace is earlier than the line before; sort the file by time")]
    Backwards(usize),
    /// No line has a time above 0.
    #[error(
        "the trace has no time above 0; it needs one line for each 1500 bytes, such as 1, 2, 3"
    )]
    Empty,
    /// The trace has more lines than the limit.
    #[error("the trace has more than {MAX_OPPORTUNITIES} lines; shorten it: a trace repeats")]
    TooLong,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TracePosition {
    /// Number of the current opportunity, counted over all repetitions.
    number: u64,
    /// Bytes used of that opportunity, always fewer than all.
    spent: u64,
}

impl Trace {
    /// Parses mahimahi's format. Empty lines and spaces around numbers are allowed.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut at_ms = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line_number = number + 1;
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let not_a_time = TraceError::NotATime(line_number);
            // mahimahi never writes a sign, but `parse` would accept one.
            if !line.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(not_a_time);
            }
            let time: u32 = line.parse().map_err(|_| not_a_time)?;
            if time >= MAX_PERIOD_MS {
                return Err(not_a_time);
            }
            if at_ms.last().is_some_and(|&last| time < last) {
                return Err(TraceError::Backwards(line_number));
            }
            if at_ms.len() == MAX_OPPORTUNITIES {
                return Err(TraceError::TooLong);
            }
            at_ms.push(time);
        }
        match at_ms.last() {
            None | Some(0) => Err(TraceError::Empty),
            Some(_) => Ok(Self { at_ms }),
        }
    }

    /// Builds a trace from times in milliseconds. The caller guarantees that they are in order and that the last is
    /// above 0.
    pub(crate) fn repeating(at_ms: Vec<u32>) -> Self {
        debug_assert!(at_ms.is_sorted() && at_ms.last().is_some_and(|&last| last > 0));
        Self { at_ms }
    }

    /// Returns the mean rate of the trace in bytes per second, rounded down: the highest rate it can sustain.
    pub fn mean_rate(&self) -> u64 {
        self.at_ms.len() as u64 * OPPORTUNITY_BYTES * 1000 / self.period_ms()
    }

    fn period_ms(&self) -> u64 {
        self.at_ms.last().map_or(1, |&last| u64::from(last))
    }

    fn time(&self, number: u64) -> u64 {
        let count = self.at_ms.len() as u64;
        let (round, line) = (number / count, number % count);
        let line = usize::try_from(line).unwrap_or(usize::MAX);
        let within = self.at_ms.get(line).map_or(0, |&at| u64::from(at));
        (round.saturating_mul(self.period_ms()))
            .saturating_add(within)
            .saturating_mul(NANOS_PER_MS)
    }

    /// Returns the number of the first opportunity at or after `time`.
    fn first_from(&self, time: u64) -> u64 {
        let time_ms = time.div_ceil(NANOS_PER_MS);
        // The end of a round is the time of its last line, so it belongs to that round.
        let round = time_ms.saturating_sub(1) / self.period_ms();
        let within = time_ms - round * self.period_ms();
        let line = self.at_ms.partition_point(|&at| u64::from(at) < within);
        round * self.at_ms.len() as u64 + line as u64
    }

    /// Returns the position of the next byte that is sent at or after `from`.
    fn forward(&self, position: TracePosition, from: u64) -> TracePosition {
        if self.time(position.number) >= from {
            return position;
        }
        TracePosition {
            number: self.first_from(from),
            spent: 0,
        }
    }

    /// Returns the time at which a packet that is ready at `from` begins to be sent.
    pub(crate) fn opens(&self, position: TracePosition, from: u64) -> u64 {
        self.time(self.forward(position, from).number)
    }

    /// Sends `bytes` that are ready at `from`, and returns the time at which the last of them is sent.
    pub(crate) fn spend(&self, position: &mut TracePosition, from: u64, bytes: u64) -> u64 {
        *position = self.forward(*position, from);
        // Bytes used in the end, counted from the start of the current opportunity.
        let end = position.spent + bytes.max(1);
        let last = position.number + (end - 1) / OPPORTUNITY_BYTES;
        *position = TracePosition {
            number: position.number + end / OPPORTUNITY_BYTES,
            spent: end % OPPORTUNITY_BYTES,
        };
        self.time(last)
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("opportunities", &self.at_ms.len())
            .field("period_ms", &self.period_ms())
            .finish()
    }
}

const NANOS_PER_MS: u64 = 1_000_000;
