//! Filters lines by level, for all modules or for single ones.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use tracing_subscriber::filter::{LevelFilter, Targets};

/// A level, or several `TARGET=LEVEL`, separated by commas.
#[derive(Clone, Debug, PartialEq)]
pub struct LogFilter(pub(super) Targets);

/// The reason why a text is not a filter. Each message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LogFilterError {
    /// The text before the `=` is not the name of a module.
    #[error("{target:?} is not a log target: write, for instance, quictun_engine=debug")]
    Target {
        /// The text before the `=`.
        target: String,
    },
    /// The text is neither a level of `tracing` nor one of zap.
    #[error("unknown level {level:?}: choose trace, debug, info, warn, error or off")]
    Level {
        /// The level as the user gave it.
        level: String,
    },
}

impl LogFilter {
    /// Returns true if the filter is the level `debug` or `trace` for all modules.
    pub fn is_debug(&self) -> bool {
        let levels = [LevelFilter::DEBUG, LevelFilter::TRACE];
        let mut filters = levels
            .map(|level| Targets::new().with_default(level))
            .into_iter();
        filters.any(|filter| filter == self.0)
    }
}

/// The default is the level `info` for all modules.
impl Default for LogFilter {
    fn default() -> Self {
        Self(Targets::new().with_default(LevelFilter::INFO))
    }
}

impl FromStr for LogFilter {
    type Err = LogFilterError;

    fn from_str(text: &str) -> Result<Self, LogFilterError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
        let mut targets = Targets::new();
        for part in text.split(',').map(str::trim) {
            targets = match part.split_once('=') {
                Some((target, _)) if target.is_empty() || !target.chars().all(plain) => {
                    let target = target.to_owned();
                    return Err(LogFilterError::Target { target });
                }
                Some((target, level)) => targets.with_target(target, parse_level(level)?),
                None => targets.with_default(parse_level(part)?),
            };
        }
        Ok(Self(targets))
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn parse_level(text: &str) -> Result<LevelFilter, LogFilterError> {
    match text.to_ascii_lowercase().as_str() {
        "trace" => Ok(LevelFilter::TRACE),
        "debug" => Ok(LevelFilter::DEBUG),
        "info" => Ok(LevelFilter::INFO),
        "warn" | "warning" => Ok(LevelFilter::WARN),
        // zap's levels above "error" have no counterpart in `tracing`, so they count as "error".
        "error" | "dpanic" | "panic" | "fatal" => Ok(LevelFilter::ERROR),
        "off" => Ok(LevelFilter::OFF),
        _ => Err(LogFilterError::Level {
            level: text.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_those_of_zap_and_filters_those_of_tracing() {
        for (text, filter) in [
            ("info", "info"),
            ("INFO", "info"),
            (" info ", "info"),
            ("warning", "warn"),
            ("fatal", "error"),
            ("dpanic", "error"),
            ("off", "off"),
            ("warn, quictun_engine=TRACE", "quictun_engine=trace,warn"),
            ("quictun_control::rest=debug", "quictun_control::rest=debug"),
        ] {
            let parsed: LogFilter = text.parse().expect(text);
            assert_eq!(parsed.to_string(), filter);
            assert_eq!(filter.parse(), Ok(parsed), "{filter}");
        }
        for text in [
            "",
            "verbose",
            "info,",
            "=debug",
            "a b=info",
            "a=b=info",
            "quictun_engine",
            "info,quictun=loud",
        ] {
            assert!(text.parse::<LogFilter>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_level_debug_is_that_of_all_modules() {
        for (text, is_debug) in [
            ("debug", true),
            ("TRACE", true),
            ("info", false),
            ("quictun_engine=debug", false),
            ("debug,quictun_engine=info", false),
        ] {
            let parsed: LogFilter = text.parse().expect(text);
            assert_eq!(parsed.is_debug(), is_debug, "{text}");
        }
    }
}
