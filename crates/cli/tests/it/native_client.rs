//! `quictun client`: flags, file, and `docs/examples/client.toml`.

use std::time::Duration;

use quictun_args::native::{ConfigTask, flags};
use quictun_args::options::Flag;
use quictun_cli::native::Action;
use quictun_stackd::settings::{Routes, TunDevice, TunSettings};
use quictun_trust::settings::{CertificateFiles, Offer, ServerTrust};
use quictun_tunnel::settings::{ClientSettings, Forward, ForwardTo, ListenOn};
use quictun_wire::target::Target;

use crate::test_inputs::{
    PIN, SettingLines, TestInputs, client_lines, default_transport, differ, failure, usage,
};

const EXAMPLE: &str = include_str!("../../../../docs/examples/client.toml");

fn minimal() -> String {
    format!("client --server h:7500 --pin {PIN} -L 2222=127.0.0.1:22")
}

fn lines(inputs: &TestInputs, line: &str) -> SettingLines {
    client_lines(
        &inputs
            .native_client(line)
            .unwrap_or_else(|fault| panic!("{line}: {fault}")),
    )
}

#[test]
fn the_defaults_verify_the_server_and_speak_the_native_protocol() {
    let settings = TestInputs::default()
        .native_client(&minimal())
        .expect("a client");
    assert_eq!(settings.offer, Offer::Native);
    assert_eq!(settings.transport, default_transport());
    assert!(settings.control.httpd_is_default);
    let lines = client_lines(&settings);
    assert_eq!(lines["trust"], format!("Pins([{PIN}])"));
    assert_eq!(lines["httpd"], "127.0.0.1:8086");
    assert_eq!(
        lines["forwards"],
        "Tcp(127.0.0.1:2222) -> Target(Tcp { family: Any, host: \"127.0.0.1\", port: 22 })"
    );
}

#[test]
fn flags_become_settings() {
    let inputs = TestInputs::default().file("f", "");
    let base = lines(&inputs, &minimal());
    for (flags, name, value) in [
        ("--offer both", "offer", "Both".to_owned()),
        ("--send-app-addresses", "sends_sources", "true".to_owned()),
        (
            "--proxy-protocol *:80,unix:/a",
            "headed",
            "*:80 unix:/a".to_owned(),
        ),
        ("--compat-json", "compat_json", "true".to_owned()),
        ("--no-confine", "confine", "false".to_owned()),
        ("--log-output a,b", "log.outputs", "a b".to_owned()),
        ("--log-format json", "log.format", "Json".to_owned()),
        ("--connections 77", "connections", "77".to_owned()),
        ("--gso off", "gso", "false".to_owned()),
    ] {
        differ(
            &lines(&inputs, &format!("{} {flags}", minimal())),
            &base,
            &[(name, &value)],
            flags,
        );
    }
    differ(
        &lines(&inputs, &format!("{} --http off", minimal())),
        &base,
        &[("httpd", "off"), ("httpd_is_default", "false")],
        "--http off",
    );
}

/// Returns the settings of a client with these flags beside the minimum.
fn client(flags: &str) -> ClientSettings {
    let inputs = TestInputs::default().file("f", "");
    let line = format!("{} {flags}", minimal());
    inputs
        .native_client(&line)
        .unwrap_or_else(|fault| panic!("{line}: {fault}"))
}

fn target(text: &str) -> ForwardTo {
    ForwardTo::Target(Target::parse(text).expect("a target"))
}

#[test]
fn forwards_are_added_in_their_order() {
    let tcp = |listen: &str| ListenOn::Tcp(listen.parse().expect("an address"));
    let ssh = || target("tcp:127.0.0.1:22");
    let first = (tcp("127.0.0.1:2222"), ssh());
    for (flags, more) in [
        (
            "-L unix:/a=unix:/b",
            vec![(ListenOn::Unix("/a".into()), target("unix:/b"))],
        ),
        (
            "-L [::1]:2222=127.0.0.1:22",
            vec![(tcp("[::1]:2222"), ssh())],
        ),
        (
            "--forward 0=127.0.0.1:22,0=127.0.0.1:22",
            vec![(tcp("127.0.0.1:0"), ssh()), (tcp("127.0.0.1:0"), ssh())],
        ),
    ] {
        let expected = std::iter::once(first.clone()).chain(more);
        let expected = expected.map(|(listen, to)| Forward { listen, to });
        assert_eq!(
            client(flags).forwards,
            expected.collect::<Vec<_>>(),
            "{flags}"
        );
    }
}

