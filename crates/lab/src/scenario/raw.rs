//! The TOML structure of a scenario, before checks.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

/// A text with its position in the scenario.
pub(super) type SpannedText = Spanned<String>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawScenario {
    pub(super) name: SpannedText,
    pub(super) title: String,
    pub(super) source: Option<String>,
    #[serde(default)]
    pub(super) about: String,
    #[serde(default)]
    pub(super) link: RawLink,
    #[serde(default)]
    pub(super) workload: RawLoad,
    #[serde(default)]
    pub(super) sweep: RawSweep,
    #[serde(default)]
    pub(super) case: Vec<RawCase>,
    #[serde(default)]
    pub(super) arm: Vec<RawArm>,
    #[serde(default)]
    pub(super) design: RawDesign,
    #[serde(default)]
    pub(super) quick: RawQuick,
    #[serde(default)]
    pub(super) table: Vec<RawTable>,
    #[serde(default)]
    pub(super) compare: Vec<RawCompare>,
    #[serde(default)]
    pub(super) assert: Vec<RawAssert>,
    pub(super) profile: Option<RawProfile>,
    #[serde(default)]
    pub(super) published: Vec<RawPublished>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLink {
    pub(super) medium: Option<Medium>,
    pub(super) like: Option<SpannedText>,
    pub(super) rate: Option<SpannedText>,
    pub(super) delay: Option<SpannedText>,
    pub(super) jitter: Option<SpannedText>,
    pub(super) stall: Option<RawStall>,
    pub(super) loss: Option<SpannedText>,
    pub(super) burst: Option<f64>,
    pub(super) queue: Option<SpannedText>,
    pub(super) outage: Option<Vec<RawOutage>>,
    pub(super) mtu: Option<u32>,
    pub(super) offload: Option<Offload>,
    pub(super) loss_unit: Option<LossUnit>,
    pub(super) coalesce: Option<SpannedText>,
    pub(super) segment_limit: Option<u32>,
    pub(super) emulator: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawStall {
    pub(super) length: SpannedText,
    pub(super) every: SpannedText,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawOutage {
    pub(super) at: SpannedText,
    pub(super) length: SpannedText,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Medium {
    Link,
    Loopback,
    Cable,
    Router,
}

/// The component that segments streams into packets, and reassembles them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Offload {
    /// The network cards of both sides.
    #[default]
    Full,
    /// The sender's kernel and the receiver's network card.
    Receive,
    /// The kernels of both sides, packet by packet.
    None,
}

/// The unit that random loss applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossUnit {
    /// Every packet on the wire.
    #[default]
    Packet,
    /// Every buffer that the kernel hands over as one. This is unrealistic, and is what netem does on a sender's own
    /// device.
    SuperPacket,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLoad {
    pub(super) mode: Option<Mode>,
    pub(super) duration: Option<SpannedText>,
    pub(super) warm_up: Option<SpannedText>,
    pub(super) bytes: Option<u64>,
    pub(super) count: Option<u64>,
    pub(super) request: Option<u64>,
    pub(super) response: Option<u64>,
    pub(super) rate_per_s: Option<u64>,
    pub(super) flows: Option<u64>,
    pub(super) connections: Option<u64>,
    pub(super) reverse: Option<bool>,
    pub(super) background: Option<Background>,
    pub(super) rival: Option<String>,
    pub(super) time_limit: Option<SpannedText>,
}

/// The kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A stream, as fast as possible.
    Stream,
    /// Requests and answers on one connection.
    Rr,
    /// One connection per request and answer.
    Crr,
}

/// Streams that run beside requests and answers, on the same link or through the same tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Background {
    /// No stream beside the requests.
    #[default]
    None,
    /// One stream from the near side to the far side.
    Up,
    /// One stream from the far side to the near side.
    Down,
    /// One stream in each direction.
    Both,
}

impl Mode {
    /// Returns the mode's name in a scenario.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Rr => "rr",
            Self::Crr => "crr",
        }
    }
}

