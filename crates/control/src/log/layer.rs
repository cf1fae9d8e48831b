//! The `tracing` layer: collects the fields of an event and its spans into a line, and queues the line.

use jiff::Timestamp;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, Scope};

use super::line::{LogFields, LogLine, caller};
use super::writer::LogQueue;

/// Writes events as lines into the queue. `clock` returns the wall clock's time; tests pass a fixed one.
#[derive(Debug)]
pub(super) struct LogLayer {
    clock: fn() -> Timestamp,
    queue: LogQueue,
}

impl LogLayer {
    pub(super) fn new(clock: fn() -> Timestamp, queue: LogQueue) -> Self {
        Self { clock, queue }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for LogLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = LogFields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<LogFields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = LogFields::default();
        for span in context
            .event_scope(event)
            .into_iter()
            .flat_map(Scope::from_root)
        {
            if let Some(of_span) = span.extensions().get::<LogFields>() {
                fields.extend(of_span);
            }
        }
        event.record(&mut fields);
        let message = fields.take_message().unwrap_or_default();
        let metadata = event.metadata();
        let line = LogLine {
            at: (self.clock)(),
            level: *metadata.level(),
            caller: caller(metadata),
            message: &message,
            fields: &fields,
        };
        self.queue.push(|format| format.write(&line));
    }
}
