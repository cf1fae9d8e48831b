//! `quictun-server`: command lines of quic-tun v0.0.1 to v0.0.5, and quictun's additions.

use quictun_control::settings::HttpListen;
use quictun_trust::settings::{Access, Guard, ServerIdentity};
use quictun_tunnel::settings::TokenParser;

use crate::test_inputs::{SettingLines, TestInputs, differ, failure, run, server_lines, usage};

fn plain() -> SettingLines {
    server_lines(&run(TestInputs::default().compat_server("")).settings)
}

fn check(inputs: &TestInputs, flags: &str, expected: &[(&str, &str)]) -> Vec<String> {
    let ready = run(inputs.compat_server(flags));
    differ(&server_lines(&ready.settings), &plain(), expected, flags);
    ready.warnings
}

#[test]
fn no_flags_at_all_is_the_originals_open_server() {
    let ready = run(TestInputs::default().compat_server(""));
    // In Go, 0.0.0.0 listens on both families, and the log of the original says "[::]:7500".
    assert_eq!(ready.settings.listen.to_string(), "[::]:7500");
    let Access::Open { ca: None, guard } = ready.settings.access else {
        panic!("{:?}", ready.settings.access)
    };
    assert_eq!(guard, Guard::default());
    assert_eq!(ready.settings.token_parser, TokenParser::Cleartext);
    assert_eq!(
        ready.settings.identity,
        ServerIdentity::State("/var/lib/quictun".into())
    );
    assert!(
        ready.warnings.is_empty(),
        "the server itself warns about open access, so no warning may come from here: {:?}",
        ready.warnings
    );
}

#[test]
fn the_http_interface_is_on_loopback_unless_told_otherwise() {
    let httpd = |flags: &str| {
        let control = run(TestInputs::default().compat_server(flags))
            .settings
            .control;
        (control.httpd, control.httpd_is_default)
    };
    let address = |text: &str| Some(HttpListen::Tcp(text.parse().expect("an address")));
    assert_eq!(httpd(""), (address("127.0.0.1:8086"), true));
    let everywhere = "--httpd-listen-on 0.0.0.0:8086";
    // As in Go, this address means both families.
    assert_eq!(httpd(everywhere), (address("[::]:8086"), false));
}

#[test]
fn flags_become_settings() {
    let inputs = TestInputs::default()
        .file("/ca", "")
        .file("/c", "")
        .file("/k", "");
    let closed =
        "Open { ca: Some(\"/ca\"), guard: Guard { allow_unix: false, allow_link_local: false } }";
    let unix = "Open { ca: None, guard: Guard { allow_unix: true, allow_link_local: false } }";
    let link_local =
        "Open { ca: None, guard: Guard { allow_unix: false, allow_link_local: true } }";
    for (flags, expected) in [
        ("--listen-on 127.0.0.1:1", ("listen", "127.0.0.1:1")),
        ("--listen-on=:1", ("listen", "[::]:1")),
        ("--token-parser-plugin cleartext", ("listen", "[::]:7500")),
        ("--token-parser-key base64", ("token_parser", "Base64")),
        ("--token-parser-key BASE64", ("token_parser", "Base64")),
        ("--ca-file /ca --verify-remote-endpoint", ("access", closed)),
        ("--ca-file /ca --verify-client=true", ("access", closed)),
        ("--allow-unix", ("access", unix)),
        ("--allow-link-local=t", ("access", link_local)),
        (
            "--cert-file /c --key-file /k",
            (
                "identity",
                "Files(CertificateFiles { cert: \"/c\", key: \"/k\" })",
            ),
        ),
        ("--max-connections 5", ("max_connections", "5")),
        ("--dial-timeout 3s", ("dial_timeout", "3s")),
        ("--ip 4", ("dial_family", "V4")),
        ("--ip auto", ("dial_family", "Any")),
        ("--drain 1m", ("drain", "60s")),
    ] {
        let expected = if plain()[expected.0] == expected.1 {
            vec![]
        } else {
            vec![expected]
        };
        check(&inputs, flags, &expected);
    }
    let warnings = check(
        &inputs,
        "--ca-file /ca --verify-client",
        &[("access", closed)],
    );
    assert!(warnings.is_empty(), "{warnings:?}");
    let warnings = check(&inputs, "--ca-file /ca", &[]);
    assert_eq!(
        warnings,
        ["--ca-file does nothing by itself: add --verify-remote-endpoint"]
    );
}

#[test]
fn the_key_is_kept_in_the_state_directory() {
    let xdg = TestInputs::default()
        .env("HOME", "/home/me")
        .env("XDG_STATE_HOME", "/home/me/state");
    for (inputs, dir) in [
        (TestInputs::default(), "/var/lib/quictun"),
        (TestInputs::default().env("HOME", ""), "/var/lib/quictun"),
        (
            TestInputs::default().env("HOME", "/home/me"),
            "/home/me/.local/state/quictun",
        ),
        (xdg.clone(), "/home/me/state/quictun"),
        (
            TestInputs::default()
                .env("HOME", "/root")
                .env("XDG_STATE_HOME", "relative"),
            "/root/.local/state/quictun",
        ),
        (
            xdg.clone().env("STATE_DIRECTORY", "/var/lib/q"),
            "/var/lib/q",
        ),
        (
            xdg.env("STATE_DIRECTORY", "/var/lib/q:/var/lib/r"),
            "/var/lib/q",
        ),
    ] {
        let identity = run(inputs.compat_server("")).settings.identity;
        assert_eq!(identity, ServerIdentity::State(dir.into()), "{inputs:?}");
    }
}

#[test]
fn bad_input_is_named_with_its_remedy() {
    let inputs = TestInputs::default().file("f", "");
    for (flags, message) in [
        (
            "--listen-on 7500",
            "--listen-on: \"7500\" is not HOST:PORT: write both, as in 127.0.0.1:7500",
        ),
        (
            "--listen-on example.net:7500",
            "--listen-on: \"example.net\" is not an address of this machine: write a \
            number such as 127.0.0.1 or [::1], or nothing for all",
        ),
        (
            "--listen-on 0.0.0.0:x",
            "--listen-on: bad port \"x\": write a number from 0 to 65535",
        ),
        (
            "--token-parser-plugin JWT",
            "--token-parser-plugin: unknown value \"JWT\": choose Cleartext",
        ),
        (
            "--token-parser-key base46",
            "--token-parser-key: unknown value \"base46\": choose base64 or nothing",
        ),
        (
            "--verify-client",
            "--verify-client: needs the certificate authorities of clients | --verify-client --ca-file FILE",
        ),
        (
            "--verify-remote-endpoint",
            "--verify-remote-endpoint: needs the certificate authorities of clients | \
            --verify-remote-endpoint --ca-file FILE",
        ),
        (
            "--allow-unix false",
            "--allow-unix: quic-tun ignores the word \"false\" after it and turns it on | \
            --allow-unix=false, or --allow-unix alone",
        ),
        (
            "--pin x",
            "--pin: a flag of quictun-client, not of quictun-server",
        ),
        (
            "--cert-file f",
            "--cert-file: needs its private key: add --key-file FILE",
        ),
        (
            "--max-connections 0",
            "--max-connections: \"0\" is not a whole number from 1 to 10000000",
        ),
        (
            "--dial-timeout 99ms",
            "--dial-timeout: must lie between 100ms and 1h",
        ),
    ] {
        usage(inputs.compat_server(flags), message, flags);
    }
    failure(
        inputs.compat_server("--ca-file gone"),
        "--ca-file: cannot read gone: entity not found",
        "",
    );
}
