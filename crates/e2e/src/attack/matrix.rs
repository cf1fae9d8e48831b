//! All attacks by name, and their runs against servers with different budgets.

use std::time::Duration;

use anyhow::Result;
use clap::Subcommand;

use super::held::Missing;
use super::outcome::AttackOutcome;
use super::run::AttackOptions;
use super::unread::UnreadSide;
use super::{crowding, dials, fragments, half_open, held, https, records, sharing, unread};

/// The memory growth allowed to a server with the default budget under ten thousand strangers.
pub const STRANGERS_LIMIT: u64 = 512 << 20;

/// TLS connections at a time of an attack that completes handshakes.
const TLS_CONNECTIONS: usize = 200;

/// An attack and its size.
#[derive(Clone, Debug, Subcommand)]
pub enum Attack {
    /// One client whose flows lack one early byte and send all the rest.
    FirstByteMissing {
        /// Number of flows to open.
        #[arg(long, default_value_t = 60)]
        flows: u64,
        /// The missing byte; both, one after the other, if not given.
        #[arg(long, value_enum)]
        missing: Option<Missing>,
    },
    /// Strangers that start OPEN on every stream and never finish it.
    UnfinishedOpens {
        /// Number of strangers to connect.
        #[arg(long, default_value_t = 15)]
        strangers: usize,
    },
    /// One stranger with as many streams as it gets, and one byte on each.
    TinyStreams {
        /// Number of streams to ask for.
        #[arg(long, default_value_t = 4000)]
        streams: u64,
    },
    /// Strangers that complete their handshakes and stay silent.
    Strangers {
        /// Number of connections to open.
        #[arg(long, default_value_t = 10_000)]
        connections: usize,
        /// Number of source addresses.
        #[arg(long, default_value_t = 1000)]
        sources: usize,
        /// Seconds for which they stay connected.
        #[arg(long, default_value_t = 12)]
        stay: u64,
    },
    /// Flows whose data stays with the server.
    Stalled {
        /// Number of connections to open.
        #[arg(long, default_value_t = 1000)]
        connections: usize,
        /// Number of flows per connection.
        #[arg(long, default_value_t = 100)]
        flows: u64,
        /// The side that does not take the data. By default, the attack tries all of them in turn.
        #[arg(long, value_enum)]
        way: Option<UnreadSide>,
    },
    /// Downloads of which one early packet is never acknowledged.
    NoAcks {
        /// Number of connections to open.
        #[arg(long, default_value_t = 50)]
        connections: usize,
        /// Number of flows per connection.
        #[arg(long, default_value_t = 4)]
        flows: u64,
    },
    /// Flows that are opened to a target that does not answer SYNs, and reset.
    OpenReset {
        /// Number of flows to open.
        #[arg(long, default_value_t = 600)]
        flows: u64,
    },
    /// First packets of connections that do not continue.
    Initials {
        /// Number of connections to open.
        #[arg(long, default_value_t = 20_000)]
        connections: usize,
        /// Number of source addresses.
        #[arg(long, default_value_t = 1000)]
        sources: usize,
    },
    /// First packets of connections that answer Retry and do not continue.
    RetryFlood {
        /// Number of connections to open.
        #[arg(long, default_value_t = 20_000)]
        connections: usize,
        /// Number of source addresses.
        #[arg(long, default_value_t = 1000)]
        sources: usize,
    },
    /// Streams with one byte at every other offset.
    TinyGaps {
        /// Number of connections to open.
        #[arg(long, default_value_t = 8)]
        connections: usize,
        /// Number of streams per connection.
        #[arg(long, default_value_t = 60)]
        streams: u64,
    },
    /// Batches of datagrams of which one carries a byte, and the others PING.
    PinnedBatches {
        /// Number of connections to open.
        #[arg(long, default_value_t = 8)]
        connections: usize,
        /// Number of streams per connection.
        #[arg(long, default_value_t = 60)]
        streams: u64,
    },
    /// A client with a limit of flows that crashes with all of them open, and comes back, three times.
    LeftFlows,
    /// One known client that opens more connections than there are places.
    Places {
        /// Number of connections to open.
        #[arg(long, default_value_t = 400)]
        connections: usize,
    },
    /// Strangers with chains of certificates of 60 kB.
    Chains {
        /// Number of connections to open.
        #[arg(long, default_value_t = 300)]
        connections: usize,
    },
    /// Two known clients that take all the listeners and flows that they get of 400 descriptors.
    Listeners {
        /// Number of flows that each asks for.
        #[arg(long, default_value_t = 300)]
        flows: u64,
    },
    /// Batches of datagrams of which one is full of data that no target reads, and the others carry PING.
    PinnedPackets {
        /// Number of connections to open.
        #[arg(long, default_value_t = 32)]
        connections: usize,
        /// Number of streams per connection.
        #[arg(long, default_value_t = 8)]
        streams: u64,
    },
    /// TCP connections of strangers that send nothing, one byte, or half of a `ClientHello`, to a server with 1024
    /// descriptors.
    TlsHalfOpen(TcpAttackSize),
    /// TLS connections with tiny records, and with records, frames and windows of every wrong length.
    TlsRecords(TcpAttackSize),
    /// Slow and silent handshakes over TCP, and a known client that reads nothing of its downloads.
    TlsSlow(TcpAttackSize),
    /// Programs at the HTTPS proxy that send half a head of HTTP/1.1, half a block of fields of HTTP/2, or a request whose
    /// end is ambiguous.
    HttpsHalfOpen(TcpAttackSize),
    /// Programs at the HTTPS proxy with rapid resets, endless blocks of fields, settings, pings, frames without content,
    /// and downloads without credit.
    HttpsFloods(TcpAttackSize),
}

