//! The servers that a client dials: `--server`, `server` and `[[server]]`, and what identifies each server.

use super::{lines, minimal};
use crate::test_inputs::{PIN, TestInputs, usage};

const FORWARD: &str = "[[forward]]\nlisten = 1\ntarget = 'h:1'\n";

/// A pin other than [`PIN`].
const OTHER: &str = "sha256:n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is0V1sFbDwCgg";

const FLAG_FORWARD: &str = "-L 1=h:1";

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
fn a_tcp_port_applies_to_the_servers_that_are_named_by_host() {
    let tables = format!(
        "ca = 'system'\ntls_port = 443\n[[server]]\naddress = 'a'\n[[server]]\naddress = 'b'\ntls_port = 8443\n\
         [[server]]\naddress = 'srv:x.example'\n{FORWARD}"
    );
    let inputs = TestInputs::default().file("c.toml", &tables);
    let found = lines(&inputs, "client -c c.toml");
    assert_eq!(found["tls_port"], "Some(443)");
    let ports: Vec<_> = found["other_servers"].split("tls_port: ").skip(1).collect();
    assert!(ports[0].starts_with("Some(8443)"), "{ports:?}");
    assert!(ports[1].starts_with("None"), "{ports:?}");
    let flags = format!("client --ca system {FLAG_FORWARD} --server a --tls-port 443");
    assert_eq!(
        lines(&TestInputs::default(), &flags)["tls_port"],
        "Some(443)"
    );
    assert_eq!(
        lines(&TestInputs::default(), &minimal())["tls_port"],
        "None"
    );
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
            "--server srv:x.example --tls-port 443",
            "--tls-port: is for a server that is named by its host: the records of a service name its TCP ports, so leave it out",
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
            "pin = 'PIN'\ntls_port = 0",
            "c.toml: server b:2: tls_port: ",
        ),
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