impl Background {
    /// Returns whether there is a stream upwards, and whether there is one downwards.
    pub const fn directions(self) -> [bool; 2] {
        [
            matches!(self, Self::Up | Self::Both),
            matches!(self, Self::Down | Self::Both),
        ]
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSweep {
    #[serde(default)]
    rate: Vec<SpannedText>,
    #[serde(default)]
    delay: Vec<SpannedText>,
    #[serde(default)]
    queue: Vec<SpannedText>,
    #[serde(default)]
    loss: Vec<SpannedText>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCase {
    pub(super) id: String,
    pub(super) label: Option<String>,
    #[serde(default)]
    pub(super) link: RawLink,
    #[serde(default)]
    pub(super) workload: RawLoad,
    #[serde(default)]
    pub(super) quick: RawCaseQuick,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawArm {
    pub(super) id: SpannedText,
    pub(super) kind: ArmKind,
    #[serde(default)]
    pub(super) through_tunnel: bool,
    #[serde(default)]
    pub(super) ipv6: bool,
    pub(super) congestion: Option<String>,
    #[serde(default)]
    pub(super) client_flags: Vec<String>,
    #[serde(default)]
    pub(super) server_flags: Vec<String>,
    pub(super) client_command: Option<String>,
    pub(super) server_command: Option<String>,
    #[serde(default)]
    pub(super) optional: bool,
    #[serde(default)]
    pub(super) link: RawLink,
    #[serde(default)]
    pub(super) workload: RawLoad,
}

/// The kind of program that an arm measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArmKind {
    /// `quictun perf` over TCP.
    Tcp,
    /// `quictun perf` over TCP with TLS 1.3.
    Tls,
    /// `quictun perf` over QUIC.
    Quic,
    /// `quictun perf` over UDP.
    Udp,
    /// `quictun perf` over TCP, through the tunnel.
    Tunnel,
    /// iperf3, if it is installed.
    Iperf3,
    /// The user's own programs.
    Command,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDesign {
    pub(super) reps: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawQuick {
    pub(super) reps: Option<u32>,
    duration: Option<SpannedText>,
    warm_up: Option<SpannedText>,
    bytes: Option<u64>,
    count: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCaseQuick {
    duration: Option<SpannedText>,
    warm_up: Option<SpannedText>,
    bytes: Option<u64>,
    count: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTable {
    pub(super) title: String,
    #[serde(default)]
    pub(super) shape: Shape,
    pub(super) row: Option<String>,
    pub(super) arms: Option<Vec<SpannedText>>,
    pub(super) cases: Option<Vec<SpannedText>>,
    pub(super) columns: Vec<SpannedText>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Shape {
    /// For each arm, a table with one row per case and one column per metric.
    #[default]
    Metrics,
    /// A table with one row per case and one column per arm.
    Arms,
    /// A table with one row per run and one column per metric.
    Runs,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCompare {
    pub(super) a: SpannedText,
    pub(super) b: SpannedText,
    pub(super) metric: SpannedText,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAssert {
    pub(super) arm: SpannedText,
    pub(super) over: Option<SpannedText>,
    pub(super) metric: SpannedText,
    pub(super) cases: Option<Vec<SpannedText>>,
    pub(super) at_least: Option<f64>,
    pub(super) at_most: Option<f64>,
    pub(super) allow: Option<Allowance>,
}

/// An unavoidable effect that an assertion tolerates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Allowance {
    /// The link capacity that QUIC's longer headers use.
    Headers,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawProfile {
    pub(super) cases: Option<Vec<SpannedText>>,
    pub(super) arms: Option<Vec<SpannedText>>,
    #[serde(default)]
    pub(super) functions: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPublished {
    pub(super) case: SpannedText,
    pub(super) arm: SpannedText,
    pub(super) values: BTreeMap<String, Published>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Published {
    One(f64),
    /// One figure per run.
    Runs(Vec<f64>),
}

impl Published {
    /// Returns the figure, or the median of the runs.
    pub(crate) fn middle(&self) -> Option<f64> {
        match self {
            Self::One(value) => Some(*value),
            Self::Runs(runs) => crate::stats::median(runs),
        }
    }
}

/// Merges two values field by field: a field of `$own` if it is set, else the field of `$base`.
macro_rules! over {
    ($own:ident, $base:ident: $($field:ident)* $(; ..$rest:ident)?) => {
        Self { $($field: $own.$field.or($base.$field),)* $(..$rest)? }
    };
}

impl RawSweep {
    pub(super) fn factors(&self) -> impl Iterator<Item = (&'static str, &[SpannedText])> {
        let all: [(_, &[SpannedText]); 4] = [
            ("rate", &self.rate),
            ("delay", &self.delay),
            ("queue", &self.queue),
            ("loss", &self.loss),
        ];
        all.into_iter().filter(|(_, values)| !values.is_empty())
    }
}

impl RawLink {
    pub(super) fn one(key: &str, value: &SpannedText) -> Self {
        let mut link = Self::default();
        let slot = match key {
            "rate" => &mut link.rate,
            "delay" => &mut link.delay,
            "queue" => &mut link.queue,
            _ => &mut link.loss,
        };
        *slot = Some(value.clone());
        link
    }

    /// Returns these settings, completed by those of `base`.
    pub(super) fn over(&self, base: &Self) -> Self {
        let (own, base) = (self.clone(), base.clone());
        over!(own, base: medium like rate delay jitter stall loss burst queue outage mtu offload loss_unit coalesce
            segment_limit emulator)
    }
}

impl RawLoad {
    /// Returns these settings, completed by those of `base`. The amount (`duration`, `bytes` and `count`) is not mixed:
    /// if these settings have one of the three, the amount of `base` is ignored.
    pub(super) fn over(&self, base: &Self) -> Self {
        let (own, base) = (self.clone(), base.clone());
        let says_how_much = own.duration.is_some() || own.bytes.is_some() || own.count.is_some();
        let amount = if says_how_much { &own } else { &base };
        let amount = Self {
            duration: amount.duration.clone(),
            bytes: amount.bytes,
            count: amount.count,
            ..Self::default()
        };
        over!(own, base: mode warm_up request response rate_per_s flows connections reverse background
            rival time_limit; ..amount)
    }
}

impl RawQuick {
    pub(super) fn amounts(&self) -> RawCaseQuick {
        RawCaseQuick {
            duration: self.duration.clone(),
            warm_up: self.warm_up.clone(),
            bytes: self.bytes,
            count: self.count,
        }
    }
}

impl RawCaseQuick {
    /// Returns the quick run's changes to a load, in the unit of amount that the load uses.
    pub(super) fn load_of(&self, whole: &RawLoad) -> RawLoad {
        RawLoad {
            duration: whole.duration.as_ref().and(self.duration.clone()),
            bytes: whole.bytes.and(self.bytes),
            count: whole.count.and(self.count),
            warm_up: self.warm_up.clone(),
            ..RawLoad::default()
        }
    }
}
