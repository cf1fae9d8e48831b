//! The programs themselves, as far as they run without a network: exit codes, standard output and standard error.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use quictun_trust::settings::Pin;

fn program(path: &str, args: &[&str]) -> Output {
    let mut command = Command::new(path);
    // The machine's own configuration must not affect the tests.
    command
        .args(args)
        .env_clear()
        .env("HOME", "/nonexistent")
        .stdin(Stdio::null());
    command.output().expect("the program starts")
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) const QUICTUN: &str = env!("CARGO_BIN_EXE_quictun");
pub(crate) const CLIENT: &str = env!("CARGO_BIN_EXE_quictun-client");
pub(crate) const SERVER: &str = env!("CARGO_BIN_EXE_quictun-server");

#[test]
fn version_and_help_go_to_standard_output() {
    for (path, name) in [
        (QUICTUN, "quictun"),
        (CLIENT, "quictun-client"),
        (SERVER, "quictun-server"),
    ] {
        for flag in ["-V", "--version", "version"] {
            let output = program(path, &[flag]);
            assert_eq!(output.status.code(), Some(0));
            let said = String::from_utf8_lossy(&output.stdout);
            let version = format!("{name} {}", env!("CARGO_PKG_VERSION"));
            assert!(said.starts_with(&version), "{said}");
            let is_long = name == "quictun" && flag != "-V";
            assert_eq!(said.lines().count(), if is_long { 4 } else { 1 }, "{said}");
            assert_eq!(said.contains("for: "), is_long, "{said}");
            let first = said.lines().next().unwrap_or_default();
            let has_commit = first.starts_with(&format!("{version} (")) && first.ends_with(')');
            assert_eq!(has_commit, flag != "-V", "{said}");
            assert_eq!(stderr(&output), "");
        }
        let output = program(path, &["--help"]);
        assert_eq!(output.status.code(), Some(0));
        assert!(
            String::from_utf8_lossy(&output.stdout).contains("Usage: "),
            "{name}"
        );
    }
}

