//! Assigns each system its colour, which is the same in every report.

use crate::chart::COLOURS;
use crate::scenario::{Arm, ArmKind};

/// Colours for arms whose own colour another arm of the scenario already uses. The first ones belong to no kind of arm.
const SPARE: [usize; COLOURS] = [8, 9, 7, 5, 4, 6, 3, 2, 1, 0];

/// The colours of a scenario's arms.
pub(super) struct Colours<'a>(Vec<(&'a str, usize)>);

impl<'a> Colours<'a> {
    pub(super) fn of(arms: &'a [Arm]) -> Self {
        let owned: Vec<usize> = arms.iter().map(own).collect();
        let mut taken: Vec<usize> = Vec::new();
        let mut all = Vec::new();
        for (arm, own) in arms.iter().zip(&owned) {
            let spare = SPARE
                .iter()
                .find(|style| !taken.contains(style) && !owned.contains(style));
            let style = if taken.contains(own) {
                *spare.unwrap_or(own)
            } else {
                *own
            };
            taken.push(style);
            all.push((&*arm.id, style));
        }
        Self(all)
    }

    /// Returns the colour of an arm.
    pub(super) fn style(&self, arm: &str) -> usize {
        let mut all = self.0.iter();
        all.find(|(id, _)| *id == arm)
            .map_or(0, |(_, style)| *style)
    }
}

/// Returns the default colour of an arm by its kind. TCP arms differ in their congestion control, so each of these has
/// its own colour.
fn own(arm: &Arm) -> usize {
    match arm.kind {
        ArmKind::Command => 7,
        _ if arm.through_tunnel => 0,
        ArmKind::Tunnel => 0,
        ArmKind::Tcp => match arm.congestion.as_deref() {
            None | Some("cubic") => 1,
            Some("bbr") => 3,
            Some(_) => 8,
        },
        ArmKind::Quic => 2,
        ArmKind::Iperf3 => 4,
        ArmKind::Udp => 5,
        ArmKind::Tls => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scenario, scenarios};

    #[test]
    fn a_system_keeps_its_colour_and_no_two_arms_share_one() {
        for (name, text) in scenarios::ALL {
            let scenario = Scenario::parse(text).expect("a scenario");
            let colours = Colours::of(&scenario.arms);
            let mut seen = Vec::new();
            for arm in &scenario.arms {
                let style = colours.style(&arm.id);
                assert!(!seen.contains(&style), "{name}: {}", arm.id);
                seen.push(style);
                let own = [
                    ("tunnel", 0),
                    ("tcp-cubic", 1),
                    ("tcp", 1),
                    ("tcp-bbr", 3),
                    ("quic", 2),
                ];
                let known = own.iter().find(|(id, _)| *id == arm.id);
                assert!(
                    known.is_none_or(|(_, own)| *own == style),
                    "{name}: {}",
                    arm.id
                );
            }
        }
    }
}
