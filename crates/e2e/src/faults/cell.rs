//! The dimensions of the fault matrix, and the scripts of the applications in each phase.

use clap::ValueEnum;

use super::script::{Script, ScriptStep};

/// The process that the fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Process {
    /// `quictun-server`, or `quictun server` with a device.
    Server,
    /// `quictun-client`, or the client process behind a device.
    Client,
    /// The process with the network stack behind a device.
    Netstackd,
    /// The process that holds a device and has started the two others.
    Supervisor,
    /// The process that opens files for the server.
    ServerKeeper,
    /// The process that opens files for the client.
    ClientKeeper,
}

/// The fault that a process suffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum ProcessFault {
    /// No fault: the baseline for the others.
    None,
    /// SIGTERM: the process drains.
    Term,
    /// SIGKILL: the process ends at once.
    Kill,
    /// SIGSTOP, followed by SIGCONT after a while.
    Stop,
    /// The kernel kills the process because memory has run out.
    Oom,
    /// The cable between both hosts is cut, and joined after a while. It hits no process.
    Cut,
    /// A new process takes over (`--take-over`).
    Upgraded,
    /// A new process takes everything, and fails before it has committed: the old one goes on.
    RolledBack,
}

/// The state of the connection when the fault occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Phase {
    /// No data is in flight; a request and its reply follow.
    Idle,
    /// The application uploads and waits for a receipt.
    Up,
    /// The application downloads and sends a receipt.
    Down,
    /// The application has sent FIN and downloads.
    HalfClosed,
    /// The target has sent FIN and the application uploads.
    TargetHalfClosed,
    /// The target does not accept connections yet.
    Opening,
}

impl Process {
    /// Returns whether the process only opens files for another one. No flow passes through it.
    pub(crate) fn is_keeper(self) -> bool {
        matches!(self, Self::ServerKeeper | Self::ClientKeeper)
    }
}

/// The kind of the applications' sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Sockets {
    /// TCP at both ends.
    Tcp,
    /// Unix sockets at both ends.
    Unix,
    /// TCP, through a device at the near end.
    Tun,
    /// TCP at both ends, of a tunnel over TLS between two hosts.
    Tls,
}

/// One connection and one fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FaultCell {
    /// The process that the fault hits.
    pub process: Process,
    /// The fault that occurs.
    pub fault: ProcessFault,
    /// The state of the connection when the fault occurs.
    pub phase: Phase,
    /// The kind of the applications' sockets.
    pub sockets: Sockets,
}

/// The size of requests, replies and receipts, in bytes.
const SMALL: u64 = 1000;
/// The size in bytes of a transfer during which the fault occurs: more than socket buffers hold.
const BULK: u64 = 6_000_000;
/// The bytes of that transfer that have arrived when the fault occurs.
const BEFORE: u64 = 500_000;

impl Phase {
    /// Returns the scripts of the application at the near end and of the target. One of them pauses
    /// ([`ScriptStep::Hold`]) until the fault has occurred.
    pub fn scripts(self) -> [Script; 2] {
        use ScriptStep::{End, Finish, Hold, Receive, ReceiveSlowly, Send};
        let bulk = vec![Receive(BEFORE), Hold, ReceiveSlowly(BULK - BEFORE), End];
        let small = vec![Receive(SMALL), End];
        let last = |bytes| vec![Send(bytes), Finish];
        match self {
            Self::Idle => [
                [vec![Send(1), Receive(1), Hold], last(SMALL), small.clone()].concat(),
                [vec![Receive(1), Send(1)], small, last(SMALL)].concat(),
            ],
            Self::Up => [[last(BULK), small].concat(), [bulk, last(SMALL)].concat()],
            Self::Down => [
                [vec![Send(SMALL)], bulk, last(SMALL)].concat(),
                [vec![Receive(SMALL)], last(BULK), small].concat(),
            ],
            Self::HalfClosed => [[last(SMALL), bulk].concat(), [small, last(BULK)].concat()],
            Self::TargetHalfClosed => [[small, last(BULK)].concat(), [last(SMALL), bulk].concat()],
            Self::Opening => [
                [last(SMALL), vec![Hold], small.clone()].concat(),
                [small, last(SMALL)].concat(),
            ],
        }
    }
}
