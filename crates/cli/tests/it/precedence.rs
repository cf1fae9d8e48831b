//! The precedence of settings: flag > environment > file > default, the same for every program.

use crate::test_inputs::{TestInputs, run, usage};

#[test]
fn compat_a_flag_beats_the_environment_beats_the_file_beats_the_default() {
    let minimal = "--server-endpoint h:1 --token-source x --insecure-skip-verify";
    let drain = |inputs: &TestInputs, flags: &str| {
        run(inputs.compat_client(&format!("{minimal} {flags}")))
            .settings
            .transport
            .drain
            .as_secs()
    };
    let none = TestInputs::default();
    let file = none
        .clone()
        .file("/etc/quictun/quictun-client.toml", "drain = '20s'");
    let env = file.clone().env("QUICTUN_CLIENT_DRAIN", "30s");
    assert_eq!(drain(&none, ""), 10);
    assert_eq!(drain(&file, ""), 20);
    assert_eq!(drain(&env, ""), 30);
    assert_eq!(drain(&env, "--drain 40s"), 40);
    assert_eq!(drain(&file, "--drain 40s"), 40);
    // Empty variables count as unset, and variables of the other programs have no effect.
    let empty = file
        .env("QUICTUN_CLIENT_DRAIN", "")
        .env("QUICTUN_SERVER_DRAIN", "1s")
        .env("QUICTUN_DRAIN", "2s");
    assert_eq!(drain(&empty, ""), 20);
}

#[test]
fn native_a_flag_beats_the_environment_beats_the_file_beats_the_default() {
    let drain = |inputs: &TestInputs, flags: &str| {
        let server = inputs
            .native_server(&format!("server {flags}"))
            .expect("a server");
        server.settings.transport.drain.as_secs()
    };
    let file = TestInputs::default().file("s.toml", "[transport]\ndrain = '20s'\n");
    let env = file.clone().env("QUICTUN_DRAIN", "30s");
    assert_eq!(drain(&file, ""), 10);
    assert_eq!(drain(&file, "--config s.toml"), 20);
    assert_eq!(drain(&env, "--config s.toml"), 30);
    assert_eq!(drain(&env, "--config s.toml --drain=40s"), 40);
    assert_eq!(drain(&file.env("QUICTUN_CONFIG", "s.toml"), ""), 20);
}

#[test]
fn the_environment_alone_can_start_every_program() {
    let client = TestInputs::default()
        .env("QUICTUN_CLIENT_SERVER_ENDPOINT", "h:7500")
        .env("QUICTUN_CLIENT_TOKEN_SOURCE", "tcp:127.0.0.1:22")
        .env("QUICTUN_CLIENT_INSECURE_SKIP_VERIFY", "true")
        .env("QUICTUN_CLIENT_LOG_OUTPUT_PATHS", "a, b");
    let settings = run(client.compat_client("")).settings;
    assert_eq!(settings.server.name(), "h");
    assert_eq!(settings.control.log.outputs, ["a", "b"]);

    let server = TestInputs::default()
        .env("QUICTUN_SERVER_LISTEN_ON", "127.0.0.1:1")
        .env("QUICTUN_SERVER_ALLOW_UNIX", "1");
    assert_eq!(run(server.compat_server("")).settings.listen.port(), 1);

    let native = TestInputs::default()
        .env("QUICTUN_SERVER", "h:7500")
        .env("QUICTUN_CA", "system")
        .env("QUICTUN_FORWARD", "1=h:1,2=h:2");
    assert_eq!(
        native
            .native_client("client")
            .expect("a client")
            .forwards
            .len(),
        2
    );
}

#[test]
fn a_fault_names_the_layer_that_it_comes_from() {
    let minimal = "--server-endpoint h:1 --token-source x --insecure-skip-verify";
    let why = "\"x\" is not a whole number from 1 to 256, or auto";
    let file = TestInputs::default().file("c.yaml", "Workers: x");
    usage(
        file.compat_client(&format!("{minimal} -c c.yaml")),
        &format!("c.yaml: Workers: {why}"),
        "file",
    );
    let env = file.env("QUICTUN_CLIENT_WORKERS", "x");
    usage(
        env.compat_client(&format!("{minimal} -c c.yaml")),
        &format!("QUICTUN_CLIENT_WORKERS: {why}"),
        "environment",
    );
    usage(
        env.compat_client(&format!("{minimal} --workers x")),
        &format!("--workers: {why}"),
        "flag",
    );
    let native = TestInputs::default().file("s.toml", "[transport]\nworkers = 'x'\n");
    usage(
        native.native("server --config s.toml"),
        &format!("s.toml: transport.workers: {why}"),
        "native file",
    );
    usage(
        native.env("QUICTUN_WORKERS", "x").native("server"),
        &format!("QUICTUN_WORKERS: {why}"),
        "native environment",
    );
}
