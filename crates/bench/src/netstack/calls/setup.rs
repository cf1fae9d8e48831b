//! What is measured: the ways that may be combined, and one combination.

use crate::kind::{Kind, Placement};

/// Longest message.
pub(crate) const BYTES_MAX: usize = 64;

/// What the application asks for.
pub(crate) const RECV: u16 = 1;
pub(crate) const SEND: u16 = 2;

/// What the application does with each connection, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Receives a message.
    Read,
    /// Sends one.
    Write,
    /// Receives one and sends one back.
    Call,
}

/// What is behind the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireKind {
    /// Programs made up, in the memory of the process with the stack.
    Memory,
    /// A TUN device and sockets of the kernel.
    Tun,
}

/// When the stack's packets go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polling {
    /// With each message that the application sends, as in the original.
    EachSend,
    /// Once in a round.
    Batch,
}

impl Mode {
    pub(crate) const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Call];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Call => "call",
        }
    }
}

impl WireKind {
    pub(crate) const ALL: [Self; 2] = [Self::Memory, Self::Tun];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Tun => "tun",
        }
    }
}

impl Polling {
    pub(crate) const ALL: [Self; 2] = [Self::EachSend, Self::Batch];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::EachSend => "each-send",
            Self::Batch => "batch",
        }
    }
}

/// One measurement, and what both processes have to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    pub(crate) mode: Mode,
    pub(crate) kind: Kind,
    pub(crate) placement: Placement,
    pub(crate) wire: WireKind,
    pub(crate) polling: Polling,
    pub(crate) connections: usize,
    pub(crate) bytes: usize,
}

/// What may be combined.
pub(crate) struct Grid<'a> {
    pub(crate) modes: &'a [Mode],
    pub(crate) wires: &'a [WireKind],
    pub(crate) pollings: &'a [Polling],
    pub(crate) connections: &'a [usize],
    pub(crate) bytes: &'a [usize],
}

impl Setup {
    /// In words, for the other process.
    pub(crate) fn words(&self) -> [String; 7] {
        let Self {
            connections, bytes, ..
        } = self;
        [
            self.mode.word().to_owned(),
            self.kind.word().to_owned(),
            self.placement.word().to_owned(),
            self.wire.word().to_owned(),
            self.polling.word().to_owned(),
            connections.to_string(),
            bytes.to_string(),
        ]
    }

    /// From the words.
    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        let [mode, kind, placement, wire, polling, connections, bytes] = *words else {
            return None;
        };
        Some(Self {
            mode: Mode::ALL.into_iter().find(|one| one.word() == mode)?,
            kind: Kind::ALL.into_iter().find(|one| one.word() == kind)?,
            placement: Placement::ALL
                .into_iter()
                .find(|one| one.word() == placement)?,
            wire: WireKind::ALL.into_iter().find(|one| one.word() == wire)?,
            polling: Polling::ALL.into_iter().find(|one| one.word() == polling)?,
            connections: connections.parse().ok()?,
            bytes: bytes
                .parse()
                .ok()
                .filter(|bytes| (1..=BYTES_MAX).contains(bytes))?,
        })
    }

    pub(crate) fn name(&self) -> String {
        let Self {
            connections, bytes, ..
        } = self;
        self.words()[..5].join(", ") + &format!(", {connections} connections, {bytes} B")
    }
}

impl Grid<'_> {
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

    /// Who reads sends nothing, whatever the policy.
    pub(crate) fn modes(&self, polling: Polling) -> impl Iterator<Item = Mode> {
        let again = self.pollings.len() > 1 && polling == Polling::Batch;
        let modes = self.modes.iter().copied();
        modes.filter(move |mode| !(again && *mode == Mode::Read))
    }

    /// What tables have in common.
    pub(crate) fn groups(&self) -> Vec<(WireKind, Polling, usize)> {
        let mut groups = Vec::new();
        for wire in self.wires {
            for polling in self.pollings {
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
    fn what_one_process_says_the_other_understands() {
        let grid = Grid {
            modes: &Mode::ALL,
            wires: &WireKind::ALL,
            pollings: &Polling::ALL,
            connections: &[1, 32],
            bytes: &[1, 64],
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