#[test]
fn wrong_usage_ends_with_2_and_a_failure_with_1_and_each_is_said_once() {
    for (path, args, code, message) in [
        (
            CLIENT,
            vec!["--lisen-on", "x"],
            2,
            "quictun-client: --lisen-on: unknown flag\n  try: did you mean --listen-on?\n",
        ),
        (
            SERVER,
            vec!["--token-parser-plugin", "JWT"],
            2,
            "quictun-server: --token-parser-plugin: unknown value \"JWT\": choose Cleartext\n",
        ),
        (
            SERVER,
            vec!["-c", "/nonexistent/c.yaml"],
            1,
            "quictun-server: /nonexistent/c.yaml: cannot read the configuration file: No such file or directory (os error 2)\n",
        ),
        (
            SERVER,
            vec!["--ca-file", "/nonexistent/ca", "--verify-client"],
            1,
            "quictun-server: --ca-file: cannot read /nonexistent/ca: No such file or directory (os error 2)\n",
        ),
        (
            QUICTUN,
            vec!["sever"],
            2,
            "quictun: sever: unknown command\n  try: did you mean server?\n",
        ),
        (
            QUICTUN,
            vec!["config", "check", "--client", "/nonexistent/c.toml"],
            1,
            "quictun: /nonexistent/c.toml: cannot read the configuration file: No such file or directory (os error 2)\n",
        ),
    ] {
        let output = program(path, &args);
        assert_eq!(
            (output.status.code(), stderr(&output).as_str()),
            (Some(code), message),
            "{args:?}"
        );
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_value_in_an_error_controls_no_terminal() {
    let value = "/dev/null/\u{1b}]0;title\u{7}\u{202e}x";
    let output = program(QUICTUN, &["client", "-c", value]);
    let said = stderr(&output);
    assert!(said.contains("/dev/null/?]0;title??x"), "{said}");
    assert!(!said.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{said}");
}

#[test]
fn a_file_without_its_flag_is_recognized_by_each_command_that_takes_one() {
    let commands = [
        "server",
        "client",
        "connect 127.0.0.1 22",
        "status",
        "reconnect",
        "drain",
        "invite laptop",
        "demo",
        "tune",
    ];
    for command in commands {
        let words: Vec<&str> = command.split(' ').collect();
        let help = program(QUICTUN, &[words[0], "--help"]);
        let takes_file = String::from_utf8_lossy(&help.stdout).contains("--config <FILE>");
        let said = stderr(&program(QUICTUN, &[&words[..], &["x.toml"]].concat()));
        assert!(said.contains("x.toml: unexpected argument"), "{said}");
        let suggested = said.contains("did you mean -c x.toml?");
        assert_eq!(suggested, takes_file, "{command}: {said}");
    }
}

#[test]
fn a_long_value_does_not_hide_the_reason() {
    let long = "9".repeat(5000);
    for args in [
        &["invite", "laptop", "--allow", &long][..],
        &["connect", "--server", "h:1", "--ca", "system", &long],
        &["server", "--listen", &long],
        &[&long],
    ] {
        let output = program(QUICTUN, args);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.chars().count() < 700, "{said}");
    }
}

#[test]
fn quictun_alone_shows_its_help_as_an_error() {
    let output = program(QUICTUN, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("Usage: quictun <COMMAND>"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_directory_in_a_files_place_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_str().expect("a UTF-8 path");
    let output = program(SERVER, &["--ca-file", path, "--verify-client"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr(&output),
        format!("quictun-server: --ca-file: cannot read {path}: is a directory\n")
    );
}

#[test]
fn manual_pages_are_written_to_the_given_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("man");
    let output = program(
        QUICTUN,
        &["man", "--out", out.to_str().expect("a UTF-8 path")],
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for name in [
        "quictun.1",
        "quictun_server.1",
        "quictun-server.1",
        "quictun_config_print.1",
    ] {
        assert!(out.join(name).is_file(), "{name}");
    }
}

/// Checks a file with `quictun config check`. Returns the exit code, standard output and standard error, with `@` for
/// the path.
fn check_file(side: &str, text: &str) -> (Option<i32>, String, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file.toml");
    std::fs::write(&path, text).expect("a file");
    let path = path.to_str().expect("a UTF-8 path");
    let output = program(QUICTUN, &["config", "check", side, path]);
    let stdout = String::from_utf8_lossy(&output.stdout).replace(path, "@");
    (
        output.status.code(),
        stdout,
        stderr(&output).replace(path, "@"),
    )
}

#[test]
fn a_configuration_file_is_checked_down_to_its_rules() {
    let client = "server = 'h:1'\nca = 'system'\n[[forward]]\nlisten = 1\ntarget = 'h:1'\n";
    assert_eq!(
        check_file("--client", client),
        (Some(0), "@: in order\n".to_owned(), String::new())
    );

    let server = format!(
        "[[client]]\nname = 'x'\nkey = '{}'\n",
        crate::test_inputs::PIN
    );
    let denies = "@: in order, but no client may reach any target\n".to_owned();
    assert_eq!(
        check_file("--server", &server),
        (Some(0), denies, String::new())
    );
    let allows = format!("{server}allow = ['127.0.0.1:22', '10.0.0.0/8:*', 'unix:/run/*']\n");
    assert_eq!(
        check_file("--server", &allows),
        (Some(0), "@: in order\n".to_owned(), String::new())
    );

    let (code, stdout, message) =
        check_file("--server", &format!("{server}allow = ['nonsense']\n"));
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert!(
        message.starts_with("quictun: @: the rule \"nonsense\" of the client \"x\""),
        "{message}"
    );
}

#[test]
fn faults_are_found_before_anything_is_written_to_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.to_str().expect("a UTF-8 path").to_owned()
    };
    let table = format!(
        "[[client]]\nname = 'x'\nkey = '{}'\nallow = ['nonsense']\n",
        crate::test_inputs::PIN
    );
    let (table, ca) = (file("server.toml", &table), file("ca.crt", "no PEM\n"));
    let (state, log) = (dir.path().join("state"), dir.path().join("log"));
    for (path, args, code, message) in [
        (
            QUICTUN,
            vec!["server", "--allow", "nonsense", "--log-output"],
            2,
            "quictun: the rule \"nonsense\" of the client \"default\" has no meaning",
        ),
        (
            QUICTUN,
            vec!["server", "--config", &table, "--log-output"],
            2,
            "quictun: the rule \"nonsense\" of the client \"x\" has no meaning",
        ),
        (
            SERVER,
            vec!["--verify-client", "--ca-file", &ca, "--log-output-paths"],
            1,
            "quictun-server: ",
        ),
    ] {
        let output = Command::new(path)
            .args(&args)
            .arg(&log)
            .env_clear()
            .env("STATE_DIRECTORY", &state)
            .stdin(Stdio::null())
            .output()
            .expect("the program starts");
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        assert!(stderr(&output).starts_with(message), "{}", stderr(&output));
        assert!(!state.exists() && !log.exists(), "{args:?}");
    }
}

#[test]
fn keygen_makes_an_identity_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("id");
    let args = ["keygen", "--out", out.to_str().expect("a UTF-8 path")];
    let output = program(QUICTUN, &args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(
        lines[..2].iter().map(Path::new).collect::<Vec<_>>(),
        [out.join("client.key"), out.join("client.crt")]
    );
    assert!(
        lines[2].parse::<Pin>().is_ok() && lines.len() == 3,
        "{stdout}"
    );
    assert!(out.join("client.key").is_file() && out.join("client.crt").is_file());

    let again = program(QUICTUN, &args);
    assert_eq!(again.status.code(), Some(1));
    assert!(
        stderr(&again).starts_with("quictun: making a client's identity: "),
        "{}",
        stderr(&again)
    );
}

#[test]
fn clients_are_not_sought_in_a_state_directory_that_does_not_exist() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name).display().to_string();
    let (state, file, misspelt) = (at("state"), at("file"), at("sate"));
    std::fs::create_dir(&state).expect("a directory");
    std::fs::write(&file, "").expect("a file");
    for who in [
        &["--list"][..],
        &["--list", "--json"],
        &["laptop", "--revoke"],
    ] {
        for (path, why) in [
            (&misspelt, "there is no such directory"),
            (&file, "it is not a directory"),
        ] {
            let output = program(QUICTUN, &[&["invite", "--state-dir", path], who].concat());
            let said = stderr(&output);
            let (first, next) = said.split_once('\n').unwrap_or_default();
            assert_eq!(output.status.code(), Some(1), "{who:?}: {said}");
            assert_eq!(first, format!("quictun: --state-dir {path}: {why}"));
            assert!(
                next.starts_with("  try: name the server's state directory"),
                "{next}"
            );
            assert!(output.stdout.is_empty(), "{who:?}");
        }
    }
    assert!(!Path::new(&misspelt).exists(), "reading makes no directory");
    let empty = program(QUICTUN, &["invite", "--list", "--state-dir", &state]);
    assert_eq!(empty.status.code(), Some(0), "{}", stderr(&empty));
    // The default directory of a user who runs no server need not exist.
    let none = program(QUICTUN, &["invite", "--list"]);
    assert_eq!(none.status.code(), Some(0), "{}", stderr(&none));
}

/// Starts a program that cannot run, with these variables only, and returns the warnings that it prints.
fn warnings(path: &str, args: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
    // A server creates its key there before it listens.
    let home = tempfile::tempdir().expect("a directory");
    let output = Command::new(path)
        .args(args)
        .env_clear()
        .env("HOME", home.path())
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("the program starts");
    let said = stderr(&output);
    let lines = said.lines().filter(|line| line.contains("warning"));
    lines.map(str::to_owned).collect()
}

// OPERATIONS, files.
#[test]
fn a_state_directory_that_cannot_be_used_is_named_with_its_flag() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    std::fs::write(&file, "").expect("a file");
    let state = file.to_str().expect("text");
    let beyond = format!("{state}/state");
    for state in [state, &beyond] {
        for more in [&["--allow", "127.0.0.1:22"][..], &[]] {
            let port = ["--listen", "127.0.0.1:0", "--http", "off"];
            let args = [&["server", "--state-dir", state], &port[..], more].concat();
            let output = program(QUICTUN, &args);
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(said.contains(&format!("--state-dir {state}: ")), "{said}");
            assert!(
                said.contains("  try: ") && said.contains("--state-dir DIR"),
                "{said}"
            );
        }
    }
    // A file of a client that no process could read to its end.
    let state = directory.path().join("state");
    std::fs::create_dir_all(state.join("clients")).expect("a directory");
    let pipe = state.join("clients/laptop.toml");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo runs").success());
    let state = state.to_str().expect("text");
    for args in [
        &["server", "--listen", "127.0.0.1:0", "--http", "off"][..],
        &["config", "check", "--server"],
        &["invite", "phone", "--allow", "127.0.0.1:22"],
        &["invite", "--list"],
    ] {
        let output = program(QUICTUN, &[args, &["--state-dir", state]].concat());
        let said = stderr(&output);
        if args[0] != "config" {
            assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
            assert!(said.contains("laptop.toml: "), "{args:?}: {said}");
        }
    }
}

