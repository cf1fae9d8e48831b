//! Delays after wrong logins at a server's HTTPS proxy, so that guessing is slow.
//!
//! The delays belong to the source of the logins: an IPv4 address, or the first 64 bits of an IPv6 address. While one
//! runs, no login of the source is judged, so more connections at once do not make guessing faster. All workers share
//! the delays.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quictun_trust::shares::Holder;

/// The delay after the first wrong login of a source. Each further one doubles it.
const FIRST: Duration = Duration::from_secs(1);

/// Number of doublings. The longest delay, 8 s, leaves time within the 10 s that a client has to identify itself.
const DOUBLINGS: u32 = 3;

/// Time after the end of a delay at which the source counts as a new one.
const FORGET: Duration = Duration::from_mins(10);

/// Maximum number of sources. One more takes the place of the source whose delay ends first.
const SOURCES_MAX: usize = 4096;

/// The result of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoginVerdict {
    Right,
    /// The login is wrong, and is to be answered at this time.
    Wrong(Instant),
    /// The login was not judged. At this time, it may be.
    Wait(Instant),
}

/// The delays of all sources. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoginDelays(Arc<Mutex<HashMap<Holder, SourceDelay>>>);

#[derive(Clone, Copy, Debug)]
struct SourceDelay {
    wrong: u32,
    until: Instant,
}

impl LoginDelays {
    /// Judges a login of this source by `is_right`, unless a delay runs. No other worker judges one meanwhile: the logins
    /// of one source would pass its delay together.
    pub(crate) fn judge(
        &self,
        now: Instant,
        source: Holder,
        is_right: impl FnOnce() -> bool,
    ) -> LoginVerdict {
        let mut sources = self.sources();
        let until = sources.get(&source).map(|delay| delay.until);
        if let Some(until) = until.filter(|&until| until > now) {
            return LoginVerdict::Wait(until);
        }
        if is_right() {
            return LoginVerdict::Right;
        }
        if !sources.contains_key(&source) {
            make_room(now, &mut sources);
        }
        let new = SourceDelay {
            wrong: 0,
            until: now,
        };
        let known = sources.entry(source).or_insert(new);
        if known.is_over(now) {
            *known = new;
        }
        known.until = now + FIRST * 2_u32.pow(known.wrong.min(DOUBLINGS));
        known.wrong += 1;
        LoginVerdict::Wrong(known.until)
    }

    fn sources(&self) -> MutexGuard<'_, HashMap<Holder, SourceDelay>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SourceDelay {
    fn is_over(&self, now: Instant) -> bool {
        self.until + FORGET <= now
    }
}

fn make_room(now: Instant, sources: &mut HashMap<Holder, SourceDelay>) {
    if sources.len() < SOURCES_MAX {
        return;
    }
    sources.retain(|_, delay| !delay.is_over(now));
    let first = sources.iter().min_by_key(|(_, delay)| delay.until);
    let first = first.map(|(source, _)| source.clone());
    if let Some(first) = first.filter(|_| sources.len() >= SOURCES_MAX) {
        sources.remove(&first);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::thread::ScopedJoinHandle;

    use super::*;

    fn source(number: u32) -> Holder {
        Holder::at(Ipv4Addr::from(number).into())
    }

    /// Judges a wrong login.
    fn wrong(delays: &LoginDelays, now: Instant, number: u32) -> LoginVerdict {
        delays.judge(now, source(number), || false)
    }

    /// Judges a right login.
    fn right(delays: &LoginDelays, now: Instant, number: u32) -> LoginVerdict {
        delays.judge(now, source(number), || true)
    }

    #[test]
    fn delays_double_up_to_a_limit_and_are_those_of_their_source() {
        let (delays, mut now) = (LoginDelays::default(), Instant::now());
        assert_eq!(right(&delays, now, 1), LoginVerdict::Right);
        for seconds in [1, 2, 4, 8, 8, 8] {
            let until = now + Duration::from_secs(seconds);
            assert_eq!(wrong(&delays, now, 1), LoginVerdict::Wrong(until));
            let unjudged = delays.judge(now, source(1), || unreachable!("a delay runs"));
            assert_eq!(unjudged, LoginVerdict::Wait(until));
            assert_eq!(right(&delays, now, 2), LoginVerdict::Right);
            now = until;
            assert_eq!(right(&delays, now, 1), LoginVerdict::Right);
        }
        now += FORGET;
        let again = LoginVerdict::Wrong(now + FIRST);
        assert_eq!(wrong(&delays, now, 1), again, "the source is forgotten");
    }

    #[test]
    fn logins_of_one_source_at_once_are_judged_one_by_one() {
        let (delays, now) = (LoginDelays::default(), Instant::now());
        let verdicts = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| wrong(&delays, now, 1)))
                .collect();
            let joined = threads.into_iter().map(ScopedJoinHandle::join);
            joined.collect::<Result<Vec<_>, _>>().expect("verdicts")
        });
        let judged = verdicts
            .iter()
            .filter(|it| matches!(it, LoginVerdict::Wrong(_)));
        assert_eq!(judged.count(), 1, "{verdicts:?}");
    }

    #[test]
    fn the_number_of_sources_is_limited_and_the_newest_is_kept() {
        let (delays, start) = (LoginDelays::default(), Instant::now());
        let most = u32::try_from(SOURCES_MAX).expect("a small number");
        for number in 0..=most {
            let now = start + Duration::from_micros(number.into());
            wrong(&delays, now, number);
        }
        assert_eq!(delays.sources().len(), SOURCES_MAX);
        assert_eq!(right(&delays, start, 0), LoginVerdict::Right);
        for number in 1..=most {
            let verdict = right(&delays, start, number);
            assert!(matches!(verdict, LoginVerdict::Wait(_)), "{number}");
        }
    }
}
