//! The ladder of carriers to one server: which carrier a race tries first, and when QUIC is tried again.
//!
//! ```text
//!                 QUIC connects                 QUIC silent, TLS connects
//!   Unknown ───────────────────────► Works ◄────────────────────────► Blocked
//!      ▲                                       a probe connects          │
//!      └──────────────────── the network changes ◄───────────────────────┘
//! ```
//!
//! QUIC carries wherever it passes. A race gives it a head start, and TLS over TCP takes over when QUIC does not answer.
//! QUIC counts as blocked only once TLS has connected on the same network: a machine without a network is not behind a
//! blocked one. While TLS carries, probes find out when QUIC passes again. A climb that fails soon doubles the time
//! until the next one.
//!
//! A client that comes back to a network on which QUIC was blocked does not wait for QUIC. The address of this machine
//! stands for the network. If another network gives it the same one, QUIC is tried beside TLS, and climbs at once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::config::CarrierChoice;
use crate::report::{CarrierKind, QuicState};
use crate::strangers::SourcePrefix;

/// Bounds of the head start of QUIC, which is one and a half round trips of the last connection: Chrome's factor, and
/// curl's and Chrome's waits without a measurement.
const HEAD_START_MIN: Duration = Duration::from_millis(100);
const HEAD_START_MAX: Duration = Duration::from_millis(250);

/// Silence of QUIC beside a connection by TLS after which it counts as blocked.
const SILENT: Duration = Duration::from_secs(3);

/// Times from the end of a probe to the beginning of the next one, for the first ones; then from one beginning to the
/// next.
const PROBE_FIRST: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(10)];
const PROBE_BUSY: Duration = Duration::from_secs(20);

/// Time from which a network has been blocked for long, and the times between probes from then on.
const LONG: Duration = Duration::from_mins(10);
const PROBE_LONG: Duration = Duration::from_mins(1);
const PROBE_IDLE: Duration = Duration::from_mins(5);

/// Probes are earlier or later by this part, so that the clients of one network do not probe together.
const PROBE_SPREAD: f64 = 0.2;

/// Minimum time between two climbs. Each relapse within [`RELAPSE`] after a climb, or within twice the hold before it,
/// doubles it, up to [`HOLD_MAX`]. A later relapse halves it.
const HOLD: Duration = Duration::from_secs(30);
const HOLD_MAX: Duration = Duration::from_hours(1);
const RELAPSE: Duration = Duration::from_mins(1);

/// Number of networks that are remembered, and the time for which they are: a working day.
const NETWORKS: usize = 64;
const REMEMBERED: Duration = Duration::from_hours(8);

#[derive(Debug)]
pub(super) struct Ladder {
    choice: CarrierChoice,
    state: QuicState,
    /// Time since which QUIC has been blocked.
    since: Option<Instant>,
    /// Number of probes since then.
    probes: usize,
    probe_at: Option<Instant>,
    /// Time at which the latest probe began.
    probed_at: Option<Instant>,
    /// Time of the latest climb, until TLS carries again.
    climbed: Option<Instant>,
    /// Minimum time from one climb to the next, and the end of that time.
    hold: Duration,
    held_until: Option<Instant>,
    /// The present network, once a race has begun on it.
    network: Option<SourcePrefix>,
    /// Networks on which QUIC was blocked, and the time of the latest failure. The latest one is the last.
    blocked: VecDeque<(SourcePrefix, Instant)>,
}

impl Ladder {
    pub(super) fn new(choice: CarrierChoice) -> Self {
        Self {
            choice,
            state: QuicState::Unknown,
            since: None,
            probes: 0,
            probe_at: None,
            probed_at: None,
            climbed: None,
            hold: HOLD,
            held_until: None,
            network: None,
            blocked: VecDeque::new(),
        }
    }

    /// Forgets everything: this is another server now.
    pub(super) fn forget(&mut self) {
        *self = Self::new(self.choice);
    }

    /// Returns whether measurements choose the carrier.
    pub(super) fn chooses(&self) -> bool {
        self.choice == CarrierChoice::Auto
    }

    pub(super) fn state(&self, now: Instant) -> QuicState {
        // Where TLS is the only choice, its success says nothing about QUIC.
        let silent = self.since.is_some_and(|since| now >= since + SILENT);
        if silent && self.chooses() {
            QuicState::Blocked
        } else {
            self.state
        }
    }

