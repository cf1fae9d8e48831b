use super::people::Style;
use super::*;
use crate::settings::{LogFormat, Phrases};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use tracing::{debug, error, info, info_span, warn};

/// An output that passes every write to the test, and fails once the test has dropped the receiver.
struct LineSink(Sender<String>);

impl Write for LineSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8(bytes.to_vec()).expect("lines are text");
        self.0.send(text).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lines() -> (LineSink, Receiver<String>) {
    let (sender, receiver) = channel();
    (LineSink(sender), receiver)
}

/// Returns 2026-08-01 12:00:00.123456789 UTC.
fn fixed_clock() -> jiff::Timestamp {
    jiff::Timestamp::new(1_785_585_600, 123_456_789).expect("in range")
}

/// Returns the lines that `emit` logs at debug level, with a clock two hours east of UTC.
fn logged(format: LogFormat, emit: impl FnOnce()) -> String {
    logged_in(format, Style::File, emit)
}

fn logged_in(format: LogFormat, style: Style, emit: impl FnOnce()) -> String {
    let (output, written) = lines();
    let format = LineFormat::new(format, style, TimeZone::fixed(jiff::tz::offset(2)));
    let queue = LogQueue::start(vec![(output, format)]).expect("a thread");
    let layer = LogLayer::new(fixed_clock, queue.clone());
    let subscriber = tracing_subscriber::registry()
        .with("debug".parse::<LogFilter>().expect("a level").0)
        .with(layer);
    tracing::subscriber::with_default(subscriber, emit);
    queue.flush(Duration::from_mins(1));
    written.try_iter().collect()
}

/// Removes the line numbers of this file, so that edits do not break the tests.
fn without_line_numbers(text: &str) -> String {
    let mut parts = text.split("control/log/tests.rs:");
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        result.push_str("control/log/tests.rs:N");
        result.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    result
}

fn emit_everything() {
    let connection = info_span!(
        "connection",
        "Client-Endpoint-Addr" = "10.0.0.7:40000",
        peer = tracing::field::Empty
    );
    let _in_connection = connection.enter();
    connection.record("peer", "alice");
    info!("A new client endpoint connect request accepted.");
    let flow = info_span!("flow", "Stream-ID" = 4_u64, peer = "bob");
    let _in_flow = flow.enter();
    let text = "a \"quoted\"\ttext\nin two lines";
    info!("Server-App-Addr" = %"127.0.0.1:22", ratio = 0.5, ok = true, delta = -3, text, "Handshake successful");
    let source = io::Error::new(io::ErrorKind::ConnectionRefused, "Connection refused");
    let failure = LogError::Thread(source);
    error!(
        error = &failure as &dyn std::error::Error,
        "Failed to dial server app"
    );
    warn!("line one\nline two\u{1b}[31m");
    debug!(
        level = "mine",
        msg = "mine",
        ts = 1,
        "fields may not take the line's own keys"
    );
    warn!(fields_only = true);
    tracing::trace!("not written at debug level");
}

#[test]
fn text_lines_have_the_columns_of_the_original() {
    let got = without_line_numbers(&logged(LogFormat::Console, emit_everything));
    let at = "2026-08-01 14:00:00.123";
    let from = "control/log/tests.rs:N";
    let connection = r#""Client-Endpoint-Addr": "10.0.0.7:40000""#;
    let expected = [
        format!(
            "{at}\tINFO\t{from}\tA new client endpoint connect request accepted.\t{{{connection}, \"peer\": \"alice\"}}"
        ),
        format!(
            "{at}\tINFO\t{from}\tHandshake successful\t{{{connection}, \"peer\": \"bob\", \"Stream-ID\": 4, \
             \"Server-App-Addr\": \"127.0.0.1:22\", \"ratio\": 0.5, \"ok\": true, \"delta\": -3, \
             \"text\": \"a \\\"quoted\\\"\\ttext\\nin two lines\"}}"
        ),
        format!(
            "{at}\tERROR\t{from}\tFailed to dial server app\t{{{connection}, \"peer\": \"bob\", \"Stream-ID\": 4, \
             \"error\": \"cannot start the log thread: Connection refused\"}}"
        ),
        format!(
            "{at}\tWARN\t{from}\tline one\\nline two\\u{{1b}}[31m\t{{{connection}, \"peer\": \"bob\", \"Stream-ID\": 4}}"
        ),
        format!(
            "{at}\tDEBUG\t{from}\tfields may not take the line's own keys\t{{{connection}, \"peer\": \"bob\", \
             \"Stream-ID\": 4, \"level\": \"mine\", \"msg\": \"mine\", \"ts\": 1}}"
        ),
        format!(
            "{at}\tWARN\t{from}\t\t{{{connection}, \"peer\": \"bob\", \"Stream-ID\": 4, \"fields_only\": true}}"
        ),
    ];
    assert_eq!(got, expected.join("\n") + "\n");
}

