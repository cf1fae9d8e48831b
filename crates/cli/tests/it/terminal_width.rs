//! Warnings, errors and hints on a terminal: no word is broken in two.

use crate::programs::SERVER;
use crate::test_inputs::PIN;
use crate::test_terminal::TestTerminal;

/// Width of the terminal. The warnings and errors below are wider.
const COLUMNS: u16 = 64;

fn assert_fits(text: &str, indent: &str) {
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines.len() > 1, "{text}");
    for line in &lines[1..] {
        assert!(line.starts_with(indent), "{text}");
    }
    for line in lines {
        // Colours have no width.
        let line = line.replace("\u{1b}[33m", "").replace("\u{1b}[0m", "");
        assert!(line.chars().count() <= COLUMNS.into(), "{line:?}: {text}");
    }
}

#[test]
fn the_warning_of_a_servers_first_run_is_broken_between_words() {
    let home = tempfile::tempdir().expect("a directory");
    // Another process may have the TCP port of that number, which is a warning of its own.
    let quiet = ["--http", "off", "--listen-tls", "off"];
    let arguments = [&["server", "--listen", "127.0.0.1:0"][..], &quiet].concat();
    let mut server = TestTerminal::start(&arguments, home.path(), COLUMNS);
    let warning = server.until("quictun server listens");
    let words: Vec<&str> = warning.split_whitespace().collect();
    let words = words.join(" ");
    assert!(words.contains("no client may reach any target"), "{words}");
    assert!(words.ends_with("in the configuration file"), "{words}");
    assert_fits(&warning, "               ");
}

#[test]
fn errors_and_hints_are_broken_between_words() {
    let home = tempfile::tempdir().expect("a directory");
    let arguments = [
        "client",
        "--server",
        "localhost",
        "--pin",
        PIN,
        "-D",
        "0.0.0.0:1080",
    ];
    let mut client = TestTerminal::start(&arguments, home.path(), COLUMNS);
    let error = client.until("  try: ");
    assert_fits(&error, "  ");
    let hint = client.until("for each user");
    assert_fits(&format!("  try: {hint}"), "    ");
    assert_eq!(client.end().code(), Some(2));
}

#[test]
fn a_launcher_without_its_program_gives_the_remedy() {
    let home = tempfile::tempdir().expect("a directory");
    let launcher = home.path().join("quictun-server");
    std::fs::copy(SERVER, &launcher).expect("a copy");
    let mut terminal = TestTerminal::start_program(&launcher, &["-c", "f"], home.path(), COLUMNS);
    let error = terminal.until("  try: ");
    assert!(error.starts_with("quictun-server: cannot start"), "{error}");
    assert_fits(&error, "  ");
    let hint = terminal.until("only starts it");
    assert!(hint.contains("install quictun in the directory"), "{hint}");
    assert_fits(&format!("  try: {hint}"), "    ");
    assert_eq!(terminal.end().code(), Some(1));
}

#[test]
fn an_invitation_stays_visible_below_its_drawing() {
    let home = tempfile::tempdir().expect("a directory");
    let arguments = ["server", "--listen", "127.0.0.1:0", "--http", "off"];
    let mut server = TestTerminal::start(&arguments, home.path(), 80);
    server.until("Ctrl-C ends it.");
    server.press("\x03");
    assert_eq!(server.end().code(), Some(0));
    let arguments = [
        "invite",
        "laptop",
        "--allow",
        "127.0.0.1:22",
        "--address",
        "192.0.2.1",
    ];
    let mut invite = TestTerminal::start(&arguments, home.path(), 80);
    let drawn = invite.until("quictun-invite:");
    assert!(drawn.contains('▀'), "{drawn}");
    let below = invite.until("127.0.0.1:22.");
    let rows: usize = below
        .lines()
        .map(|line| line.len().div_ceil(80).max(1))
        .sum();
    assert!(rows < 12, "{rows}: {below}");
    assert_eq!(invite.end().code(), Some(0));
}