    /// Returns the carriers that a race tries at one address, in this order, and the head start of the first one. `rtt`
    /// is the round-trip time of the last connection to the server.
    pub(super) fn order(
        &self,
        now: Instant,
        rtt: Option<Duration>,
    ) -> (&'static [CarrierKind], Duration) {
        use CarrierKind::{Quic, Tls};
        match (self.choice, self.state(now)) {
            (CarrierChoice::Quic, _) => (&[Quic], Duration::ZERO),
            (CarrierChoice::Tls, _) => (&[Tls], Duration::ZERO),
            (CarrierChoice::Auto, QuicState::Blocked) => {
                let start = if self.is_held(now) {
                    // TLS over TCP connects within two round trips, and QUIC within one.
                    rtt.map_or(HEAD_START_MAX, |rtt| HEAD_START_MAX.max(rtt * 3))
                } else {
                    Duration::ZERO
                };
                (&[Tls, Quic], start)
            }
            (CarrierChoice::Auto, QuicState::Unknown | QuicState::Works) => {
                let start = rtt.map_or(HEAD_START_MAX, |rtt| rtt * 3 / 2);
                (&[Quic, Tls], start.clamp(HEAD_START_MIN, HEAD_START_MAX))
            }
        }
    }

    /// Notes the network on which a race begins. QUIC counts as blocked there if it was blocked lately.
    pub(super) fn enter(&mut self, now: Instant, network: SourcePrefix) {
        self.network = Some(network);
        self.blocked.retain(|&(_, at)| now < at + REMEMBERED);
        let was_blocked = self.blocked.iter().any(|&(other, _)| other == network);
        if self.state == QuicState::Unknown && was_blocked {
            self.state = QuicState::Blocked;
        }
    }

    /// Remembers whether QUIC is blocked on the present network.
    fn remember(&mut self, blocked: Option<Instant>) {
        let Some(network) = self.network else {
            return;
        };
        self.blocked.retain(|&(other, _)| other != network);
        self.blocked.extend(blocked.map(|at| (network, at)));
        if self.blocked.len() > NETWORKS {
            self.blocked.pop_front();
        }
    }

    /// Handles a connection that carries from now on.
    pub(super) fn handle_carried(&mut self, now: Instant, kind: CarrierKind) {
        match kind {
            CarrierKind::Quic => {
                if self.since.take().is_some() {
                    self.climbed = Some(now);
                }
                self.state = QuicState::Works;
                (self.probe_at, self.probes) = (None, 0);
                self.remember(None);
            }
            CarrierKind::Tls => {
                if let Some(climbed) = self.climbed.take() {
                    let relapsed = now < climbed + RELAPSE.max(2 * self.hold);
                    self.hold = if relapsed {
                        (self.hold * 2).min(HOLD_MAX)
                    } else {
                        (self.hold / 2).max(HOLD)
                    };
                    self.held_until = Some(climbed + self.hold);
                }
                self.since.get_or_insert(now);
            }
        }
    }

    /// Handles the end of all attempts by QUIC while TLS carries. The arguments are those of
    /// [`plan_probe`](Self::plan_probe).
    pub(super) fn handle_silent(&mut self, now: Instant, jitter: f64, busy: bool) {
        if self.lacks_probe() {
            self.state = QuicState::Blocked;
            self.remember(Some(now));
            self.plan_probe(now, jitter, busy);
        }
    }

    /// Handles a connection by QUIC on which nothing arrives after its handshake: the network may let a handshake pass,
    /// and no more. Returns whether that is new.
    pub(super) fn handle_unproven(&mut self, now: Instant) -> bool {
        self.remember(Some(now));
        self.held_until = Some(now + self.hold);
        std::mem::replace(&mut self.state, QuicState::Blocked) != QuicState::Blocked
    }

    /// Returns whether the next probe has no time yet.
    pub(super) fn lacks_probe(&self) -> bool {
        self.chooses() && self.probe_at.is_none()
    }

    /// Plans the next probe beside TLS. `jitter` is from 0 to 1, and `busy` means that flows are open.
    pub(super) fn plan_probe(&mut self, now: Instant, jitter: f64, busy: bool) {
        let since = *self.since.get_or_insert(now);
        let long = now >= since + LONG;
        // A probe lasts for up to 10 s.
        let from = self.probed_at.unwrap_or(now);
        let (from, pause) = match (PROBE_FIRST.get(self.probes), long, busy) {
            (Some(first), ..) => (now, *first),
            (None, false, _) => (from, PROBE_BUSY),
            (None, true, true) => (from, PROBE_LONG),
            (None, true, false) => (from, PROBE_IDLE),
        };
        self.probes += 1;
        let spread = 1.0 + PROBE_SPREAD * (2.0 * jitter - 1.0);
        let at = now.max(from + pause.mul_f64(spread));
        self.probe_at = Some(self.held_until.map_or(at, |until| until.max(at)));
    }

