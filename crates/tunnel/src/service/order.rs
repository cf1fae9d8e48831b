//! The order in which the servers of a service are used (RFC 2782).

use std::collections::VecDeque;

use quictun_wire::srv::SrvRecord;

/// Sorts records by priority, and draws the order within a priority. Each record comes first with a probability in
/// proportion to its weight. Records without a weight nearly always come last.
///
/// `draw` returns a uniformly distributed number from 0 to its argument, inclusive.
pub(super) fn order(
    mut records: Vec<SrvRecord>,
    draw: &mut dyn FnMut(u32) -> u32,
) -> Vec<SrvRecord> {
    // Records without a weight come first in the list: only the number 0 draws them while another record has a weight.
    records.sort_by_key(|record| (record.priority, record.weight != 0));
    let mut left = VecDeque::from(records);
    let mut ordered = Vec::with_capacity(left.len());
    while let Some(priority) = left.front().map(|record| record.priority) {
        let of_priority = left.iter().take_while(|record| record.priority == priority);
        let sum = of_priority.map(|record| u32::from(record.weight)).sum();
        let drawn = draw(sum);
        let mut running = 0;
        let at = left.iter().position(|record| {
            running += u32::from(record.weight);
            running >= drawn
        });
        ordered.extend(left.remove(at.unwrap_or_default()));
    }
    ordered
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quictun_sys::random;

    use super::*;

    fn record(priority: u16, weight: u16) -> SrvRecord {
        SrvRecord {
            tls_port: None,
            priority,
            weight,
            port: 7500,
            target: format!("{priority}.{weight}.example"),
        }
    }

    /// Returns pseudo-random numbers from a seed (Knuth's linear congruential generator).
    fn draws(mut seed: u64) -> impl FnMut(u32) -> u32 {
        move |most| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005);
            seed = seed.wrapping_add(1_442_695_040_888_963_407);
            let drawn = (seed >> 32) % (u64::from(most) + 1);
            u32::try_from(drawn).expect("no more than a u32")
        }
    }

    /// Counts how often a record of each of these weights comes first in `times` draws.
    fn firsts(weights: &[u16], times: usize) -> Vec<usize> {
        let records: Vec<SrvRecord> = weights.iter().map(|&weight| record(10, weight)).collect();
        let mut draw = draws(82);
        let mut counts = vec![0; weights.len()];
        for _ in 0..times {
            let first = order(records.clone(), &mut draw).remove(0);
            let at = weights.iter().position(|&weight| weight == first.weight);
            counts[at.expect("one of them")] += 1;
        }
        counts
    }

    #[test]
    fn records_of_one_priority_stand_first_in_proportion_to_their_weights() {
        let counts = firsts(&[10, 30, 60], 10_000);
        for (count, expected) in counts.iter().zip([1000, 3000, 6000]) {
            // The tolerance is five standard deviations of the largest count.
            assert!(count.abs_diff(expected) < 250, "{counts:?}");
        }
    }

    #[test]
    fn a_record_without_weight_is_rarely_first_among_others_and_always_first_alone() {
        let counts = firsts(&[0, 100], 10_000);
        assert!((20..250).contains(&counts[0]), "one in 101: {counts:?}");
        assert_eq!(firsts(&[0], 10), [10]);
    }

    #[test]
    fn the_second_is_drawn_among_those_left() {
        let records = vec![record(1, 1), record(1, 2), record(1, 3)];
        let mut asked = Vec::new();
        let mut draw = |most| {
            asked.push(most);
            most
        };
        let ordered = order(records, &mut draw);
        let weights: Vec<u16> = ordered.iter().map(|record| record.weight).collect();
        assert_eq!((weights, asked), (vec![3, 2, 1], vec![6, 3, 1]));
    }

    #[test]
    fn the_systems_numbers_stay_within_what_is_asked_for() {
        assert!(random().is_ok());
        for most in [0, 1, 7, u32::MAX] {
            for _ in 0..100 {
                assert!(super::super::draw(most) <= most);
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_priorities_come_first(
            given in proptest::collection::vec((0u16..4, any::<u16>()), 0..40),
            seed: u64,
        ) {
            let records: Vec<SrvRecord> = given.iter().map(|&(p, w)| record(p, w)).collect();
            let ordered = order(records.clone(), &mut draws(seed));
            prop_assert!(ordered.is_sorted_by_key(|record| record.priority));
            let sorted = |mut records: Vec<SrvRecord>| {
                records.sort_by_key(|record| (record.priority, record.weight));
                records
            };
            prop_assert_eq!(sorted(ordered), sorted(records));
        }
    }
}
