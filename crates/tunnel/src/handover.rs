//! The hand-over of a running server or client to a new process on the same host (`docs/HANDOVER.md`).
//!
//! ```text
//! new process                                old process
//!   TakeOver::of_server, of_client ─────────► HandoverPort::run    versions, addresses
//!   TakeOver::take ─────────────────────────► orders to the workers: each detaches its flows, sends
//!                  ◄──── sockets, document ── their sockets, and waits for the verdict
//!   builds its workers with the flows, confines itself
//!   Commitment::commit ─────────────────────► verdict: the workers end, and let go of the sockets as they are
//!   runs its workers ◄─────────── RELEASED ──
//! ```
//!
//! A flow belongs to the old process until that has sent RELEASED, or is dead, and to the new one from then on. If the
//! new process fails before, the old one's workers go on: clients come back to a server, and a client dials again.

mod asking;
mod forwards;
mod giving;
mod order;
mod sockets;
mod taking;

use std::path::{Path, PathBuf};
use std::time::Duration;

use quictun_wire::handover::HandoverKind;

pub use asking::RunningProcess;
pub(crate) use forwards::TakenForwards;
use forwards::passed_as;
pub(crate) use giving::{Draining, HandoverPort, Offered, OfferedBySide, ReadUsed};
pub(crate) use order::{HandoverOrder, Verdict};
pub(crate) use sockets::{watch, with_sockets};
pub(crate) use taking::{Commitment, TakeOver, TakenBond, TakenFlows, TakenState};

/// Time for each answer of the other process, except those that have limits of their own.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Maximum time for which the old process waits until its flows have settled. Most targets answer sooner. Applications that
/// connect meanwhile wait as long.
const SETTLING_TIME: Duration = Duration::from_secs(1);

/// Time for which the old process hands everything over, and waits until the new one commits. Nothing moves meanwhile.
const COMMIT_TIME: Duration = Duration::from_secs(5);

/// Time for the last message of the old process. There is room for it, unless the new one has stopped to read.
const RELEASE_TIME: Duration = Duration::from_millis(100);

/// Time for which the old process waits until the new one has checked its configuration. It serves meanwhile.
const CHECK_TIME: Duration = Duration::from_mins(1);

/// Time for which workers may count their flows.
const COUNTING_TIME: Duration = Duration::from_secs(1);

/// Time for which the new process waits for the sockets and the document: longer than the old one takes to give up.
const STATE_TIME: Duration = Duration::from_secs(15);

/// Maximum length of the document, bytes. Each process has a budget of its own for the data in it.
const STATE_MAX: usize = 4 << 30;

/// Returns the path of the socket at which a process of this kind with this directory is asked.
fn socket_path(kind: HandoverKind, directory: &Path) -> PathBuf {
    directory.join(match kind {
        HandoverKind::Server => "handover.sock",
        HandoverKind::Client => "client-handover.sock",
    })
}
