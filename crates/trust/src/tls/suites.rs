//! Chooses the library for the AEAD of packets and of TLS records, and the preferred suite (RFC 9001 section 5.3).
//!
//! ring and aws-lc differ by up to a factor of two, in either direction, depending on the processor. [`Suites::choose`]
//! seals some packets and records with each library and takes the faster one for each suite. On a processor without AES
//! instructions, `ChaCha20` is faster and becomes the preferred suite. Key exchange and signatures always use aws-lc. A
//! process measures once, before it makes its first configuration.

use std::fmt;
use std::time::{Duration, Instant};

use rustls::crypto::{aws_lc_rs, ring};
use rustls::quic::{Keys, Version};
use rustls::{Side, SupportedCipherSuite};

use crate::settings::Aead;

/// The cipher suites of a process in order of preference, each from the chosen library.
#[derive(Clone, Debug)]
pub struct Suites {
    order: Vec<SupportedCipherSuite>,
    preferred: Cipher,
    library: Library,
    measured: Option<SealTimes>,
}

/// A library that computes AEADs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Library {
    /// The library ring, by the crate `ring`.
    Ring,
    /// The library aws-lc, by the crate `aws-lc-rs`.
    AwsLc,
}

/// A cipher that is measured. AES-256 differs from AES-128 only in its rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cipher {
    Aes,
    ChaCha,
}

/// The times to seal a [`SAMPLE`], with ring and with aws-lc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SealTimes {
    aes: [Duration; 2],
    chacha: [Duration; 2],
}

impl Suites {
    /// Returns the suites for a setting. [`Aead::Auto`] measures them with `clock`, which takes about a millisecond.
    pub fn choose(aead: Aead, clock: impl FnMut() -> Instant) -> Self {
        match aead {
            Aead::Auto => Self::of(measure(clock)),
            Aead::Ring => Self::from(Library::Ring),
            Aead::AwsLc => Self::from(Library::AwsLc),
        }
    }

    /// Chooses the libraries and the preferred suite by measured times.
    fn of(times: SealTimes) -> Self {
        let (aes, aes_time) = faster(times.aes);
        let (chacha, chacha_time) = faster(times.chacha);
        // The data path is tuned for AES, so `ChaCha20` must be much faster to lead.
        let preferred = if chacha_time < aes_time.mul_f64(MUCH_FASTER) {
            Cipher::ChaCha
        } else {
            Cipher::Aes
        };
        Self {
            measured: Some(times),
            ..Self::with(preferred, aes, chacha)
        }
    }

    fn with(preferred: Cipher, aes: Library, chacha: Library) -> Self {
        let (first, second, library) = match preferred {
            Cipher::Aes => (aes.aes_128(), chacha.chacha20(), aes),
            Cipher::ChaCha => (chacha.chacha20(), aes.aes_128(), chacha),
        };
        Self {
            order: vec![first, second, aes.aes_256()],
            preferred,
            library,
            measured: None,
        }
    }

    pub(super) fn list(&self) -> Vec<SupportedCipherSuite> {
        self.order.clone()
    }
}

impl From<Library> for Suites {
    /// Returns the suites of one library, without measuring.
    fn from(library: Library) -> Self {
        let preferred = if cpu_has_aes() {
            Cipher::Aes
        } else {
            Cipher::ChaCha
        };
        Self::with(preferred, library, library)
    }
}

impl fmt::Display for Suites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cipher, times) = match self.preferred {
            Cipher::Aes => ("AES-128-GCM", self.measured.map(|times| times.aes)),
            Cipher::ChaCha => ("ChaCha20-Poly1305", self.measured.map(|times| times.chacha)),
        };
        write!(f, "{cipher} by {}", self.library)?;
        let works = |times: &[Duration; 2]| !times.contains(&Duration::MAX);
        let Some([ring, aws_lc]) = times.filter(works) else {
            return Ok(());
        };
        let nanos = |time: Duration| time.as_nanos();
        write!(
            f,
            " (64 KiB take ring {} ns, aws-lc {} ns)",
            nanos(ring),
            nanos(aws_lc)
        )
    }
}

impl Library {
    fn aes_128(self) -> SupportedCipherSuite {
        match self {
            Self::Ring => ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
            Self::AwsLc => aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256,
        }
    }

    fn aes_256(self) -> SupportedCipherSuite {
        match self {
            Self::Ring => ring::cipher_suite::TLS13_AES_256_GCM_SHA384,
            Self::AwsLc => aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384,
        }
    }

    fn chacha20(self) -> SupportedCipherSuite {
        match self {
            Self::Ring => ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            Self::AwsLc => aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        }
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ring => "ring",
            Self::AwsLc => "aws-lc",
        })
    }
}

/// Returns the faster of ring and aws-lc, and its time. ring must be faster by more than chance.
fn faster([ring, aws_lc]: [Duration; 2]) -> (Library, Duration) {
    if ring < aws_lc.mul_f64(BY_CHANCE) {
        (Library::Ring, ring)
    } else {
        (Library::AwsLc, aws_lc)
    }
}

