//! The transcript: a record of a run as text.

use std::fmt;
use std::time::Duration;

use quictun_engine::report::ServerId;
use quictun_engine::{ClientEvent, EngineEvent, Event, ServerEvent};

use crate::seed::Seed;

/// The level of detail of a transcript.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TranscriptDetail {
    /// Only the changes that the test makes to the network, such as faults.
    Nothing,
    /// The events of engines and the notes of guests as well.
    #[default]
    Events,
    /// Every datagram as well.
    Datagrams,
}

/// The record of a run. Each line has a time, a host and an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transcript {
    lines: Vec<(Duration, String, String)>,
    detail: TranscriptDetail,
}

impl Transcript {
    /// Creates an empty transcript. It keeps datagrams if the run must leave evidence.
    pub(crate) fn of(seed: &Seed) -> Self {
        let detail = seed.evidence().map(|_| TranscriptDetail::Datagrams);
        Self {
            lines: Vec::new(),
            detail: detail.unwrap_or_default(),
        }
    }

    pub(crate) fn set_detail(&mut self, detail: TranscriptDetail) {
        self.detail = detail;
    }

    pub(crate) fn keeps(&self, detail: TranscriptDetail) -> bool {
        self.detail >= detail
    }

    pub(crate) fn note(&mut self, at: Duration, host: &str, what: String) {
        self.lines.push((at, host.to_owned(), what));
    }

    /// Returns the number of lines.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns true if the transcript has no lines.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns a transcript of the last `count` lines.
    #[must_use]
    pub fn tail(&self, count: usize) -> Self {
        Self {
            lines: self.lines[self.lines.len().saturating_sub(count)..].to_vec(),
            detail: self.detail,
        }
    }
}

impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, host, what) in &self.lines {
            writeln!(f, "{:>12.6} s  {host:<10} {what}", at.as_secs_f64())?;
        }
        Ok(())
    }
}

/// Formats an event as a transcript line. The line contains nothing that differs between two runs of one seed.
pub(crate) fn describe(event: &EngineEvent) -> Option<String> {
    let line = match event {
        // The values of this event change with every change of a controller's arithmetic.
        EngineEvent::Shared(Event::Congestion(_)) => return None,
        EngineEvent::Client(ClientEvent::Resolve {
            server: ServerId(0),
            ..
        }) => "wants the server's addresses".to_owned(),
        EngineEvent::Shared(Event::Connected {
            connection,
            remote,
            protocol,
            ..
        }) => {
            format!(
                "connection {:x} to {remote} is up: {protocol:?}",
                connection.0
            )
        }
        EngineEvent::Client(ClientEvent::ConnectFailed {
            remote,
            reason,
            retry_in,
            ..
        }) => {
            format!("no connection to {remote:?}: {reason}; again in {retry_in:?}")
        }
        EngineEvent::Server(ServerEvent::HandshakeFailed { remote, reason }) => {
            format!("no handshake with {remote}: {reason}")
        }
        EngineEvent::Shared(Event::Disconnected {
            connection,
            reason,
            flows,
            ..
        }) => {
            format!(
                "connection {:x} is gone: {reason}; {flows} flows reset",
                connection.0
            )
        }
        EngineEvent::Shared(Event::Unresponsive { connection, .. }) => {
            format!("connection {:x} does not answer", connection.0)
        }
        EngineEvent::Shared(Event::Responsive { connection, .. }) => {
            format!("connection {:x} answers again", connection.0)
        }
        EngineEvent::Shared(Event::Migrated {
            connection,
            from,
            to,
        }) => {
            format!("connection {:x} moved from {from} to {to}", connection.0)
        }
        EngineEvent::Server(ServerEvent::Open(opened)) => {
            format!("flow {:x} wants {:?}", opened.flow.0, opened.token)
        }
        EngineEvent::Shared(Event::Established { flow, stream_id }) => {
            format!("flow {:x} is established on stream {stream_id}", flow.0)
        }
        EngineEvent::Shared(Event::FlowClosed(summary)) => format!(
            "flow {:x} to {:?} is over: {:?}; {} bytes in, {} bytes out",
            summary.flow.0,
            summary.token,
            summary.ending,
            summary.bytes_to_tunnel,
            summary.bytes_to_app
        ),
        EngineEvent::Shared(other) => format!("{other:?}"),
        EngineEvent::Client(other) => format!("{other:?}"),
        EngineEvent::Server(other) => format!("{other:?}"),
    };
    Some(line)
}
