//! The result of an attack, compared with its limits.

use std::fmt;

use serde_json::{Value, json};

use super::honest::ServiceTimes;

/// The number of bytes by which a server may grow beyond its budget: for stacks, tables and memory that allocators
/// keep.
pub const ALLOWANCE: u64 = 8 << 20;

/// The longest time that an honest client may wait for its first byte, in milliseconds.
pub const WAIT_MS: u64 = 2000;

/// The number of descriptors that may be left of flows that were reset.
pub const DESCRIPTORS_LEFT: usize = 4;

/// The remains of flows a second after they were reset.
#[derive(Clone, Copy, Debug)]
pub struct Remains {
    /// TCP sockets that wait for an answer to their SYN.
    pub syn_sent: usize,
    /// The number of descriptors in excess of those before the attack.
    pub descriptors: usize,
}

/// The result of one attack on one server.
#[derive(Clone, Debug)]
pub struct AttackOutcome {
    /// The attack's name and variant.
    pub attack: String,
    /// The server's budget in bytes; `None` for its default.
    pub budget: Option<u64>,
    /// The allowed memory growth of the server in bytes.
    pub limit: u64,
    /// The peak memory growth in bytes.
    pub growth: u64,
    /// The memory growth at the end in bytes.
    pub growth_at_end: u64,
    /// Hostile connections started, and connections established at the end.
    pub connections: [usize; 2],
    /// The reasons for lost connections, with the number of connections for each.
    pub losses: Vec<(String, usize)>,
    /// Hostile streams opened, answered and refused.
    pub flows: [u64; 3],
    /// Bytes that the attacker sent and received on streams.
    pub bytes: [u64; 2],
    /// True if any client may use the server. A peer may then fill its memory, and the server refuses newcomers until
    /// that peer is gone (PROTOCOL MEMORY-1). If clients are known, unknown peers never keep them out.
    pub open: bool,
    /// Service of the honest client that existed before the attack, and of those that started during it.
    pub honest: [ServiceTimes; 2],
    /// The peak number of the server's descriptors in excess of those before.
    pub descriptors: u64,
    /// The remains of flows that were reset, if the attack counted them.
    pub left: Option<Remains>,
    /// True if the attack was stopped early because growth was far beyond the limit.
    pub broken_off: bool,
    /// True if the server ended.
    pub server_ended: bool,
    /// The server's last lines of output, if it ended.
    pub last_words: Vec<String>,
    /// The duration in seconds.
    pub seconds: f64,
}

impl AttackOutcome {
    /// Returns the limits that the outcome exceeds.
    pub fn exceeded(&self) -> Vec<&'static str> {
        let [known, newcomers] = self.honest;
        let left = self.left;
        let checks = [
            (self.server_ended, "the server ended"),
            (self.growth > self.limit, "memory"),
            (known.longest_ms() > WAIT_MS, "honest client"),
            (
                !self.open && newcomers.longest_ms() > WAIT_MS,
                "new honest client",
            ),
            (left.is_some_and(|left| left.syn_sent > 0), "SYN-SENT"),
            (
                left.is_some_and(|left| left.descriptors > DESCRIPTORS_LEFT),
                "descriptors",
            ),
        ];
        let exceeded = checks.into_iter().filter(|(exceeded, _)| *exceeded);
        exceeded.map(|(_, what)| what).collect()
    }

    /// Returns the outcome as one JSON object.
    pub fn json(&self) -> Value {
        let service = |service: &ServiceTimes| json!({ "served": service.served, "failed": service.failed, "worst_ms": service.worst_ms });
        let losses = self
            .losses
            .iter()
            .map(|(reason, count)| json!({ "reason": reason, "connections": count }));
        json!({
            "attack": self.attack, "budget": self.budget, "limit": self.limit,
            "growth": self.growth, "growth_at_end": self.growth_at_end,
            "connections": self.connections[0], "connected": self.connections[1],
            "losses": losses.collect::<Vec<_>>(),
            "flows": self.flows[0], "answered": self.flows[1], "refused": self.flows[2],
            "sent_bytes": self.bytes[0], "received_bytes": self.bytes[1],
            "honest": service(&self.honest[0]), "newcomers": service(&self.honest[1]),
            "descriptors": self.descriptors,
            "syn_sent_left": self.left.map(|left| left.syn_sent),
            "descriptors_left": self.left.map(|left| left.descriptors),
            "broken_off": self.broken_off, "server_ended": self.server_ended,
            "last_words": self.last_words,
            "seconds": self.seconds, "exceeded": self.exceeded(),
        })
    }

    /// Returns the heading for the lines of [`AttackOutcome`]s.
    pub fn heading() -> String {
        format!(
            "{:32} {:>7} {:>9} {:>9} {:>13} {:>20} {:>10} {:>15} {:>15} {:>6}  exceeded",
            "attack",
            "budget",
            "growth",
            "limit",
            "connections",
            "flows ack/rst/all",
            "sent",
            "known",
            "newcomers",
            "fds"
        )
    }
}

