//! `HyStart++`, RFC 9406: ends slow start when the round-trip time grows, before the queue overflows.

use std::time::Duration;

/// The constants of RFC 9406 section 4.3.
const RTT_THRESH_MIN: Duration = Duration::from_millis(4);
const RTT_THRESH_MAX: Duration = Duration::from_millis(16);
const RTT_DIVISOR: u32 = 8;
const SAMPLES: u32 = 8;
const GROWTH_DIVISOR: f64 = 4.0;
const CONSERVATIVE_ROUNDS: u32 = 5;

#[derive(Clone, Debug, Default)]
pub(crate) struct HyStart {
    /// The current round ends when this segment number is acknowledged.
    window_end: u64,
    last_min: Option<Duration>,
    current_min: Option<Duration>,
    samples: u32,
    conservative: Option<Conservative>,
}

#[derive(Clone, Debug)]
struct Conservative {
    baseline: Duration,
    rounds: u32,
}

impl HyStart {
    /// Handles an acknowledgement up to `acked` while data up to `sent` was in flight. Returns the share of the newly
    /// acknowledged segments by which the window grows, or `None` when slow start is over.
    pub(crate) fn growth(&mut self, acked: u64, sent: u64, rtt: Option<Duration>) -> Option<f64> {
        if acked >= self.window_end {
            self.window_end = sent;
            self.last_min = self.current_min.take().or(self.last_min);
            self.samples = 0;
            if let Some(conservative) = &mut self.conservative {
                conservative.rounds += 1;
                if conservative.rounds > CONSERVATIVE_ROUNDS {
                    return None;
                }
            }
        }
        if let Some(rtt) = rtt {
            self.current_min = Some(self.current_min.map_or(rtt, |min| min.min(rtt)));
            self.samples += 1;
        }
        if let (Some(current), Some(last)) = (self.current_min, self.last_min)
            && self.samples >= SAMPLES
        {
            match &self.conservative {
                Some(conservative) if current < conservative.baseline => self.conservative = None,
                Some(_) => {}
                None => {
                    let threshold = (last / RTT_DIVISOR).clamp(RTT_THRESH_MIN, RTT_THRESH_MAX);
                    if current >= last + threshold {
                        self.conservative = Some(Conservative {
                            baseline: current,
                            rounds: 0,
                        });
                    }
                }
            }
        }
        Some(match self.conservative {
            Some(_) => 1.0 / GROWTH_DIVISOR,
            None => 1.0,
        })
    }
}