#[test]
fn a_console_line_without_fields_ends_with_its_message() {
    let got = without_line_numbers(&logged(LogFormat::Console, || info!("Tunnel closed")));
    assert_eq!(
        got,
        "2026-08-01 14:00:00.123\tINFO\tcontrol/log/tests.rs:N\tTunnel closed\n"
    );
}

fn emit_for_people() {
    info!({ "Server-App-Addr" = %"127.0.0.1:22", bytes = 7, "listen address" = "" }, "a tunnel has ended");
    warn!(
        cause = "no answer: \"timed out\"",
        pin = "sha256:a_b-c",
        "cannot connect"
    );
}

fn terminal(colours: bool, columns: usize) -> Style {
    Style::Terminal { colours, columns }
}

#[test]
fn fields_get_their_own_row_when_the_line_is_wider_than_the_terminal() {
    let emit = || {
        let reason = "the server's key is another one than the pin says";
        warn!({ "Server-Endpoint-Addr" = "192.0.2.1:7500", reason }, "cannot connect");
    };
    let got = logged_in(LogFormat::Text, terminal(false, 60), emit);
    let expected = "14:00:00 WARN  cannot connect\n\
                    \x20              server 192.0.2.1:7500\n\
                    \x20              reason \"the server's key is another one than\n\
                    \x20                     the pin says\"\n";
    assert_eq!(got, expected);
    let one_line = logged_in(LogFormat::Text, terminal(false, 200), emit);
    assert_eq!(one_line.lines().count(), 1, "{one_line}");
}

#[test]
fn a_message_that_is_wider_than_the_terminal_is_broken_between_words() {
    let emit = || {
        warn!(
            clients = 0,
            "no client may reach any target: invite one with `quictun invite NAME`"
        );
    };
    let expected = "14:00:00 WARN  no client may reach any\n\
                    \x20              target: invite one with\n\
                    \x20              `quictun invite NAME`\n\
                    \x20              clients 0\n";
    let got = logged_in(LogFormat::Text, terminal(false, 40), emit);
    assert_eq!(got, expected);
    let coloured = logged_in(LogFormat::Text, terminal(true, 40), emit);
    assert_eq!(coloured.lines().count(), 4, "{coloured:?}");
}

#[test]
fn text_lines_fit_terminals_files_and_the_journal() {
    let text = |style| logged_in(LogFormat::Text, style, emit_for_people);
    let fields = "dialled=127.0.0.1:22 bytes=7 listen=\"\"";
    let cause = r#"cause="no answer: \"timed out\"" pin=sha256:a_b-c"#;
    for (style, info, warn) in [
        (terminal(false, 120), "14:00:00 INFO  ", "14:00:00 WARN  "),
        (Style::Journal, "<6>", "<4>"),
        (
            Style::File,
            "2026-08-01T14:00:00.123+02:00 INFO ",
            "2026-08-01T14:00:00.123+02:00 WARN ",
        ),
    ] {
        let expected = format!("{info}a tunnel has ended {fields}\n{warn}cannot connect {cause}\n");
        assert_eq!(text(style), expected, "{style:?}");
    }
    let coloured = text(terminal(true, 120));
    assert!(
        coloured.contains("\u{1b}[33mWARN \u{1b}[0m cannot connect"),
        "{coloured:?}"
    );
    let mut plain = String::new();
    for part in coloured.split('\u{1b}') {
        plain.push_str(
            part.split_once('m')
                .filter(|(code, _)| code.starts_with('['))
                .map_or(part, |(_, rest)| rest),
        );
    }
    assert_eq!(plain, text(terminal(false, 120)));
}

