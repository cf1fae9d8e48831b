//! Pairs the items of an old list with those of a new one: for each new item, the old item that it continues.

use std::fmt::Display;

/// Returns, for each item of `new`, the index of the item of `old` that it continues. Equal items are paired first, then
/// those with the same key, in the order of the lists. Each item of `old` is used once.
pub(crate) fn pair<T: PartialEq, K: PartialEq>(
    old: &[T],
    new: &[T],
    key: impl Fn(&T) -> K,
) -> Vec<Option<usize>> {
    let mut free: Vec<usize> = (0..old.len()).collect();
    let mut paired = vec![None; new.len()];
    let mut take = |paired: &mut Vec<Option<usize>>, continues: &dyn Fn(&T, &T) -> bool| {
        for (item, pair) in new.iter().zip(paired) {
            if pair.is_none()
                && let Some(at) = free.iter().position(|&index| continues(&old[index], item))
            {
                *pair = Some(free.remove(at));
            }
        }
    };
    take(&mut paired, &|old: &T, new: &T| old == new);
    take(&mut paired, &|old: &T, new: &T| key(old) == key(new));
    paired
}

/// Returns the indices of the items of `old` that no new item continues.
pub(crate) fn unpaired(old: usize, paired: &[Option<usize>]) -> Vec<usize> {
    let left = (0..old).filter(|index| !paired.contains(&Some(*index)));
    left.collect()
}

/// Returns one sentence for each difference between two lists of forwards of this kind. `parts` are the address of a
/// forward and its destination.
pub(crate) fn changes<T: PartialEq, K: PartialEq + Display, V: PartialEq + Display>(
    kind: &str,
    (old, new): (&[T], &[T]),
    parts: impl Fn(&T) -> (K, V),
) -> Vec<String> {
    let paired = pair(old, new, |forward| parts(forward).0);
    let gone = unpaired(old.len(), &paired).into_iter();
    let gone = gone.map(|index| format!("{kind} {}: removed", parts(&old[index]).0));
    let others = new.iter().zip(&paired).filter_map(|(forward, pair)| {
        let (listen, to) = parts(forward);
        match pair.map(|index| parts(&old[index]).1) {
            None => Some(format!("{kind} {listen}: added, to {to}")),
            Some(old) if old != to => Some(format!("{kind} {listen}: to {to} instead of {old}")),
            Some(_) => None,
        }
    });
    gone.chain(others).collect()
}

/// Returns the lines of the changes that are made.
pub(crate) fn made(all: &[(&str, bool)]) -> Vec<String> {
    let made = all.iter().filter(|(_, is_made)| *is_made);
    made.map(|(line, _)| (*line).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_continues_the_equal_one_before_one_with_the_same_key() {
        // The key is the first letter, as the address is that of a forward.
        let paired = |old: &[&str], new: &[&str]| pair(old, new, |item| item.chars().next());
        assert_eq!(paired(&["ax", "bx"], &["bx", "ax"]), [Some(1), Some(0)]);
        assert_eq!(paired(&["ax", "ay"], &["ay", "az"]), [Some(1), Some(0)]);
        assert_eq!(paired(&["ax"], &["ax", "ax"]), [Some(0), None]);
        assert_eq!(paired(&["ax", "bx"], &["cx", "by"]), [None, Some(1)]);
        assert_eq!(unpaired(2, &[None, Some(1)]), [0]);
    }
}
