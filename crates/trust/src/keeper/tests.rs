use std::fs;

use super::record::FileRecord;
use super::source::record_reads;
use super::*;

fn load(directory: &Path) -> Vec<Result<Vec<u8>, io::ErrorKind>> {
    let kind = |error: ReadError| match error {
        ReadError::Io(error) => error.kind(),
        ReadError::TooLarge { .. } => io::ErrorKind::FileTooLarge,
        ReadError::NotRegular => io::ErrorKind::Unsupported,
    };
    let content = |name: &str| match read(&directory.join(name), 8) {
        Ok(content) => Ok(content.to_vec()),
        Err(error) => Err(kind(error)),
    };
    let mut seen: Vec<_> = ["whole", "long", "missing"].map(content).into();
    for name in ["whole", "missing", "."] {
        let readable = check_readable(&directory.join(name));
        seen.push(readable.map(|()| Vec::new()).map_err(|error| error.kind()));
    }
    seen
}

#[test]
fn a_reload_sees_what_the_keeper_has_read_and_nothing_later() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("whole"), "12345678").expect("written");
    fs::write(directory.path().join("long"), "123456789").expect("written");
    let before = load(directory.path());
    assert_eq!(
        before,
        [
            Ok(b"12345678".to_vec()),
            Err(io::ErrorKind::FileTooLarge),
            Err(io::ErrorKind::NotFound),
            Ok(Vec::new()),
            Err(io::ErrorKind::NotFound),
            Err(io::ErrorKind::IsADirectory),
        ]
    );
    let path = directory.path().to_owned();
    let record = record_reads(&move || drop(load(&path)));
    let sent = record.encode();
    assert_eq!(sent.len(), sent.capacity(), "the buffer has moved");
    let received = FileRecord::decode(&sent).expect("as it was sent");
    assert!(received == record);
    fs::write(directory.path().join("whole"), "another").expect("written");
    fs::write(directory.path().join("missing"), "here").expect("written");
    let (seen, _) = with_source(FileSource::Recorded(received), || load(directory.path()));
    assert_eq!(seen, before);
    assert_eq!(load(directory.path())[0], Ok(b"another".to_vec()));
}

#[test]
fn a_file_that_the_keeper_did_not_read_is_missing() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let (seen, _) = with_source(FileSource::Recorded(FileRecord::default()), || {
        read(file.path(), 8)
    });
    let error = seen.expect_err("the keeper has not read it");
    assert!(error.to_string().contains("reload once more"), "{error}");
}

#[test]
fn a_truncated_record_is_refused() {
    let mut record = FileRecord::default();
    record.note_content(Path::new("/a"), &Ok(Zeroizing::new(b"secret".to_vec())));
    record.note_readable(Path::new("/b"), &Err(io::ErrorKind::NotFound.into()));
    let sent = record.encode();
    let whole = [0, 1 + 4 + 2 + 4 + 6, sent.len()];
    for length in 0..=sent.len() {
        let decoded = FileRecord::decode(&sent[..length]);
        assert_eq!(decoded.is_ok(), whole.contains(&length), "{length}");
    }
    let mut unknown = sent.to_vec();
    unknown[0] = 9;
    assert!(FileRecord::decode(&unknown).is_err());
}

fn fifo(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.expect("mkfifo runs").success());
}

// SECURITY-MODEL, local user. If a read waited, the test would not end.
#[test]
fn entries_that_are_not_regular_files_are_named_without_waiting() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = |name: &str| directory.path().join(name);
    fifo(&place("pipe"));
    std::os::unix::fs::symlink("pipe", place("to-pipe")).expect("a link");
    std::os::unix::fs::symlink("circle", place("circle")).expect("a link");
    std::os::unix::fs::symlink("/dev/zero", place("device")).expect("a link");
    let _listener = std::os::unix::net::UnixListener::bind(place("socket")).expect("a socket");
    fs::create_dir(place("directory")).expect("a directory");
    fs::write(place("regular"), "text").expect("a file");
    let seen = |name: &str| match read_entry(&place(name), 8) {
        Ok(content) => String::from_utf8_lossy(&content).into_owned(),
        Err(error) => error.to_string(),
    };
    let not_regular = ReadError::NotRegular.to_string();
    for name in ["pipe", "to-pipe", "device", "socket"] {
        assert_eq!(seen(name), not_regular, "{name}");
    }
    assert!(seen("directory").contains("Is a directory"));
    assert!(seen("circle").contains("symbolic links"));
    assert_eq!(seen("regular"), "text");
    // The keeper records what it has not read, whatever the main process may read at its start.
    let path = place("pipe");
    let record = record_reads(&move || drop(read(&path, 8)));
    let record = FileRecord::decode(&record.encode()).expect("as it was sent");
    let (seen, _) = with_source(FileSource::Recorded(record), || read(&place("pipe"), 8));
    assert!(matches!(seen, Err(ReadError::NotRegular)), "{seen:?}");
}

#[test]
fn at_the_start_a_file_may_be_a_pipe_with_a_writer() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pipe");
    fifo(&path);
    let content = std::thread::scope(|scope| {
        scope.spawn(|| fs::write(&path, "secret").expect("a reader"));
        read(&path, 8).expect("a writer").to_vec()
    });
    assert_eq!(content, b"secret");
}
