//! `quictun server`: flags, file, and `docs/examples/server.toml`.

use std::path::PathBuf;

use quictun_args::fault::Exit;
use quictun_args::native::{ConfigTask, flags};
use quictun_args::options::Flag;
use quictun_cli::native::Action;
use quictun_trust::settings::{Access, ClientProof, NamedClient};

use crate::test_inputs::{
    PIN, SettingLines, TestInputs, default_transport, differ, failure, server_lines, usage,
};

const EXAMPLE: &str = include_str!("../../../../docs/examples/server.toml");

fn lines(inputs: &TestInputs, line: &str) -> SettingLines {
    server_lines(
        &inputs
            .native_server(line)
            .unwrap_or_else(|fault| panic!("{line}: {fault}"))
            .settings,
    )
}

/// Returns the clients as `name: proofs -> rules`.
fn clients(inputs: &TestInputs, line: &str) -> Vec<String> {
    let settings = inputs
        .native_server(line)
        .unwrap_or_else(|fault| panic!("{line}: {fault}"))
        .settings;
    let Access::Named { clients, .. } = settings.access else {
        panic!("open: {line}")
    };
    let show = |client: &NamedClient| {
        let proofs: Vec<String> = client
            .proofs
            .iter()
            .map(|proof| match proof {
                ClientProof::Pin(pin) => format!("{}...", &pin.to_string()[..11]),
                ClientProof::CertificateName => "certificate".to_owned(),
                ClientProof::PskFile(path) => path.display().to_string(),
            })
            .collect();
        let rules: Vec<String> = client.allow.iter().map(ToString::to_string).collect();
        format!(
            "{}: {} -> {}",
            client.name,
            proofs.join(" "),
            rules.join(" ")
        )
    };
    clients.iter().map(show).collect()
}

#[test]
fn without_clients_the_server_denies_all() {
    let server = TestInputs::default()
        .native_server("server")
        .expect("a server");
    let Access::Named { clients, ca: None } = &server.settings.access else {
        panic!("{:?}", server.settings.access)
    };
    assert!(clients.is_empty() && server.make_psk.is_none());
    assert!(
        server.warnings.is_empty(),
        "the server says so itself: {:?}",
        server.warnings
    );
    assert_eq!(server.settings.transport, default_transport());
    let lines = server_lines(&server.settings);
    assert_eq!(lines["listen"], "[::]:7500");
    assert_eq!(lines["identity"], "State(\"/var/lib/quictun\")");
    assert_eq!(lines["httpd"], "127.0.0.1:8086");
}

#[test]
fn allow_makes_one_client_with_a_secret() {
    let inputs = TestInputs::default().env("STATE_DIRECTORY", "/s");
    let line = "server --allow 127.0.0.1:22 --allow=db:5432,*:443";
    let server = inputs.native_server(line).expect("a server");
    assert_eq!(server.make_psk, Some(PathBuf::from("/s/client.psk")));
    assert!(server.warnings.is_empty(), "{:?}", server.warnings);
    assert_eq!(
        clients(&inputs, line),
        ["default: /s/client.psk -> 127.0.0.1:22 db:5432 *:443"]
    );
    assert_eq!(
        clients(&inputs, "server --state-dir /t --allow x:1"),
        ["default: /t/client.psk -> x:1"],
        "--state-dir moves the secret"
    );
}

#[test]
fn allow_stands_beside_the_files_clients_and_replaces_its_default_clients_rules() {
    let other = format!("[[client]]\nname = 'other'\nkey = '{PIN}'\nallow = ['a:1']\n");
    let inputs = TestInputs::default()
        .file("psk", "")
        .file("other.toml", &other)
        .file(
            "default.toml",
            &format!("{other}[[client]]\nname = 'default'\npsk_file = 'psk'\nallow = ['b:2']\n"),
        );
    assert_eq!(
        clients(&inputs, "server --config other.toml --allow c:3"),
        [
            "other: sha256:47DE... -> a:1",
            "default: /var/lib/quictun/client.psk -> c:3"
        ]
    );
    assert_eq!(
        clients(&inputs, "server --config default.toml --allow c:3"),
        ["other: sha256:47DE... -> a:1", "default: psk -> c:3"]
    );
    let server = inputs
        .native_server("server --config default.toml --allow c:3")
        .expect("a server");
    assert_eq!(server.make_psk, None, "the file names its secret");
}

