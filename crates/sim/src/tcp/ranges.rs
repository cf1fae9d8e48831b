//! Sets of numbers, stored as disjoint ranges.

/// Disjoint half-open ranges in ascending order; two ranges never touch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges {
    ranges: Vec<(u64, u64)>,
}

impl Ranges {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(crate) fn range_of(&self, number: u64) -> Option<(u64, u64)> {
        let at = self.ranges.partition_point(|range| range.1 <= number);
        self.ranges
            .get(at)
            .copied()
            .filter(|range| range.0 <= number)
    }

    /// Adds a range and appends the parts that were not in the set before to `added`.
    pub(crate) fn insert(&mut self, from: u64, until: u64, added: &mut Vec<(u64, u64)>) {
        if from >= until {
            return;
        }
        // The indices `first..last` are the ranges that the new one touches.
        let first = self.ranges.partition_point(|range| range.1 < from);
        let mut last = first;
        let mut at = from;
        let (mut low, mut high) = (from, until);
        while let Some(&(start, end)) = self.ranges.get(last)
            && start <= until
        {
            if at < start {
                added.push((at, start));
            }
            at = at.max(end);
            (low, high) = (low.min(start), high.max(end));
            last += 1;
        }
        if at < until {
            added.push((at, until));
        }
        if last == first + 1 {
            self.ranges[first] = (low, high);
        } else {
            self.ranges.splice(first..last, [(low, high)]);
        }
    }

    pub(crate) fn remove_below(&mut self, number: u64) {
        let gone = self.ranges.partition_point(|range| range.1 <= number);
        if gone > 0 {
            self.ranges.drain(..gone);
        }
        if let Some(first) = self.ranges.first_mut() {
            first.0 = first.0.max(number);
        }
    }

    /// Removes the first range if it begins at `number` or below, and returns its end; otherwise returns `number`.
    pub(crate) fn take_from(&mut self, number: u64) -> u64 {
        match self.ranges.first() {
            Some(&(from, until)) if from <= number => {
                self.ranges.remove(0);
                until.max(number)
            }
            _ => number,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::seed::Random;

    #[test]
    fn ranges_agree_with_a_set_of_numbers() {
        let mut random = Random::new(1, 1);
        for _ in 0..200 {
            let mut ranges = Ranges::default();
            let mut set = BTreeSet::new();
            for _ in 0..40 {
                let from = random.within(0, 60);
                let until = from + random.within(0, 12);
                let mut added = Vec::new();
                ranges.insert(from, until, &mut added);
                let news: Vec<u64> = added.iter().flat_map(|&(a, b)| a..b).collect();
                let expected: Vec<u64> = (from..until).filter(|n| set.insert(*n)).collect();
                assert_eq!(news, expected);
                if random.chance(1, 5) {
                    let below = random.within(0, 60);
                    ranges.remove_below(below);
                    set.retain(|&number| number >= below);
                }
                for number in 0..80 {
                    assert_eq!(ranges.range_of(number).is_some(), set.contains(&number));
                }
                let touching = ranges.ranges.windows(2).any(|pair| pair[0].1 >= pair[1].0);
                assert!(!touching, "{ranges:?}");
            }
        }
    }
}
