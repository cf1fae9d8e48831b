//! Commands that take the flags of a client: `quictun connect` and `quictun run`.

use std::time::Duration;

use quictun_cli::native::Action;

use crate::test_inputs::{PIN, TestInputs, client_lines};

#[test]
fn connect_uses_only_the_settings_of_the_server() {
    let file = format!(
        "server = 'h:1'\npins = ['{PIN}']\ntun = true\n[control]\nhttp = '127.0.0.1:1'\n[log]\nlevel = 'debug'\n\
         output = ['/l']\n[transport]\nworkers = 3\nidle_timeout = '7s'\n[[forward]]\nlisten = 1\ntarget = 'h:1'\n"
    );
    let inputs = TestInputs::default().file("c.toml", &file);
    let connect = |words: &str| {
        let ran = inputs.native(&format!("connect -c c.toml {words}"));
        let Ok(Action::Connect(plan)) = ran else {
            panic!("{words}: {ran:?}");
        };
        (plan.target.to_string(), plan.settings)
    };
    let (target, settings) = connect("db:22");
    assert_eq!(target, "tcp:db:22");
    let found = client_lines(&settings);
    for (name, value) in [
        ("server", "h 1"),
        ("forwards", ""),
        ("tun", "None"),
        ("httpd", "off"),
        ("log.level", "error"),
        ("log.outputs", "stderr"),
        ("workers", "1"),
        ("connections", "1"),
    ] {
        assert_eq!(found[name], value, "{name}");
    }
    assert_eq!(settings.transport.idle_timeout, Duration::from_secs(7));
    for (words, expected) in [
        ("db 22", "tcp:db:22"),
        ("::1 22", "tcp:[::1]:22"),
        ("[::1] 22", "tcp:[::1]:22"),
        ("[::1]:22", "tcp:[::1]:22"),
        ("unix:/run/a.sock", "unix:/run/a.sock"),
    ] {
        assert_eq!(connect(words).0, expected);
    }
    let level = |words: &str| client_lines(&connect(words).1)["log.level"].clone();
    assert_eq!(level("-v db:22"), "debug");
    assert_eq!(level("--log-level warn db:22"), "warn");
}

#[test]
fn run_takes_the_flags_of_a_client_and_a_command() {
    let inputs = TestInputs::default().env("QUICTUN_DNS", "192.0.2.53");
    let ran = inputs.native(&format!("run --server h:7500 --pin {PIN} -- ls --dns x"));
    let Ok(Action::Run(plan)) = ran else {
        panic!("{ran:?}");
    };
    assert_eq!(plan.flags, ["--server", "h:7500", "--pin", PIN]);
    assert_eq!(plan.command, ["ls", "--dns", "x"]);
    assert_eq!(plan.dns, Some([192, 0, 2, 53].into()));
}

#[test]
fn run_needs_no_flags_if_the_environment_names_the_server() {
    let server = TestInputs::default()
        .env("QUICTUN_SERVER", "h:7500")
        .env("QUICTUN_PIN", PIN);
    for (line, expected) in [
        ("run -- ls", &["ls"][..]),
        ("run -- ls -- -x", &["ls", "--", "-x"]),
    ] {
        let ran = server.native(line);
        let Ok(Action::Run(plan)) = ran else {
            panic!("{line}: {ran:?}");
        };
        assert!(plan.flags.is_empty());
        assert_eq!(plan.command, expected);
    }
    for (line, about) in [("run -- ls", "--server"), ("run ls", "no `--`")] {
        let fault = TestInputs::default().native(line).expect_err(line);
        assert!(fault.to_string().contains(about), "{line}: {fault}");
    }
}
