//! How long a run takes: what a schedule's cells need by their loads, links and programs.
//!
//! An estimate, to be told before anything is measured. A test holds it against the committed runs.

use std::time::Duration;

use crate::scenario::{Amount, Arm, ArmKind, BACKGROUND_TAIL, Background, Load, Mode, Setup};
use crate::{Planned, Scenario};

/// What a cell takes beyond what crosses the link: networks, programs, and their ends. Between what an idle machine
/// needs and one that others use.
const EXTRA: Duration = Duration::from_millis(400);

/// What a request costs however near the other side is: programs are woken for it.
const WAKE_S: f64 = 0.0003;

/// What programs of one machine carry, where the link has no limit: between a tunnel and bare TCP.
const UNLIMITED_BYTES_PER_S: f64 = 1e9;

/// The least time after which Linux's TCP repeats what nothing follows, and that of a connection's first packet.
const REPEAT_S: f64 = 0.2;
const REPEAT_FIRST_S: f64 = 1.0;

/// What a sender begins with, bytes (RFC 6928).
const INITIAL_WINDOW: f64 = 14_600.0;

impl Scenario {
    /// How long the cell of a plan takes.
    pub fn estimate(&self, planned: &Planned, quick: bool) -> Duration {
        let setup = self.setup(planned.case, planned.arm, quick);
        setup.estimate(&self.arms[planned.arm]) + EXTRA
    }

    /// How long all of these take, with the runs in which programs are looked into.
    pub fn estimate_all(&self, cells: &[Planned], quick: bool) -> Duration {
        let of = |planned: &Planned| self.estimate(planned, quick);
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

    /// Bytes per second, the round trip in seconds, and the share that is lost.
    fn path(&self) -> [f64; 3] {
        let Some(link) = self.link.emulated() else {
            return [UNLIMITED_BYTES_PER_S, 0.0, 0.0];
        };
        let [up, down] = link.ways(1);
        let rate = up.rate.map_or(UNLIMITED_BYTES_PER_S, float);
        let round_trip = (up.delay + down.delay).as_secs_f64();
        [rate.min(UNLIMITED_BYTES_PER_S), round_trip, up.loss]
    }

    /// Seconds that so many bytes take from a standing start.
    fn transfer(&self, bytes: f64) -> f64 {
        let [rate, round_trip, _] = self.path();
        let doublings = (bytes / INITIAL_WINDOW).max(1.0).log2();
        bytes / rate + round_trip * doublings
    }

    /// Seconds that a request takes until its answer is there.
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
        // One packet each way may be the lost one. QUIC asks again after a round trip or so.
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
