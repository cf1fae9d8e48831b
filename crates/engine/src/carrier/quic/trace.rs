//! Traces of connections as qlog (draft-ietf-quic-qlog-main-schema, JSON text sequences of RFC 7464).
//!
//! Packets and recovery metrics are the library's events. Between them, `quictun:congestion` records the controller's
//! view of the path and the factor that limits sending, at every change and ten times a second.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quictun_congestion::Gauge;
use quinn_proto::{QlogConfig, QlogStream};

use crate::config::TraceWriter;
use crate::report::{SendLimit, Side};

/// Time after which the controller's view is recorded again although nothing has changed.
const NOTE_EVERY: Duration = Duration::from_millis(100);

/// The state that is recorded at every change: phase, limit, and whether the path has answered.
type State = (&'static str, SendLimit, bool);

pub(super) struct Trace {
    records: Records,
    start: Instant,
    noted: Option<(Instant, State)>,
}

impl Trace {
    pub(super) fn new(writer: TraceWriter, side: Side, now: Instant) -> (Self, Option<QlogStream>) {
        let records = Records(Arc::new(Mutex::new(RecordBuffer {
            pending: Vec::new(),
            writer: Some(writer),
        })));
        let mut config = QlogConfig::default();
        config
            .writer(Box::new(records.clone()))
            .title(Some(format!("quictun {}", title(side))))
            .start_time(now);
        let trace = Self {
            records,
            start: now,
            noted: None,
        };
        (trace, config.into_stream())
    }

    /// Records the controller's view, if it is new or some time has passed.
    pub(super) fn note(&mut self, now: Instant, gauge: &Gauge, limit: SendLimit) {
        let view = gauge.view();
        let state = (view.phase, limit, view.min_rtt.is_some());
        if let Some((at, noted)) = self.noted
            && noted == state
            && now.saturating_duration_since(at) < NOTE_EVERY
        {
            return;
        }
        self.noted = Some((now, state));
        let limits = gauge.limits();
        let time = now.saturating_duration_since(self.start).as_secs_f64() * 1e3;
        let rate = limits
            .rate
            .map_or("null".to_owned(), |rate| format!("{:.0}", rate * 8.0));
        let min_rtt = view.min_rtt.map_or("null".to_owned(), |rtt| {
            format!("{:.3}", rtt.as_secs_f64() * 1e3)
        });
        let record = format!(
            "\u{1e}{{\"time\":{time:.3},\"name\":\"quictun:congestion\",\"data\":{{\"mode\":\"{}\",\"phase\":\"{}\",\"limited_by\":\"{}\",\"bandwidth\":{:.0},\"min_rtt\":{min_rtt},\"loss_floor\":{:.5},\"trust\":{:.3},\"congestion_window\":{},\"bytes_in_flight\":{},\"pacing_rate\":{rate}}}}}\n",
            view.mode,
            view.phase,
            limit.name(),
            view.bandwidth * 8.0,
            view.loss_floor,
            view.trust,
            limits.window,
            gauge.in_flight(),
        );
        self.records.append(record.as_bytes());
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").finish_non_exhaustive()
    }
}

fn title(side: Side) -> &'static str {
    match side {
        Side::Client => "client",
        Side::Server => "server",
    }
}

/// A writer that the library and the engine share. It joins the parts in which the library writes its records.
#[derive(Clone)]
struct Records(Arc<Mutex<RecordBuffer>>);

struct RecordBuffer {
    pending: Vec<u8>,
    /// `None` if the writer has failed.
    writer: Option<TraceWriter>,
}

/// Limit for the length of a record. Longer data is not a record.
const RECORD_MAX: usize = 64 * 1024;

impl Records {
    fn append(&self, part: &[u8]) {
        let mut buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let RecordBuffer { pending, writer } = &mut *buffer;
        let Some(to) = writer else { return };
        pending.extend_from_slice(part);
        if !pending.ends_with(b"\n") {
            if pending.len() > RECORD_MAX {
                *writer = None;
            }
            return;
        }
        if to.write_all(pending).is_err() {
            *writer = None;
        }
        pending.clear();
    }
}

impl Write for Records {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.append(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
