//! The datagrams of programs that have arrived at a socket: some of them in each turn.

use std::collections::BTreeSet;
use std::io;

use bytes::Bytes;
use quictun_engine::{FlowId, Role};

use crate::role::WorkerContext;

/// Datagrams taken from one socket before other sockets have their turn.
const BURST: usize = 64;

/// Bytes taken from one socket in that time: as many as the engine takes of one flow. The socket keeps the rest.
const BURST_BYTES: usize = 32 * 1024;

/// Takes datagrams by `receive`, which also returns their addresses. `take` returns the flow into whose inbox it has put a
/// datagram. The engine then reads these inboxes.
pub(crate) fn take_datagrams<R: Role, A>(
    cx: &mut WorkerContext<'_, R>,
    receive: impl Fn() -> io::Result<(Bytes, A)>,
    mut take: impl FnMut(&mut WorkerContext<'_, R>, Bytes, A) -> Option<FlowId>,
) {
    let mut ready = BTreeSet::new();
    let mut taken = 0;
    for _ in 0..BURST {
        if taken >= BURST_BYTES {
            break;
        }
        match receive() {
            Ok((payload, addresses)) => {
                taken += payload.len();
                ready.extend(take(cx, payload, addresses));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            // A program has refused an earlier datagram. It may have ended.
            Err(_) => {}
        }
    }
    for flow in ready {
        cx.engine.handle_socket(cx.now, flow, true, false, false);
    }
}
