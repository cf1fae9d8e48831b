//! Counts the log lines that a test causes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};

use tracing::{Metadata, Subscriber, span};

/// A subscriber that drops all log lines and keeps their number.
struct LineCounter(Arc<AtomicUsize>);

impl Subscriber for LineCounter {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Returns the number of lines that `act` logs on this thread.
pub(crate) fn count_lines(act: impl FnOnce()) -> usize {
    // A place in the code that logs for the first time on a thread without a subscriber may stay silent for all threads
    // if a subscriber is created in the same moment. With one for the whole process there is no such thread.
    static FOR_ALL_THREADS: Once = Once::new();
    FOR_ALL_THREADS.call_once(|| {
        let set = tracing::subscriber::set_global_default(LineCounter(Arc::default()));
        set.expect("no other subscriber is set in these tests");
        tracing::callsite::rebuild_interest_cache();
    });
    let lines = Arc::new(AtomicUsize::new(0));
    tracing::subscriber::with_default(LineCounter(lines.clone()), act);
    lines.load(Ordering::Relaxed)
}
