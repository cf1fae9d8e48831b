//! Detects whether two scenarios measure the same thing under the same names.

use std::time::Duration;

use super::{Amount, Load, Scenario};

impl Scenario {
    /// Returns the differences in program, link and traffic that make the figures of an arm under a case incomparable
    /// with those of `other`. Empty if the figures are comparable. Both scenarios must have the arm and the case.
    pub(crate) fn differences(
        &self,
        quick: bool,
        (other, other_quick): (&Self, bool),
        case: &str,
        arm: &str,
    ) -> Vec<String> {
        let of = |scenario: &Self| {
            let case = scenario.cases.iter().position(|one| one.id == case)?;
            let arm = scenario.arms.iter().position(|one| one.id == arm)?;
            Some((case, arm))
        };
        let Some((ours, theirs)) = of(self).zip(of(other)) else {
            return vec!["one has no such case or arm".to_owned()];
        };
        let mut all = Vec::new();
        let [mine, yours] = [&self.arms[ours.1], &other.arms[theirs.1]];
        let programs = [mine, yours].map(|arm| {
            (
                (arm.kind, arm.through_tunnel, arm.ipv6, &arm.congestion),
                (&arm.client_flags, &arm.server_flags, &arm.commands),
            )
        });
        if programs[0] != programs[1] {
            all.push("another program, or its flags".to_owned());
        }
        let mine = self.setup(ours.0, ours.1, quick);
        let yours = other.setup(theirs.0, theirs.1, other_quick);
        if mine.link != yours.link {
            all.push("another link".to_owned());
        }
        all.extend(mine.load.difference(&yours.load));
        all
    }
}

impl Load {
    fn difference(&self, other: &Self) -> Vec<String> {
        let mut all = Vec::new();
        if self.amount != other.amount {
            all.push(format!("{} against {}", self.amount, other.amount));
        }
        if self.warm_up != other.warm_up {
            let [ours, theirs] = [self.warm_up, other.warm_up].map(seconds);
            all.push(format!("{ours} against {theirs} of warm-up"));
        }
        // Time limits decide when to give up. They do not affect the figures.
        let rest = |load: &Self| Self {
            amount: Amount::Count(0),
            warm_up: Duration::ZERO,
            time_limit: Duration::ZERO,
            ..load.clone()
        };
        if rest(self) != rest(other) {
            all.push("another kind of traffic".to_owned());
        }
        all
    }
}

impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Time(time) => f.write_str(&seconds(*time)),
            Self::Bytes(bytes) => write!(f, "{bytes} bytes"),
            Self::Count(count) => write!(f, "{count} requests"),
        }
    }
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}