#[test]
fn long_socket_paths_and_port_ranges_are_refused_with_the_limit() {
    let long = format!("unix:/srv/{}", "x".repeat(120));
    let client = ["client", "--server", "127.0.0.1", "--pin"];
    let pin = Pin([0; 32]).to_string();
    let forward = format!("{long}=127.0.0.1:22");
    let args = [&client[..], &[&pin, "--http", "off", "-L", &forward]].concat();
    let said = stderr(&program(QUICTUN, &args));
    assert!(
        said.contains("125 bytes") && said.contains("at most 107"),
        "{said}"
    );
    let said = stderr(&program(QUICTUN, &["status", "--http", &long]));
    assert!(said.contains("at most 107"), "{said}");
    let said = stderr(&program(
        QUICTUN,
        &["server", "--allow", "127.0.0.1:8000-8010"],
    ));
    assert!(
        said.contains("not a range: write a rule for each port"),
        "{said}"
    );
    let args = [&client[..], &[&pin, "-L", "80=db:8000-8010"]].concat();
    let said = stderr(&program(QUICTUN, &args));
    assert!(said.contains("80 has 1 port"), "{said}");
}

#[test]
fn a_misspelt_variable_is_named_once_at_the_start() {
    // The address is one for documents, so this server cannot listen there.
    let starts = &["server", "--listen", "192.0.2.1:1"][..];
    for (path, args, name, meant) in [
        (QUICTUN, &["client"][..], "QUICTUN_SERVR", "QUICTUN_SERVER"),
        (QUICTUN, &["client"], "QUICTUN_PSK", "QUICTUN_PSK_FILE"),
        (QUICTUN, starts, "QUICTUN_LOGLEVEL", "QUICTUN_LOG_LEVEL"),
        (QUICTUN, starts, "QUICTUN_STATE", "QUICTUN_STATE_DIR"),
        (
            CLIENT,
            &[],
            "QUICTUN_CLIENT_SERVER_ENDPONT",
            "QUICTUN_CLIENT_SERVER_ENDPOINT",
        ),
        (
            SERVER,
            &["--listen-on", "192.0.2.1:1"],
            "QUICTUN_SERVER_LOG_LEVL",
            "QUICTUN_SERVER_LOG_LEVEL",
        ),
    ] {
        let program = Path::new(path).file_name().unwrap_or_default().display();
        assert_eq!(
            warnings(path, args, &[(name, "x"), ("QUICTUN_GOS", "")]),
            [format!(
                "{program}: warning: unknown variable {name} is ignored; did you mean {meant}?"
            )],
            "{args:?}"
        );
    }
}

