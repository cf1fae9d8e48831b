//! Configuration files of the compatibility programs.

use crate::test_inputs::{TestInputs, client_lines, differ, failure, run, usage};

const MINIMAL: &str =
    "--server-endpoint h:7500 --token-source tcp:127.0.0.1:22 --insecure-skip-verify";

fn warnings(inputs: &TestInputs, flags: &str) -> Vec<String> {
    run(inputs.compat_client(&format!("{MINIMAL} {flags}"))).warnings
}

fn check(inputs: &TestInputs, flags: &str, expected: &[(&str, &str)]) {
    let plain = client_lines(&run(TestInputs::default().compat_client(MINIMAL)).settings);
    let ready = run(inputs.compat_client(&format!("{MINIMAL} {flags}")));
    differ(&client_lines(&ready.settings), &plain, expected, flags);
}

#[test]
fn a_file_can_say_everything_in_three_formats() {
    let yaml = "server-endpoint: example.net:7500\ntoken-source: tcp:127.0.0.1:5201\nlog-level: debug\n\
        log-output-paths: a,stdout\nhttpd-listen-on: off\nverify-remote-endpoint: true\nconnections: 74\n";
    let toml = "server-endpoint = 'example.net:7500'\ntoken-source = 'tcp:127.0.0.1:5201'\nlog-level = 'debug'\n\
        log-output-paths = ['a', 'stdout']\nhttpd-listen-on = 'off'\nverify-remote-endpoint = true\nconnections = 74\n";
    let json = r#"{"server-endpoint": "example.net:7500", "token-source": "tcp:127.0.0.1:5201", "log-level": "debug",
        "log-output-paths": "a,stdout", "httpd-listen-on": "off", "verify-remote-endpoint": "true", "connections": 74}"#;
    for (path, text) in [
        ("c.yaml", yaml),
        ("c.yml", yaml),
        ("c.TOML", toml),
        ("c.json", json),
    ] {
        let inputs = TestInputs::default().file(path, text);
        for flag in ["-c ", "-c=", "--config ", "--config="] {
            let ready = run(inputs.compat_client(&format!("{flag}{path}")));
            let lines = client_lines(&ready.settings);
            let found = [
                "server",
                "log.level",
                "log.outputs",
                "httpd",
                "trust",
                "connections",
            ]
            .map(|name| &lines[name]);
            assert_eq!(
                found,
                [
                    "example.net 7500",
                    "debug",
                    "a stdout",
                    "off",
                    "Authorities(None)",
                    "74"
                ],
                "{path}"
            );
        }
    }
}

