//! `quictun-client`: the input that it refuses, with the messages.

use crate::test_inputs::{PIN, TestInputs, failure, run, usage};

const MINIMAL: &str = "--server-endpoint h:7500 --token-source tcp:127.0.0.1:22";

/// Flags, each with the message that they must cause.
const BAD: &[(&str, &str)] = &[
    (
        "--lisen-on x",
        "--lisen-on: unknown flag | did you mean --listen-on?",
    ),
    (
        "--frobnicate",
        "--frobnicate: unknown flag | `quictun-client --help` shows the usage",
    ),
    (
        "-x",
        "-x: unknown flag | `quictun-client --help` shows the usage",
    ),
    (
        "--allow-unix",
        "--allow-unix: a flag of quictun-server, not of quictun-client",
    ),
    (
        "--workers",
        "command line: a value is required for '--workers <N>' but none was supplied | \
            `quictun-client --help` shows the usage",
    ),
    (
        "--server-endpoint ''",
        "--server-endpoint: the server to dial is missing | quictun-client \
        --server-endpoint HOST:7500 --token-source tcp:127.0.0.1:22",
    ),
    (
        "--server-endpoint h",
        "--server-endpoint: \"h\" is not HOST:PORT: write both, as in 127.0.0.1:7500",
    ),
    (
        "--listen-on 6500",
        "--listen-on: unsupported network \"6500\": write tcp:ADDRESS:PORT or unix:/PATH",
    ),
    (
        "--listen-on ''",
        "--listen-on: unsupported network \"\": write tcp:ADDRESS:PORT or unix:/PATH",
    ),
    (
        "--token-source ''",
        "--token-source: the target is missing | --token-source tcp:127.0.0.1:22, as the \
        server's machine sees it",
    ),
    (
        "--token x",
        "--token: given beside token-source: keep one of them",
    ),
    (
        "--token-source-plugin Redis",
        "--token-source-plugin: unknown value \"Redis\": choose Fixed, File or Http",
    ),
    (
        "--token-source-plugin http",
        "--token-source: is not a URL: write http://HOST:PORT/PATH or https://HOST/PATH",
    ),
    (
        "--offer all",
        "--offer: unknown value \"all\": choose both, native or compat",
    ),
    (
        "--pin sha256:abc",
        "--pin: a pin has 43 characters after sha256:, not 3: copy it whole from the server's \
        start-up lines",
    ),
    (
        "--insecure-skip-verify --verify-remote-endpoint",
        "--insecure-skip-verify: contradicts \
        verify-remote-endpoint: keep one of them",
    ),
    (
        "--key-file k",
        "--key-file: needs its certificate: add --cert-file FILE",
    ),
    (
        "--cert-file k",
        "--cert-file: needs its private key: add --key-file FILE",
    ),
    (
        "--httpd-listen-on 8086",
        "--httpd-listen-on: \"8086\" is not HOST:PORT: write both, as in 127.0.0.1:7500",
    ),
    (
        "--log-level loud",
        "--log-level: unknown level \"loud\": choose trace, debug, info, warn, error or off",
    ),
    (
        "--log-format xml",
        "--log-format: unknown value \"xml\": choose console or json",
    ),
    (
        "--workers 0",
        "--workers: \"0\" is not a whole number from 1 to 256, or auto",
    ),
    (
        "--workers 257",
        "--workers: \"257\" is not a whole number from 1 to 256, or auto",
    ),
    (
        "--connections -1",
        "-1: unknown flag | `quictun-client --help` shows the usage",
    ),
    (
        "--connections=-1",
        "--connections: \"-1\" is not a whole number from 1 to 1024, or auto",
    ),
    (
        "--congestion bbr",
        "--congestion: unknown value \"bbr\": choose auto, cubic, newreno, background or fixed:RATE",
    ),
    (
        "--congestion fixed:1kbit",
        "--congestion: a fixed rate must be 100kbit or more",
    ),
    (
        "--idle-timeout 30",
        "--idle-timeout: `30` is not a time; write it like 1.5ms, 30s, 1m30s, 12h or 7d",
    ),
    (
        "--idle-timeout 999ms",
        "--idle-timeout: must lie between 1s and 1h",
    ),
    (
        "--idle-timeout 3601s",
        "--idle-timeout: must lie between 1s and 1h",
    ),
    (
        "--keep-alive 60s",
        "--keep-alive: must be shorter than idle-timeout, or a quiet connection is taken for \
        a dead one",
    ),
    (
        "--memory-budget 1Gb",
        "--memory-budget: `1Gb` is not a size; write it like 64KiB, 8MiB or 1.5GiB",
    ),
    (
        "--memory-budget 1023KiB",
        "--memory-budget: must lie between 1MiB and 1TiB",
    ),
    (
        "--max-flows 0",
        "--max-flows: \"0\" is not a whole number from 1 to 10000000",
    ),
    (
        "--udp-buffer 2GiB",
        "--udp-buffer: must lie between 16KiB and 1GiB",
    ),
    (
        "--max-udp-payload 1199",
        "--max-udp-payload: \"1199\" is not a whole number from 1200 to 65527, or auto",
    ),
    (
        "--max-udp-payload 65528",
        "--max-udp-payload: \"65528\" is not a whole number from 1200 to 65527, or auto",
    ),
    (
        "--gso yes",
        "--gso: unknown value \"yes\": choose on or off",
    ),
    ("--drain 2h", "--drain: must lie between 0s and 1h"),
];

#[test]
fn bad_input_is_named_with_its_remedy() {
    let inputs = TestInputs::default().file("k", "").file("ca", "");
    for &(flags, message) in BAD {
        // A later flag overrides the same flag of the minimal command line.
        usage(
            inputs.compat_client(&format!("{MINIMAL} {flags}")),
            message,
            flags,
        );
    }
    let contradiction = format!("{MINIMAL} --pin {PIN} --verify-remote-endpoint");
    let message = "--pin: contradicts verify-remote-endpoint: a pinned server needs no authority; keep one of them";
    usage(
        inputs.compat_client(&contradiction),
        message,
        &contradiction,
    );
    let long = "x".repeat(513);
    let message = "--token-source: the token is 513 bytes long: at most 512 can be sent";
    usage(
        inputs.compat_client(&format!("--server-endpoint h:1 --token-source {long}")),
        message,
        "513 bytes",
    );
    run(inputs.compat_client(&format!(
        "--server-endpoint h:1 --token-source {}",
        &long[..512]
    )));
}

#[test]
fn a_missing_ca_key_or_certificate_file_ends_the_program() {
    let inputs = TestInputs::default().file("c", "").locked_file("locked");
    for (flags, message) in [
        (
            "--ca-file gone",
            "--ca-file: cannot read gone: entity not found",
        ),
        (
            "--ca-file gone --verify-remote-endpoint",
            "--ca-file: cannot read gone: entity not found",
        ),
        (
            "--ca-file locked",
            "--ca-file: cannot read locked: permission denied",
        ),
        (
            "--cert-file gone --key-file c",
            "--cert-file: cannot read gone: entity not found",
        ),
        (
            "--cert-file c --key-file gone",
            "--key-file: cannot read gone: entity not found",
        ),
    ] {
        failure(
            inputs.compat_client(&format!("{MINIMAL} {flags}")),
            message,
            flags,
        );
    }
}
