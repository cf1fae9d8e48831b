//! Resets do not overtake bytes, in either direction.
//!
//! If the application resets a flow, the user still reads what the application sent before. If the user resets a flow
//! with [`Stack::reset_after_sent`], the application still gets what the user wrote before.

use std::time::{Duration, Instant};

use crate::event::{FlowEnding, FlowError, StackFlowId, StackRead};
use crate::flow::FlowState;
use crate::segment::{ACK, RST};
use crate::stack::Stack;

/// Longest time for which a reset waits for bytes: as for a tunnel's flow whose connection is lost.
const WAIT_MAX: Duration = Duration::from_mins(10);

/// The application has reset the flow, and the user has not read everything yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnreadReset {
    /// The application had finished before it reset the flow.
    finished: bool,
    pub(crate) until: Instant,
}

impl Stack {
    /// Handles the application's reset. `finished` tells whether the application had finished before.
    pub(crate) fn handle_reset(&mut self, now: Instant, index: usize, finished: bool) {
        let flow = &mut self.flows[index];
        let FlowState::Awake(socket) = &flow.state else {
            return self.end(index, FlowEnding::Reset, false);
        };
        let unread = socket.tcp().recv_queue() > 0 || finished && !flow.read_end;
        if !flow.open || !unread || flow.doomed.is_some() {
            return self.end(index, FlowEnding::Reset, false);
        }
        let until = now + WAIT_MAX;
        flow.reset = Some(UnreadReset { finished, until });
        self.notify(index);
        self.mark(index);
    }

    /// Answers a segment that arrives after the application's own reset.
    pub(crate) fn refuse_after_reset(&mut self, index: usize, is_reset: bool) {
        if !is_reset {
            let reply = self.flows[index].empty_segment(RST | ACK, 0);
            self.reply(reply);
        }
    }

    /// Ends a flow that the application has reset, after everything before the reset was read.
    pub(crate) fn end_unread(
        &mut self,
        index: usize,
        reset: UnreadReset,
    ) -> Result<StackRead, FlowError> {
        let ends = reset.finished && !self.flows[index].read_end;
        self.end(index, FlowEnding::Reset, false);
        if ends {
            Ok(StackRead::Finished)
        } else {
            Err(FlowError::Gone)
        }
    }

    /// Resets the flow as soon as the application has acknowledged everything that was written. No event follows, and
    /// the flow no longer exists for the user.
    pub fn reset_after_sent(&mut self, now: Instant, id: StackFlowId) -> Result<(), FlowError> {
        let index = self.find(id)?;
        let flow = &mut self.flows[index];
        if !flow.open || flow.reset.is_some() || !flow.has_unsent() {
            return self.reset(id);
        }
        flow.doomed = Some(now + WAIT_MAX);
        self.mark(index);
        Ok(())
    }

    /// Resets a flow that waits for its last bytes, if the application has acknowledged them, or if the time is over.
    /// Returns whether it has.
    pub(crate) fn end_doomed(&mut self, now: Instant, index: usize) -> bool {
        let flow = &self.flows[index];
        let over = flow
            .doomed
            .is_some_and(|until| until <= now || !flow.has_unsent());
        if over {
            self.drop_flow(index);
        }
        over
    }
}
