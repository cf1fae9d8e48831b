//! A short summary of an emulator's run, for runs without problems.

use std::fmt;

use crate::audit::{Audit, DirectionAudit, write_drops};
use crate::interval::to_f64;

/// Displays the traffic of each direction and the verdict. [`Audit`] itself displays everything.
#[derive(Clone, Copy, Debug)]
pub struct AuditSummary<'a>(pub &'a Audit);

impl fmt::Display for AuditSummary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(audit) = self;
        write!(f, "verdict: {}", audit.verdict())?;
        let directions = [("up  ", &audit.up), ("down", &audit.down)];
        let used =
            directions.map(|(name, direction)| (name, direction, direction.counts.segments_in > 0));
        if !used.iter().any(|(.., used)| *used) {
            return f.write_str("; nothing crossed the link");
        }
        for (name, direction, _) in used.into_iter().filter(|(.., used)| *used) {
            write!(f, "\n  {name}  ")?;
            write_direction(f, direction)?;
        }
        Ok(())
    }
}

fn write_direction(f: &mut fmt::Formatter<'_>, direction: &DirectionAudit) -> fmt::Result {
    let counts = &direction.counts;
    write!(
        f,
        "{} packets in, {} out ({}), {:.2} % lost",
        counts.segments_in,
        counts.segments_out,
        bytes(counts.bytes_out),
        direction.loss * 100.0
    )?;
    if let Some(asked) = direction.loss_asked.filter(|asked| *asked > 0.0) {
        write!(f, " (asked {:.2} %)", asked * 100.0)?;
    }
    write_drops(f, &direction.link)
}

fn bytes(count: u64) -> String {
    match count {
        0..1000 => format!("{count} B"),
        1000..1_000_000 => format!("{:.1} kB", to_f64(count) / 1e3),
        _ => format!("{:.1} MB", to_f64(count) / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quictun_link::{Counters, LinkConfig, LogHistogram};
    use quictun_sys::SchedulingClass;

    use super::*;
    use crate::counts::TrafficCounts;
    use crate::relay::RelayResult;

    fn direction(loss: f64, came: u64, link: Counters) -> DirectionAudit {
        let config = LinkConfig {
            loss,
            ..LinkConfig::default()
        };
        let counts = TrafficCounts {
            segments_in: came,
            segments_out: link.delivered,
            bytes_out: link.delivered * 1500,
            ..TrafficCounts::default()
        };
        let ran = RelayResult {
            counts,
            link,
            waits: LogHistogram::default(),
            lateness: LogHistogram::default(),
            busy: Duration::ZERO,
            elapsed: Duration::from_secs(1),
            promptness: SchedulingClass::Usual,
        };
        DirectionAudit::new(&config, ran)
    }

    fn carried(count: u64) -> Counters {
        Counters {
            sent: count,
            delivered: count,
            ..Counters::default()
        }
    }

    #[test]
    fn a_faithful_link_is_summarised_in_one_line_per_used_direction() {
        let nothing = || direction(0.0, 0, Counters::default());
        let mut audit = Audit {
            up: nothing(),
            down: nothing(),
        };
        assert_eq!(
            AuditSummary(&audit).to_string(),
            "verdict: ok; nothing crossed the link"
        );
        audit.down = direction(0.0, 3, carried(3));
        assert_eq!(
            AuditSummary(&audit).to_string(),
            "verdict: ok\n  down  3 packets in, 3 out (4.5 kB), 0.00 % lost"
        );
        let lossy = Counters {
            sent: 1000,
            delivered: 890,
            random: 10,
            queue_full: 100,
            ..Counters::default()
        };
        audit.up = direction(0.01, 1000, lossy);
        assert_eq!(
            AuditSummary(&audit).to_string(),
            "verdict: ok\n  up    1000 packets in, 890 out (1.3 MB), 1.11 % lost (asked 1.00 %), queue 100\n  \
             down  3 packets in, 3 out (4.5 kB), 0.00 % lost"
        );
    }
}
