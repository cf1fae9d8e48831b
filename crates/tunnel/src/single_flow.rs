//! The single flow of a process that runs only for it: `quictun connect`.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use quictun_control::flow_log;
use quictun_control::settings::Phrases;
use quictun_engine::{Client, Ending, FlowId};
use quictun_wire::target::Target;

use crate::app_socket::AppSocket;
use crate::flow_source::{FlowEnd, FlowSource, FlowToOpen};
use crate::role::{ClientContext, WorkerPart};

/// The flow's outcome, for the thread that waits for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowOutcome(Arc<Mutex<Option<Result<(), String>>>>);

/// The flow, and the socket of its application.
#[derive(Debug)]
pub(crate) struct SingleFlow {
    socket: Option<UnixStream>,
    token: String,
    flow: Option<FlowId>,
    outcome: FlowOutcome,
    over: bool,
    phrases: Phrases,
}

impl FlowOutcome {
    /// Sets the outcome. A success never replaces an earlier error.
    fn set(&self, outcome: Result<(), String>) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*held, Some(Err(_))) {
            *held = Some(outcome);
        }
    }

    /// Returns the outcome. The error says why the flow did not end as both sides intended.
    pub(crate) fn take(&self) -> Result<(), String> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = || Err("the program ended before the flow was over".to_owned());
        held.take().unwrap_or_else(ended)
    }
}

impl SingleFlow {
    pub(crate) fn new(
        socket: UnixStream,
        target: &Target,
        outcome: FlowOutcome,
        phrases: Phrases,
    ) -> Self {
        Self {
            socket: Some(socket),
            token: target.to_string(),
            flow: None,
            outcome,
            over: false,
            phrases,
        }
    }

    fn end(&mut self, outcome: Result<(), String>) {
        self.over = true;
        self.outcome.set(outcome);
    }
}

impl WorkerPart for SingleFlow {
    type Role = Client;

    fn start(&mut self, cx: &mut ClientContext<'_>) -> io::Result<()> {
        let Some(socket) = self.socket.take() else {
            return Ok(());
        };
        match AppSocket::unix(socket) {
            Ok(socket) => {
                let asked = FlowToOpen::new(socket, self.token.clone());
                self.flow = asked.open(cx, self.phrases, None);
                if self.flow.is_none() {
                    self.end(Err("no memory for another flow".to_owned()));
                }
            }
            Err(error) => self.end(Err(format!("the application's socket failed: {error}"))),
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.over
    }

    fn handle_unconfirmed(&mut self) {
        let why = "the server has not confirmed that everything has arrived";
        self.end(Err(why.to_owned()));
    }
}

impl FlowSource for SingleFlow {
    fn handle_closed(&mut self, _: &mut ClientContext<'_>, end: &FlowEnd<'_>) {
        if self.flow == Some(end.summary.flow) {
            self.end(match end.summary.ending {
                Ending::Finished => Ok(()),
                ending => Err(flow_log::reason(ending, end.unreachable)),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unconfirmed_or_unfinished_flow_is_an_error() {
        assert!(FlowOutcome::default().take().is_err());
        let outcome = FlowOutcome::default();
        outcome.set(Ok(()));
        assert_eq!(outcome.take(), Ok(()));
        outcome.set(Ok(()));
        outcome.set(Err("lost".to_owned()));
        outcome.set(Ok(()));
        assert_eq!(outcome.take(), Err("lost".to_owned()));
    }
}
