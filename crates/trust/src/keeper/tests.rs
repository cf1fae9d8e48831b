use std::fs;

use super::record::FileRecord;
use super::source::record_reads;
use super::*;

fn load(directory: &Path) -> Vec<Result<Vec<u8>, io::ErrorKind>> {
    let kind = |error: ReadError| match error {
        ReadError::Io(error) => error.kind(),
        ReadError::TooLarge { .. } => io::ErrorKind::FileTooLarge,
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
