//! Where a thread finds the files that it reads.

use std::cell::RefCell;

use super::record::Record;

thread_local! {
    pub(super) static SOURCE: RefCell<Source> = const { RefCell::new(Source::Disk) };
}

/// Where the calling thread's reads look.
pub(super) enum Source {
    Disk,
    /// On disk, and what is found is noted.
    Noted(Record),
    /// What the keeper has found.
    Kept(Record),
}

pub(super) fn noted(load: &dyn Fn()) -> Record {
    match with_source(Source::Noted(Record::default()), load).1 {
        Source::Noted(record) => record,
        Source::Disk | Source::Kept(_) => Record::default(),
    }
}

pub(super) fn with_source<T>(source: Source, run: impl FnOnce() -> T) -> (T, Source) {
    /// Also where `run` panics: the thread may go on.
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
