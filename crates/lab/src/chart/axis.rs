//! The axes of a chart.

/// Width and height of a panel, and the margins that its axes take.
pub(super) const WIDTH: f64 = 380.0;
pub(super) const HEIGHT: f64 = 256.0;
pub(super) const LEFT: f64 = 48.0;
pub(super) const RIGHT: f64 = 10.0;
pub(super) const TOP: f64 = 10.0;
pub(super) const BOTTOM: f64 = 42.0;

/// Ratio of the largest to the smallest value above which a y axis is logarithmic.
const LOGARITHMIC: f64 = 15.0;

/// Number of letters that fit below an x axis, for all names together.
const LETTERS: usize = 48;

/// The division of an x axis.
#[derive(Clone, Debug)]
pub enum XDivision {
    /// Named categories. A point's x is the index of its category.
    Categories(Vec<String>),
    /// Powers of two, starting at 1.
    Doublings,
    /// Seconds, starting at 0.
    Seconds,
}

pub(super) struct XAxis<'a> {
    division: &'a XDivision,
    most: f64,
}

impl<'a> XAxis<'a> {
    pub(super) fn new(division: &'a XDivision, values: impl Iterator<Item = f64>) -> Self {
        let least = match division {
            XDivision::Categories(_) | XDivision::Seconds => 0.1,
            XDivision::Doublings => 2.0,
        };
        Self {
            division,
            most: values.fold(least, f64::max),
        }
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * self.part(value)
    }

    /// Returns the position of a value along the axis, from 0 to 1.
    pub(super) fn part(&self, value: f64) -> f64 {
        let part = match self.division {
            XDivision::Categories(names) => (value + 0.5) / count(names.len().max(1)),
            XDivision::Doublings => value.max(1.0).log2() / self.most.log2(),
            XDivision::Seconds => value / self.most,
        };
        part.clamp(0.0, 1.0)
    }

    /// Returns the sideways distance between lines that share their places.
    pub(super) fn spacing(&self) -> f64 {
        match self.division {
            XDivision::Categories(_) => ((self.at(1.0) - self.at(0.0)) / 12.0).min(5.0),
            XDivision::Doublings | XDivision::Seconds => 0.0,
        }
    }

    /// Returns the values to label, with their labels.
    pub(super) fn marks(&self) -> Vec<(f64, String)> {
        let until = |value: &f64| *value <= self.most * 1.0001;
        match self.division {
            XDivision::Categories(names) => {
                let short = |name: &String| name.chars().take(LETTERS / names.len()).collect();
                let names = names.iter().enumerate();
                names.map(|(at, name)| (count(at), short(name))).collect()
            }
            XDivision::Doublings => {
                let values = std::iter::successors(Some(1.0), |value| Some(value * 2.0));
                values
                    .take_while(until)
                    .map(|value| (value, value.to_string()))
                    .collect()
            }
            XDivision::Seconds => {
                let step = round_up(self.most / 7.0);
                let values = (0_u32..).map(|at| f64::from(at) * step).take_while(until);
                values
                    .map(|value| (value, format!("{} s", trimmed(value))))
                    .collect()
            }
        }
    }
}

pub(super) struct ValueAxis {
    low: f64,
    high: f64,
    logarithmic: bool,
    pub(super) ticks: Vec<f64>,
}

impl ValueAxis {
    /// Creates an axis that includes these values. A linear axis begins at zero; otherwise a difference of two percent
    /// could look like a difference of one half.
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Self {
        Self::up_to(values, LOGARITHMIC)
    }

    /// Creates an axis that includes these values. The axis is logarithmic if the ratio of the largest to the smallest
    /// value exceeds `limit`.
    fn up_to(values: impl Iterator<Item = f64>, limit: f64) -> Self {
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        if !high.is_finite() || high <= 0.0 {
            return Self::even(1.0, 1.0);
        }
        if low > 0.0 && high / low > limit {
            return Self::logarithmic(low, high);
        }
        Self::from_zero(high, 4.0)
    }

    /// Creates an axis from zero to `high`, rounded up to a whole step, with about `steps` steps.
    pub(super) fn from_zero(high: f64, steps: f64) -> Self {
        let step = round_up(high.max(1e-12) / steps);
        Self::even(step, (high / step).ceil().max(1.0))
    }

