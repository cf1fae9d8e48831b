//! The verdict that other flows starve this one behind a short queue.
//!
//! BBR's own cycle drains a short queue again and again, so packets never wait for long without a break. A rest shows
//! such a flow nevertheless: most of the queue stays although this sender, which carries little, sends less.

use std::time::Instant;

use super::Rest;
use super::findings::{Findings, SHARE, UNANSWERED};
use crate::auto::Auto;

/// The signs of starvation that one rest has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Signs {
    /// The flow carries little, and most of the queue is that of other flows. Two such rests in a row are proof.
    others: bool,
    /// The flow carries almost nothing, which is proof by itself.
    nothing: bool,
}

impl Rest {
    /// Returns the signs of starvation. A mean round-trip time of at most `drained_s` seconds shows that the queue has
    /// drained.
    fn signs_of_starvation(&self, findings: &Findings, drained_s: f64) -> Signs {
        let answered = findings.answered;
        let waits = self.mean_before / findings.floor.as_secs_f64();
        let own = answered.is_none_or(|share| share >= SHARE);
        if own || waits <= WAIT {
            return Signs {
                others: false,
                nothing: false,
            };
        }
        let stays = findings.queued && self.mean() > drained_s;
        let jitter = self.swings() && answered.is_none_or(|share| share < UNANSWERED);
        let little = findings.carries_less_than(LITTLE);
        Signs {
            others: stays && !jitter && waits < SHORT_QUEUE && little && self.is_likely(),
            nothing: findings.carries_less_than(STARVED) && self.is_certain(),
        }
    }
}

impl Auto {
    /// Returns whether the rest shows that other flows starve this one.
    ///
    /// A flow that carries almost nothing is starved at once. One that carries little is starved if two rests in a
    /// row show it.
    pub(super) fn is_starved(&mut self, now: Instant, rest: &Rest, findings: &Findings) -> bool {
        let drained_s = self.rtt.drained_s(rest.mean_before);
        let signs = rest.signs_of_starvation(findings, drained_s);
        let again = signs.others && self.pressure.waits_behind_others(now);
        if signs.others {
            self.pressure.note_others(now);
        }
        again || signs.nothing
    }
}

/// Part of the highest recent rate of this flow. A flow that carries less than `STARVED` of it has almost
/// nothing, and one that carries less than `LITTLE` has less than a fair share beside one other flow.
pub(super) const STARVED: f64 = 0.12;
const LITTLE: f64 = 0.4;