#[test]
fn a_stream_is_styled_as_a_file_unless_it_is_a_terminal_or_the_journal() {
    let file = tempfile::tempfile().expect("a file");
    let none = |_: &str| None;
    assert_eq!(Style::of_stream(&file, none), Style::File);
    let found = rustix::fs::fstat(&file).expect("its numbers");
    let journal = |number: u64| {
        move |name: &str| {
            let value = format!("{}:{number}", found.st_dev);
            (name == "JOURNAL_STREAM").then(|| value.into())
        }
    };
    assert_eq!(
        Style::of_stream(&file, journal(found.st_ino)),
        Style::Journal
    );
    assert_eq!(
        Style::of_stream(&file, journal(found.st_ino + 1)),
        Style::File
    );
}

#[test]
fn json_lines_are_one_object_each_in_utc() {
    let got = without_line_numbers(&logged(LogFormat::Json, emit_everything));
    let head = |level| {
        format!(
            r#"{{"ts":"2026-08-01T12:00:00.123456Z","level":"{level}","caller":"control/log/tests.rs:N","msg":"#
        )
    };
    let flow = r#""Client-Endpoint-Addr":"10.0.0.7:40000","peer":"bob","Stream-ID":4"#;
    let expected = [
        head("info")
            + r#""A new client endpoint connect request accepted.","Client-Endpoint-Addr":"10.0.0.7:40000","peer":"alice"}"#,
        head("info")
            + r#""Handshake successful","#
            + flow
            + r#","Server-App-Addr":"127.0.0.1:22","ratio":0.5,"ok":true,"delta":-3,"text":"a \"quoted\"\ttext\nin two lines"}"#,
        head("error")
            + r#""Failed to dial server app","#
            + flow
            + r#","error":"cannot start the log thread: Connection refused"}"#,
        head("warn") + r#""line one\nline two\u001b[31m","# + flow + "}",
        head("debug")
            + r#""fields may not take the line's own keys","#
            + flow
            + r#","level_":"mine","msg_":"mine","ts_":1}"#,
        head("warn") + r#""","# + flow + r#","fields_only":true}"#,
    ];
    assert_eq!(got, expected.join("\n") + "\n");
    for line in got.lines() {
        serde_json::from_str::<serde_json::Value>(line).expect("JSON");
    }
}

/// Logs text that could end a line, move the cursor or reverse the direction of text, in a message and in values.
fn emit_hostile() {
    let hostile = "a\u{1b}[2J\u{7f}\u{85}\u{9b}31m\u{61c}\u{200f}\u{202e}\u{2028}\u{2029}\u{2066}\u{feff}\u{e0041}\r\n\tb";
    warn!(hostile, shown = %hostile, debugged = ?hostile, "{hostile}");
    error!(
        error = &io::Error::other(hostile) as &dyn std::error::Error,
        "m"
    );
}

#[test]
fn hostile_text_is_escaped_in_both_formats_and_json_keeps_it() {
    for format in [LogFormat::Text, LogFormat::Console, LogFormat::Json] {
        let got = logged(format, emit_hostile);
        let lines: Vec<_> = got.split('\n').collect();
        assert!(lines.len() == 3 && lines[2].is_empty(), "{got:?}");
        let columns = if format == LogFormat::Console {
            "\t"
        } else {
            ""
        };
        let bad = |c: char| !(c == ' ' || columns.contains(c) || c.is_ascii_graphic());
        for line in &lines[..2] {
            assert!(!line.contains(bad), "{line:?}");
        }
    }
    let got = logged(LogFormat::Json, emit_hostile);
    let line: serde_json::Value =
        serde_json::from_str(got.lines().next().expect("a line")).expect("JSON");
    assert_eq!(line["hostile"], line["shown"]);
    assert_eq!(line["hostile"], line["msg"]);
    assert!(
        line["msg"]
            .as_str()
            .is_some_and(|text| text.contains('\u{202e}'))
    );
}

#[test]
fn a_document_in_json_is_printed_without_hidden_characters_and_means_the_same() {
    let hostile = "a\u{202e}b\u{2066}\u{200f}\u{61c}\u{7f}\u{9b}\u{e0001}\n\"é\\";
    let document = serde_json::json!({ hostile: [hostile, 1] });
    let shown = printable_json(&format!("{document:#}\n"));
    assert!(
        !shown.contains(|c: char| c != '\n' && text::is_escaped(c)),
        "{shown:?}"
    );
    assert!(shown.contains("\\u202e") && shown.contains("\\udb40\\udc01") && shown.contains('é'));
    let parsed: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(parsed, document);
}