// PROTOCOL JOIN-5: a client that has joined is a client after a restart, and an unused invitation is not.
#[test]
fn clients_that_have_joined_stand_beside_those_of_the_file() {
    let joined =
        format!("# enrolled\n[[client]]\nname = 'laptop'\nkey = '{PIN}'\nallow = ['a:1']\n");
    let pending =
        "# quictun invitation 1: key x, until 1\n[[client]]\nname = 'phone'\nallow = []\n";
    let inputs = TestInputs::default()
        .env("STATE_DIRECTORY", "/s")
        .file("/s/clients/laptop.toml", &joined)
        .file("/s/clients/phone.toml", pending);
    let line = "server --allow b:2";
    assert_eq!(
        clients(&inputs, line),
        [
            "default: /s/client.psk -> b:2",
            "laptop: sha256:47DE... -> a:1"
        ]
    );
    let inputs = inputs.file("server.toml", "");
    let printed = inputs.printed("config print --server server.toml");
    let told = "# client \"laptop\" has joined by an invitation: /s/clients/laptop.toml";
    assert!(printed.contains(told), "{printed}");
    assert!(
        !printed.contains("[[client]]"),
        "it is in its own file: {printed}"
    );
    let broken = inputs.file("/s/clients/tablet.toml", "[[client]]\nname = 'tablet'\n");
    let fault = broken.native_server(line).expect_err("no proof");
    assert!(fault.what.contains("/s/clients/tablet.toml"), "{fault:?}");
}

#[test]
fn a_configured_client_replaces_a_joined_one_of_the_same_name() {
    let table = |name: &str, rule: &str| {
        format!("[[client]]\nname = '{name}'\nkey = '{PIN}'\nallow = ['{rule}']\n")
    };
    let tablet = table("tablet", "c:3").replace("47DE", "57DE");
    let inputs = TestInputs::default()
        .env("STATE_DIRECTORY", "/s")
        .file("server.toml", &table("laptop", "a:1"))
        .file("/s/clients/laptop.toml", &table("laptop", "b:2"))
        .file("/s/clients/tablet.toml", &tablet);
    let line = "server --config server.toml";
    assert_eq!(
        clients(&inputs, line),
        [
            "laptop: sha256:47DE... -> a:1",
            "tablet: sha256:57DE... -> c:3"
        ]
    );
    let server = inputs.native_server(line).expect("a server");
    assert_eq!(
        server.warnings,
        [
            "client \"laptop\" is left out as /s/clients/laptop.toml has it, because the configuration names it too: run `quictun invite laptop --revoke`, or take it out of the configuration"
        ]
    );
    let printed = inputs.printed("config print --server server.toml");
    assert!(!printed.contains("laptop.toml"), "{printed}");
}

#[test]
fn a_client_that_is_revoked_while_the_files_are_read_is_passed_over() {
    let joined = format!("[[client]]\nname = 'tablet'\nkey = '{PIN}'\nallow = ['a:1']\n");
    let inputs = TestInputs::default()
        .env("STATE_DIRECTORY", "/s")
        .gone_file("/s/clients/laptop.toml")
        .file("/s/clients/tablet.toml", &joined);
    assert_eq!(
        clients(&inputs, "server"),
        ["tablet: sha256:47DE... -> a:1"]
    );
    let locked = inputs.locked_file("/s/clients/phone.toml");
    let message = "/s/clients/phone.toml: cannot read the configuration file: permission denied";
    failure(locked.native_server("server"), message, "locked");
}

#[test]
fn an_invitation_may_be_valid_for_days() {
    let inputs = TestInputs::default().env("HOME", "/nonexistent");
    for valid in ["7d", "1d12h", "168h"] {
        let line = format!("invite laptop --allow a:1 --valid {valid}");
        let action = inputs.native(&line);
        assert!(action.is_ok(), "{line}: {action:?}");
    }
}

