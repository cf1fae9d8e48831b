//! Estimates how long a run takes, from the loads, links and programs of its scheduled cells.
//!
//! The program shows the estimate before it measures anything. A test compares the estimates with the committed runs.

use std::time::Duration;

use crate::scenario::{Amount, Arm, ArmKind, BACKGROUND_TAIL, Background, Load, Mode, Setup};
use crate::{PlannedCell, Scenario};

/// Time of a cell besides its traffic: creating networks, starting programs and stopping them. The value lies between
/// what an idle and what a busy machine needs.
const EXTRA: Duration = Duration::from_millis(400);

/// Minimum time of a request, in seconds, even without a round-trip time: programs must be woken for it.
const WAKE_S: f64 = 0.0003;

/// Assumed throughput of programs on one machine if the link has no rate limit, in bytes per second. The value lies
/// between a tunnel's and bare TCP's.
const UNLIMITED_BYTES_PER_S: f64 = 1e9;

/// Linux TCP's minimum retransmission timeout, which applies if no later segment follows a lost one, and the initial
/// timeout of a connection's first packet. Both in seconds.
const REPEAT_S: f64 = 0.2;
const REPEAT_FIRST_S: f64 = 1.0;

/// A sender's initial congestion window, in bytes (RFC 6928).
const INITIAL_WINDOW: f64 = 14_600.0;

impl Scenario {
    /// Estimates the time of one planned cell.
    pub fn estimate(&self, planned: &PlannedCell, quick: bool) -> Duration {
        let setup = self.setup(planned.case, planned.arm, quick);
        setup.estimate(&self.arms[planned.arm]) + EXTRA
    }

    /// Estimates the time of all these cells, including the extra runs for processor profiles.
    pub fn estimate_all(&self, cells: &[PlannedCell], quick: bool) -> Duration {
        let of = |planned: &PlannedCell| self.estimate(planned, quick);
        let looked_into = self.profile.iter().flat_map(|asked| {
            cells.iter().filter(|planned| {
                let (case, arm) = (&self.cases[planned.case].id, &self.arms[planned.arm].id);
                planned.block == 1 && asked.cases.contains(case) && asked.arms.contains(arm)
            })
        });
        cells.iter().chain(looked_into).map(of).sum()
    }
}

impl Setup {
    fn estimate(&self, arm: &Arm) -> Duration {
        let load = &self.load;
        match load.amount {
            Amount::Time(time) => {
                let beside = load.background != Background::None || load.rival.is_some();
                let tail = beside.then_some(BACKGROUND_TAIL);
                load.warm_up + time + tail.unwrap_or_default()
            }
            Amount::Bytes(bytes) => load.warm_up + self.limited(self.transfer(float(bytes))),
            Amount::Count(count) => {
                let at_once = float(load.flows * load.connections);
                let one_by_one = float(count) / at_once * self.request(arm);
                let at_a_rate = load.rate_per_s.map(|rate| float(count) / float(rate));
                load.warm_up + self.limited(at_a_rate.unwrap_or(one_by_one))
            }
        }
    }

    fn limited(&self, seconds: f64) -> Duration {
        Duration::try_from_secs_f64(seconds)
            .map_or(self.load.time_limit, |time| time.min(self.load.time_limit))
    }

    /// Returns the link's rate in bytes per second, the round-trip time in seconds, and the upward loss share.
    fn path(&self) -> [f64; 3] {
        let Some(link) = self.link.emulated() else {
            return [UNLIMITED_BYTES_PER_S, 0.0, 0.0];
        };
        let [up, down] = link.directions(1);
        let rate = up.rate.map_or(UNLIMITED_BYTES_PER_S, float);
        let round_trip = (up.delay + down.delay).as_secs_f64();
        [rate.min(UNLIMITED_BYTES_PER_S), round_trip, up.loss]
    }

    /// Estimates the seconds that a transfer of `bytes` takes from a cold start.
    fn transfer(&self, bytes: f64) -> f64 {
        let [rate, round_trip, _] = self.path();
        let doublings = (bytes / INITIAL_WINDOW).max(1.0).log2();
        bytes / rate + round_trip * doublings
    }

    /// Estimates the seconds from a request to its answer.
    fn request(&self, arm: &Arm) -> f64 {
        let [rate, round_trip, loss] = self.path();
        let Load {
            mode,
            request,
            response,
            ..
        } = &self.load;
        let is_quic = matches!(arm.kind, ArmKind::Tunnel | ArmKind::Quic) || arm.through_tunnel;
        let begins = *mode == Mode::Crr;
        let round_trips = match arm.kind {
            _ if !begins || arm.through_tunnel => 1.0,
            ArmKind::Tls => 3.0,
            ArmKind::Tcp
            | ArmKind::Quic
            | ArmKind::Udp
            | ArmKind::Tunnel
            | ArmKind::Iperf3
            | ArmKind::Command => 2.0,
        };
        // Either of two packets, one each way, may be lost. QUIC retransmits after about a round trip.
        let repeat = match (is_quic, begins) {
            (true, _) => round_trip,
            (false, false) => REPEAT_S + round_trip,
            (false, true) => REPEAT_FIRST_S + REPEAT_S + round_trip,
        };
        let bytes = float(request + response);
        WAKE_S + round_trips * round_trip + bytes / rate + 2.0 * loss * repeat
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn float(number: u64) -> f64 {
    number as f64
}
