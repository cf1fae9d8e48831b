//! Converts the text of a scenario's traffic to numbers.

use std::time::Duration;

use quictun_link::units::Delay;

use super::error::ScenarioError;
use super::link::unit;
use super::raw::{Background, Mode, RawLoad, SpannedText};

/// The traffic that crosses the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// The kind of traffic.
    pub mode: Mode,
    /// Amount of traffic, as a time, bytes or a number of requests.
    pub amount: Amount,
    /// Time at the beginning that is not counted.
    pub warm_up: Duration,
    /// Size of a request, in bytes.
    pub request: u64,
    /// Size of an answer, in bytes.
    pub response: u64,
    /// Requests that start per second, whether or not earlier ones were answered. `None` to send each request after the
    /// previous answer.
    pub rate_per_s: Option<u64>,
    /// Number of concurrent flows on each connection.
    pub flows: u64,
    /// Number of concurrent connections.
    pub connections: u64,
    /// True to send from the far side to the near side.
    pub reverse: bool,
    /// Streams that run beside the requests.
    pub background: Background,
    /// Congestion control of a TCP stream that shares the link with the measured stream, but does not use the tunnel.
    pub rival: Option<String>,
    /// Time after which a run is aborted.
    pub time_limit: Duration,
}

/// The amount of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Traffic during this time.
    Time(Duration),
    /// This number of bytes.
    Bytes(u64),
    /// This number of requests.
    Count(u64),
}

/// Default time that a run may take beyond its minimum before it is aborted. A TCP sender that lost everything waits
/// for some seconds between its attempts.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time by which background streams outlast the measured traffic, which must first establish its connection.
pub(crate) const BACKGROUND_TAIL: Duration = Duration::from_millis(500);

const MAX_TIME_S: u64 = 3600;

impl Load {
    /// Returns the stream that runs beside the measured traffic, downwards if `reverse` is true.
    #[must_use]
    pub fn stream_beside(&self, reverse: bool) -> Self {
        let amount = match self.amount {
            Amount::Time(time) => Amount::Time(time + BACKGROUND_TAIL),
            other => other,
        };
        Self {
            mode: Mode::Stream,
            amount,
            rate_per_s: None,
            flows: 1,
            connections: 1,
            reverse,
            background: Background::None,
            rival: None,
            ..self.clone()
        }
    }

    /// Returns the rival stream, which runs in the same direction as the stream that it competes with.
    pub fn rival_stream(&self) -> Option<Self> {
        self.rival.as_ref()?;
        let reverse = match self.background {
            Background::None => self.reverse,
            Background::Up => false,
            Background::Down | Background::Both => true,
        };
        Some(self.stream_beside(reverse))
    }

    /// Returns the minimum duration. A load of bytes or requests only has its warm-up as minimum.
    pub(super) fn least_time(&self) -> Duration {
        match self.amount {
            Amount::Time(time) => self.warm_up + time,
            Amount::Bytes(_) | Amount::Count(_) => self.warm_up,
        }
    }
}

impl RawLoad {
    /// Converts to a load. An error without a position of its own is reported at `offset`.
    pub(super) fn load(&self, text: &str, offset: usize) -> Result<Load, ScenarioError> {
        let refuse = |why: &str| ScenarioError::new(text, offset, why);
        let time =
            |what: &str, word: &Option<SpannedText>| -> Result<Option<Duration>, ScenarioError> {
                let time = unit(text, word.as_ref())?.map(|Delay(time)| time);
                if time.is_some_and(|time| time > Duration::from_secs(MAX_TIME_S)) {
                    return Err(refuse(&format!("{what} is longer than {MAX_TIME_S} s")));
                }
                Ok(time)
            };
        let number = |what: &str, value: Option<u64>, (least, most): (u64, u64)| match value {
            Some(value) if !(least..=most).contains(&value) => Err(refuse(&format!(
                "{what} = {value}: from {least} to {most} are possible"
            ))),
            value => Ok(value),
        };
        let mode = self.mode.unwrap_or(Mode::Stream);
        let duration = time("duration", &self.duration)?;
        let bytes = number("bytes", self.bytes, (1, 1 << 40))?;
        let count = number("count", self.count, (1, 10_000_000))?;
        let incomplete = |what: &str| {
            let mode = mode.word();
            refuse(&format!("a workload with mode = {mode:?} needs {what}"))
        };
        let amount = match (mode, duration, bytes, count) {
            (_, Some(time), None, None) => Amount::Time(time),
            (Mode::Stream, None, Some(bytes), None) => Amount::Bytes(bytes),
            (Mode::Rr | Mode::Crr, None, None, Some(count)) => Amount::Count(count),
            (Mode::Stream, ..) => return Err(incomplete("either duration or bytes")),
            (Mode::Rr | Mode::Crr, ..) => return Err(incomplete("either duration or count")),
        };
        // At most 1 GiB, many times the size of a megabyte answer.
        let sizes = (1, 1 << 30);
        let load = Load {
            mode,
            amount,
            warm_up: time("warm_up", &self.warm_up)?.unwrap_or_default(),
            request: number("request", self.request, sizes)?.unwrap_or(1),
            response: number("response", self.response, sizes)?.unwrap_or(1),
            rate_per_s: number("rate_per_s", self.rate_per_s, (1, 1_000_000))?,
            flows: number("flows", self.flows, (1, 1000))?.unwrap_or(1),
            connections: number("connections", self.connections, (1, 1000))?.unwrap_or(1),
            reverse: self.reverse.unwrap_or(false),
            background: self.background.unwrap_or_default(),
            rival: self.rival.clone(),
            time_limit: Duration::ZERO,
        };
        let timed = matches!(load.amount, Amount::Time(_)) && load.mode != Mode::Stream;
        if load.background != Background::None && !timed {
            return Err(refuse(
                "background goes with mode = \"rr\" or \"crr\" and a duration",
            ));
        }
        let streams = match (load.mode, load.background) {
            (Mode::Stream, _) | (_, Background::Up | Background::Down) => 1,
            (_, Background::None) => 0,
            (_, Background::Both) => 2,
        };
        let is_timed = matches!(load.amount, Amount::Time(_));
        if load.rival.is_some() && !(is_timed && streams == 1) {
            return Err(refuse(
                "a rival goes with a duration and one stream: mode = \"stream\", or background = \"up\" or \"down\"",
            ));
        }
        let usual = load.least_time() + PATIENCE;
        Ok(Load {
            time_limit: time("time_limit", &self.time_limit)?.unwrap_or(usual),
            ..load
        })
    }
}