#[test]
fn variables_of_other_programs_cause_no_warning() {
    let names = [
        // Settings of the other side, of other commands and of the compatibility programs.
        "QUICTUN_MAX_CONNECTIONS",
        "QUICTUN_CONNECTIONS",
        "QUICTUN_HTTP",
        "QUICTUN_SERVER_LISTEN_ON",
        "QUICTUN_CLIENT_DRAIN",
        "QUICTUN_LINK_SEED",
        "QUICTUN_LAB_REPS",
        // Container systems make these for services of the names `quictun` and `quictun-server`.
        "QUICTUN_PORT",
        "QUICTUN_SERVICE_HOST",
        "QUICTUN_SERVER_SERVICE_PORT",
        "QUICTUN_SERVER_PORT_7500_UDP_ADDR",
        // `quictun link` and the lab set these for their commands.
        "QUICTUN_ENTRY",
        "QUICTUN_FAR",
        "QUICTUN_NEAR",
        "QUICTUN_LINK",
        "QUICTUN_LOSS",
        "QUICTUN_MTU",
        "QUICTUN_TARGET",
        "QUICTUN_TUNNEL",
        "QUICTUN_RATE_MBIT",
        "QUICTUN_QUEUE_BYTES",
        // Tests set these.
        "QUICTUN_SEED",
        "QUICTUN_BLESS",
        "QUICTUN_E2E_BIN_DIR",
        "QUICTUN_EVIDENCE",
        "QUICTUN_PROFILE",
        "QUICTUN_TEST_CHILD",
        "QUICTUN_TEST_LOG",
    ];
    let variables = names.map(|name| (name, "1"));
    for args in [
        &["client", "--server", "nonsense:"][..],
        &["server", "--listen", "nowhere"],
        &["status", "--http", "nowhere"],
    ] {
        assert_eq!(warnings(QUICTUN, args, &variables), [""; 0], "{args:?}");
    }
    for path in [CLIENT, SERVER] {
        assert_eq!(warnings(path, &["--colour"], &variables), [""; 0], "{path}");
    }
}