/// The size of an attack over TCP.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct TcpAttackSize {
    /// Number of connections at a time; 10 000 half-open ones, and 200 others, if not given.
    #[arg(long)]
    connections: Option<usize>,
    /// Number of source addresses.
    #[arg(long, default_value_t = 1000)]
    sources: usize,
    /// Seconds for which connections that the server has ended are replaced.
    #[arg(long, default_value_t = 12)]
    stay: u64,
}

impl TcpAttackSize {
    /// The size of an attack that is run with all others.
    const DEFAULT: Self = Self {
        connections: None,
        sources: 1000,
        stay: 12,
    };

    fn stay(self) -> Duration {
        Duration::from_secs(self.stay)
    }
}

impl Attack {
    /// Returns every attack in its default size.
    pub fn all() -> Vec<Self> {
        vec![
            Self::FirstByteMissing {
                flows: 60,
                missing: None,
            },
            Self::UnfinishedOpens { strangers: 15 },
            Self::TinyStreams { streams: 4000 },
            Self::Strangers {
                connections: 10_000,
                sources: 1000,
                stay: 12,
            },
            Self::Stalled {
                connections: 1000,
                flows: 100,
                way: None,
            },
            Self::NoAcks {
                connections: 50,
                flows: 4,
            },
            Self::OpenReset { flows: 600 },
            Self::Initials {
                connections: 20_000,
                sources: 1000,
            },
            Self::RetryFlood {
                connections: 20_000,
                sources: 1000,
            },
            Self::TinyGaps {
                connections: 8,
                streams: 60,
            },
            Self::PinnedBatches {
                connections: 8,
                streams: 60,
            },
            Self::PinnedPackets {
                connections: 32,
                streams: 8,
            },
            Self::LeftFlows,
            Self::Places { connections: 400 },
            Self::Chains { connections: 300 },
            Self::Listeners { flows: 300 },
            Self::TlsHalfOpen(TcpAttackSize::DEFAULT),
            Self::TlsRecords(TcpAttackSize::DEFAULT),
            Self::TlsSlow(TcpAttackSize::DEFAULT),
            Self::HttpsHalfOpen(TcpAttackSize::DEFAULT),
            Self::HttpsFloods(TcpAttackSize::DEFAULT),
        ]
    }

