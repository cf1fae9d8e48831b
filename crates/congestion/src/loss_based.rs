//! CUBIC (RFC 9438) and `NewReno` (RFC 9002 section 7), with `HyStart++` (RFC 9406).
//!
//! These controllers serve networks whose operator allows only standard congestion control, and serve as a baseline
//! for measurements. Windows are in bytes. The segments in the RFCs' formulas are packets of the current size.

use std::time::{Duration, Instant};

use crate::bytes;
use crate::curve::Curve;
use crate::model::{ControllerView, Limits, Loss, Model};

/// Initial and minimum window, in packets (RFC 9002 section 7.2).
const FIRST_FLIGHT: f64 = 10.0;
const LEAST: f64 = 2.0;
/// Constants of `HyStart++` (RFC 9406 section 4.3).
const RTT_THRESHOLD_MIN: Duration = Duration::from_millis(4);
const RTT_THRESHOLD_MAX: Duration = Duration::from_millis(16);
const RTT_SAMPLES: u32 = 8;
const CSS_GROWTH_DIVISOR: f64 = 4.0;
const CSS_ROUNDS: u32 = 5;
/// Pacing rate over window per round trip (RFC 9002 section 7.7): 2 in slow start, and 1.25 later.
const GAIN_SLOW_START: f64 = 2.0;
const GAIN: f64 = 1.25;
/// Minimum round-trip time for pacing. On faster paths timers are too coarse.
const PACED: Duration = Duration::from_millis(2);

/// A controller that takes loss as a sign of congestion; see the module documentation.
#[derive(Clone, Debug)]
pub struct LossBased {
    mtu: f64,
    window: f64,
    threshold: f64,
    growth: Growth,
    in_flight: f64,
    /// Losses of packets sent at or before this time belong to the last reduction.
    recovery: Option<Instant>,
    srtt: Option<Duration>,
    min_rtt: Option<Duration>,
    newest: Option<Instant>,
    round: HyStartRound,
    limited: bool,
}

/// Growth of a window in congestion avoidance.
#[derive(Clone, Debug)]
enum Growth {
    Cubic(Curve),
    Reno,
}

/// State of one round of `HyStart++`.
#[derive(Clone, Copy, Debug, Default)]
struct HyStartRound {
    began: Option<Instant>,
    last_min: Option<Duration>,
    min: Option<Duration>,
    samples: u32,
    /// Conservative slow start: the rounds left, and the minimum round-trip time at which it began.
    css: Option<(u32, Duration)>,
}

impl LossBased {
    /// Creates a CUBIC controller for a path of which nothing is known.
    pub fn cubic(mtu: u16) -> Self {
        Self::new(mtu, Growth::Cubic(Curve::default()))
    }

    /// Creates a `NewReno` controller for a path of which nothing is known.
    pub fn newreno(mtu: u16) -> Self {
        Self::new(mtu, Growth::Reno)
    }

    fn new(mtu: u16, growth: Growth) -> Self {
        let mtu = f64::from(mtu);
        Self {
            mtu,
            window: FIRST_FLIGHT * mtu,
            threshold: f64::MAX,
            growth,
            in_flight: 0.0,
            recovery: None,
            srtt: None,
            min_rtt: None,
            newest: None,
            round: HyStartRound::default(),
            limited: false,
        }
    }

    fn rtt_s(&self) -> f64 {
        let rtt = self.srtt.unwrap_or(Duration::from_millis(100));
        rtt.as_secs_f64()
    }

    fn slow_start(&self) -> bool {
        self.window < self.threshold
    }

    fn on_rtt(&mut self, now: Instant, newest: Instant) {
        let sample = now.saturating_duration_since(newest);
        self.srtt = Some(self.srtt.map_or(sample, |srtt| (srtt * 7 + sample) / 8));
        self.min_rtt = Some(self.min_rtt.map_or(sample, |least| least.min(sample)));
        if self.slow_start() {
            self.hystart(now, newest, sample);
        }
    }

    fn hystart(&mut self, now: Instant, newest: Instant, sample: Duration) {
        let round = &mut self.round;
        if round.began.is_none_or(|began| newest >= began) {
            round.began = Some(now);
            round.last_min = round.min.take();
            round.samples = 0;
            if let Some((left, _)) = &mut round.css {
                *left -= 1;
                if *left == 0 {
                    self.threshold = self.window;
                    return;
                }
            }
        }
        round.min = Some(round.min.map_or(sample, |least| least.min(sample)));
        round.samples += 1;
        let (Some(last), Some(least)) = (round.last_min, round.min) else {
            return;
        };
        if round.samples < RTT_SAMPLES {
            return;
        }
        let threshold = (last / 8).clamp(RTT_THRESHOLD_MIN, RTT_THRESHOLD_MAX);
        match round.css {
            None if least >= last + threshold => round.css = Some((CSS_ROUNDS, least)),
            Some((_, began_at)) if least < began_at => round.css = None,
            _ => {}
        }
    }
}