#[test]
fn urls_are_logged_without_credentials() {
    for format in [LogFormat::Text, LogFormat::Console, LogFormat::Json] {
        let got = logged(format, || {
            let url = "https://user:secret@token.example/t";
            warn!(url, error = %format!("no answer from {url}: refused"), "asking {url}");
        });
        assert!(!got.contains("secret") && !got.contains("user"), "{got}");
        assert_eq!(got.matches("https://token.example/t").count(), 3, "{got}");
    }
}

#[test]
fn a_new_log_file_is_read_by_its_owner_and_group_only() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    let name = path.to_str().expect("text");
    let (_subscriber, guard) = build(&settings(&[name]), &TimeZone::UTC).expect("a writable file");
    let mode = || {
        std::fs::metadata(&path)
            .expect("there")
            .permissions()
            .mode()
            & 0o777
    };
    // The umask of the test run may remove more bits.
    assert_eq!(mode() & !0o040, 0o600, "{:o}", mode());
    std::fs::remove_file(&path).expect("removed");
    assert!(guard.files().reopen().is_empty());
    assert_eq!(mode() & !0o040, 0o600, "{:o}", mode());
}

#[test]
fn an_endless_value_is_truncated() {
    let long = "ä".repeat(100_000);
    let got = logged(LogFormat::Json, || info!(long, "m"));
    assert!(
        got.len() < 9000 && got.contains("ä…\""),
        "{} bytes",
        got.len()
    );
}

#[test]
fn an_error_is_written_with_its_causes_once() {
    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] io::Error);
    let got = logged(LogFormat::Console, || {
        error!(
            error = &Outer(io::Error::other("inner")) as &dyn std::error::Error,
            "m"
        );
    });
    assert!(got.ends_with("{\"error\": \"outer: inner\"}\n"), "{got}");
}

fn settings(outputs: &[&str]) -> LogSettings {
    LogSettings {
        level: LogFilter::default(),
        format: LogFormat::Console,
        outputs: outputs.iter().map(|&output| output.to_owned()).collect(),
        phrases: Phrases::default(),
    }
}

#[test]
fn files_are_appended_to_and_complete_when_the_guard_is_gone() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    let name = path.to_str().expect("text");
    for message in ["first run", "second run"] {
        let (subscriber, guard) =
            build(&settings(&[name]), &TimeZone::UTC).expect("a writable file");
        tracing::subscriber::with_default(subscriber, || info!("{message}"));
        drop(guard);
    }
    let text = std::fs::read_to_string(&path).expect("written");
    let messages: Vec<_> = text
        .lines()
        .map(|line| line.split('\t').nth(3).expect("four columns"))
        .collect();
    assert_eq!(messages, ["first run", "second run"]);
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let error = build(&settings(&["/nonexistent/directory/log"]), &TimeZone::UTC)
        .err()
        .expect("no such directory");
    assert!(
        error
            .to_string()
            .starts_with("cannot open log output /nonexistent/directory/log: "),
        "{error}"
    );
}

fn console() -> LineFormat {
    LineFormat::new(LogFormat::Console, Style::File, TimeZone::UTC)
}

/// An output that accepts a write only after the test has released it.
struct StalledOutput {
    release: Receiver<()>,
    lines: LineSink,
}

impl Write for StalledOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // An error means that the test has dropped the sender, which releases all writes.
        self.release.recv().ok();
        self.lines.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_stalled_output_delays_no_thread_and_its_lost_lines_are_counted() {
    let (lines, written) = lines();
    let (release, wait) = channel();
    let stalled = StalledOutput {
        release: wait,
        lines,
    };
    let queue = LogQueue::start(vec![(stalled, console())]).expect("a thread");
    // This is more than the queue holds together with the thread's batch, which has at most 64 of these lines.
    let pushed = writer::QUEUE_LINES + 200;
    let line = format!("{}\n", "x".repeat(1023));
    for _ in 0..pushed {
        queue.push(|_| line.clone());
    }
    queue.flush(Duration::from_millis(20));
    drop(release);
    queue.flush(Duration::from_mins(1));
    let text: String = written.try_iter().collect();
    let kept = text
        .lines()
        .filter(|line| line.starts_with("xxx") && line.len() == 1023)
        .count();
    let lost: usize = text
        .lines()
        .filter_map(|line| {
            line.split_once("Log lines were dropped: an output is too slow\t{\"lines\": ")
        })
        .map(|(_, count)| {
            count
                .trim_end_matches('}')
                .parse::<usize>()
                .expect("a number")
        })
        .sum();
    assert!(lost > 0, "nothing was lost");
    assert_eq!(kept + lost, pushed);
}