impl fmt::Display for AttackOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [begun, connected] = self.connections;
        let [opened, answered, refused] = self.flows;
        let broken_off = if self.broken_off { ">" } else { "" };
        write!(
            f,
            "{:32} {:>7} {:>9} {:>9} {:>13} {:>20} {:>10} {:>15} {:>15} {:>6}  ",
            self.attack,
            self.budget.map_or("default".to_owned(), mib),
            format!("{broken_off}{}", mib(self.growth)),
            mib(self.limit),
            format!("{connected}/{begun}"),
            format!("{answered}/{refused}/{opened}"),
            mib(self.bytes[0]),
            waits(&self.honest[0]),
            waits(&self.honest[1]),
            self.descriptors,
        )?;
        let exceeded = self.exceeded();
        f.write_str(&if exceeded.is_empty() {
            "-".to_owned()
        } else {
            exceeded.join(", ")
        })?;
        if let Some(left) = self.left {
            let Remains {
                syn_sent,
                descriptors,
            } = left;
            write!(f, " (left: {syn_sent} SYN-SENT, {descriptors} descriptors)")?;
        }
        for (reason, count) in &self.losses {
            write!(f, "\n    {count} connections lost: {reason}")?;
        }
        for line in &self.last_words {
            write!(f, "\n    {line}")?;
        }
        Ok(())
    }
}

/// Formats the longest wait, and the number of served flows out of all.
fn waits(service: &ServiceTimes) -> String {
    let all = service.served + service.failed;
    format!("{}ms {}/{all}", service.longest_ms(), service.served)
}

/// Formats bytes as MiB with one decimal.
fn mib(bytes: u64) -> String {
    format!("{:.1}M", crate::load::report::figure(bytes) / 1_048_576.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> AttackOutcome {
        AttackOutcome {
            attack: "none".to_owned(),
            budget: Some(4 << 20),
            limit: 12 << 20,
            growth: 12 << 20,
            growth_at_end: 0,
            connections: [1, 1],
            losses: Vec::new(),
            flows: [0; 3],
            bytes: [0; 2],
            honest: [ServiceTimes {
                served: 1,
                failed: 0,
                worst_ms: WAIT_MS,
            }; 2],
            open: false,
            descriptors: 0,
            left: None,
            broken_off: false,
            server_ended: false,
            last_words: Vec::new(),
            seconds: 0.0,
        }
    }

    #[test]
    fn an_outcome_at_its_limits_passes() {
        let mut outcome = outcome();
        assert!(outcome.exceeded().is_empty(), "{outcome}");
        outcome.growth += 1;
        outcome.honest[1].failed = 1;
        outcome.left = Some(Remains {
            syn_sent: 1,
            descriptors: DESCRIPTORS_LEFT,
        });
        assert_eq!(
            outcome.exceeded(),
            ["memory", "new honest client", "SYN-SENT"]
        );
    }
}