    /// Returns whether it is too early for another climb.
    pub(super) fn is_held(&self, now: Instant) -> bool {
        self.held_until.is_some_and(|until| now < until)
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.probe_at
    }

    /// Returns the number of probes that were planned since QUIC was blocked.
    pub(super) fn probes(&self) -> usize {
        self.probes
    }

    /// Returns whether to try QUIC now beside TLS.
    pub(super) fn takes_probe(&mut self, now: Instant) -> bool {
        let due = self.probe_at.take_if(|at| *at <= now).is_some();
        if due {
            self.probed_at = Some(now);
        }
        due
    }

    /// Handles a change of the network. `network` is the present one, if it is known. Returns whether it is another one
    /// than before. A probe that waits is due at once, except in the hold of a network that is still the same.
    pub(super) fn handle_network_change(
        &mut self,
        now: Instant,
        network: Option<SourcePrefix>,
    ) -> bool {
        let is_same = network.is_some() && network == self.network;
        if is_same {
            let soon = self.held_until.map_or(now, |until| until.max(now));
            self.probe_at = self.probe_at.map(|at| at.min(soon));
        } else {
            self.leave_network(now);
        }
        !is_same
    }

    /// Forgets the network, until [`enter`](Self::enter) tells which one it is.
    pub(super) fn leave_network(&mut self, now: Instant) {
        self.state = QuicState::Unknown;
        self.network = None;
        self.probes = 0;
        (self.climbed, self.hold, self.held_until) = (None, HOLD, None);
        self.since = self.since.map(|_| now);
        self.probe_at = self.probe_at.map(|_| now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn auto() -> (Ladder, Instant) {
        (Ladder::new(CarrierChoice::Auto), Instant::now())
    }

    /// Fails the probe that is due next. Returns its time.
    fn fail_next(ladder: &mut Ladder, busy: bool) -> Instant {
        let at = ladder.next_timeout().expect("a probe");
        assert!(ladder.takes_probe(at));
        assert!(!ladder.takes_probe(at), "one at a time");
        ladder.handle_silent(at, 0.5, busy);
        at
    }

    #[test]
    fn quic_that_was_never_tried_is_not_called_blocked() {
        let mut ladder = Ladder::new(CarrierChoice::Tls);
        let now = Instant::now();
        ladder.handle_carried(now, CarrierKind::Tls);
        assert_eq!(ladder.state(now + SILENT), QuicState::Unknown);
    }

    #[test]
    fn quic_has_a_head_start_that_the_round_trip_decides_unless_it_is_blocked() {
        let (mut ladder, now) = auto();
        let start = |ladder: &Ladder, ms| ladder.order(now, Some(Duration::from_millis(ms)));
        let quic_first = &[CarrierKind::Quic, CarrierKind::Tls][..];
        assert_eq!(ladder.order(now, None), (quic_first, HEAD_START_MAX));
        assert_eq!(start(&ladder, 20), (quic_first, HEAD_START_MIN));
        assert_eq!(
            start(&ladder, 100),
            (quic_first, Duration::from_millis(150))
        );
        assert_eq!(start(&ladder, 300), (quic_first, HEAD_START_MAX));
        ladder.handle_carried(now, CarrierKind::Tls);
        assert_eq!(
            ladder.order(now, None).0,
            quic_first,
            "QUIC may be slow only"
        );
        ladder.handle_silent(now + 3 * S, 0.5, true);
        let tls_first = &[CarrierKind::Tls, CarrierKind::Quic][..];
        assert_eq!(ladder.order(now, None), (tls_first, Duration::ZERO));
        ladder.leave_network(now + 4 * S);
        assert_eq!(ladder.order(now, None).0, quic_first);
    }

    #[test]
    fn a_network_that_was_blocked_is_known_when_the_client_returns_to_it() {
        let network = |last| SourcePrefix::of([192, 0, 2, last].into());
        let (mut ladder, now) = auto();
        // Leaves the last network for this one. Returns whether TLS is first.
        let comes_to = |ladder: &mut Ladder, at: Instant, last| {
            ladder.handle_network_change(at, Some(network(last)));
            ladder.enter(at, network(last));
            ladder.order(at, None).1 == Duration::ZERO
        };
        let block = |ladder: &mut Ladder, at| {
            ladder.handle_carried(at, CarrierKind::Tls);
            ladder.takes_probe(at);
            ladder.handle_silent(at, 0.5, true);
        };
        assert!(!comes_to(&mut ladder, now, 0));
        block(&mut ladder, now);
        assert!(!comes_to(&mut ladder, now, 1), "another network");
        ladder.handle_carried(now, CarrierKind::Quic);
        let late = now + REMEMBERED / 2;
        assert!(comes_to(&mut ladder, late, 0), "it was blocked");
        // QUIC passes now.
        ladder.handle_carried(late, CarrierKind::Quic);
        comes_to(&mut ladder, late, 1);
        assert!(!comes_to(&mut ladder, late, 0));
        block(&mut ladder, late);
        comes_to(&mut ladder, late, 1);
        assert!(!comes_to(&mut ladder, late + REMEMBERED, 0), "too long ago");
        // The oldest of too many networks is forgotten.
        for last in 0..=NETWORKS {
            comes_to(&mut ladder, late, u8::try_from(last).expect("few"));
            block(&mut ladder, late);
        }
        assert!(!comes_to(&mut ladder, late, 0));
        assert!(comes_to(&mut ladder, late, 1));
    }

    #[test]
    fn probes_become_rare_and_rarer_without_flows() {
        let (mut ladder, now) = auto();
        ladder.handle_carried(now, CarrierKind::Tls);
        ladder.handle_silent(now, 0.5, true);
        let times: Vec<u64> = (0..40)
            .map(|_| (fail_next(&mut ladder, true) - now).as_secs())
            .collect();
        assert_eq!(times[..5], [5, 15, 35, 55, 75]);
        assert!(times[1..].windows(2).all(|pair| pair[1] - pair[0] <= 60));
        assert_eq!(times[39] - times[38], 60);
        let idle = fail_next(&mut ladder, false);
        assert_eq!(ladder.next_timeout(), Some(idle + PROBE_IDLE));
    }

    #[test]
    fn a_relapse_doubles_the_time_until_the_next_climb() {
        let (mut ladder, mut now) = auto();
        let mut held = Vec::new();
        for _ in 0..10 {
            ladder.handle_carried(now, CarrierKind::Tls);
            ladder.handle_silent(now, 0.5, true);
            let climb = ladder.next_timeout().expect("a probe");
            assert!(ladder.takes_probe(climb));
            held.push((climb - now).as_secs());
            ladder.handle_carried(climb, CarrierKind::Quic);
            assert_eq!(ladder.next_timeout(), None);
            now = climb + 5 * S;
        }
        assert_eq!(held[..4], [5, 55, 115, 235]);
        assert_eq!(held[9], 3595, "at most an hour");
        // A relapse long after the climb halves it.
        now += 3 * HOLD_MAX;
        ladder.handle_carried(now, CarrierKind::Tls);
        assert_eq!(ladder.hold, HOLD_MAX / 2);
        ladder.handle_silent(now, 0.5, true);
        let first = ladder.next_timeout();
        assert_eq!(first, Some(now + PROBE_FIRST[0]), "the first one again");
    }

    #[test]
    fn news_of_the_same_network_keep_the_hold_and_end_no_other_wait() {
        let network = SourcePrefix::of([192, 0, 2, 1].into());
        let (mut ladder, now) = auto();
        ladder.enter(now, network);
        ladder.handle_carried(now, CarrierKind::Tls);
        ladder.handle_silent(now, 0.5, true);
        assert!(!ladder.handle_network_change(now + S, Some(network)));
        assert!(ladder.takes_probe(now + S), "no hold yet");
        ladder.handle_carried(now + S, CarrierKind::Quic);
        ladder.handle_carried(now + 2 * S, CarrierKind::Tls);
        ladder.handle_silent(now + 3 * S, 0.5, true);
        for second in 3..61 {
            let at = now + second * S;
            assert!(!ladder.handle_network_change(at, Some(network)));
            assert!(!ladder.takes_probe(at), "held");
            assert_eq!(ladder.order(at, None).1, HEAD_START_MAX);
        }
        assert!(ladder.takes_probe(now + 61 * S));
        assert!(ladder.handle_network_change(now, None), "an unknown one");
    }

    #[test]
    fn another_network_is_probed_at_once_and_one_carrier_alone_never() {
        let (mut ladder, now) = auto();
        ladder.handle_carried(now, CarrierKind::Tls);
        ladder.handle_silent(now, 0.5, true);
        ladder.leave_network(now + S);
        assert!(ladder.takes_probe(now + S));
        let mut alone = Ladder::new(CarrierChoice::Tls);
        alone.handle_carried(now, CarrierKind::Tls);
        alone.handle_silent(now, 0.5, true);
        assert_eq!(
            (alone.next_timeout(), alone.state(now)),
            (None, QuicState::Unknown)
        );
    }
}