/// A file on a disk with room for this number of bytes.
#[derive(Clone, Default)]
struct SmallDisk(Arc<Mutex<(Vec<u8>, usize)>>);

impl SmallDisk {
    fn make_room(&self, bytes: usize) {
        self.0.lock().expect("no panic").1 = bytes;
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("no panic").0.clone()).expect("text")
    }
}

impl Write for SmallDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut disk = self.0.lock().expect("no panic");
        let room = disk.1.min(bytes.len());
        if room == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        disk.1 -= room;
        disk.0.extend_from_slice(&bytes[..room]);
        Ok(room)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// OPERATIONS, signals and exit codes.
#[test]
fn a_full_disk_leaves_the_number_of_lost_lines_once_it_has_room_again() {
    let disk = SmallDisk::default();
    let queue = LogQueue::start(vec![(disk.clone(), console())]).expect("a thread");
    let log = |line: &str| {
        queue.push(|_| format!("{line}\n"));
        queue.flush(Duration::from_mins(1));
    };
    // The second line is torn.
    disk.make_room(12);
    log("complete");
    log("cut off");
    log("lost");
    disk.make_room(30);
    log("lost as well: not even the number of lost lines has room");
    disk.make_room(usize::MAX);
    log("after");
    let text = disk.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["complete", "cut"], "{text}");
    let counts: Vec<_> = lines
        .iter()
        .filter_map(|it| it.split_once("Log lines lost: "))
        .collect();
    assert!(counts[0].1.ends_with("\t{\"lines\": 3}"), "{text}");
    assert_eq!((counts.len(), lines.last()), (1, Some(&"after")), "{text}");
}

// The program may have nothing more to log when there is room again.
#[test]
fn the_number_of_lost_lines_needs_no_further_line() {
    let disk = SmallDisk::default();
    let queue = LogQueue::start(vec![(disk.clone(), console())]).expect("a thread");
    queue.push(|_| "lost\n".to_owned());
    queue.flush(Duration::from_mins(1));
    disk.make_room(usize::MAX);
    let end = std::time::Instant::now() + Duration::from_mins(1);
    while disk.text().is_empty() && std::time::Instant::now() < end {
        std::thread::yield_now();
    }
    assert!(disk.text().ends_with("{\"lines\": 1}\n"), "{}", disk.text());
}

#[test]
fn a_stalled_output_does_not_stall_the_others() {
    let (slow_lines, _slow) = lines();
    let (_release, wait) = channel();
    let (fast, written) = lines();
    let stalled = StalledOutput {
        release: wait,
        lines: slow_lines,
    };
    let outputs: Vec<(Box<dyn Write + Send>, _)> =
        vec![(Box::new(stalled), console()), (Box::new(fast), console())];
    let queue = LogQueue::start(outputs).expect("threads");
    queue.push(|_| "line\n".to_owned());
    assert_eq!(written.recv().expect("the other output has it"), "line\n");
}

#[test]
fn a_closed_output_is_dropped_and_the_others_continue() {
    let (closed, reader) = lines();
    drop(reader);
    let (open, written) = lines();
    let outputs = vec![(closed, console()), (open, console())];
    let queue = LogQueue::start(outputs).expect("threads");
    queue.push(|_| "one\n".to_owned());
    queue.flush(Duration::from_mins(1));
    queue.push(|_| "two\n".to_owned());
    queue.flush(Duration::from_mins(1));
    assert_eq!(written.try_iter().collect::<String>(), "one\ntwo\n");
}

