//! A short summary of an emulator's run, for runs without problems.

use std::fmt;

use crate::audit::{Audit, DirectionAudit, write_drops};
use crate::interval::to_f64;

/// Displays the traffic of each direction and the verdict. [`Audit`] itself displays everything.
#[derive(Clone, Copy, Debug)]
pub struct Brief<'a>(pub &'a Audit);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(audit) = self;
        write!(f, "verdict: {}", audit.verdict())?;
        let ways = [("up  ", &audit.up), ("down", &audit.down)];
        let used = ways.map(|(name, way)| (name, way, way.counts.segments_in > 0));
        if !used.iter().any(|(.., used)| *used) {
            return f.write_str("; nothing crossed the link");
        }
        for (name, way, _) in used.into_iter().filter(|(.., used)| *used) {
            write!(f, "\n  {name}  ")?;
            write_way(f, way)?;
        }
        Ok(())
    }
}

fn write_way(f: &mut fmt::Formatter<'_>, way: &DirectionAudit) -> fmt::Result {
    let counts = &way.counts;
    write!(
        f,
        "{} packets in, {} out ({}), {:.2} % lost",
        counts.segments_in,
        counts.segments_out,
        bytes(counts.bytes_out),
        way.loss * 100.0
    )?;
    if let Some(asked) = way.loss_asked.filter(|asked| *asked > 0.0) {
        write!(f, " (asked {:.2} %)", asked * 100.0)?;
    }
    write_drops(f, &way.link)
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

    use quictun_link::{Counters, Histogram, LinkConfig};
    use quictun_sys::Promptness;

    use super::*;
    use crate::counts::Counts;
    use crate::relay::Ran;

    fn way(loss: f64, came: u64, link: Counters) -> DirectionAudit {
        let config = LinkConfig {
            loss,
            ..LinkConfig::default()
        };
        let counts = Counts {
            segments_in: came,
            segments_out: link.delivered,
            bytes_out: link.delivered * 1500,
            ..Counts::default()
        };
        let ran = Ran {
            counts,
            link,
            lateness: Histogram::default(),
            busy: Duration::ZERO,
            elapsed: Duration::from_secs(1),
            promptness: Promptness::Usual,
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
    fn a_link_that_did_what_it_was_asked_to_is_told_in_a_line_for_each_way_that_was_used() {
        let nothing = || way(0.0, 0, Counters::default());
        let mut audit = Audit {
            up: nothing(),
            down: nothing(),
        };
        assert_eq!(
            Brief(&audit).to_string(),
            "verdict: ok; nothing crossed the link"
        );
        audit.down = way(0.0, 3, carried(3));
        assert_eq!(
            Brief(&audit).to_string(),
            "verdict: ok\n  down  3 packets in, 3 out (4.5 kB), 0.00 % lost"
        );
        let lossy = Counters {
            sent: 1000,
            delivered: 890,
            random: 10,
            queue_full: 100,
            ..Counters::default()
        };
        audit.up = way(0.01, 1000, lossy);
        assert_eq!(
            Brief(&audit).to_string(),
            "verdict: ok\n  up    1000 packets in, 890 out (1.3 MB), 1.11 % lost (asked 1.00 %), queue 100\n  \
             down  3 packets in, 3 out (4.5 kB), 0.00 % lost"
        );
    }
}