#[test]
fn proxies_are_forwards_without_a_target() {
    let file = format!(
        "server = 'h:1'\npins = ['{PIN}']\nproxy_users = 'f'\n[[forward]]\nlisten = 1\ntarget = 'h:1'\n\
         [[forward]]\nlisten = '0.0.0.0:2'\nproxy = true\n"
    );
    let inputs = TestInputs::default().file("c.toml", &file).file("f", "a:b");
    let to = "Target(Tcp { family: Any, host: \"h\", port: 1 })";
    for (flags, forwards) in [
        ("", "Tcp(0.0.0.0:2) -> Proxy"),
        (
            "-D 3 -D unix:/s",
            "Tcp(127.0.0.1:3) -> Proxy; Unix(\"/s\") -> Proxy",
        ),
    ] {
        let found = lines(&inputs, &format!("client -c c.toml {flags}"));
        assert_eq!(
            found["forwards"],
            format!("Tcp(127.0.0.1:1) -> {to}; {forwards}")
        );
        assert_eq!(found["proxy_users"], "Some(\"f\")");
    }
}

#[test]
fn a_proxy_for_others_needs_users() {
    let inputs = TestInputs::default().file("f", "a:b");
    let line = |flags: &str| format!("client --server h:1 --ca system {flags}");
    for own in [
        "-D 127.0.0.1:0",
        "-D [::1]:1080",
        "-D unix:/s",
        "-D 127.9.9.9:1",
    ] {
        assert!(inputs.native_client(&line(own)).is_ok(), "{own}");
    }
    for (listen, at) in [
        ("0.0.0.0:1080", "0.0.0.0:1080"),
        ("*:1080", "[::]:1080"),
        ("192.0.2.1:1080", "192.0.2.1:1080"),
        ("[::ffff:192.0.2.1]:1080", "[::ffff:192.0.2.1]:1080"),
    ] {
        let message = format!(
            "--proxy: {at} is reachable from other machines, and no password protects it | -D 1080 \
             for this machine alone, or --proxy-users FILE with a line USER:PASSWORD for each user"
        );
        let line = line(&format!("-D 1 -D {listen}"));
        usage(inputs.native(&line), &message, &line);
        assert!(
            inputs
                .native_client(&format!("{line} --proxy-users f"))
                .is_ok()
        );
    }
}

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
fn a_device_has_three_origins() {
    let own = |routes: Routes| TunSettings {
        device: TunDevice::Own(routes),
        dns: None,
        one_process: false,
        confirm: None,
        for_command: false,
    };
    let network = |text: &str| text.parse().expect("a network");
    for (flags, expected) in [
        (
            "--tun-fd 5 --dns 2001:db8::53",
            TunSettings {
                device: TunDevice::Inherited(5),
                dns: Some("2001:db8::53".parse().expect("an address")),
                ..own(Routes::default())
            },
        ),
        (
            "--tun --route 10.0.0.0/8,::/0 --exclude 10.1.0.0/16",
            own(Routes {
                include: vec![network("10.0.0.0/8"), network("::/0")],
                exclude: vec![network("10.1.0.0/16")],
                fail_open: false,
            }),
        ),
        (
            "--tun --fail-open --confirm 60",
            TunSettings {
                confirm: Some(Duration::from_mins(1)),
                ..own(Routes {
                    fail_open: true,
                    ..Routes::default()
                })
            },
        ),
        (
            "--tun --netstack-fd 0 --one-process",
            TunSettings {
                device: TunDevice::Apart(0),
                one_process: true,
                ..own(Routes::default())
            },
        ),
    ] {
        assert_eq!(client(flags).tun, Some(expected), "{flags}");
    }
}