/// Measures the ciphers in turns, so that other load on the processor affects all of them alike, and keeps each one's
/// best.
fn measure(mut clock: impl FnMut() -> Instant) -> SealTimes {
    let mut times = SealTimes {
        aes: [Duration::MAX; 2],
        chacha: [Duration::MAX; 2],
    };
    // In the first round, instructions, tables and pages are still cold.
    for round in 0..=ROUNDS {
        for (number, library) in [Library::Ring, Library::AwsLc].into_iter().enumerate() {
            let aes = seal(library.aes_128(), &mut clock);
            let chacha = seal(library.chacha20(), &mut clock);
            if round > 0 {
                times.aes[number] = times.aes[number].min(aes);
                times.chacha[number] = times.chacha[number].min(chacha);
            }
        }
    }
    times
}

/// Returns the time to seal a [`SAMPLE`], or [`Duration::MAX`] if the suite does not work.
fn seal(suite: SupportedCipherSuite, clock: &mut impl FnMut() -> Instant) -> Duration {
    let Some((suite, quic)) = suite.tls13().and_then(|suite| Some((suite, suite.quic?))) else {
        return Duration::MAX;
    };
    let keys = Keys::initial(Version::V1, suite, quic, &[0; 8], Side::Client);
    let mut payload = [0; RECORD];
    let start = clock();
    for (count, length) in SAMPLE {
        for number in 0..count {
            let (packet, payload) = (&keys.local.packet, &mut payload[..length]);
            let sealed = packet.encrypt_in_place(number, &[0; HEADER], payload);
            if sealed.is_err() {
                return Duration::MAX;
            }
        }
    }
    clock().saturating_duration_since(start)
}

/// Returns true if the processor has instructions for AES-GCM. Without them, `ChaCha20` is faster.
fn cpu_has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes")
        && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// The packets and the records that are sealed in each round: their number, and the bytes of each. Both kinds have about
/// 32 KiB in all, so that they count alike.
const SAMPLE: [(u64, usize); 2] = [(24, 1350), (2, RECORD)];
const RECORD: usize = 16 * 1024;

/// The bytes of a short header, and the measured rounds.
const HEADER: usize = 14;
const ROUNDS: u32 = 6;

/// A time below this part of the other library's, or cipher's, is faster by more than chance, or is much faster.
const BY_CHANCE: f64 = 0.95;
const MUCH_FASTER: f64 = 0.8;

#[cfg(test)]
mod tests {
    use rustls::CipherSuite;

    use super::*;

    /// Returns the choice for these times to seal a sample, in nanoseconds: AES and `ChaCha20` with ring, then with
    /// aws-lc.
    fn chosen(nanos: [u64; 4]) -> (Suites, Vec<CipherSuite>) {
        let origin = Instant::now();
        let mut calls = 0_usize;
        let mut now = Duration::ZERO;
        let suites = Suites::choose(Aead::Auto, || {
            // Every second reading of the clock ends a measurement.
            if calls % 2 == 1 {
                let sample = Duration::from_nanos(nanos[calls / 2 % nanos.len()]);
                // The first round is slow, and so is every third round.
                let disturbed = (calls / 2 / nanos.len()).is_multiple_of(3);
                now += sample * if disturbed { 5 } else { 1 };
            }
            calls += 1;
            origin + now
        });
        let list = suites.list();
        let order = list.iter().map(SupportedCipherSuite::suite).collect();
        (suites, order)
    }

    const AES_128: CipherSuite = CipherSuite::TLS13_AES_128_GCM_SHA256;
    const AES_256: CipherSuite = CipherSuite::TLS13_AES_256_GCM_SHA384;
    const CHACHA: CipherSuite = CipherSuite::TLS13_CHACHA20_POLY1305_SHA256;

    #[test]
    fn the_faster_library_seals() {
        let (suites, order) = chosen([400, 1200, 740, 1100]);
        assert_eq!(order, [AES_128, CHACHA, AES_256]);
        assert_eq!(
            suites.to_string(),
            "AES-128-GCM by ring (64 KiB take ring 400 ns, aws-lc 740 ns)"
        );
        let (suites, order) = chosen([740, 1200, 400, 1100]);
        assert_eq!(order, [AES_128, CHACHA, AES_256]);
        assert_eq!(
            suites.to_string(),
            "AES-128-GCM by aws-lc (64 KiB take ring 740 ns, aws-lc 400 ns)"
        );
    }

    #[test]
    fn a_small_difference_does_not_change_the_preferred_suite() {
        let (suites, _) = chosen([390, 1200, 400, 1100]);
        assert_eq!(suites.library, Library::AwsLc);
    }

    #[test]
    fn chacha20_leads_where_aes_has_no_instructions() {
        let (suites, order) = chosen([9000, 2000, 8000, 2200]);
        assert_eq!(order, [CHACHA, AES_128, AES_256]);
        assert_eq!(
            suites.to_string(),
            "ChaCha20-Poly1305 by ring (64 KiB take ring 2000 ns, aws-lc 2200 ns)"
        );
    }

    #[test]
    fn both_libraries_can_be_forced_and_work() {
        for (aead, library) in [(Aead::Ring, Library::Ring), (Aead::AwsLc, Library::AwsLc)] {
            let mut clock = || -> Instant { panic!("nothing is measured") };
            let suites = Suites::choose(aead, &mut clock);
            assert_eq!(suites.library, library);
            for suite in suites.list() {
                let time = seal(suite, &mut Instant::now);
                assert_ne!(time, Duration::MAX, "{suite:?}");
            }
        }
    }
}