impl Model for LossBased {
    fn on_sent(&mut self, _now: Instant, bytes: u64, limited: bool) {
        self.in_flight += bytes::to_f64(bytes);
        self.limited = limited;
    }

    fn on_acked(&mut self, now: Instant, sent: Instant, acked: u64) {
        self.newest = self.newest.max(Some(sent));
        // RFC 9002 section 7.8: a window that is not fully used must not grow.
        let used = self.limited && 2.0 * self.in_flight >= self.window;
        if !used || self.recovery.is_some_and(|recovery| sent <= recovery) {
            return;
        }
        let bytes = bytes::to_f64(acked);
        if self.slow_start() {
            let divisor = if self.round.css.is_some() {
                CSS_GROWTH_DIVISOR
            } else {
                1.0
            };
            self.window += bytes / divisor;
        } else {
            let rtt = self.rtt_s();
            self.window = match &mut self.growth {
                Growth::Cubic(curve) => curve.grow(now, self.window, bytes, rtt, self.mtu),
                Growth::Reno => self.window + self.mtu * bytes / self.window,
            };
        }
    }

    fn on_ack_end(&mut self, now: Instant, in_flight: u64) {
        self.in_flight = bytes::to_f64(in_flight);
        if let Some(newest) = self.newest.take() {
            self.on_rtt(now, newest);
        }
    }

    fn on_lost(&mut self, now: Instant, sent: Instant, loss: Loss) {
        if self.recovery.is_some_and(|recovery| sent <= recovery) {
            return;
        }
        self.recovery = Some(now);
        let cut = match &mut self.growth {
            Growth::Cubic(curve) => curve.cut(self.window),
            Growth::Reno => self.window / 2.0,
        };
        self.window = cut.max(LEAST * self.mtu);
        self.threshold = self.window;
        if loss.persistent {
            self.window = LEAST * self.mtu;
        }
    }

    /// Does nothing: only slow start looks at delays, and neither end sleeps during slow start.
    fn set_sleeps(&mut self, _sleeps: Duration) {}

    fn on_mtu(&mut self, mtu: u16) {
        self.mtu = f64::from(mtu);
        self.window = self.window.max(LEAST * self.mtu);
    }

    fn limits(&self) -> Limits {
        let gain = if self.slow_start() {
            GAIN_SLOW_START
        } else {
            GAIN
        };
        let rate = gain * self.window / self.rtt_s().max(1e-6);
        let paced = self.min_rtt.is_some_and(|least| least >= PACED);
        Limits {
            window: bytes::whole(self.window),
            rate: paced.then_some(rate),
            quantum: bytes::quantum(rate, self.mtu),
        }
    }

    fn view(&self) -> ControllerView {
        let rtt = self.srtt.map_or(0.0, |srtt| srtt.as_secs_f64());
        let mode = match self.growth {
            Growth::Cubic(_) => "cubic",
            Growth::Reno => "newreno",
        };
        ControllerView {
            mode,
            phase: if self.slow_start() {
                "slow-start"
            } else {
                "avoidance"
            },
            starting: self.slow_start(),
            bandwidth: if rtt > 0.0 { self.window / rtt } else { 0.0 },
            min_rtt: self.min_rtt,
            ..ControllerView::default()
        }
    }

    fn clone_box(&self) -> Box<dyn Model> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: Loss = Loss {
        bytes: 1000,
        persistent: false,
    };

    /// Congestion avoidance adds one packet per window (RFC 9002 section 7.3.3).
    #[test]
    fn reno_grows_by_one_packet_for_each_window_that_arrives() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut reno = LossBased::newreno(1000);
        reno.on_sent(start, 10_000, true);
        reno.on_lost(at(1), start, LOST);
        assert_eq!(reno.limits().window, 5000);
        reno.on_sent(at(2), 5000, true);
        for _ in 0..5 {
            reno.on_acked(at(20), at(2), 1000);
        }
        let window = reno.limits().window;
        assert!((5900..=6000).contains(&window), "{window}");
    }

    /// The minimum window is two packets (RFC 9002 section 7.2).
    #[test]
    fn the_window_never_falls_below_two_packets() {
        let start = Instant::now();
        for mut model in [LossBased::newreno(1000), LossBased::cubic(1000)] {
            for ms in 1..30 {
                let sent = start + Duration::from_millis(10 * ms);
                model.on_sent(sent, 1000, true);
                model.on_lost(sent + Duration::from_millis(5), sent, LOST);
            }
            assert_eq!(model.limits().window, 2000);
        }
    }
}
