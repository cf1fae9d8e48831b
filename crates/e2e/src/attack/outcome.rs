//! What an attack came to, held against its limits.

use std::fmt;

use serde_json::{Value, json};

use super::honest::Service;

/// What a server may grow beyond its budget: stacks, tables, what allocators keep.
pub const ALLOWANCE: u64 = 8 << 20;

/// The longest an honest client may wait for its first byte, milliseconds.
pub const WAIT_MS: u64 = 2000;

/// Descriptors that may be left of flows that were reset.
pub const DESCRIPTORS_LEFT: usize = 4;

/// What is left of flows a second after they were reset.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    /// TCP sockets that wait for an answer to their SYN.
    pub syn_sent: usize,
    /// Descriptors more than before.
    pub descriptors: usize,
}

/// One attack on one server.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its name, and what it was told.
    pub attack: String,
    /// The server's budget, bytes; `None`: its default.
    pub budget: Option<u64>,
    /// How far the server may grow, bytes.
    pub limit: u64,
    /// How far it grew at its peak, bytes.
    pub growth: u64,
    /// How far it was still grown at the end, bytes.
    pub growth_at_end: u64,
    /// Hostile connections begun, and established at the end.
    pub connections: [usize; 2],
    /// Why connections are gone, with how many each.
    pub losses: Vec<(String, usize)>,
    /// Hostile streams opened, answered, and refused.
    pub flows: [u64; 3],
    /// Bytes the attacker sent and received on streams.
    pub bytes: [u64; 2],
    /// Anyone may use the server: a peer may then fill its memory, and newcomers are refused until it has gone
    /// (PROTOCOL MEMORY-1). Where clients are known, those that are not never keep them out.
    pub open: bool,
    /// The honest client that was there before, and those that came during the attack.
    pub honest: [Service; 2],
    /// The most descriptors of the server, beyond those before.
    pub descriptors: u64,
    /// What was left of flows that were reset.
    pub left: Option<Left>,
    /// The attack was broken off: it had passed the limit by far.
    pub broken_off: bool,
    /// The server is gone.
    pub server_ended: bool,
    /// What it said last, where it is gone.
    pub last_words: Vec<String>,
    /// Seconds it took.
    pub seconds: f64,
}

impl Outcome {
    /// The limits that it exceeded.
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

    /// As one JSON object.
    pub fn json(&self) -> Value {
        let service = |service: &Service| json!({ "served": service.served, "failed": service.failed, "worst_ms": service.worst_ms });
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

    /// The heading of [`Outcome`]'s lines.
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

impl fmt::Display for Outcome {
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
            let Left {
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

/// Longest wait, and how many of all were served.
fn waits(service: &Service) -> String {
    let all = service.served + service.failed;
    format!("{}ms {}/{all}", service.longest_ms(), service.served)
}

/// MiB with one digit.
fn mib(bytes: u64) -> String {
    format!("{:.1}M", crate::load::report::figure(bytes) / 1_048_576.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        Outcome {
            attack: "none".to_owned(),
            budget: Some(4 << 20),
            limit: 12 << 20,
            growth: 12 << 20,
            growth_at_end: 0,
            connections: [1, 1],
            losses: Vec::new(),
            flows: [0; 3],
            bytes: [0; 2],
            honest: [Service {
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
    fn limits_are_kept_up_to_their_values() {
        let mut outcome = outcome();
        assert!(outcome.exceeded().is_empty(), "{outcome}");
        outcome.growth += 1;
        outcome.honest[1].failed = 1;
        outcome.left = Some(Left {
            syn_sent: 1,
            descriptors: DESCRIPTORS_LEFT,
        });
        assert_eq!(
            outcome.exceeded(),
            ["memory", "new honest client", "SYN-SENT"]
        );
    }
}
