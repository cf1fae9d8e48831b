//! `quictun config print`, with the origins of its values.

use crate::test_inputs::{PIN, TestInputs, client_lines, server_lines};

#[test]
fn every_value_is_printed_with_its_origin() {
    let file = format!(
        "server = 'h:1'\npin = '{PIN}'\n[[forward]]\nlisten = 1\ntarget = 'h:1'\n[transport]\ngso = 'off'\n"
    );
    let inputs = TestInputs::default()
        .file("c.toml", &file)
        .env("QUICTUN_DRAIN", "3s");
    let text = inputs.printed("config print --client c.toml -- --connections 4");
    for line in [
        "server = [\"h:1\"]                                 # file c.toml",
        "offer = \"native\"                                 # default",
        "connections = 4                                    # flag --connections",
        "gso = \"off\"                                      # file c.toml",
        "drain = \"3s\"                                     # environment QUICTUN_DRAIN",
        "compat_json = false                                # default",
        "output = [\"stderr\"]                              # default",
        "listen = \"1\"                                     # file c.toml",
        "target = \"tcp:h:1\"                               # file c.toml",
    ] {
        // Column widths are for people; the value and its origin must be on one line.
        let (value, origin) = line.split_once('#').expect("two halves");
        let found = text
            .lines()
            .any(|l| l.starts_with(value.trim_end()) && l.ends_with(origin));
        assert!(found, "{line}\n{text}");
    }
    assert!(text.lines().any(|line| line.starts_with("workers = \"auto\"") && line.contains("# default, here ")), "{text}");
    assert!(
        !text.contains("psk_file") && !text.contains("key_log"),
        "unset values are left out:\n{text}"
    );
}

#[test]
fn a_short_flag_for_the_log_is_printed_as_the_level_that_it_makes() {
    let file = format!("server = 'h:1'\npin = '{PIN}'\n[log]\nlevel = 'error'\n");
    let inputs = TestInputs::default()
        .file("server.toml", "[log]\nlevel = 'error'\n")
        .file("client.toml", &file);
    for (line, level, origin) in [
        ("--server server.toml", "error", "# file server.toml"),
        ("--server server.toml -- -v", "debug", "# flag --verbose"),
        ("--server server.toml -- -q", "warn", "# flag --quiet"),
        (
            "--server server.toml -- -v --log-level info",
            "debug",
            "# flag --verbose",
        ),
        (
            "--client client.toml -- -v -L 1=h:1",
            "debug",
            "# flag --verbose",
        ),
    ] {
        let text = inputs.printed(&format!("config print {line}"));
        let start = format!("level = \"{level}\" ");
        let found = text.lines().find(|line| line.starts_with("level ="));
        let is_right = found.is_some_and(|line| line.starts_with(&start) && line.ends_with(origin));
        assert!(is_right, "{line}: {found:?}");
    }
}

#[test]
fn a_printed_configuration_gives_the_same_settings() {
    let inputs = TestInputs::default()
        .file(
            "client.toml",
            include_str!("../../../../docs/examples/client.toml"),
        )
        .file(
            "server.toml",
            include_str!("../../../../docs/examples/server.toml"),
        )
        .file("/etc/quictun/client.crt", "")
        .file("/etc/quictun/client.key", "")
        .file("/etc/quictun/client.psk", "")
        .file("/etc/quictun/clients-ca.crt", "")
        .file("/etc/quictun/sensor.psk", "");

    let printed =
        inputs.printed("config print --client client.toml -- --drain 3s --log-level warn,a=debug");
    let inputs = inputs.file("printed-client.toml", &printed);
    let first = inputs
        .native_client("client --config client.toml --drain 3s --log-level warn,a=debug")
        .expect("a client");
    let again = inputs
        .native_client("client --config printed-client.toml")
        .expect("a client");
    assert_eq!(client_lines(&first), client_lines(&again));

    let flags = "--allow 127.0.0.1:22 --state-dir /s --http off";
    let printed = inputs.printed(&format!("config print --server server.toml -- {flags}"));
    assert!(printed.contains("# flag --allow"), "{printed}");
    let inputs = inputs
        .file("printed-server.toml", &printed)
        .file("/s/client.psk", "");
    let first = inputs
        .native_server(&format!("server --config server.toml {flags}"))
        .expect("a server");
    let again = inputs
        .native_server("server --config printed-server.toml")
        .expect("a server");
    assert_eq!(server_lines(&first.settings), server_lines(&again.settings));
}