    fn even(step: f64, steps: f64) -> Self {
        let ticks = (0_u32..).map(|at| f64::from(at) * step);
        Self {
            low: 0.0,
            high: steps * step,
            logarithmic: false,
            ticks: ticks
                .take_while(|tick| *tick <= steps * step * 1.0001)
                .take(20)
                .collect(),
        }
    }

    fn logarithmic(low: f64, high: f64) -> Self {
        let mut ticks = Vec::new();
        let mut decade = 10_f64.powf(low.log10().floor());
        while decade <= 10.0 * high && ticks.len() < 40 {
            ticks.extend([1.0, 2.0, 5.0].map(|factor| decade * factor));
            decade *= 10.0;
        }
        let below = ticks
            .iter()
            .rev()
            .copied()
            .find(|tick| *tick <= low)
            .unwrap_or(low);
        let above = ticks
            .iter()
            .copied()
            .find(|tick| *tick >= high)
            .unwrap_or(high);
        ticks.retain(|tick| (below..=above).contains(tick));
        // If there are many ticks, keep only the powers of ten.
        if ticks.len() > 8 {
            ticks.retain(|tick| (tick.log10() - tick.log10().round()).abs() < 1e-9);
        }
        Self {
            low: below,
            high: above,
            logarithmic: true,
            ticks,
        }
    }

    pub(super) const fn is_logarithmic(&self) -> bool {
        self.logarithmic
    }

    pub(super) fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * self.part(value)
    }

    /// Returns the position of a value along the axis, from 0 (bottom) to 1 (top).
    pub(super) fn part(&self, value: f64) -> f64 {
        let scale = |value: f64| {
            if self.logarithmic {
                value.max(self.low).log10()
            } else {
                value
            }
        };
        let (low, high) = (scale(self.low), scale(self.high));
        ((scale(value) - low) / (high - low).max(1e-12)).clamp(0.0, 1.0)
    }
}

/// A horizontal axis of values.
pub(super) struct LaneAxis {
    axis: ValueAxis,
    /// The axis's first and last x coordinate.
    ends: [f64; 2],
}

impl LaneAxis {
    /// Creates an axis that includes these values. For `limit`, see [`ValueAxis::up_to`].
    pub(super) fn new(values: impl Iterator<Item = f64>, limit: f64, ends: [f64; 2]) -> Self {
        let axis = ValueAxis::up_to(values, limit);
        Self { axis, ends }
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        let [begin, end] = self.ends;
        begin + (end - begin) * self.axis.part(value)
    }

    pub(super) const fn at_least(&self) -> f64 {
        self.ends[0]
    }

    pub(super) fn middle(&self) -> f64 {
        f64::midpoint(self.ends[0], self.ends[1])
    }

    pub(super) const fn is_logarithmic(&self) -> bool {
        self.axis.is_logarithmic()
    }

    pub(super) fn ticks(&self) -> &[f64] {
        &self.axis.ticks
    }
}

/// Returns the smallest of 1, 2 and 5 times a power of ten that is at least `step`.
fn round_up(step: f64) -> f64 {
    let decade = 10_f64.powf(step.log10().floor());
    let all = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * decade);
    all.into_iter()
        .find(|round_up| *round_up >= step * 0.9999)
        .unwrap_or(step)
}

pub(super) fn trimmed(tick: f64) -> String {
    if tick >= 10_000.0 {
        return format!("{}k", tick / 1000.0);
    }
    let text = format!("{tick:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[expect(clippy::cast_precision_loss, reason = "a handful")]
pub(super) fn count(of: usize) -> f64 {
    of as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_includes_all_values_and_has_round_ticks() {
        for (values, logarithmic, ticks) in [
            (&[0.0, 37.0][..], false, &[0.0, 10.0, 20.0, 30.0, 40.0][..]),
            (&[561.0, 602.0], false, &[0.0, 200.0, 400.0, 600.0, 800.0]),
            (
                &[12.8, 601.0],
                true,
                &[10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0],
            ),
            (&[], false, &[0.0, 1.0]),
            (&[0.0], false, &[0.0, 1.0]),
        ] {
            let axis = ValueAxis::of(values.iter().copied());
            assert_eq!(
                (axis.logarithmic, &*axis.ticks),
                (logarithmic, ticks),
                "{values:?}"
            );
            for value in values {
                let y = axis.y(*value);
                assert!((TOP..=HEIGHT - BOTTOM).contains(&y), "{value} at {y}");
            }
        }
    }
}