#[test]
fn files_and_addresses_are_taken_as_given() {
    let identity = client("--cert f --key f").identity;
    let pair = CertificateFiles {
        cert: "f".into(),
        key: "f".into(),
    };
    assert_eq!(identity.certificate, Some(pair));
    assert_eq!(client("--psk-file f").identity.psk_file, Some("f".into()));
    let flags = "--server-address 192.0.2.1 --server-address ::1";
    let addresses: [std::net::IpAddr; 2] =
        ["192.0.2.1", "::1"].map(|text| text.parse().expect("an address"));
    assert_eq!(client(flags).server_addresses, addresses);
    let inputs = TestInputs::default().file("f", "");
    for (flags, authorities) in [("--ca f", Some("f".into())), ("--ca system", None)] {
        let line = format!("client --server h:1 -L 1=h:1 {flags}");
        let trust = inputs.native_client(&line).expect("a client").trust;
        assert_eq!(trust, ServerTrust::Authorities(authorities), "{flags}");
    }
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

/// Each line has a command line and its error message.
const BAD: &[(&str, &str)] = &[
    (
        "client",
        "--server: the server to dial is missing | quictun client --server HOST --pin \
        sha256:... -L 2222:127.0.0.1:22",
    ),
    (
        "client --server :7500 {forward} --ca system",
        "--server: a host is missing: write HOST:7500",
    ),
    (
        "client --server h:1 {forward}",
        "--pin: neither a pin nor an authority identifies the server | --pin sha256:..., \
        as the server prints it at start, or --ca FILE, or --ca system",
    ),
    (
        "client --server h:1 {forward} --ca system --pin {PIN}",
        "--pin: contradicts ca: a pinned server needs \
        no authority; keep one of them",
    ),
    (
        "client --server h:1 --ca system --tun-fd 5 --dns ns.example",
        "--dns: \"ns.example\" is not an IP address",
    ),
    (
        "client --server h:1 --ca system --tun --tun-fd 5",
        "--tun-fd: contradicts tun: keep one of them",
    ),
    (
        "client --server h:1 {forward} --ca system --exclude 10.0.0.0/8",
        "--exclude: leads nowhere without a device: add tun",
    ),
    (
        "client --server h:1 {forward} --ca system --for-command",
        "--for-command: leads nowhere without a device: add tun",
    ),
    (
        "client --server h:1 --ca system --tun --route 10.0.0.1/8",
        "--route: \"10.0.0.1/8\" has bits set behind its prefix: did you mean 10.0.0.0/8?",
    ),
    (
        "run --ca system -- true",
        "--server: the server to dial is missing | quictun client --server HOST --pin \
        sha256:... -L 2222:127.0.0.1:22",
    ),
    (
        "client --server h:1 --ca system",
        "--forward: there is nothing to forward | -L 2222:127.0.0.1:22, \
        or a [[forward]] table in the configuration file; or -D 1080; or -R; or --tun",
    ),
    (
        "client --server h:1 --ca system -D x",
        "--proxy: bad port \"x\": write a number from 0 to 65535",
    ),
    (
        "client --server h:1 --ca system {forward} -D 1 -D 2222",
        "--forward: two forwards listen on 2222: keep one of them",
    ),
    (
        "client --server h:1 --ca system -D 1 -D 1",
        "--forward: two forwards listen on 1: keep one of them",
    ),
    (
        "connect --server h:1 --ca system udp:h:1",
        "quictun connect: unsupported network \"udp\": write tcp:HOST:PORT, tcp4:HOST:PORT, \
        tcp6:HOST:PORT or unix:/PATH",
    ),
    (
        "connect --ca system h:1",
        "--server: the server to dial is missing | quictun client --server HOST --pin \
        sha256:... -L 2222:127.0.0.1:22",
    ),
    (
        "client --server h:1 --ca system -L 22",
        "--forward: \"22\": write LISTEN=TARGET, as in 2222=127.0.0.1:22, \
        or as for ssh, 2222:127.0.0.1:22",
    ),
    (
        "client --server h:1 --ca system -L x=h:1",
        "--forward: \"x=h:1\": bad port \"x\": write a number \
        from 0 to 65535",
    ),
    (
        "client --server h:1 --ca system -L 1=udp:h:1",
        "--forward: \"1=udp:h:1\": unsupported network \
        \"udp\": write tcp:HOST:PORT, tcp4:HOST:PORT, tcp6:HOST:PORT or unix:/PATH",
    ),
    (
        "client --server h:1 --ca system {forward} {forward}",
        "--forward: two forwards listen on 2222: keep \
        one of them",
    ),
    (
        "{minimal} --psk-file f --offer compat",
        "--psk-file: quic-tun's protocol carries no proof of a \
        secret: offer native or both",
    ),
    (
        "{minimal} --cert f",
        "--cert: needs its private key: add key",
    ),
    (
        "{minimal} --key f",
        "--key: needs its certificate: add cert",
    ),
    (
        "{minimal} --allow x",
        "--allow: unknown flag | `quictun client --help` shows the usage",
    ),
    ("clinet", "clinet: unknown command | did you mean client?"),
    (
        "frobnicate",
        "frobnicate: unknown command | `quictun --help` shows the usage",
    ),
    (
        "client stray",
        "stray: unexpected argument | `quictun client --help` shows the usage",
    ),
];

#[test]
fn bad_input_is_named_with_its_remedy() {
    let inputs = TestInputs::default().file("f", "");
    for &(line, message) in BAD {
        let line = line
            .replace("{minimal}", &minimal())
            .replace("{forward}", "-L 2222=127.0.0.1:22");
        usage(inputs.native(&line.replace("{PIN}", PIN)), message, &line);
    }
    for (flags, message) in [
        ("--ca gone", "--ca: cannot read gone: entity not found"),
        (
            "--cert gone --key f",
            "--cert: cannot read gone: entity not found",
        ),
        (
            "--psk-file gone",
            "--psk-file: cannot read gone: entity not found",
        ),
        (
            "--config gone.toml",
            "gone.toml: cannot read the configuration file: entity not found",
        ),
    ] {
        let line = if flags.starts_with("--ca") {
            "client --server h:1 -L 1=h:1".to_owned()
        } else {
            minimal()
        };
        failure(inputs.native(&format!("{line} {flags}")), message, flags);
    }
}

#[test]
fn flags_take_the_place_of_the_files_forwards() {
    let file =
        format!("server = 'h:1'\npins = ['{PIN}']\n[[forward]]\nlisten = 1\ntarget = 'h:1'\n");
    let inputs = TestInputs::default().file("c.toml", &file);
    let forwards = |flags: &str| {
        lines(&inputs, &format!("client --config c.toml {flags}"))["forwards"].clone()
    };
    assert_eq!(
        forwards(""),
        "Tcp(127.0.0.1:1) -> Target(Tcp { family: Any, host: \"h\", port: 1 })"
    );
    assert_eq!(
        forwards("-L 2=h:2"),
        "Tcp(127.0.0.1:2) -> Target(Tcp { family: Any, host: \"h\", port: 2 })"
    );
}

const FORWARD: &str = "[[forward]]\nlisten = 1\ntarget = 'h:1'\n";

/// A pin other than [`PIN`].
const OTHER: &str = "sha256:n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is0V1sFbDwCgg";

#[test]
fn several_servers_are_flags_a_list_or_tables() {
    let others = |inputs: &TestInputs, line: &str| lines(inputs, line)["other_servers"].clone();
    let flags = format!("client --ca system {FLAG_FORWARD} --server a --server b:2");
    let by_flags = others(&TestInputs::default(), &flags);
    assert!(by_flags.contains("host: \"b\", port: 2"), "{by_flags}");
    assert!(by_flags.contains("trust: Authorities(None)"), "{by_flags}");
    let list = format!("server = ['a', 'b:2']\nca = 'system'\n{FORWARD}");
    let tables =
        format!("ca = 'system'\n[[server]]\naddress = 'a'\n[[server]]\naddress = 'b:2'\n{FORWARD}");
    for text in [list, tables] {
        let inputs = TestInputs::default().file("c.toml", &text);
        assert_eq!(others(&inputs, "client -c c.toml"), by_flags, "{text}");
    }
    assert_eq!(others(&TestInputs::default(), &minimal()), "[]");
}

#[test]
fn a_service_is_a_server_among_others() {
    let flags = format!("client --ca system {FLAG_FORWARD} --server srv:x.example --server b:2");
    let tables = format!(
        "ca = 'system'\n[[server]]\naddress = 'srv:x.example'\n[[server]]\naddress = 'b:2'\n{FORWARD}"
    );
    let inputs = TestInputs::default().file("c.toml", &tables);
    for found in [
        lines(&TestInputs::default(), &flags),
        lines(&inputs, "client -c c.toml"),
    ] {
        assert_eq!(found["server"], "srv:x.example");
        assert!(
            found["other_servers"].contains("host: \"b\", port: 2"),
            "{found:?}"
        );
    }
    // The client listens for reverse forwards at the server before the service.
    let reverse = format!("{FLAG_FORWARD} -R 8000=h:1 --server b:2 --server srv:x.example");
    let found = lines(
        &TestInputs::default(),
        &format!("client --ca system {reverse}"),
    );
    assert_eq!(found["server"], "b 2");
}

const FLAG_FORWARD: &str = "-L 1=h:1";

#[test]
fn a_server_table_has_its_own_pin_and_secret_or_those_of_all() {
    let text = format!(
        "pin = '{PIN}'\npsk_file = 'f'\n[[server]]\naddress = 'a'\npin = '{OTHER}'\n\
         [[server]]\naddress = 'b'\npsk_file = 'g'\n{FORWARD}"
    );
    let inputs = TestInputs::default()
        .file("c.toml", &text)
        .file("f", "")
        .file("g", "");
    let found = lines(&inputs, "client -c c.toml");
    assert!(found["trust"].contains(OTHER) && !found["trust"].contains(PIN));
    assert!(found["psk_file"].contains("\"f\""), "{found:?}");
    let other = &found["other_servers"];
    assert!(other.contains(PIN) && other.contains("\"g\""), "{other}");
    // Flags replace the file's servers. Options for all servers then apply to the servers of the flags.
    let flags = lines(&inputs, "client -c c.toml --server x");
    assert_eq!(flags["other_servers"], "[]");
    assert!(flags["trust"].contains(PIN), "{flags:?}");
    let printed = inputs.printed("config print --client c.toml");
    let again = TestInputs::default()
        .file("c.toml", &printed)
        .file("f", "")
        .file("g", "");
    let again = lines(&again, "client -c c.toml");
    for key in ["server", "trust", "psk_file", "other_servers"] {
        assert_eq!(
            again[key], found[key],
            "{key} of
{printed}"
        );
    }
}

#[test]
fn servers_that_cannot_all_be_dialled_are_one_clear_error() {
    let inputs = TestInputs::default().file("f", "");
    let many: Vec<String> = (0..17).map(|n| format!("--server h{n}")).collect();
    for (flags, message) in [
        (
            "--server a:1 --server A:1",
            "--server: two servers have the address A:1: keep one of them",
        ),
        (
            "--server a --server b --tun",
            "--server: a device carries packets to one server: keep one of them",
        ),
        (&many.join(" "), "--server: 17 servers: at most 16"),
        (
            "--server srv:x.example --server srv:_quictun._udp.X.example",
            "--server: two servers have the address srv:_quictun._udp.X.example: keep one of them",
        ),
        (
            "--server srv:x.example --tun",
            "--server: a device carries packets to one server, and the records of a service may name several: name one by its host",
        ),
        (
            "--server srv:x.example -R 8000=h:1",
            "--reverse: the first server listens for reverse forwards, and the records of a service may name another one each time: put a server before it, by its host",
        ),
        (
            "--server srv:x.example --server-address 192.0.2.1",
            "--server-address: replaces the look-up of one host, and the records of a service may name several: leave it out, or name the server by its host",
        ),
        (
            "--server srv:x.example:7500",
            "--server: \"srv:x.example:7500\": a service has no port, its records name those of its servers: write srv:DOMAIN",
        ),
    ] {
        let line = format!("client --ca system {FLAG_FORWARD} {flags}");
        usage(inputs.native(&line), message, flags);
    }
    let sixteen = many[..16].join(" ");
    assert!(
        inputs
            .native_client(&format!("client --ca system {FLAG_FORWARD} {sixteen}"))
            .is_ok()
    );
    let table = |keys: &str| format!("[[server]]\naddress = 'b:2'\n{keys}\n");
    for (keys, message) in [
        (
            "",
            "c.toml: server b:2: neither a pin nor an authority identifies it: add pin or ca to its table, or above all tables for all of them",
        ),
        ("pin = 'x'", "c.toml: server b:2: "),
        (
            "pin = 'PIN'\nca = 'system'",
            "c.toml: server b:2: pin contradicts ca: keep one of them",
        ),
        (
            "pin = 'PIN'\ncert = 'f'",
            "c.toml: server b:2: cert needs its private key: add key",
        ),
        (
            "pin = 'PIN'\nkey = 'f'",
            "c.toml: server b:2: key needs its certificate: add cert",
        ),
    ] {
        let first = format!("[[server]]\naddress = 'a'\npin = '{PIN}'\n");
        let text = first + &table(&keys.replace("PIN", PIN)) + FORWARD;
        let inputs = TestInputs::default().file("c.toml", &text).file("f", "");
        let (found, _) = crate::test_inputs::fault(inputs.native("client -c c.toml"));
        assert!(found.starts_with(message), "{keys}: {found}");
    }
}

#[test]
fn a_file_with_unknown_or_misplaced_keys_is_refused() {
    for (text, parts) in [
        (
            "sever = 'h:1'",
            vec![
                "c.toml: TOML parse error at line 1",
                "unknown field `sever`",
                "| did you mean server?",
            ],
        ),
        (
            "[transport]\nworker = 1",
            vec![
                "line 2",
                "unknown field `worker`",
                "| did you mean workers?",
            ],
        ),
        (
            "[transport]\nmax_connections = 1",
            vec!["c.toml: transport.max_connections: belongs in the file of the other side"],
        ),
        ("pin = 'a'\npins = ['b']", vec!["duplicate field `pin`"]),
        (
            "offer = ['native']",
            vec!["line 1", "expected a text, a whole number, true or false"],
        ),
        (
            "[[server]]\naddress = 'h:1'\npins = 'x'",
            vec!["unknown field `pins`", "| did you mean pin?"],
        ),
        (
            "[[server]]\npin = 'x'",
            vec!["each of these tables needs one `address`"],
        ),
        (
            "[[server]]\naddress = ['h:1', 'h:2']",
            vec!["each of these tables needs one `address`"],
        ),
        (
            "[server]\naddress = 'h:1'",
            vec!["expected a text, a list of texts, or tables"],
        ),
        (
            "server = ['h:1', { address = 'h:2' }]",
            vec!["either texts or tables, not both"],
        ),
        ("drain = 1.5", vec!["unknown field `drain`"]),
        (
            "[transport]\ndrain = 1.5",
            vec!["expected a text, a whole number, true or false"],
        ),
        (
            "[[forward]]\nlisten = 1",
            vec!["c.toml: forward: \"1\" needs either a target or proxy = true"],
        ),
        (
            "[[forward]]\nlisten = 1\ntarget = 'h:1'\nproxy = true",
            vec!["c.toml: forward: \"1\" needs either a target or proxy = true"],
        ),
        (
            "[[forward]]\nlisten = 'unix:/a=b'\ntarget = 'h:1'",
            vec!["c.toml: forward.listen: \"unix:/a=b\" holds '='"],
        ),
        ("[[client]]\nname = 'x'", vec!["unknown field `client`"]),
    ] {
        let (message, exit) = crate::test_inputs::fault(
            TestInputs::default()
                .file("c.toml", text)
                .native("client --config c.toml"),
        );
        assert_eq!(exit, quictun_args::fault::Exit::Usage, "{text}");
        for part in parts {
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}

fn example() -> TestInputs {
    TestInputs::default()
        .file("client.toml", EXAMPLE)
        .file("/etc/quictun/client.crt", "")
        .file("/etc/quictun/client.key", "")
        .file("/etc/quictun/client.psk", "")
}

#[test]
fn the_example_says_what_its_comments_say() {
    let found = lines(&example(), "client --config client.toml");
    let target = |host: &str, port: u16| {
        format!("Target(Tcp {{ family: Any, host: \"{host}\", port: {port} }})")
    };
    let mut base = lines(&TestInputs::default(), &minimal());
    // The example's values are the defaults; values without a default are listed here.
    base.insert("httpd_is_default", "false".to_owned());
    differ(
        &found,
        &base,
        &[
            ("server", "example.net 7500"),
            (
                "certificate",
                "Some(CertificateFiles { cert: \"/etc/quictun/client.crt\", key: \"/etc/quictun/client.key\" })",
            ),
            ("psk_file", "Some(\"/etc/quictun/client.psk\")"),
            (
                "forwards",
                &format!(
                    "Tcp(127.0.0.1:2222) -> {}; Tcp(0.0.0.0:5432) -> {}; Unix(\"/run/quictun/docker.sock\") -> Target(Unix {{ path: \"/run/docker.sock\" }}); Tcp(127.0.0.1:1080) -> Proxy",
                    target("127.0.0.1", 22),
                    target("db.internal", 5432),
                ),
            ),
            (
                "reverse",
                "[Reverse { listen: Tcp(127.0.0.1:8000), target: Tcp { family: Any, host: \"127.0.0.1\", port: 80 } }]",
            ),
        ],
        "client.toml",
    );
    assert!(matches!(
        example().native("config check --client client.toml"),
        Ok(Action::Config(ConfigTask::Client(..)))
    ));
}

#[test]
fn the_example_names_every_key() {
    for option in flags::CLIENT
        .flags()
        .map(Flag::spec)
        .filter(|option| !option.key.is_empty())
    {
        let key = option.key.rsplit('.').next().unwrap_or(option.key);
        let named = |line: &str| {
            line.trim_start_matches("# ")
                .starts_with(&format!("{key} = "))
        };
        assert!(EXAMPLE.lines().any(named) || key == "forward", "{key}");
    }
}
