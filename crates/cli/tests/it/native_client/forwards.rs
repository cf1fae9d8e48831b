//! Forwards and proxies: `-L`, `-D` and `[[forward]]`.

use quictun_tunnel::settings::{Forward, ForwardTo, ListenOn};
use quictun_wire::target::Target;

use super::{client, lines};
use crate::test_inputs::{PIN, TestInputs, usage};

fn target(text: &str) -> ForwardTo {
    ForwardTo::Target(Target::parse(text).expect("a target"))
}

#[test]
fn forwards_are_added_in_their_order() {
    let tcp = |listen: &str| ListenOn::Tcp(listen.parse().expect("an address"));
    let ssh = || target("tcp:127.0.0.1:22");
    let first = (ListenOn::Loopback(2222), ssh());
    for (flags, more) in [
        (
            "-L unix:/a=unix:/b",
            vec![(ListenOn::Unix("/a".into()), target("unix:/b"))],
        ),
        (
            "-L [::1]:2223=127.0.0.1:22",
            vec![(tcp("[::1]:2223"), ssh())],
        ),
        (
            "--forward 0=127.0.0.1:22,0=127.0.0.1:22",
            vec![
                (ListenOn::Loopback(0), ssh()),
                (ListenOn::Loopback(0), ssh()),
            ],
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
    // A forward that names ::1 has it, and the port alone is the other address.
    let both = client("-L [::1]:2222=127.0.0.1:22").forwards;
    let listen: Vec<_> = both.into_iter().map(|forward| forward.listen).collect();
    assert_eq!(listen, [tcp("127.0.0.1:2222"), tcp("[::1]:2222")]);
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
            "Loopback(3) -> Proxy; Unix(\"/s\") -> Proxy",
        ),
    ] {
        let found = lines(&inputs, &format!("client -c c.toml {flags}"));
        assert_eq!(
            found["forwards"],
            format!("Loopback(1) -> {to}; {forwards}")
        );
        assert_eq!(found["proxy_users"], "Some(\"f\")");
    }
}

#[test]
fn the_client_of_a_command_takes_no_listener_of_a_running_client() {
    let file = format!(
        "server = 'h:1'\npin = '{PIN}'\nredirect = 7501\nreverse = ['1=h:1']\n\
         [[forward]]\nlisten = 2222\ntarget = 'h:1'\n[[forward]]\nlisten = 1080\nproxy = true\n"
    );
    let inputs = TestInputs::default().file("c.toml", &file);
    let client = |flags: &str| {
        let line = format!("client -c c.toml {flags}");
        let client = inputs.native_client(&line).expect("a client");
        (client.forwards.len(), client.reverse.len())
    };
    assert_eq!(client("--tun-fd 5"), (4, 1));
    assert_eq!(client("--tun-fd 5 --for-command"), (0, 0));
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
fn ranges_of_ports_are_forwards_in_flags_and_files() {
    let file = format!(
        "server = 'h:1'\npins = ['{PIN}']\nreverse = ['9000-9002=h:1-3']\n\
         [[forward]]\nlisten = '8000-8001'\ntarget = 'h:90-91'\n"
    );
    let inputs = TestInputs::default().file("c.toml", &file);
    let counts = |flags: &str| {
        let line = format!("client -c c.toml {flags}");
        let client = inputs.native_client(&line).expect(flags);
        (client.forwards.len(), client.reverse.len())
    };
    assert_eq!(counts(""), (2, 3));
    assert_eq!(counts("-L 1-10=h:1-10 -R 1-64=h:1-64"), (10, 64));
    let base = "client -c c.toml";
    for (flags, message) in [
        (
            "-L 8000-8010=h:9000-9009",
            "--forward: \"8000-8010=h:9000-9009\": 8000-8010 has 11 ports and h:9000-9009 has 10 ports: write two ranges \
             of the same length, as in 8000-8010=10.0.0.5:9000-9010",
        ),
        (
            "-L 1-3=h:1-3 -L 3=h:4",
            "--forward: two forwards listen on 3: keep one of them",
        ),
        (
            "-R 1-65=h:1-65",
            "--reverse: there are more than 64 reverse forwards",
        ),
    ] {
        let line = format!("{base} {flags}");
        usage(inputs.native(&line), message, &line);
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
        "Loopback(1) -> Target(Tcp { family: Any, host: \"h\", port: 1 })"
    );
    assert_eq!(
        forwards("-L 2=h:2"),
        "Loopback(2) -> Target(Tcp { family: Any, host: \"h\", port: 2 })"
    );
}
