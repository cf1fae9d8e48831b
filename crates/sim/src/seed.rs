//! Where all chance in a run comes from, and how to repeat it.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// Environment variable that repeats one seed, or runs others.
const VARIABLE: &str = "QUICTUN_SEED";

/// Environment variable that names a directory for the transcripts and packets of tests.
const EVIDENCE: &str = "QUICTUN_EVIDENCE";

/// The seed of a run. If the run panics, it says how to repeat it.
#[derive(Debug)]
pub struct Seed {
    value: u64,
    origin: Origin,
}

/// Where a seed comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A program that uses the simulation: nothing is printed.
    Program,
    /// A test, always the same.
    Fixed,
    /// The test of this name, which runs through many.
    Test(&'static str),
}

impl Seed {
    /// A seed for a run that is no test.
    pub fn plain(value: u64) -> Self {
        let origin = Origin::Program;
        Self { value, origin }
    }

    /// A seed that is always the same: running the test again repeats it.
    pub fn fixed(value: u64) -> Self {
        let origin = Origin::Fixed;
        Self { value, origin }
    }

    /// One of many seeds that the test `test` of this crate runs through.
    pub fn of_test(test: &'static str, value: u64) -> Self {
        let origin = Origin::Test(test);
        Self { value, origin }
    }

    /// The seeds that a test runs through: `usual`, unless the environment asks for one (`17`) or for a
    /// range (`1000..9000`).
    pub fn wanted(usual: Range<u64>) -> Range<u64> {
        let Ok(text) = std::env::var(VARIABLE) else {
            return usual;
        };
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let range = match text.split_once("..") {
            Some((from, until)) => number(from)
                .zip(number(until))
                .map(|(from, until)| from..until),
            None => number(&text).map(|seed| seed..seed + 1),
        };
        range.unwrap_or_else(|| panic!("{VARIABLE}={text:?} is neither a number nor FROM..UNTIL"))
    }

    /// The number.
    pub fn value(&self) -> u64 {
        self.value
    }

    /// A generator for one purpose; purposes do not disturb each other.
    pub fn random(&self, purpose: u64) -> Random {
        Random::new(self.value, purpose)
    }
}

impl Seed {
    /// The directory in which transcript and packets are to be left, if there is one.
    pub(crate) fn evidence(&self) -> Option<PathBuf> {
        let directory = std::env::var_os(EVIDENCE).filter(|_| self.origin != Origin::Program)?;
        (!directory.is_empty()).then(|| directory.into())
    }

    /// The name of the test, as the harness knows it where it can be found out.
    pub(crate) fn test(&self) -> String {
        let thread = std::thread::current();
        // The harness names its threads for the tests, except where it has only one.
        let of_thread = thread.name().filter(|name| *name != "main");
        let known = match self.origin {
            Origin::Test(name) => name,
            Origin::Fixed | Origin::Program => "",
        };
        of_thread.unwrap_or(known).to_owned()
    }

    fn command(&self) -> String {
        let seed = match self.origin {
            Origin::Test(_) => format!("{VARIABLE}={} ", self.value),
            Origin::Fixed | Origin::Program => String::new(),
        };
        let release = if cfg!(debug_assertions) {
            ""
        } else {
            " --release"
        };
        let package = std::env::var("CARGO_PKG_NAME");
        let package = package.as_deref().unwrap_or(env!("CARGO_PKG_NAME"));
        format!(
            "{seed}{EVIDENCE}=/tmp cargo test{release} -p {package} {}",
            self.test()
        )
    }
}

impl Drop for Seed {
    #[expect(
        clippy::print_stderr,
        reason = "the test harness captures it and shows it with the failure"
    )]
    fn drop(&mut self) {
        if std::thread::panicking() && self.origin != Origin::Program {
            eprintln!(
                "seed {}; to repeat it, and to have the whole transcript and the packets (pcapng, decrypted by Wireshark) in /tmp:\n    {}",
                self.value,
                self.command()
            );
        }
    }
}

/// A generator whose values never change between releases, so that seeds in reports stay good.
#[derive(Debug)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// The generator of `seed` for `purpose`.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&purpose.to_le_bytes());
        Self(ChaCha8Rng::from_seed(key))
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `from..until`; `from` where that is empty.
    pub fn within(&mut self, from: u64, until: u64) -> u64 {
        from + self.any() % until.saturating_sub(from).max(1)
    }

    /// A size in `from..=most` whose order of magnitude is even: small ones are as likely as large ones.
    pub fn magnitude(&mut self, from: u64, most: u64) -> u64 {
        let (low, high) = (from.max(1).ilog2(), most.max(1).ilog2());
        let bits = self.within(u64::from(low), u64::from(high) + 1);
        let base = 1u64 << bits;
        self.within(base, base * 2).clamp(from, most)
    }

    /// Whether something happens that happens `times` in `of` times.
    pub fn chance(&mut self, times: u64, of: u64) -> bool {
        self.within(0, of) < times
    }

    /// One of some values.
    pub fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[usize::try_from(self.within(0, values.len() as u64)).unwrap_or(0)]
    }

    /// A time in `from..until`.
    pub fn time(&mut self, from: Duration, until: Duration) -> Duration {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.within(nanos(from), nanos(until)))
    }

    /// Bytes for an engine's seed.
    pub fn bytes(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        self.0.fill_bytes(&mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_command_repeats_a_run_and_leaves_its_evidence() {
        let command = Seed::of_test("seeded_runs", 17).command();
        let (settings, rest) = command.split_once(" cargo test ").expect("a command");
        assert_eq!(settings, "QUICTUN_SEED=17 QUICTUN_EVIDENCE=/tmp");
        assert!(rest.contains("-p quictun-sim "), "{command}");
        let name = "one_command_repeats_a_run_and_leaves_its_evidence";
        assert!(
            rest.ends_with(name) || rest.ends_with("seeded_runs"),
            "{command}"
        );
        let fixed = Seed::fixed(3).command();
        assert!(fixed.starts_with("QUICTUN_EVIDENCE=/tmp cargo test"));
        assert_eq!(Seed::plain(3).evidence(), None);
    }
}
