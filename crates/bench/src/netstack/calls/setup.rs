//! The dimensions that can be combined in a measurement, and one combination of them.

use crate::kind::{Kind, Placement};
use crate::words::words;

pub(crate) const BYTES_MAX: usize = 64;

/// The operations that the application requests.
pub(crate) const RECV: u16 = 1;
pub(crate) const SEND: u16 = 2;

words! {
    /// The calls that the application repeats on each connection.
    Mode {
        /// Receives one message from the peer.
        Read = "read",
        /// Sends one message to the peer.
        Write = "write",
        /// Receives a message and sends one back.
        Call = "call",
    }
}

words! {
    /// The network side of the stack: the source and destination of its packets.
    WireKind {
        /// Simulated programs in the memory of the process with the stack.
        Memory = "memory",
        /// A TUN device and kernel sockets.
        Tun = "tun",
    }
}

words! {
    /// The moment at which the stack sends its packets.
    Polling {
        /// With each message that the application sends, as in the original.
        EachSend = "each-send",
        /// Together, once per round of the loop.
        Batch = "batch",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    pub(crate) mode: Mode,
    pub(crate) kind: Kind,
    pub(crate) placement: Placement,
    pub(crate) wire: WireKind,
    pub(crate) polling: Polling,
    pub(crate) connections: usize,
    pub(crate) bytes: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Grid {
    pub(crate) modes: Vec<Mode>,
    pub(crate) wires: Vec<WireKind>,
    pub(crate) pollings: Vec<Polling>,
    pub(crate) connections: Vec<usize>,
    pub(crate) bytes: Vec<usize>,
}

impl Setup {
    pub(crate) fn words(&self) -> [String; 7] {
        [
            self.mode.word().to_owned(),
            self.kind.word().to_owned(),
            self.placement.word().to_owned(),
            self.wire.word().to_owned(),
            self.polling.word().to_owned(),
            self.connections.to_string(),
            self.bytes.to_string(),
        ]
    }

    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        let [mode, kind, placement, wire, polling, connections, bytes] = *words else {
            return None;
        };
        Some(Self {
            mode: Mode::find(mode)?,
            kind: Kind::find(kind)?,
            placement: Placement::find(placement)?,
            wire: WireKind::find(wire)?,
            polling: Polling::find(polling)?,
            connections: connections.parse().ok()?,
            bytes: bytes
                .parse()
                .ok()
                .filter(|bytes| (1..=BYTES_MAX).contains(bytes))?,
        })
    }

    pub(crate) fn name(&self) -> String {
        let words = self.words()[..5].join(", ");
        format!(
            "{words}, {} connections, {} B",
            self.connections, self.bytes
        )
    }
}

impl Grid {
    pub(crate) fn setups(&self) -> Vec<Setup> {
        let mut all = Vec::new();
        for (wire, polling, bytes) in self.groups() {
            for mode in self.modes(polling) {
                for kind in Kind::ALL {
                    for placement in Placement::ALL {
                        all.extend(self.connections.iter().map(|connections| Setup {
                            mode,
                            kind,
                            placement,
                            wire,
                            polling,
                            connections: *connections,
                            bytes,
                        }));
                    }
                }
            }
        }
        all
    }

    /// Returns the modes to measure under a policy. Readers never send, so reads are not repeated for a second policy.
    pub(crate) fn modes(&self, polling: Polling) -> impl Iterator<Item = Mode> {
        let again = self.pollings.len() > 1 && polling == Polling::Batch;
        let modes = self.modes.iter().copied();
        modes.filter(move |mode| !(again && *mode == Mode::Read))
    }

    pub(crate) fn groups(&self) -> Vec<(WireKind, Polling, usize)> {
        let mut groups = Vec::new();
        for wire in &self.wires {
            for polling in &self.pollings {
                groups.extend(self.bytes.iter().map(|bytes| (*wire, *polling, *bytes)));
            }
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setup_survives_the_command_line_of_the_helper() {
        let grid = Grid {
            modes: Mode::ALL.into(),
            wires: WireKind::ALL.into(),
            pollings: Polling::ALL.into(),
            connections: vec![1, 32],
            bytes: vec![1, 64],
        };
        let setups = grid.setups();
        assert_eq!(setups.len(), (3 + 2) * 2 * 2 * 2 * 6);
        for setup in setups {
            let words = setup.words();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            assert_eq!(Setup::parse(&words), Some(setup));
        }
    }
}
