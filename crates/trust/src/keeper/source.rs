//! Selects the source of the files that a thread reads.

use std::cell::RefCell;

use super::record::FileRecord;

thread_local! {
    pub(super) static SOURCE: RefCell<FileSource> = const { RefCell::new(FileSource::Disk) };
}

/// The source of the files that the calling thread reads.
pub(super) enum FileSource {
    Disk,
    /// Reads from disk and records every answer.
    Recording(FileRecord),
    /// Answers from the keeper's record.
    Recorded(FileRecord),
}

pub(super) fn record_reads(load: &dyn Fn()) -> FileRecord {
    match with_source(FileSource::Recording(FileRecord::default()), load).1 {
        FileSource::Recording(record) => record,
        FileSource::Disk | FileSource::Recorded(_) => FileRecord::default(),
    }
}

pub(super) fn with_source<T>(source: FileSource, run: impl FnOnce() -> T) -> (T, FileSource) {
    /// Restores the source also if `run` panics, because the thread may continue.
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            SOURCE.set(FileSource::Disk);
        }
    }
    SOURCE.set(source);
    let restore = Restore;
    let done = run();
    let source = SOURCE.replace(FileSource::Disk);
    drop(restore);
    (done, source)
}
