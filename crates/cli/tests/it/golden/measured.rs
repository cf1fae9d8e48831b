//! JSON keys of measurements: `doctor`, `tune`, `perf`, `bench`, `link` and `demo`, each in its shortest form.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use quictun_skip::skipped;

use super::live::RunningProgram;
use super::{golden_lines, json, shape};
use crate::programs::QUICTUN;

/// Keys that appear only if there is something to report.
const LATE: [&str; 7] = [
    "findings[].matters",
    "findings[].remedy",
    "honest_up_to_bit_per_s",
    "latency_us.p99_9",
    "noise",
    "path",
    "rows[].limits",
];

fn quictun(line: &str, home: &Path) -> Output {
    Command::new(QUICTUN)
        .args(line.split_whitespace())
        .current_dir(home)
        .env_clear()
        .env("HOME", home)
        .output()
        .expect("quictun")
}

/// Returns the key paths of the JSON that `line` prints.
fn keys(line: &str, home: &Path) -> String {
    let output = quictun(line, home);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
    without_nulls(&String::from_utf8(output.stdout).expect("text"))
}

/// Returns the shape without nulls: the machine and the moment decide whether a value is known, but not its type.
fn without_nulls(text: &str) -> String {
    shape(&json(text)).replace("null or ", "")
}

#[test]
fn golden_findings() {
    let home = tempfile::tempdir().expect("a directory");
    golden_lines("doctor", &keys("doctor --json", home.path()), &LATE);
    golden_lines("tune", &keys("tune --json", home.path()), &LATE);
}

#[test]
fn golden_perf() {
    let home = tempfile::tempdir().expect("a directory");
    let arguments = [
        "perf",
        "server",
        "--listen",
        "127.0.0.1:0",
        "--json",
        "server.json",
    ];
    let mut server = RunningProgram::start(QUICTUN, &arguments, home.path());
    let line = server.line("listening on ");
    let address = line.trim().rsplit(' ').next().expect("an address");
    let mut text = String::new();
    for plan in [
        "--transport tcp",
        "--transport quic --reverse",
        "--transport tcp --mode rr",
        "--transport udp --rate 1mbit",
    ] {
        let line =
            format!("perf client --connect {address} {plan} --duration 200ms --warm-up 0 --json -");
        writeln!(text, "{plan}\n{}", keys(&line, home.path())).expect("a text");
    }
    golden_lines("perf-client", &text, &LATE);
    server.end();
    let notes = std::fs::read_to_string(home.path().join("server.json")).expect("its notes");
    let notes: String = notes
        .lines()
        .map(|note| without_nulls(note) + "\n")
        .collect();
    golden_lines("perf-server", &notes, &LATE);
}

#[test]
fn golden_bench() {
    let home = tempfile::tempdir().expect("a directory");
    let flags = "--json --force --repeats 1";
    let line = format!(
        "bench ipc {flags} --run-ms 1 --only calls,payload,syscalls,idle --concurrency 1 --idle-s 1"
    );
    golden_lines("bench-ipc", &keys(&line, home.path()), &LATE);
    let line = format!(
        "bench netstack {flags} --run-ms 4 --only call --connections 1 --wire memory --poll each-send"
    );
    let output = quictun(&line, home.path());
    if String::from_utf8_lossy(&output.stderr).contains("namespaces:") {
        let why = "bench netstack cannot make a network namespace here";
        return skipped("golden::measured::golden_bench", why);
    }
    golden_lines("bench-netstack", &keys(&line, home.path()), &LATE);
}

#[test]
fn golden_demo() {
    let home = tempfile::tempdir().expect("a directory");
    golden_lines("demo", &keys("demo --json --loopback", home.path()), &LATE);
}

#[test]
fn golden_link() {
    let home = tempfile::tempdir().expect("a directory");
    let plan = "[link]\nrate = '20mbit'\n[near]\ncommand = 'true'\n[far]\ncommand = 'sleep 1'\n";
    std::fs::write(home.path().join("plan.toml"), plan).expect("a plan");
    let cells = "--cells 20mbit:2ms:0 --duration 200ms --runs 1";
    for (name, line) in [
        ("link-run", "link run plan.toml --json out.json".to_owned()),
        (
            "link-calibrate",
            "link calibrate --rates 20mbit --duration 200ms --json out.json".to_owned(),
        ),
        ("link-check", format!("link check {cells} --json out.json")),
        (
            "link-artefact",
            format!("link artefact {cells} --loads cubic --json out.json"),
        ),
    ] {
        let output = quictun(&line, home.path());
        let said = String::from_utf8_lossy(&output.stderr);
        let text = std::fs::read_to_string(home.path().join("out.json"))
            .unwrap_or_else(|error| panic!("{line}: {error}: {said}"));
        golden_lines(name, &without_nulls(&text), &LATE);
    }
}
