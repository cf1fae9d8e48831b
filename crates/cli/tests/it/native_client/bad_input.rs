//! Input that a client refuses: command lines, files that do not exist, and keys of a configuration file.

use quictun_args::fault::Exit;

use super::minimal;
use crate::test_inputs::{PIN, TestInputs, failure, fault, usage};

/// Each line has a command line and its error message.
const BAD: &[(&str, &str)] = &[
    (
        "client",
        "--server: the server to dial is missing | -c FILE with the file that `quictun join` wrote, \
        or --server HOST --pin sha256:...",
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
        "client --server h:1 --ca system --tun --take-over",
        "--take-over: flows of a device end with its network stack: restart the client without this flag",
    ),
    (
        "run --server h:1 --ca system --take-over -- true",
        "--take-over: flows of a device end with its network stack: restart the client without this flag",
    ),
    (
        "client --server h:1 --ca system -L 1=h:2 --take-over --reload",
        "--reload: it takes over by itself from another build: leave out --take-over",
    ),
    (
        "client --server h:1 --ca system --tun --route 10.0.0.1/8",
        "--route: \"10.0.0.1/8\" has bits set behind its prefix: did you mean 10.0.0.0/8?",
    ),
    (
        "run --ca system -- true",
        "--server: the server to dial is missing | -c FILE with the file that `quictun join` wrote, \
        or --server HOST --pin sha256:...",
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
        "connect: standard input has no datagrams: use -L udp:PORT=HOST:PORT of quictun client",
    ),
    (
        "connect --server h:1 --ca system db:ssh",
        "connect: bad port \"ssh\": write a number from 1 to 65535",
    ),
    (
        "connect --ca system h:1",
        "--server: the server to dial is missing | -c FILE with the file that `quictun join` wrote, \
        or --server HOST --pin sha256:...",
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
        "--forward: \"1=udp:h:1\": 1 takes connections, and udp:h:1 takes datagrams: \
        write udp:1=udp:h:1",
    ),
    (
        "client --server h:1 --ca system {forward} -L 127.0.0.1:2222:h:1",
        "--forward: two forwards listen on 2222: keep one of them",
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
        "{minimal} --carrier tls --bond-ttl 0s",
        "--carrier: tls needs flows that outlive a connection: \
        leave out --offer compat and --bond-ttl 0s",
    ),
    (
        "{minimal} --carrier tls --offer compat",
        "--carrier: tls needs flows that outlive a connection: \
        leave out --offer compat and --bond-ttl 0s",
    ),
    (
        "{minimal} --tcp-congestion b/r",
        "--tcp-congestion: \"b/r\" is no congestion control: `sysctl net.ipv4.tcp_available_congestion_control` \
        lists those of this system",
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
    (
        "client conf/client.toml",
        "conf/client.toml: unexpected argument | did you mean -c conf/client.toml?",
    ),
    (
        "server server.toml",
        "server.toml: unexpected argument | did you mean -c server.toml?",
    ),
    (
        "config check server.toml",
        "server.toml: unexpected argument | `quictun config check --help` shows the usage",
    ),
    (
        "server.toml",
        "server.toml: unknown command | `quictun --help` shows the usage",
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

/// An upgrade of the package restarts a client with a device only if its configuration is in order.
#[test]
fn a_reload_of_a_device_needs_a_restart_unless_the_configuration_is_wrong() {
    let inputs = TestInputs::default();
    let line = "client --server h:1 --ca system --tun --reload";
    let why = "--reload: no other process takes over a device: send the client SIGHUP, or restart it for another build";
    let refused = fault(inputs.native(line));
    assert_eq!(refused, (why.to_owned(), Exit::RestartNeeded));
    let (_, exit) = fault(inputs.native(&format!("{line} --workers none")));
    assert_eq!(exit, Exit::Usage);
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
            "server = 1",
            vec!["expected a text, a list of texts, or tables"],
        ),
        (
            "offer = 'native'\n[server]\naddress = 'h:1'",
            vec![
                "c.toml: TOML parse error at line 2",
                "server is an array of tables: write [[server]] in double brackets",
            ],
        ),
        (
            "server = 'h:1'\n[forward]\nlisten = 1",
            vec![
                "c.toml: TOML parse error at line 2",
                "forward is an array of tables: write [[forward]] in double brackets",
            ],
        ),
        (
            "server = 'h:1'\nforward = '1=h:1'",
            vec!["line 2", "expected an array of tables, [[forward]]"],
        ),
        (
            "[[forward]]\nlisten = 1\nport = 2",
            vec!["line 3", "unknown field `port`"],
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
        let (message, exit) = fault(
            TestInputs::default()
                .file("c.toml", text)
                .native("client --config c.toml"),
        );
        assert_eq!(exit, Exit::Usage, "{text}");
        for part in parts {
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
