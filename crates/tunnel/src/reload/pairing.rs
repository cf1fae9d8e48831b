//! Pairs the items of an old list with those of a new one: for each new item, the old item that it continues.

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
