//! The files of `--qlog-dir`: one for each connection, for qvis and similar tools.
//!
//! The files contain sizes and times of packets, not their content. All files of one process together have at most
//! [`BYTES_MAX`] bytes, so that peers that open connections cannot fill the disk.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use quictun_engine::report::Side;
use quictun_engine::{TraceWriter, Tracer};
use tracing::warn;

/// Maximum size of all files together, bytes.
const BYTES_MAX: u64 = 1 << 30;

/// Maximum number of files, because even an empty file takes space.
const FILES_MAX: u64 = 10_000;

#[derive(Debug)]
struct Budget {
    bytes: AtomicU64,
    files: AtomicU64,
    warned: AtomicBool,
}

impl Budget {
    /// Takes `count` from the remaining budget, or logs once that recording stops.
    fn take(&self, left: &AtomicU64, count: u64) -> bool {
        let taken = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(count));
        if taken.is_err() {
            self.warn_once("the records have reached their limit of 1 GiB or 10000 files");
        }
        taken.is_ok()
    }

    fn warn_once(&self, why: &str) {
        if !self.warned.swap(true, Relaxed) {
            warn!(target: "quictun", "qlog: {why}: nothing more is recorded until a restart");
        }
    }
}

pub(crate) fn tracer(directory: &Path) -> Result<Tracer> {
    let shown = directory.display();
    ensure!(
        directory.is_dir(),
        "--qlog-dir {shown}: there is no such directory; make it first"
    );
    let directory = directory.to_owned();
    let budget = Arc::new(Budget {
        bytes: AtomicU64::new(BYTES_MAX),
        files: AtomicU64::new(FILES_MAX),
        warned: AtomicBool::new(false),
    });
    // Detects an unusable directory at the start, rather than when a user looks for the records.
    let probe = directory.join(format!(".quictun-{}", std::process::id()));
    create(&probe)
        .and_then(|_| std::fs::remove_file(&probe))
        .with_context(|| format!("--qlog-dir {shown}: cannot write there"))?;
    Ok(Arc::new(move |remote, side| {
        if !budget.take(&budget.files, 1) {
            return None;
        }
        let number = FILES_MAX - budget.files.load(Relaxed);
        let path = directory.join(name(remote, side, number));
        match create(&path) {
            Ok(file) => Some(Box::new(RecordFile {
                file: BufWriter::new(file),
                budget: budget.clone(),
            }) as TraceWriter),
            Err(error) => {
                budget.warn_once(&format!("{}: {error}", path.display()));
                None
            }
        }
    }))
}

/// Returns the name `TIME-SIDE-PEER-PROCESS-NUMBER.sqlog`, which sorts by time.
fn name(remote: SocketAddr, side: Side, number: u64) -> String {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = time.map_or(0, |time| time.as_secs());
    let side = match side {
        Side::Client => "to",
        Side::Server => "from",
    };
    let peer = remote.to_string().replace([':', '[', ']', '%'], "_");
    let process = std::process::id();
    format!("{seconds}-{side}-{peer}-{process}-{number}.sqlog")
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

/// The file of one connection, limited by the common budget.
struct RecordFile {
    file: BufWriter<File>,
    budget: Arc<Budget>,
}

impl Write for RecordFile {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        if !self.budget.take(&self.budget.bytes, record.len() as u64) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let written = self.file.write_all(record);
        if let Err(error) = &written {
            self.budget.warn_once(&error.to_string());
        }
        written.map(|()| record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote() -> SocketAddr {
        "[::1]:4433".parse().expect("an address")
    }

    #[test]
    fn each_connection_has_a_file_that_only_its_owner_reads() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a directory");
        let tracer = tracer(directory.path()).expect("a directory to write to");
        for side in [Side::Client, Side::Server] {
            let mut file = tracer(remote(), side).expect("a file");
            file.write_all(b"{}\n").expect("room");
        }
        let files: Vec<_> = std::fs::read_dir(directory.path())
            .expect("a directory")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        assert_eq!(files.len(), 2, "{files:?}");
        for file in files {
            assert_eq!(std::fs::read(&file).expect("a file"), b"{}\n");
            let mode = std::fs::metadata(&file)
                .expect("a file")
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn a_directory_that_is_not_writable_is_an_error_at_start() {
        let directory = tempfile::tempdir().expect("a directory");
        let missing = directory.path().join("missing");
        let error = tracer(&missing).err().expect("no directory").to_string();
        assert!(error.contains("make it first"), "{error}");
    }

    #[test]
    fn records_end_with_the_budget() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("x");
        let budget = Arc::new(Budget {
            bytes: AtomicU64::new(10),
            files: AtomicU64::new(1),
            warned: AtomicBool::new(false),
        });
        let mut records = RecordFile {
            file: BufWriter::new(create(&path).expect("a file")),
            budget: budget.clone(),
        };
        records.write_all(b"12345678\n").expect("room");
        records.write_all(b"12\n").expect_err("no room");
        records.write_all(b"\n").expect("room");
        drop(records);
        assert_eq!(std::fs::read(&path).expect("a file"), b"12345678\n\n");
        assert!(budget.warned.load(Relaxed));
    }
}