#[test]
fn a_wrong_invitation_is_refused_before_anything_is_written() {
    let inputs = TestInputs::default().env("HOME", "/nonexistent").file(
        "server.toml",
        &format!("[[client]]\nname = 'x'\nkey = '{PIN}'\n"),
    );
    for (line, what, why) in [
        ("invite laptop", "--allow", "could reach nothing"),
        ("invite laptop --allow nonsense", "--allow nonsense", ""),
        (
            "invite laptop --allow a:1 --valid 8d",
            "--valid",
            "between 1m and 7d",
        ),
        (
            "invite laptop --allow a:1 --address a/b",
            "--address",
            "is no HOST or HOST:PORT",
        ),
        ("invite laptop --allow a:1 --max-flows 0", "--max-flows", ""),
        ("invite laptop --allow a:1 --rate-up 7kbit", "--rate-up", ""),
        (
            "invite laptop --allow a:1 --rate 1mbit --rate-down 1mbit",
            "--rate",
            "rate_up and rate_down",
        ),
        ("invite laptop --allow a:1 --quota much", "--quota", ""),
        (
            "invite laptop --allow a:1 --expires tomorrow",
            "--expires",
            "is not a date",
        ),
        ("invite", "command line", ""),
        ("invite laptop --list", "", ""),
    ] {
        let fault = inputs.native(line).expect_err(line);
        assert_eq!(fault.exit, Exit::Usage, "{line}: {fault:?}");
        let told = fault.what.contains(what) && fault.why.contains(why);
        assert!(told, "{line}: {fault:?}");
    }
    let good = "invite laptop --allow a:1 --address vpn.example.net --config server.toml";
    inputs.native(good).expect("the port is that of the file");
}

#[test]
fn flags_become_settings() {
    let inputs = TestInputs::default().file("f", "");
    let base = lines(&inputs, "server");
    for (flags, name, value) in [
        ("--listen 0.0.0.0:1", "listen", "0.0.0.0:1"),
        ("--listen :1", "listen", "[::]:1"),
        ("--state-dir /s", "identity", "State(\"/s\")"),
        (
            "--cert f --key f",
            "identity",
            "Files(CertificateFiles { cert: \"f\", key: \"f\" })",
        ),
        ("--ca f", "access", "Named { clients: [], ca: Some(\"f\") }"),
        ("--dial-timeout 3s", "dial_timeout", "3s"),
        ("--ip 6", "dial_family", "V6"),
        ("--max-connections 3", "max_connections", "3"),
        ("--log-level off", "log.level", "off"),
    ] {
        let expected = if base[name] == value {
            vec![]
        } else {
            vec![(name, value)]
        };
        differ(
            &lines(&inputs, &format!("server {flags}")),
            &base,
            &expected,
            flags,
        );
    }
}

#[test]
fn a_setting_that_needs_a_restart_is_compared_by_value() {
    let inputs = TestInputs::default().file("f", "").file(
        "a.toml",
        "[transport]\nidle_timeout = '60s'\n[log]\nlevel = 'INFO'\n",
    );
    let kept = |line: &str| {
        inputs
            .native_server(line)
            .expect("a server")
            .restart_settings
    };
    let started = kept("server");
    for (flags, changed) in [
        ("--config a.toml", &[][..]),
        ("--cert f --key f --ca f --state-dir /s --allow db:1", &[]),
        ("--listen :7500 --max-udp-payload auto --no-confine", &[]),
        ("--listen :7501", &["listen"]),
        (
            "--workers 7 --idle-timeout 7s --log-level debug --http off --compat-json",
            &[
                "control.http",
                "control.compat_json",
                "log.level",
                "transport.workers",
            ],
        ),
        ("--log-output a,b", &["log.output"]),
        ("--qlog-dir q", &["transport.qlog_dir"]),
    ] {
        let now = kept(&format!("server {flags}"));
        assert_eq!(started.changed(&now), changed, "{flags}");
    }
}

