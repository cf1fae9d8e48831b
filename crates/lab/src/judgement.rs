//! Judges whether a cell counts, by what its link and its machine did while it was measured.
//!
//! All programs share the processors of one machine, and a hypervisor may take these away for a while. The criterion is
//! not the longest pause but the share of packets that met a pause that is long compared with the round trip. A rate
//! hardly changes if two packets in a hundred are late by a quarter of a round trip. A percentile of latency does.

use std::time::Duration;

use quictun_link::LinkConfig;

use crate::record::LinkAccount;
use crate::scenario::Mode;
use crate::writing::quantity;

/// A frame is late if it leaves after its due time by more than the round-trip time divided by this number.
const LATE_ROUND_TRIP: u32 = 4;

/// Lateness up to this value never matters. It is ten times what an idle machine needs to wake a thread, and what the
/// kernel itself adds to the shortest emulated round trips.
const LATE_LEAST: Duration = Duration::from_micros(500);

/// Maximum share of late frames if a rate is measured: a rate is an average over all frames.
const LATE_SHARE_STREAM: f64 = 0.05;

/// Maximum share of late frames if latencies are measured. With it, percentiles up to p99 are those of the link.
const LATE_SHARE_REQUESTS: f64 = 0.01;

/// Maximum share of processor time that may be stolen if no link limits the traffic. The processors then limit it, and
/// stolen time distorts every figure.
const STOLEN_BARE: f64 = 0.10;

/// Maximum share of processor time that may be stolen with an emulated link, whose lateness shows how the stolen time
/// affected packets.
const STOLEN_LINK: f64 = 0.25;

/// Share of stolen processor time from which on a valid cell gets a remark.
const STOLEN_REMARK: f64 = 0.01;

/// The judgement of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// The reasons why the cell does not count. Empty if it counts.
    pub against: Vec<String>,
    /// Peculiarities that do not invalidate the cell.
    pub remarks: Vec<String>,
}

/// Returns the lateness from which on a frame of a link with these two directions counts as late.
pub fn late_limit([up, down]: &[LinkConfig; 2]) -> Duration {
    ((up.delay + down.delay) / LATE_ROUND_TRIP).max(LATE_LEAST)
}

/// Judges a cell by its link, if it has one, and by the share of all processors' time that was stolen meanwhile.
pub fn judge(link: Option<&LinkAccount>, mode: Mode, stolen: f64) -> Judgement {
    let mut judgement = Judgement::default();
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    if let Some(link) = link {
        judgement.against.extend(link.faults.iter().cloned());
        let most = match mode {
            Mode::Stream => LATE_SHARE_STREAM,
            Mode::Rr | Mode::Crr => LATE_SHARE_REQUESTS,
        };
        for (name, direction) in [("up", &link.up), ("down", &link.down)] {
            if direction.late_share > most {
                judgement.against.push(format!(
                    "{} of the packets were late by more than {} ({name})",
                    percent(direction.late_share),
                    quantity(direction.late_limit_us, "us")
                ));
            }
        }
    }
    let theft = format!("{} of the processors' time was stolen", percent(stolen));
    let most = if link.is_some() {
        STOLEN_LINK
    } else {
        STOLEN_BARE
    };
    if stolen > most {
        judgement.against.push(theft);
    } else if stolen > STOLEN_REMARK {
        judgement.remarks.push(theft);
    }
    judgement
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scenario;
    use crate::record::tests::account;
    use crate::scenario::Link;

    #[test]
    fn the_limit_of_lateness_depends_on_the_round_trip() {
        for (delay, limit_us) in [("0ms", 500), ("0.5ms", 500), ("25ms", 12_500)] {
            let text = format!(
                "name = \"a\"\ntitle = \"t\"\nlink.delay = \"{delay}\"\nworkload.duration = \"1s\"\n\
                 [[arm]]\nid = \"a\"\nkind = \"tcp\"\n"
            );
            let scenario = Scenario::parse(&text).expect("a scenario");
            let Link::Emulated(link) = &scenario.setup(0, 0, false).link else {
                panic!("no link");
            };
            let limit = late_limit(&link.directions(1));
            assert_eq!(limit, Duration::from_micros(limit_us), "{delay}");
        }
    }

    #[test]
    fn rates_tolerate_more_lateness_than_latencies() {
        let mut link = account();
        link.down.late_share = 0.02;
        assert_eq!(judge(Some(&link), Mode::Stream, 0.0), Judgement::default());
        let judgement = judge(Some(&link), Mode::Rr, 0.0);
        assert_eq!(
            judgement.against,
            ["2.0 % of the packets were late by more than 500 us (down)"]
        );
        link.up.late_share = 0.06;
        let judgement = judge(Some(&link), Mode::Stream, 0.0);
        assert!(judgement.against[0].contains("(up)"), "{judgement:?}");
    }

    #[test]
    fn link_faults_and_much_steal_time_count_against_a_cell() {
        let mut link = account();
        link.faults = vec!["3 dropped".to_owned()];
        assert_eq!(judge(Some(&link), Mode::Stream, 0.0).against, ["3 dropped"]);
        let judgement = judge(None, Mode::Stream, 0.2);
        assert_eq!(
            judgement.against,
            ["20.0 % of the processors' time was stolen"]
        );
        for (link, stolen) in [(None, 0.05), (Some(&account()), 0.2)] {
            let judgement = judge(link, Mode::Stream, stolen);
            assert!(judgement.against.is_empty() && judgement.remarks.len() == 1);
        }
        assert!(!judge(Some(&account()), Mode::Rr, 0.3).against.is_empty());
    }
}
