//! The new flows that a connection takes.

use super::Connection;

/// The new flows that a connection takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NewFlows {
    /// All flows of the client.
    #[default]
    All,
    /// Client: the server drains (PROTOCOL CONTROL-8). It takes flows for which there is no other server.
    WithoutOther,
    /// Client: the server has refused a flow because it drains, and that flow is to leave the connection.
    Refused,
    /// Client: the server refuses flows because it drains. It keeps those that it has.
    Kept,
    /// None: the connection is replaced, and is closed once it has no flows.
    Retired,
}

impl Connection {
    /// Returns whether the connection answers and takes new flows, of clients that have no other server.
    pub(crate) fn is_usable(&self) -> bool {
        self.is_intact() && self.takes_flows()
    }

    /// Returns whether the connection takes new flows even if there are other servers: its server has admitted this
    /// client, and answers.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_answering() && self.takes_flows()
    }

    fn takes_flows(&self) -> bool {
        matches!(self.new_flows, NewFlows::All | NewFlows::WithoutOther)
    }

    /// Client: returns whether the server drains.
    pub(crate) fn is_draining(&self) -> bool {
        matches!(
            self.new_flows,
            NewFlows::WithoutOther | NewFlows::Refused | NewFlows::Kept
        )
    }

    /// Client: notes that the server drains, and whether it has `refused` a flow for that reason.
    pub(crate) fn note_draining(&mut self, refused: bool) {
        if !self.is_retired() {
            self.new_flows = if refused {
                NewFlows::Refused
            } else {
                NewFlows::WithoutOther
            };
        }
    }

    /// Client: returns whether a flow that the server has refused is to leave the connection.
    pub(crate) fn has_refused(&self) -> bool {
        self.new_flows == NewFlows::Refused
    }

    /// Client: notes that the refused flows leave the connection.
    pub(crate) fn note_left(&mut self) {
        self.new_flows = NewFlows::Kept;
    }

    /// Returns whether the connection is replaced.
    pub(crate) fn is_retired(&self) -> bool {
        self.new_flows == NewFlows::Retired
    }

    /// Stops taking new flows. Returns false if the connection had stopped before.
    pub(crate) fn retire(&mut self) -> bool {
        std::mem::replace(&mut self.new_flows, NewFlows::Retired) != NewFlows::Retired
    }
}
