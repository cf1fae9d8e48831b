//! Seeds: the source of all randomness in a run, and the means to repeat the run.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// Environment variable that selects one seed or a range of seeds.
const VARIABLE: &str = "QUICTUN_SEED";

/// Environment variable that names a directory for the transcripts and packets of tests.
const EVIDENCE: &str = "QUICTUN_EVIDENCE";

/// The seed of a run. If the run panics, the seed prints how to repeat it.
#[derive(Debug)]
pub struct Seed {
    value: u64,
    origin: SeedOrigin,
}

/// The origin of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SeedOrigin {
    /// A program that uses the simulation; nothing is printed on a panic.
    Program,
    /// A test with one fixed seed.
    Fixed,
    /// The test of this name, which runs many seeds.
    Test(&'static str),
}

impl Seed {
    /// Creates a seed for a run outside of a test.
    pub fn plain(value: u64) -> Self {
        let origin = SeedOrigin::Program;
        Self { value, origin }
    }

    /// Creates a fixed seed: running the test again repeats the run.
    pub fn fixed(value: u64) -> Self {
        let origin = SeedOrigin::Fixed;
        Self { value, origin }
    }

    /// Creates one of the many seeds that the test `test` of this crate runs.
    pub fn of_test(test: &'static str, value: u64) -> Self {
        let origin = SeedOrigin::Test(test);
        Self { value, origin }
    }

    /// Returns the range of seeds that a test runs: `usual`, unless the environment variable `QUICTUN_SEED` asks for
    /// one seed (`17`) or a range (`1000..9000`).
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

    /// Returns the seed as a number.
    pub fn value(&self) -> u64 {
        self.value
    }

    /// Returns a generator for one purpose. The generators of different purposes are independent.
    pub fn random(&self, purpose: u64) -> Random {
        Random::new(self.value, purpose)
    }
}

impl Seed {
    /// Returns the directory for the transcript and the packets, if one is configured.
    pub(crate) fn evidence(&self) -> Option<PathBuf> {
        let directory =
            std::env::var_os(EVIDENCE).filter(|_| self.origin != SeedOrigin::Program)?;
        (!directory.is_empty()).then(|| directory.into())
    }

    /// Returns the name of the test, as the harness knows it if that can be determined.
    pub(crate) fn test(&self) -> String {
        let thread = std::thread::current();
        // The harness names its threads after the tests, unless it runs on one thread only.
        let of_thread = thread.name().filter(|name| *name != "main");
        let known = match self.origin {
            SeedOrigin::Test(name) => name,
            SeedOrigin::Fixed | SeedOrigin::Program => "",
        };
        of_thread.unwrap_or(known).to_owned()
    }

    fn command(&self) -> String {
        let seed = match self.origin {
            SeedOrigin::Test(_) => format!("{VARIABLE}={} ", self.value),
            SeedOrigin::Fixed | SeedOrigin::Program => String::new(),
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
        if std::thread::panicking() && self.origin != SeedOrigin::Program {
            eprintln!(
                "seed {}; to repeat it, and to have the whole transcript and the packets (pcapng, decrypted by Wireshark) in /tmp:\n    {}",
                self.value,
                self.command()
            );
        }
    }
}

/// A generator whose output does not change between releases, so that reported seeds stay valid.
#[derive(Debug)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// Creates the generator of `seed` for `purpose`.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&purpose.to_le_bytes());
        Self(ChaCha8Rng::from_seed(key))
    }

    /// Returns a uniform 64-bit number.
    pub fn any(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number in `from..until`, or `from` if the range is empty.
    pub fn within(&mut self, from: u64, until: u64) -> u64 {
        from + self.any() % until.saturating_sub(from).max(1)
    }

    /// Returns a size in `from..=most` with a uniform order of magnitude: small sizes are as likely as large ones.
    pub fn magnitude(&mut self, from: u64, most: u64) -> u64 {
        let (low, high) = (from.max(1).ilog2(), most.max(1).ilog2());
        let bits = self.within(u64::from(low), u64::from(high) + 1);
        let base = 1u64 << bits;
        self.within(base, base * 2).clamp(from, most)
    }

    /// Returns true with a probability of `times` in `of`.
    pub fn chance(&mut self, times: u64, of: u64) -> bool {
        self.within(0, of) < times
    }

    /// Returns one of the given values.
    pub fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[usize::try_from(self.within(0, values.len() as u64)).unwrap_or(0)]
    }

    /// Returns a duration in `from..until`.
    pub fn time(&mut self, from: Duration, until: Duration) -> Duration {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.within(nanos(from), nanos(until)))
    }

    /// Returns 32 bytes, for example as the seed of an engine.
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
