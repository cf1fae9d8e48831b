//! The memory that flows retain for peers, and the flows to relieve of it when they retain too much.

use std::collections::{BTreeMap, BinaryHeap};
use std::ops::{AddAssign, SubAssign};

use quictun_flow::FlowKey;

use super::bond::Bond;
use super::holder::Holder;

/// Memory that one or more flows retain for the peer, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptMemory {
    /// Behind bytes that the flow need not send again on its current stream. They can be forgotten: the flow continues.
    pub(crate) sent: u64,
    /// Behind bytes that the flow must send again after a move. Without them, the flow has to end.
    pub(crate) to_repeat: u64,
}

/// A part of [`KeptMemory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeptPart {
    /// The part that can be forgotten: [`KeptMemory::sent`].
    Sent,
    /// The part that flows need in order to continue: [`KeptMemory::to_repeat`].
    ToRepeat,
}

impl KeptMemory {
    pub(crate) fn total(self) -> u64 {
        self.sent + self.to_repeat
    }

    pub(crate) fn part(self, part: KeptPart) -> u64 {
        match part {
            KeptPart::Sent => self.sent,
            KeptPart::ToRepeat => self.to_repeat,
        }
    }
}

impl AddAssign for KeptMemory {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.to_repeat += other.to_repeat;
    }
}

impl SubAssign for KeptMemory {
    fn sub_assign(&mut self, other: Self) {
        self.sent -= other.sent;
        self.to_repeat -= other.to_repeat;
    }
}

/// The bonds of one holder whose flows retain something.
#[derive(Debug)]
struct HolderFlows<'a> {
    bonds: Vec<&'a Bond>,
    /// The flows that are left, those that retain the most last. Set once they are needed.
    flows: Option<Vec<(u64, FlowKey)>>,
}

/// Returns flows that retain at least `excess` bytes of `part` together, if all flows do. They are first those of the
/// client with the most that retain the most, up to half of what that client's flows retain; then the same of the
/// client that has the most left, and so on.
///
/// All clients are searched once, however many of them have to be relieved.
pub(super) fn flows_to_relieve<'a>(
    bonds: impl Iterator<Item = &'a Bond>,
    part: KeptPart,
    excess: u64,
) -> Vec<FlowKey> {
    let mut holders = BTreeMap::<&Holder, (u64, HolderFlows<'_>)>::new();
    for bond in bonds.filter(|bond| bond.kept().part(part) > 0) {
        let new = || {
            let (bonds, flows) = (Vec::new(), None);
            (0, HolderFlows { bonds, flows })
        };
        let (sum, holder) = holders.entry(&bond.holder).or_insert_with(new);
        *sum += bond.kept().part(part);
        holder.bonds.push(bond);
    }
    let (sums, mut holders): (Vec<u64>, Vec<HolderFlows<'_>>) = holders.into_values().unzip();
    let mut largest: BinaryHeap<(u64, usize)> = sums.into_iter().zip(0..).collect();
    let (mut found, mut left) = (Vec::new(), excess);
    while left > 0
        && let Some((sum, index)) = largest.pop()
    {
        let HolderFlows { bonds, flows } = &mut holders[index];
        let flows = flows.get_or_insert_with(|| {
            let mut flows: Vec<_> = bonds.iter().flat_map(|bond| bond.retaining(part)).collect();
            flows.sort_unstable();
            flows
        });
        let mut taken = 0;
        while taken < sum.div_ceil(2).min(left)
            && let Some((kept, flow)) = flows.pop()
        {
            taken += kept;
            found.push(flow);
        }
        left = left.saturating_sub(taken);
        if taken > 0 && taken < sum {
            largest.push((sum - taken, index));
        }
    }
    found
}
