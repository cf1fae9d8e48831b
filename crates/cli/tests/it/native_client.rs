//! `quictun client`: flags and file.

mod bad_input;
mod commands;
mod example;
mod forwards;
mod outbound_proxy;
mod servers;

use std::time::Duration;

use quictun_stackd::settings::{Routes, TunDevice, TunSettings};
use quictun_trust::settings::{CertificateFiles, Offer, ServerTrust};
use quictun_tunnel::settings::ClientSettings;

use quictun_cli::native::Action;

use crate::test_inputs::{PIN, SettingLines, TestInputs, client_lines, default_transport, differ};

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
        "Loopback(2222) -> Target(Tcp { family: Any, host: \"127.0.0.1\", port: 22 })"
    );
}

#[test]
fn keys_that_a_reload_applies_need_no_restart() {
    let inputs = TestInputs::default().file("f", "a:b");
    let kept = |line: &str| match inputs.native(line).expect(line) {
        Action::Client(client) => client.restart_settings,
        other => panic!("{other:?}"),
    };
    let started = kept(&minimal());
    for (line, changed) in [
        (minimal() + " -L 1=h:1 -D 2 -R 3=h:3 --redirect 4 --tproxy 5", &[][..]),
        (
            "client --server a:1 --server b:2 --ca f --cert f --key f --psk-file f --offer both -D 2".to_owned(),
            &[],
        ),
        (
            minimal() + " --proxy-users f --proxy-protocol *:80 --send-app-addresses",
            &[],
        ),
        (
            minimal() + " --congestion cubic --idle-timeout 7s --keep-alive 1s --drain 1s",
            &[],
        ),
        (
            minimal() + " --workers 77 --http off",
            &["control.http", "transport.workers"],
        ),
    ] {
        assert_eq!(started.changed(&kept(&line)), changed, "{line}");
    }
}

#[test]
fn flags_become_settings() {
    let inputs = TestInputs::default().file("f", "");
    let base = lines(&inputs, &minimal());
    for (flags, name, value) in [
        ("--offer both", "offer", "Both".to_owned()),
        ("--send-app-addresses", "sends_sources", "true".to_owned()),
        ("--take-over", "take_over", "true None".to_owned()),
        ("--state-dir d", "take_over", "false Some(\"d\")".to_owned()),
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

#[test]
fn the_socket_for_take_overs_is_in_the_users_runtime_directory_unless_given() {
    let inputs = TestInputs::default().env("XDG_RUNTIME_DIR", "/run/user/7");
    let place = |line: &str| {
        let settings = inputs.native_client(line).expect("a client");
        (settings.state_dir, settings.state_dir_is_default)
    };
    let default = "/run/user/7/quictun".into();
    assert_eq!(place(&minimal()), (Some(default), true));
    let given = minimal() + " --state-dir /var/lib/c";
    assert_eq!(place(&given), (Some("/var/lib/c".into()), false));
    // It ends with its command.
    let connect = format!("connect --server h:7500 --pin {PIN} h:1");
    let connect = match inputs.native(&connect) {
        Ok(Action::Connect(plan)) => plan.settings.state_dir,
        other => panic!("{other:?}"),
    };
    assert_eq!(connect, None);
}

/// Returns the settings of a client with these flags beside the minimum.
fn client(flags: &str) -> ClientSettings {
    let inputs = TestInputs::default().file("f", "");
    let line = format!("{} {flags}", minimal());
    inputs
        .native_client(&line)
        .unwrap_or_else(|fault| panic!("{line}: {fault}"))
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
