//! What crosses the link: text to numbers.

use std::time::Duration;

use quictun_link::units::Delay;

use super::link::unit;
use super::raw::{Background, Mode, RawLoad, Word};
use super::refused::Refused;

/// What crosses the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Of which kind.
    pub mode: Mode,
    /// How much.
    pub amount: Amount,
    /// What is not counted at the beginning.
    pub warm_up: Duration,
    /// Bytes of a request.
    pub request: u64,
    /// Bytes of an answer.
    pub response: u64,
    /// Requests that begin in every second whether or not others are answered; `None`: one after the other.
    pub rate_per_s: Option<u64>,
    /// At the same time on each connection.
    pub flows: u64,
    /// Connections.
    pub connections: u64,
    /// From the far side to the near one.
    pub reverse: bool,
    /// Streams that run meanwhile.
    pub background: Background,
    /// Congestion control of a TCP stream that shares the link with the stream that is measured, and no tunnel.
    pub rival: Option<String>,
    /// When a run is given up.
    pub time_limit: Duration,
}

/// How much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// For so long.
    Time(Duration),
    /// So many bytes.
    Bytes(u64),
    /// So many requests.
    Count(u64),
}

/// Time beyond what it should take after which a run is given up, where nobody says: a TCP that lost everything waits
/// for some seconds between its attempts.
const PATIENCE: Duration = Duration::from_secs(30);

/// How much longer streams in the background run than what they are the background of: it has a connection to make.
pub(crate) const BACKGROUND_TAIL: Duration = Duration::from_millis(500);

const MAX_TIME_S: u64 = 3600;

impl Load {
    /// The stream that runs meanwhile, upwards or downwards.
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

    /// The rival, which runs the same way as the stream that it is the rival of.
    pub fn rival_stream(&self) -> Option<Self> {
        self.rival.as_ref()?;
        let reverse = match self.background {
            Background::None => self.reverse,
            Background::Up => false,
            Background::Down | Background::Both => true,
        };
        Some(self.stream_beside(reverse))
    }

    /// How long it takes at least, where time is what it takes.
    pub(super) fn least_time(&self) -> Duration {
        match self.amount {
            Amount::Time(time) => self.warm_up + time,
            Amount::Bytes(_) | Amount::Count(_) => self.warm_up,
        }
    }
}

impl RawLoad {
    /// The load; what is wrong without a place of its own is wrong at `offset`.
    pub(super) fn load(&self, text: &str, offset: usize) -> Result<Load, Refused> {
        let refuse = |why: &str| Refused::new(text, offset, why);
        let time = |what: &str, word: &Option<Word>| -> Result<Option<Duration>, Refused> {
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
        // As much as fits into a megabyte-sized answer many times over.
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