/// Each line has a command line and its error message.
const BAD: &[(&str, &str)] = &[
    (
        "server --listen 127.0.0.1",
        "--listen: \"127.0.0.1\" is not HOST:PORT: write both, as in 127.0.0.1:7500",
    ),
    ("server -q -v", "--quiet: does not go with --verbose"),
    ("server --cert f", "--cert: needs its private key: add key"),
    ("server --key f", "--key: needs its certificate: add cert"),
    (
        "server --server h:1",
        "--server: unknown flag | `quictun server --help` shows the usage",
    ),
    (
        "server --config noproof.toml",
        "noproof.toml: client \"x\": has no way to prove who it is: add key, psk_file \
        or certificate = true",
    ),
    (
        "server --config noca.toml",
        "noca.toml: client \"x\": certificate = true needs the certificate authorities of \
        clients: add ca",
    ),
    (
        "server --config badpin.toml",
        "badpin.toml: client \"x\": a pin has 43 characters after sha256:, not 1: copy \
        it whole from the server's start-up lines",
    ),
    (
        "server --config other.toml",
        "other.toml: transport.connections: belongs in the file of the other side",
    ),
    (
        "config print --server f -- --config f",
        "--config: the file is given already: take this one away",
    ),
    (
        "config print",
        "command line: <--server <FILE>|--client <FILE>> is missing | \
        `quictun config print --help` shows the usage",
    ),
    (
        "config print --server f --client f",
        "command line: the argument '--server <FILE>' cannot be used with \
        '--client <FILE>' | `quictun config print --help` shows the usage",
    ),
    (
        "keygen",
        "command line: --out <DIR> is missing | `quictun keygen --help` shows the usage",
    ),
    (
        "completion tcsh",
        "command line: invalid value 'tcsh' for '<SHELL>': choose one of bash, zsh, fish | \
        `quictun completion --help` shows the usage",
    ),
    (
        "invite lap --allow h:1 --valid",
        "command line: a value is required for '--valid <DURATION>' but none was supplied | \
        `quictun invite --help` shows the usage",
    ),
    (
        "lab run x --reps",
        "command line: a value is required for '--reps <N>' but none was supplied | \
        `quictun lab run --help` shows the usage",
    ),
    (
        "config print --server f -- --idle-timeout",
        "command line: a value is required for '--idle-timeout <DURATION>' but none was supplied | \
        `quictun server --help` shows the usage",
    ),
    (
        "config frobnicate",
        "frobnicate: unknown command | `quictun config --help` shows the usage",
    ),
    (
        "config print --server f -- --frob",
        "--frob: unknown flag | `quictun server --help` shows the usage",
    ),
];

#[test]
fn bad_input_is_named_with_its_remedy() {
    let inputs = TestInputs::default()
        .file("f", "")
        .file("noproof.toml", "[[client]]\nname = 'x'\n")
        .file("noca.toml", "[[client]]\nname = 'x'\ncertificate = true\n")
        .file("badpin.toml", "[[client]]\nname = 'x'\nkey = 'sha256:x'\n")
        .file("nopsk.toml", "[[client]]\nname = 'x'\npsk_file = 'gone'\n")
        .file("other.toml", "[transport]\nconnections = 1\n");
    for &(line, message) in BAD {
        usage(inputs.native(line), message, line);
    }
    for (line, message) in [
        (
            "server --config gone.toml",
            "gone.toml: cannot read the configuration file: entity not found",
        ),
        (
            "server --ca gone",
            "--ca: cannot read gone: entity not found",
        ),
        (
            "server --config nopsk.toml",
            "nopsk.toml: client \"x\": cannot read gone: entity not found",
        ),
        (
            "config check --server gone.toml",
            "gone.toml: cannot read the configuration file: entity not found",
        ),
    ] {
        failure(inputs.native(line), message, line);
    }
}

#[test]
fn a_client_that_may_reach_nothing_is_pointed_out() {
    let idle = format!("[[client]]\nname = 'x'\nkey = '{PIN}'\n");
    let inputs = TestInputs::default().file("s.toml", &idle);
    let warnings = inputs
        .native_server("server --config s.toml --allow a:1")
        .expect("a server")
        .warnings;
    assert_eq!(
        warnings,
        ["client \"x\" may reach nothing: give it allow = [\"HOST:PORT\"]"]
    );
}

#[test]
fn targets_get_headers_by_flag_and_file_and_no_rule_is_a_name() {
    let base = lines(&TestInputs::default(), "server");
    let flags = "server --proxy-protocol 127.0.0.1:80 --proxy-protocol unix:/run/web";
    let expected = [("headed", "127.0.0.1:80 unix:/run/web")];
    differ(
        &lines(&TestInputs::default(), flags),
        &base,
        &expected,
        flags,
    );
    let inputs = TestInputs::default().file(
        "s.toml",
        "proxy_protocol = ['127.0.0.1:80', 'unix:/run/web']",
    );
    let file = "server --config s.toml";
    let mut found = lines(&inputs, file);
    let file_only = lines(&TestInputs::default().file("s.toml", ""), file);
    differ(&found, &file_only, &expected, file);
    found = lines(&inputs, "server --config s.toml --proxy-protocol *:81");
    assert_eq!(found["headed"], "*:81");
    for (rule, remedy) in [
        ("db.internal:5432", "*:PORT for every target"),
        ("unix:/run/web/*", "unix:/PATH for each socket"),
    ] {
        let line = format!("server --proxy-protocol {rule}");
        let fault = TestInputs::default().native_server(&line).expect_err(rule);
        assert!(fault.to_string().contains(remedy), "{fault}");
    }
}

