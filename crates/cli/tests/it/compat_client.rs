//! `quictun-client`: command lines of quic-tun v0.0.1 to v0.0.5, and the options added since.

use quictun_args::compat::settings::ProgramAction;
use quictun_control::log::LogFilter;
use quictun_control::settings::{ControlSettings, HttpListen, LogFormat, LogSettings, Phrases};
use quictun_trust::settings::{ClientIdentity, Offer, ServerTrust};
use quictun_tunnel::settings::{
    Address, CarrierChoice, Forward, ForwardTo, HostPort, ListenOn, TokenSource, TransportSettings,
};

use crate::test_inputs::{
    PIN, SettingLines, TestInputs, client_lines, default_transport, differ, run, usage,
};

const MINIMAL: &str = "--server-endpoint h:7500 --token-source tcp:127.0.0.1:22";

fn minimal() -> SettingLines {
    client_lines(&run(TestInputs::default().compat_client(MINIMAL)).settings)
}

fn check(inputs: &TestInputs, flags: &str, expected: &[(&str, &str)]) -> Vec<String> {
    let ready = run(inputs.compat_client(&format!("{MINIMAL} {flags}")));
    differ(&client_lines(&ready.settings), &minimal(), expected, flags);
    ready.warnings
}

#[test]
fn the_published_command_line_works_verbatim() {
    let line = "--server-endpoint 192.168.26.129:7500 --token-source tcp:127.0.0.1:5201 --insecure-skip-verify true";
    let ready = run(TestInputs::default().compat_client(line));
    let settings = ready.settings;
    assert_eq!(
        settings.server,
        Address::At(HostPort {
            host: "192.168.26.129".to_owned(),
            port: 7500
        })
    );
    let to = ForwardTo::Source(TokenSource::Fixed("tcp:127.0.0.1:5201".to_owned()));
    let listen = ListenOn::Tcp("127.0.0.1:6500".parse().expect("an address"));
    assert_eq!(settings.forwards, [Forward { listen, to }]);
    assert_eq!(settings.trust, ServerTrust::Insecure);
    assert!(
        ready.warnings.is_empty(),
        "the client says itself what is unsafe: {:?}",
        ready.warnings
    );
}

#[test]
fn the_defaults_are_those_of_the_original_but_for_http_on_loopback() {
    let settings = run(TestInputs::default().compat_client(MINIMAL)).settings;
    assert_eq!(settings.offer, Offer::Both);
    assert_eq!(settings.identity, ClientIdentity::default());
    let transport = TransportSettings {
        carrier: CarrierChoice::Quic,
        ..default_transport()
    };
    assert_eq!(settings.transport, transport);
    let ControlSettings {
        httpd,
        httpd_is_default,
        http_names,
        compat_json,
        confine,
        banner,
        program: _,
        log,
    } = settings.control;
    let address = "127.0.0.1:8086".parse().expect("an address");
    assert_eq!(httpd, Some(HttpListen::Tcp(address)));
    assert!(httpd_is_default && !compat_json && confine && http_names.is_empty());
    assert!(banner.is_none());
    let LogSettings {
        level,
        format,
        outputs,
        phrases,
    } = log;
    assert_eq!(phrases, Phrases::Original);
    assert_eq!(
        (level, format, outputs),
        (
            LogFilter::default(),
            LogFormat::Console,
            vec!["stdout".to_owned()]
        )
    );
}

/// Each line has a flag, a value, and the one setting that it changes.
const FLAGS: &[(&str, &str, (&str, &str))] = &[
    ("server-endpoint", "[::1]:1", ("server", "::1 1")),
    (
        "listen-on",
        "unix:/run/app",
        (
            "forwards",
            "Unix(\"/run/app\") -> Source(Fixed(\"tcp:127.0.0.1:22\"))",
        ),
    ),
    (
        "listen-on",
        "tcp:0.0.0.0:1",
        (
            "forwards",
            "Tcp([::]:1) -> Source(Fixed(\"tcp:127.0.0.1:22\"))",
        ),
    ),
    (
        "token-source",
        "unix:/run/db",
        (
            "forwards",
            "Tcp(127.0.0.1:6500) -> Source(Fixed(\"unix:/run/db\"))",
        ),
    ),
    ("offer", "native", ("offer", "Native")),
    ("offer", "Compat", ("offer", "Compat")),
    ("insecure-skip-verify", "true", ("offer", "Both")),
    ("insecure-skip-verify", "F", ("trust", "Authorities(None)")),
    (
        "verify-remote-endpoint",
        "1",
        ("trust", "Authorities(None)"),
    ),
    ("log-level", "DEBUG", ("log.level", "debug")),
    ("log-format", "json", ("log.format", "Json")),
    ("log-output-paths", "a,stderr", ("log.outputs", "a stderr")),
    ("log-output-paths", "''", ("log.outputs", "")),
    ("connections", "77", ("connections", "77")),
    ("workers", "77", ("workers", "77")),
    ("congestion", "NewReno", ("congestion", "NewReno")),
    (
        "congestion",
        "fixed:600mbit",
        ("congestion", "Fixed(75000000)"),
    ),
    ("idle-timeout", "2.5s", ("idle_timeout", "2.5s")),
    ("keep-alive", "500ms", ("keep_alive", "500ms")),
    ("memory-budget", "64MiB", ("memory_budget", "67108864")),
    ("max-flows", "5", ("max_flows", "5")),
    ("udp-buffer", "64KiB", ("udp_buffer", "65536")),
    ("max-udp-payload", "1200", ("max_udp_payload", "Some(1200)")),
    ("max-udp-payload", "auto", ("max_udp_payload", "None")),
    ("gso", "off", ("gso", "false")),
    ("drain", "0s", ("drain", "0ns")),
    ("aead", "ring", ("aead", "Ring")),
    ("key-log", "keys", ("key_log", "Some(\"keys\")")),
    ("qlog-dir", "records", ("qlog_dir", "Some(\"records\")")),
    ("compat-json", "true", ("compat_json", "true")),
    ("no-confine", "true", ("confine", "false")),
];