    /// Runs the attack, each of its variants on a new server, and reports each outcome as soon as it is known.
    ///
    /// # Errors
    ///
    /// Fails if a server does not start or an attack cannot be made.
    pub fn run(
        &self,
        terms: &AttackOptions,
        tell: &mut dyn FnMut(&AttackOutcome),
    ) -> Result<Vec<AttackOutcome>> {
        let mut outcomes = Vec::new();
        let mut add = |outcome: AttackOutcome| {
            tell(&outcome);
            outcomes.push(outcome);
        };
        match *self {
            Self::FirstByteMissing { flows, missing } => {
                let both = [Missing::OfStream, Missing::AfterOpen];
                for missing in chosen(missing, &both) {
                    add(held::first_byte_missing(terms, flows, missing)?);
                }
            }
            Self::Stalled {
                connections,
                flows,
                way,
            } => {
                for way in chosen(
                    way,
                    &[
                        UnreadSide::Upload,
                        UnreadSide::Unread,
                        UnreadSide::Unacknowledged,
                    ],
                ) {
                    add(unread::stalled(terms, connections, flows, way)?);
                }
            }
            _ => add(self.run_one(terms)?),
        }
        Ok(outcomes)
    }

    /// Runs an attack that has a single variant.
    fn run_one(&self, terms: &AttackOptions) -> Result<AttackOutcome> {
        match *self {
            Self::UnfinishedOpens { strangers } => held::unfinished_opens(terms, strangers),
            Self::TinyStreams { streams } => held::tiny_streams(terms, streams),
            Self::Strangers {
                connections,
                sources,
                stay,
            } => crowding::strangers(terms, connections, sources, Duration::from_secs(stay)),
            Self::NoAcks { connections, flows } => unread::no_acks(terms, connections, flows),
            Self::OpenReset { flows } => dials::open_reset(terms, flows),
            Self::Initials {
                connections,
                sources,
            } => crowding::initials(terms, connections, sources, false),
            Self::RetryFlood {
                connections,
                sources,
            } => crowding::initials(terms, connections, sources, true),
            Self::TinyGaps {
                connections,
                streams,
            } => fragments::tiny_gaps(terms, connections, streams),
            Self::PinnedBatches {
                connections,
                streams,
            } => fragments::pinned_batches(terms, connections, streams),
            Self::PinnedPackets {
                connections,
                streams,
            } => fragments::pinned_packets(terms, connections, streams),
            Self::LeftFlows => sharing::left_flows(terms),
            Self::Places { connections } => sharing::places(terms, connections),
            Self::Chains { connections } => sharing::chains(terms, connections),
            Self::Listeners { flows } => sharing::listeners(terms, flows),
            Self::TlsHalfOpen(size) => {
                let connections = size.connections.unwrap_or(10_000);
                half_open::half_open(terms, connections, size.sources, size.stay())
            }
            Self::TlsRecords(size) => {
                let connections = size.connections.unwrap_or(TLS_CONNECTIONS);
                records::records(terms, connections, size.sources, size.stay())
            }
            Self::TlsSlow(size) => {
                let connections = size.connections.unwrap_or(TLS_CONNECTIONS);
                half_open::slow(terms, connections, size.sources, size.stay())
            }
            Self::HttpsHalfOpen(size) => {
                let connections = size.connections.unwrap_or(TLS_CONNECTIONS);
                https::half_open(terms, connections, size.sources, size.stay())
            }
            Self::HttpsFloods(size) => {
                let connections = size.connections.unwrap_or(TLS_CONNECTIONS);
                https::floods(terms, connections, size.sources, size.stay())
            }
            Self::FirstByteMissing { .. } | Self::Stalled { .. } => {
                anyhow::bail!("invariant: run() handles attacks with several variants")
            }
        }
    }
}

/// Runs every attack with every budget, and the strangers against the default budget.
///
/// # Errors
///
/// Fails if a server does not start or an attack cannot be made.
pub fn all(
    terms: &AttackOptions,
    budgets: &[u64],
    tell: &mut dyn FnMut(&AttackOutcome),
) -> Result<Vec<AttackOutcome>> {
    let mut outcomes = Vec::new();
    for &budget in budgets {
        let terms = AttackOptions {
            budget: Some(budget),
            ..terms.clone()
        };
        for attack in Attack::all() {
            outcomes.extend(attack.run(&terms, tell)?);
        }
    }
    let terms = AttackOptions {
        budget: None,
        limit: Some(STRANGERS_LIMIT),
        ..terms.clone()
    };
    let strangers = Attack::Strangers {
        connections: 10_000,
        sources: 1000,
        stay: 12,
    };
    outcomes.extend(strangers.run(&terms, tell)?);
    Ok(outcomes)
}

fn chosen<T: Copy>(one: Option<T>, all: &[T]) -> Vec<T> {
    one.map_or_else(|| all.to_vec(), |one| vec![one])
}
