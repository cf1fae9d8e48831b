//! Selects the source of the files that a thread reads.

use std::cell::RefCell;

use super::record::Record;

thread_local! {
    pub(super) static SOURCE: RefCell<Source> = const { RefCell::new(Source::Disk) };
}

/// The source of the files that the calling thread reads.
pub(super) enum Source {
    Disk,
    /// Reads from disk and records every answer.
    Noted(Record),
    /// Answers from the keeper's record.
    Kept(Record),
}

pub(super) fn noted(load: &dyn Fn()) -> Record {
    match with_source(Source::Noted(Record::default()), load).1 {
        Source::Noted(record) => record,
        Source::Disk | Source::Kept(_) => Record::default(),
    }
}

pub(super) fn with_source<T>(source: Source, run: impl FnOnce() -> T) -> (T, Source) {
    /// Restores the source also if `run` panics, because the thread may continue.
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            SOURCE.set(Source::Disk);
        }
    }
    SOURCE.set(source);
    let restore = Restore;
    let done = run();
    let source = SOURCE.replace(Source::Disk);
    drop(restore);
    (done, source)
}