#[test]
fn every_flag_takes_both_forms() {
    let inputs = TestInputs::default()
        .file("c", "")
        .file("k", "")
        .file("ca", "")
        .file("t", "");
    for &(flag, value, expected) in FLAGS {
        let expected = if minimal().get(expected.0).is_some_and(|v| v == expected.1) {
            vec![]
        } else {
            vec![expected]
        };
        for between in [" ", "="] {
            let value = if between == "=" && value == "''" {
                ""
            } else {
                value
            };
            let flag = format!("--{flag}{between}{value}");
            if !flag.ends_with(' ') {
                check(&inputs, &flag, &expected);
            }
        }
    }
    check(
        &inputs,
        "--log-output-paths a --log-output-paths=b,c",
        &[("log.outputs", "a b c")],
    );
    check(&inputs, "--workers 1 --workers 77", &[("workers", "77")]);
    check(
        &inputs,
        "--cert-file c --key-file=k",
        &[(
            "certificate",
            "Some(CertificateFiles { cert: \"c\", key: \"k\" })",
        )],
    );
}

#[test]
fn flags_without_effect_are_taken_and_those_that_would_be_missed_are_named() {
    let flags = "--log-disable-caller --log-disable-stacktrace=true --log-development --log-name=x \
        --log-error-output-paths stderr,e";
    assert_eq!(
        check(&TestInputs::default(), flags, &[]),
        [
            "--log-error-output-paths: nothing is written there: every line goes to --log-output-paths",
            "--log-disable-caller: has no effect: every line names its place in the source",
            "--log-name: has no effect: no line carries a name",
        ]
    );
    for nothing_missed in [
        "--log-disable-caller=false",
        "--log-error-output-paths stderr",
        "--log-error-output-paths stdout",
        "--log-development --log-disable-stacktrace",
    ] {
        let none: [&str; 0] = [];
        assert_eq!(check(&TestInputs::default(), nothing_missed, &[]), none);
    }
}

#[test]
fn booleans_take_gos_spellings_and_no_others() {
    let inputs = TestInputs::default();
    for on in [
        "", "=1", "=t", "=T", "=true", "=TRUE", "=True", " true", " 1",
    ] {
        check(
            &inputs,
            &format!("--verify-remote-endpoint{on}"),
            &[("trust", "Authorities(None)")],
        );
    }
    for off in ["=0", "=f", "=F", "=false", "=FALSE", "=False"] {
        check(&inputs, &format!("--verify-remote-endpoint{off}"), &[]);
        check(
            &inputs,
            &format!("--insecure-skip-verify{off}"),
            &[("trust", "Authorities(None)")],
        );
    }
    usage(
        inputs.compat_client(&format!("{MINIMAL} --verify-remote-endpoint=yes")),
        "--verify-remote-endpoint: \"yes\" is neither true nor false",
        "",
    );
}