/// Round trips before the rest, over the floor: packets wait if it exceeds `WAIT`. From `SHORT_QUEUE` on, the queue
/// is so long that BBR's cycle does not drain it, and [`super::RestReason::Pressed`] finds the rival.
const WAIT: f64 = 1.125;
const SHORT_QUEUE: f64 = 1.75;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::auto::rest::{ACKS_LEAST, ACKS_LIKELY, RestReason, Swings};
    use crate::model::Model as _;

    const FLOOR: Duration = Duration::from_millis(40);

    /// The highest recent rate of the flow, in bytes per second.
    const MOST: f64 = 1e6;

    /// Part of the bytes in flight that the rest takes out of flight.
    const REMOVED: f64 = 0.2;

    /// The state of a flow before a rest, and the reaction of its delay in the rest.
    #[derive(Clone, Copy, Debug)]
    struct RestCase {
        /// Round trips before the rest, over the floor.
        waits: f64,
        /// Rate of the flow before the rest, over the highest recent one.
        carries: f64,
        /// Part of the queue that is this flow's.
        share: f64,
        acks: f64,
        turns: u32,
    }

    /// A flow that carries a fifth of its highest rate, and owns a quarter of a short queue.
    const LITTLE_OF_A_SHORT_QUEUE: RestCase = RestCase {
        waits: 1.5,
        carries: 0.2,
        share: 0.25,
        acks: 16.0,
        turns: 0,
    };

    impl RestCase {
        fn rest(self) -> Rest {
            let mean_before = self.waits * FLOOR.as_secs_f64();
            let in_flight_before = self.carries * MOST * mean_before;
            let mean = mean_before * (1.0 - REMOVED * self.share);
            Rest {
                reason: RestReason::Waits,
                mean_before,
                in_flight_before,
                lowest_mean: mean_before,
                drained: None,
                in_vain: false,
                since: None,
                least: Duration::from_secs_f64(mean),
                low: Duration::from_secs_f64(mean),
                high: Duration::from_secs_f64(mean_before),
                swings: Swings {
                    turns: self.turns,
                    ..Swings::of(Duration::ZERO)
                },
                sum: mean * self.acks,
                in_flight: (1.0 - REMOVED) * in_flight_before * self.acks,
                acks: self.acks,
            }
        }

        fn findings(self) -> Findings {
            let carried = self.carries * MOST;
            Findings {
                floor: FLOOR,
                most: Some(MOST),
                carried,
                answered: self.rest().answered(carried),
                queued: true,
            }
        }

        fn signs(self) -> Signs {
            let drained_s = FLOOR.as_secs_f64();
            self.rest().signs_of_starvation(&self.findings(), drained_s)
        }
    }

    /// Returns all combinations of these values, with few and many acknowledgements, with and without swings.
    fn all(waits: &[f64], carries: &[f64], shares: &[f64]) -> Vec<RestCase> {
        let mut all = Vec::new();
        for &waits in waits {
            for &carries in carries {
                for &share in shares {
                    for acks in [1.0, ACKS_LIKELY, ACKS_LEAST, 100.0] {
                        for turns in [0, 10] {
                            all.push(RestCase {
                                waits,
                                carries,
                                share,
                                acks,
                                turns,
                            });
                        }
                    }
                }
            }
        }
        all
    }

    const ANY_WAIT: [f64; 7] = [1.0, 1.1, 1.2, 1.5, 1.7, 2.0, 10.0];
    const ANY_RATE: [f64; 8] = [0.001, 0.05, 0.11, 0.13, 0.3, 0.39, 0.41, 1.0];
    const ANY_SHARE: [f64; 7] = [0.0, 0.1, 0.19, 0.3, 0.34, 0.36, 1.0];

    #[test]
    fn a_flow_without_a_sign_of_others_is_not_starved() {
        let none = Signs {
            others: false,
            nothing: false,
        };
        let own_queue = all(&ANY_WAIT, &ANY_RATE, &[0.36, 0.5, 1.0]);
        let no_queue = all(&[0.9, 1.0, 1.12], &ANY_RATE, &ANY_SHARE);
        let fair_rate = all(&ANY_WAIT, &[0.41, 0.7, 1.0], &ANY_SHARE);
        for case in [own_queue, no_queue, fair_rate].concat() {
            assert_eq!(case.signs(), none, "{case:?}");
        }
    }

    #[test]
    fn a_flow_that_carries_almost_nothing_behind_a_queue_of_others_is_always_starved() {
        let starved = all(
            &[1.13, 1.5, 1.7, 2.0, 10.0],
            &[0.001, 0.05, 0.11],
            &[0.0, 0.1, 0.34],
        );
        for case in starved {
            assert_eq!(case.signs().nothing, case.acks >= ACKS_LEAST, "{case:?}");
        }
    }

    #[test]
    fn a_flow_that_carries_little_of_a_short_queue_of_others_is_suspected() {
        for case in all(&[1.13, 1.5, 1.74], &[0.13, 0.3, 0.39], &[0.21, 0.3, 0.34]) {
            let others = case.acks >= ACKS_LIKELY;
            let expected = Signs {
                others,
                nothing: false,
            };
            assert_eq!(case.signs(), expected, "{case:?}");
        }
    }

    #[test]
    fn a_queue_that_drains_or_is_long_or_is_jitter_shows_no_others() {
        let case = LITTLE_OF_A_SHORT_QUEUE;
        assert!(case.signs().others);
        let long = RestCase {
            waits: 1.76,
            ..case
        };
        assert!(!long.signs().others);
        let jitter = RestCase {
            share: 0.15,
            turns: 10,
            ..case
        };
        assert!(!jitter.signs().others);
        assert!(RestCase { turns: 0, ..jitter }.signs().others);
        let (rest, findings) = (case.rest(), case.findings());
        assert!(!rest.signs_of_starvation(&findings, rest.mean()).others);
        let no_queue = Findings {
            queued: false,
            ..findings
        };
        assert!(!rest.signs_of_starvation(&no_queue, 0.0).others);
        let unknown = Findings {
            most: None,
            ..findings
        };
        assert!(!rest.signs_of_starvation(&unknown, 0.0).others);
    }

    #[test]
    fn a_suspicion_must_be_repeated_within_ten_seconds() {
        let case = LITTLE_OF_A_SHORT_QUEUE;
        let (rest, findings) = (case.rest(), case.findings());
        let starved_again_after = |pause: Duration| {
            let now = Instant::now();
            let mut auto = Auto::new(now, 1250);
            assert!(!auto.is_starved(now, &rest, &findings));
            auto.is_starved(now + pause, &rest, &findings)
        };
        assert!(starved_again_after(Duration::from_secs(1)));
        assert!(starved_again_after(Duration::from_millis(9999)));
        assert!(!starved_again_after(Duration::from_secs(10)));
    }

    /// Returns the floor after two equal rests, in each of which packets took at least 1.3 times as long.
    fn floor_after_two(case: RestCase) -> Option<Duration> {
        let start = Instant::now();
        let mut auto = Auto::new(start, 1250);
        auto.rtt.on_sample(start, FLOOR);
        auto.most.add(start, MOST, Duration::from_mins(1), f64::max);
        auto.bandwidth.reset(case.carries * MOST);
        for after in [Duration::from_secs(10), Duration::from_secs(20)] {
            let rest = Rest {
                reason: RestReason::Routine,
                least: FLOOR.mul_f64(1.3),
                ..case.rest()
            };
            auto.end_rest(start + after, rest);
        }
        auto.view().min_rtt
    }

    #[test]
    fn two_equal_rests_raise_the_floor_unless_others_leave_almost_nothing() {
        let case = LITTLE_OF_A_SHORT_QUEUE;
        assert_eq!(floor_after_two(case), Some(FLOOR.mul_f64(1.3)));
        let almost_nothing = RestCase {
            carries: 0.1,
            ..case
        };
        assert_eq!(floor_after_two(almost_nothing), Some(FLOOR));
    }

    #[test]
    fn two_equal_rests_raise_the_floor_if_delays_show_no_other_flow() {
        for share in [0.0, 0.05, 0.4, 1.0] {
            let case = RestCase {
                carries: 0.1,
                share,
                ..LITTLE_OF_A_SHORT_QUEUE
            };
            assert_eq!(floor_after_two(case), Some(FLOOR.mul_f64(1.3)), "{share}");
        }
    }

    #[test]
    fn a_flow_that_carries_almost_nothing_needs_no_suspicion() {
        let case = RestCase {
            carries: 0.1,
            ..LITTLE_OF_A_SHORT_QUEUE
        };
        let now = Instant::now();
        let mut auto = Auto::new(now, 1250);
        assert!(auto.is_starved(now, &case.rest(), &case.findings()));
    }
}