#[test]
fn a_client_may_name_its_applications_where_its_table_says_so() {
    let table = |more: &str| format!("[[client]]\nname = 'x'\nkey = '{PIN}'\n{more}");
    for (more, believed) in [
        ("", false),
        ("proxy_protocol = true", true),
        ("proxy_protocol = false", false),
    ] {
        let inputs = TestInputs::default().file("s.toml", &table(more));
        let server = inputs
            .native_server("server --config s.toml")
            .expect("a server");
        let Access::Named { clients, .. } = &server.settings.access else {
            panic!("{:?}", server.settings.access)
        };
        assert_eq!(clients[0].names_sources, believed, "{more}");
        let printed = inputs.printed("config print --server s.toml");
        assert_eq!(
            printed.contains("proxy_protocol = true"),
            believed,
            "{printed}"
        );
    }
    let inputs = TestInputs::default().file("s.toml", &table("proxy_protocol = ['127.0.0.1:80']"));
    assert!(inputs.native_server("server --config s.toml").is_err());
}

fn example() -> TestInputs {
    TestInputs::default()
        .file("server.toml", EXAMPLE)
        .file("/etc/quictun/clients-ca.crt", "")
        .file("/etc/quictun/sensor.psk", "")
}

#[test]
fn the_example_says_what_its_comments_say() {
    let mut found = lines(&example(), "server --config server.toml");
    let mut base = lines(&TestInputs::default(), "server");
    // The example's values are the defaults, including the state directory of a process without a home, but they are
    // given explicitly.
    base.insert("httpd_is_default", "false".to_owned());
    let access = found.remove("access").expect("a line");
    base.remove("access");
    differ(&found, &base, &[], "server.toml");
    assert!(
        access.contains("ca: Some(\"/etc/quictun/clients-ca.crt\")"),
        "{access}"
    );
    assert_eq!(
        clients(&example(), "server --config server.toml"),
        [
            "laptop: sha256:47DE... -> 127.0.0.1:22 db.internal:5432 10.0.0.0/8:443 unix:/run/docker.sock",
            "office: sha256:AAEC... sha256:____... -> *:443",
            "sensor: /etc/quictun/sensor.psk -> collector.internal:8883",
            "backup.example.net: certificate -> 127.0.0.1:873",
        ]
    );
    assert!(matches!(
        example().native("config check --server server.toml"),
        Ok(Action::Config(ConfigTask::Server(..)))
    ));
}

#[test]
fn the_example_names_every_key() {
    for option in flags::SERVER
        .flags()
        .map(Flag::spec)
        .filter(|option| !option.key.is_empty())
    {
        let key = option.key.rsplit('.').next().unwrap_or(option.key);
        let named = |line: &str| {
            line.trim_start_matches("# ")
                .starts_with(&format!("{key} = "))
        };
        assert!(EXAMPLE.lines().any(named), "{key}");
    }
}

#[test]
fn a_single_client_table_is_told_from_an_array_of_tables() {
    for (text, parts) in [
        (
            "listen = '[::]:1'\n\n[client]\nname = 'x'\n",
            [
                "line 3",
                "client is an array of tables: write [[client]] in double brackets",
            ],
        ),
        (
            "client = { name = 'x' }\n",
            [
                "line 1",
                "client is an array of tables: write [[client]] in double brackets",
            ],
        ),
        (
            "listen = '[::]:1'\nclient = 'x'\n",
            ["line 2", "expected an array of tables, [[client]]"],
        ),
        (
            "[[client]]\nkey = 'x'\n",
            ["line 1", "missing field `name`"],
        ),
        (
            "[[client]]\nname = 'x'\nkeyz = 'x'\n",
            ["line 3", "did you mean key?"],
        ),
    ] {
        let inputs = TestInputs::default().file("s.toml", text);
        for line in ["server --config s.toml", "config check --server s.toml"] {
            let (message, exit) = crate::test_inputs::fault(inputs.native(line));
            assert_eq!(exit, Exit::Usage, "{text}");
            for part in ["s.toml: TOML parse error at "].iter().chain(&parts) {
                assert!(message.contains(part), "{text}: {message}");
            }
        }
    }
}