#[test]
fn a_rotated_file_is_replaced_without_losing_a_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, moved) = (directory.path().join("log"), directory.path().join("log.1"));
    let outputs = ["stderr", path.to_str().expect("text")];
    let (subscriber, mut guard) = build(&settings(&outputs), &TimeZone::UTC).expect("set up");
    guard.start().expect("threads");
    let read = |path| std::fs::read_to_string(path).expect("there");
    tracing::subscriber::with_default(subscriber, || {
        error!("before");
        guard.queue.flush(Duration::from_mins(1));
        std::fs::rename(&path, &moved).expect("moved");
        error!("after the move");
        guard.queue.flush(Duration::from_mins(1));
        assert_eq!(guard.files().count(), 1, "stderr must not count as a file");
        assert!(guard.files().reopen().is_empty());
        error!("after the reopening");
        guard.queue.flush(Duration::from_mins(1));
    });
    let (old, new) = (read(&moved), read(&path));
    assert!(old.contains("before") && old.contains("after the move"));
    assert!(
        new.lines().count() == 1 && new.contains("after the reopening"),
        "{new}"
    );
}

#[test]
fn a_file_that_cannot_be_reopened_stays_in_use() {
    let directory = tempfile::tempdir().expect("a directory");
    let (place, moved) = (directory.path().join("a"), directory.path().join("b"));
    std::fs::create_dir(&place).expect("made");
    let path = place.join("log");
    let outputs = [path.to_str().expect("text")];
    let (subscriber, mut guard) = build(&settings(&outputs), &TimeZone::UTC).expect("set up");
    guard.start().expect("threads");
    std::fs::rename(&place, &moved).expect("moved");
    let errors = guard.files().reopen();
    let [LogError::Open(named, _)] = &errors[..] else {
        panic!("{errors:?}")
    };
    assert_eq!(*named, path);
    tracing::subscriber::with_default(subscriber, || error!("still here"));
    guard.queue.flush(Duration::from_mins(1));
    let text = std::fs::read_to_string(moved.join("log")).expect("there");
    assert!(text.contains("still here"), "{text}");
}

/// The child processes of the following tests run this test. It does nothing in an ordinary run.
#[test]
fn child() {
    let Some(what) = std::env::var_os("QUICTUN_TEST_CHILD") else {
        return;
    };
    let log = std::env::var("QUICTUN_TEST_LOG").expect("set by the test");
    let outputs: Vec<_> = log.split(',').collect();
    let mut guard = init(&settings(&outputs)).expect("the first time");
    guard.start().expect("threads");
    match what.to_str() {
        Some("panic") => {
            std::thread::Builder::new()
                .name("worker-3".to_owned())
                .spawn(|| panic!("it broke: {}", 7))
                .expect("a thread")
                .join()
                .expect_err("it panicked");
        }
        Some("closed") => {
            info!("first");
            // The parent closes this process's stdout first, and then its stdin.
            assert!(io::stdin().lines().next().is_none());
            for number in 0..1000 {
                info!(number, "into nothing");
            }
        }
        _ => assert!(matches!(init(&settings(&["stdout"])), Err(LogError::Again))),
    }
    drop(guard);
}

fn run_child(what: &str, log: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command
        .args(["--exact", "log::tests::child", "--nocapture"])
        .env("QUICTUN_TEST_CHILD", what)
        .env("QUICTUN_TEST_LOG", log)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null());
    command
}

#[test]
fn a_panic_is_logged_with_its_place_and_thread() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    let output = run_child("panic", path.to_str().expect("text"))
        .output()
        .expect("runs");
    assert!(output.status.success());
    let text = std::fs::read_to_string(&path).expect("written");
    let line = without_line_numbers(&text);
    assert!(
        line.contains("\tERROR\t") && line.contains("\"panic\": \"it broke: 7\""),
        "{line}"
    );
    assert!(
        line.contains("\"thread\": \"worker-3\"") && line.contains("log/tests.rs:"),
        "{line}"
    );
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("it broke: 7"),
        "logs go to files only, so stderr must have the panic too: {stderr}"
    );
}

#[test]
fn a_closed_stdout_does_not_end_the_process() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    let mut child = run_child("closed", &format!("stdout,{}", path.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("runs");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("\tfirst") {
        line.clear();
        assert!(
            output.read_line(&mut line).expect("text") > 0,
            "the child ended too early"
        );
    }
    drop(output);
    drop(child.stdin.take());
    // The harness cannot print its own summary, so its exit code is meaningless. A signal would show as a missing code.
    let status = child.wait().expect("ends");
    assert!(status.code().is_some(), "{status}");
    let text = std::fs::read_to_string(&path).expect("written");
    assert_eq!(text.lines().count(), 1001);
}

#[test]
fn logs_are_set_up_once() {
    assert!(
        run_child("twice", "stderr")
            .output()
            .expect("runs")
            .status
            .success()
    );
}