#[test]
fn insecure_skip_verify_false_verifies_and_says_so() {
    let warnings = check(
        &TestInputs::default(),
        "--insecure-skip-verify false",
        &[("trust", "Authorities(None)")],
    );
    assert_eq!(
        warnings,
        [
            "--insecure-skip-verify false is read as --insecure-skip-verify=false: the server is verified (quic-tun \
            ignored the word)"
        ]
    );
    let warnings = check(
        &TestInputs::default(),
        "--insecure-skip-verify=false",
        &[("trust", "Authorities(None)")],
    );
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn an_off_that_would_turn_something_on_is_refused() {
    usage(
        TestInputs::default().compat_client(&format!("{MINIMAL} --verify-remote-endpoint false")),
        "--verify-remote-endpoint: quic-tun ignores the word \"false\" after it and turns it on | \
            --verify-remote-endpoint=false, or --verify-remote-endpoint alone",
        "",
    );
}

#[test]
fn stray_words_are_ignored_as_by_the_original_but_not_in_silence() {
    let warnings = check(
        &TestInputs::default(),
        &format!("--pin {PIN} tru"),
        &[("trust", &format!("Pins([{PIN}])"))],
    );
    assert_eq!(
        warnings,
        ["\"tru\" belongs to no flag and is ignored, as by quic-tun"]
    );
}

#[test]
fn trust_follows_the_flags() {
    let inputs = TestInputs::default().file("/ca", "");
    let alone = "--ca-file does nothing by itself: add --verify-remote-endpoint";
    for (flags, trust, warns) in [
        (
            "--ca-file /ca --verify-remote-endpoint",
            "Authorities(Some(\"/ca\"))",
            false,
        ),
        (
            "--ca-file /ca --insecure-skip-verify=false",
            "Authorities(Some(\"/ca\"))",
            false,
        ),
        ("--verify-remote-endpoint", "Authorities(None)", false),
        ("--ca-file /ca", "Insecure", true),
        ("--ca-file /ca --insecure-skip-verify", "Insecure", true),
        (
            "--ca-file /ca --verify-remote-endpoint=false",
            "Insecure",
            true,
        ),
    ] {
        let ready = run(inputs.compat_client(&format!("{MINIMAL} {flags}")));
        assert_eq!(format!("{:?}", ready.settings.trust), trust, "{flags}");
        assert_eq!(
            ready.warnings,
            if warns { vec![alone] } else { vec![] },
            "{flags}"
        );
    }
    let other = "sha256:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
    let pins = check(
        &inputs,
        &format!("--pin {PIN} --pin {other} --insecure-skip-verify"),
        &[("trust", &format!("Pins([{PIN}, {other}])"))],
    );
    assert!(pins.is_empty(), "{pins:?}");
}

#[test]
fn token_sources_are_chosen_by_name_in_any_case() {
    let inputs = TestInputs::default().file("tokens.txt", "");
    for (flags, to) in [
        (
            "--token-source-plugin fixed --token-source x",
            "Fixed(\"x\")",
        ),
        ("--token x", "Fixed(\"x\")"),
        (
            "--token-source-plugin FILE --token-source tokens.txt",
            "File(\"tokens.txt\")",
        ),
        (
            "--token-source-plugin Http --token-source http://h:1/t?a=b",
            "Http(\"http://h:1/t?a=b\")",
        ),
        (
            "--token-source-plugin http --token-source https://h",
            "Http(\"https://h\")",
        ),
    ] {
        let settings =
            run(inputs.compat_client(&format!("--server-endpoint h:7500 {flags}"))).settings;
        assert_eq!(
            format!("{:?}", settings.forwards[0].to),
            format!("Source({to})"),
            "{flags}"
        );
    }
    let flags = "--server-endpoint h:7500 --insecure-skip-verify --token-source-plugin file --token-source gone";
    let warnings = run(inputs.compat_client(flags)).warnings;
    assert_eq!(
        warnings[0],
        "cannot read gone: entity not found; connections are refused while this lasts"
    );
}

#[test]
fn the_http_interface_can_be_moved_opened_and_turned_off() {
    let inputs = TestInputs::default();
    for (value, at) in [
        ("0.0.0.0:8086", "[::]:8086"),
        ("127.0.0.1:0", "127.0.0.1:0"),
        (":9000", "[::]:9000"),
        ("unix:/run/q.sock", "unix:/run/q.sock"),
        ("off", "off"),
        ("''", "off"),
    ] {
        check(
            &inputs,
            &format!("--httpd-listen-on {value}"),
            &[("httpd", at), ("httpd_is_default", "false")],
        );
    }
    check(
        &inputs,
        "--httpd-listen-on 127.0.0.1:8086",
        &[("httpd_is_default", "false")],
    );
}

#[test]
fn version_and_help_are_printed() {
    match TestInputs::default().compat_client("-V") {
        Ok(ProgramAction::Print(text)) => assert_eq!(
            text,
            format!("quictun-client {}\n", env!("CARGO_PKG_VERSION"))
        ),
        other => panic!("{other:?}"),
    }
    for line in ["--version", "version"] {
        let asked = TestInputs::default().compat_client(line);
        assert!(
            matches!(asked, Ok(ProgramAction::Version)),
            "{line}: {asked:?}"
        );
    }
    for line in ["--help", "-h", "help"] {
        match TestInputs::default().compat_client(line) {
            Ok(ProgramAction::Print(text)) => assert!(
                text.contains("Usage: quictun-client [flags]"),
                "{line}: {text}"
            ),
            other => panic!("{line}: {other:?}"),
        }
    }
}

#[test]
fn the_originals_start_up_lines_are_kept() {
    let startup = run(TestInputs::default().compat_client(MINIMAL)).startup;
    assert_eq!(startup[0], "WorkingDir: /home/me");
    assert!(
        startup.contains(&"FLAG: --listen-on=\"tcp:127.0.0.1:6500\"".to_owned()),
        "{startup:?}"
    );
    assert!(
        startup.contains(&"==> Configuration items:".to_owned()),
        "{startup:?}"
    );
    assert!(
        startup.contains(&"server-endpoint: h:7500".to_owned()),
        "{startup:?}"
    );
}
