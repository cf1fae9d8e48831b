//! What happened on a channel, as metrics.

use std::fmt::Write as _;

use quictun_shmq::Counters;

use crate::executor::{Executor, IdleCounters};

/// Names and what they count, in the order of [`Metrics::values`]. All of them only grow.
pub const METRICS: [(&str, &str); 9] = [
    (
        "ipc_items_sent_total",
        "Calls, answers and messages written.",
    ),
    (
        "ipc_items_received_total",
        "Calls, answers and messages read.",
    ),
    (
        "ipc_notifications_sent_total",
        "Times that the peer slept and was woken.",
    ),
    (
        "ipc_notifications_suppressed_total",
        "Times that the peer was awake and was not.",
    ),
    (
        "ipc_wakes_total",
        "Times that this side slept and was woken.",
    ),
    (
        "ipc_empty_wakes_total",
        "Of these, times that there was nothing to do.",
    ),
    (
        "ipc_spins_total",
        "Times that this side looked for a while before it slept.",
    ),
    (
        "ipc_spins_won_total",
        "Of these, times that something came meanwhile.",
    ),
    ("ipc_sleeps_total", "Times that this side went to sleep."),
];

/// One reading of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Of the channel.
    pub channel: Counters,
    /// Of the executor.
    pub idle: IdleCounters,
}

impl Executor {
    /// What has happened so far.
    pub fn metrics(&self) -> Metrics {
        Metrics {
            channel: self.channel.borrow().counters(),
            idle: self.idle,
        }
    }
}

impl Metrics {
    /// In the order of [`METRICS`].
    pub fn values(&self) -> [u64; METRICS.len()] {
        let (channel, idle) = (&self.channel, &self.idle);
        [
            channel.pushed,
            channel.popped,
            channel.notifications,
            channel.suppressed,
            channel.wakes,
            channel.empty_wakes,
            idle.spins,
            idle.spins_won,
            idle.sleeps,
        ]
    }

    /// In the text format of Prometheus; `channel` tells it from others.
    pub fn to_text(&self, channel: &str) -> String {
        let mut text = String::new();
        let label = channel
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        for ((name, help), value) in METRICS.iter().zip(self.values()) {
            let written = writeln!(
                text,
                "# HELP {name} {help}\n# TYPE {name} counter\n{name}{{channel=\"{label}\"}} {value}"
            );
            debug_assert!(written.is_ok(), "a String takes everything");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_its_value_and_a_label_cannot_break_out() {
        let mut metrics = Metrics::default();
        metrics.channel.pushed = 3;
        metrics.idle.sleeps = 7;
        let text = metrics.to_text("a\"b");
        assert_eq!(text.lines().count(), 3 * METRICS.len());
        assert!(
            text.contains("ipc_items_sent_total{channel=\"a\\\"b\"} 3\n"),
            "{text}"
        );
        assert!(
            text.contains("ipc_sleeps_total{channel=\"a\\\"b\"} 7\n"),
            "{text}"
        );
    }
}