#[test]
fn the_first_file_found_is_read_and_no_other() {
    let everywhere = TestInputs::default()
        .env("HOME", "/home/me")
        .file("./quictun-client.json", r#"{"workers": 71}"#)
        .file("./quictun-client.toml", "workers = 72")
        .file("./quictun-client.yaml", "workers: 73")
        .file("./quictun-client.yml", "workers: 74")
        .file("/home/me/.quictun/quictun-client.yaml", "workers: 75")
        .file("/etc/quictun/quictun-client.yaml", "workers: 76")
        .file("/etc/quictun/quictun-server.yaml", "workers: 77");
    check(&everywhere, "", &[("workers", "71")]);
    let home = TestInputs::default()
        .env("HOME", "/home/me")
        .file("/home/me/.quictun/quictun-client.yaml", "workers: 75")
        .file("/etc/quictun/quictun-client.yaml", "workers: 76");
    check(&home, "", &[("workers", "75")]);
    let etc = TestInputs::default()
        .file("/etc/quictun/quictun-client.yml", "workers: 76")
        .file("/etc/quictun/quictun-server.yaml", "workers: 77");
    check(&etc, "", &[("workers", "76")]);
    assert_eq!(run(etc.compat_server("")).settings.transport.workers, 77);
    // A file that the command line names is the only one that is read.
    check(
        &everywhere.file("c.yaml", "workers: 79"),
        "-c c.yaml",
        &[("workers", "79")],
    );
}

#[test]
fn keys_are_found_in_any_case_and_empty_ones_say_nothing() {
    check(
        &TestInputs::default().file("c.yaml", "Workers: 77\nconnections:\ndrain: ~\n"),
        "-c c.yaml",
        &[("workers", "77")],
    );
    check(
        &TestInputs::default().file("c.json", "\u{feff}{\"WORKERS\": 77, \"drain\": null}"),
        "-c c.json",
        &[("workers", "77")],
    );
    check(&TestInputs::default().file("c.yaml", ""), "-c c.yaml", &[]);
}

#[test]
fn unknown_keys_are_named_with_the_nearest_known_one() {
    let inputs =
        TestInputs::default().file("c.yaml", "listen_on: x\ncolour: red\nmax-connections: 3\n");
    assert_eq!(
        warnings(&inputs, "-c c.yaml"),
        [
            "c.yaml: unknown key colour is ignored",
            "c.yaml: unknown key listen_on is ignored; did you mean listen-on?",
            "c.yaml: unknown key max-connections is ignored; did you mean connections?",
        ]
    );
}

#[test]
fn files_of_other_formats_are_not_passed_over_in_silence() {
    let inputs = TestInputs::default().file("/etc/quictun/quictun-client.hcl", "");
    assert_eq!(
        warnings(&inputs, ""),
        ["/etc/quictun/quictun-client.hcl is not read: write it as YAML, TOML or JSON"]
    );
}

#[test]
fn a_file_that_cannot_be_used_ends_the_program() {
    let inputs = TestInputs::default()
        .locked_file("locked.yaml")
        .file("c.hcl", "")
        .file("c", "")
        .file("bad.yaml", "a: 'open\n")
        .file("nested.yaml", "log:\n  level: info\n")
        .file("bad.toml", "workers = \n")
        .file("bad.json", "{")
        .file("list.json", "[]")
        .file("workers.yaml", "workers: many\n");
    let unknown = "the extension names no known format: call it .yaml, .toml or .json";
    for (path, message) in [
        ("c.hcl", &format!("c.hcl: {unknown}")),
        ("c", &format!("c: {unknown}")),
        (
            "nested.yaml",
            &"nested.yaml: log: a table cannot be a value here: write flag names, as in log-level"
                .to_owned(),
        ),
        (
            "bad.json",
            &"bad.json: EOF while parsing an object at line 1 column 1".to_owned(),
        ),
        (
            "list.json",
            &"list.json: not a table of KEY: VALUE lines".to_owned(),
        ),
        (
            "workers.yaml",
            &"workers.yaml: workers: \"many\" is not a whole number from 1 to 256, or auto"
                .to_owned(),
        ),
    ] {
        usage(
            inputs.compat_client(&format!("{MINIMAL} -c {path}")),
            message,
            path,
        );
    }
    for path in ["bad.yaml", "bad.toml"] {
        let (message, _) =
            crate::test_inputs::fault(inputs.compat_client(&format!("{MINIMAL} -c {path}")));
        assert!(
            message.starts_with(&format!("{path}: ")) && message.contains("line 1"),
            "{message}"
        );
    }
    let gone = "gone.yaml: cannot read the configuration file: entity not found";
    failure(
        inputs.compat_client(&format!("{MINIMAL} -c gone.yaml")),
        gone,
        "gone",
    );
    let locked = "locked.yaml: cannot read the configuration file: permission denied";
    failure(
        inputs.compat_client(&format!("{MINIMAL} -c locked.yaml")),
        locked,
        "locked",
    );
    let found = TestInputs::default().locked_file("./quictun-client.toml");
    let locked = "./quictun-client.toml: cannot read the configuration file: permission denied";
    failure(
        found.compat_client(MINIMAL),
        locked,
        "an unreadable file that the search finds",
    );
}
