//! The dimensions of the fault matrix, and what the applications do in each phase.

use clap::ValueEnum;

use super::script::{Script, Step};

/// Which process it happens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Process {
    /// `quictun-server`, or `quictun server` with a device.
    Server,
    /// `quictun-client`, or the client behind a device.
    Client,
    /// The one with the network stack behind a device.
    Netstackd,
    /// The one that holds a device, and started the two others.
    Supervisor,
}

/// What happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Fault {
    /// Nothing: what the others are held against.
    None,
    /// SIGTERM: it drains.
    Term,
    /// SIGKILL.
    Kill,
    /// SIGSTOP, and SIGCONT after a while.
    Stop,
    /// The kernel kills it for want of memory.
    Oom,
}

/// What the connection is doing just then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Phase {
    /// Nothing; a request and its reply follow.
    Idle,
    /// The application uploads, and waits for a receipt.
    Up,
    /// The application downloads, and sends a receipt.
    Down,
    /// The application has sent FIN, and downloads.
    HalfClosed,
    /// The target has sent FIN, and the application uploads.
    TargetHalfClosed,
    /// The target does not accept yet.
    Opening,
}

/// Kind of the applications' sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Sockets {
    /// TCP at both ends.
    Tcp,
    /// Unix sockets at both ends.
    Unix,
    /// TCP through a device at the near end.
    Tun,
}

/// One connection and one fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// To whom.
    pub process: Process,
    /// What.
    pub fault: Fault,
    /// When.
    pub phase: Phase,
    /// Between which applications.
    pub sockets: Sockets,
}

/// Requests, replies and receipts.
const SMALL: u64 = 1000;
/// A transfer under which something happens: more than sockets hold.
const BULK: u64 = 6_000_000;
/// Of it, what has arrived by then.
const BEFORE: u64 = 500_000;

impl Phase {
    /// What the application at the near end does, and what the target does. One of them holds where the fault comes.
    pub fn scripts(self) -> [Script; 2] {
        use Step::{End, Finish, Hold, Receive, ReceiveSlowly, Send};
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
