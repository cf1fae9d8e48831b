//! Tests of the text that `quictun status` prints.

use serde_json::json;

use super::*;

const NOW: &str = "2026-08-01T12:10:00Z";

fn shown(
    status: serde_json::Value,
    connections: serde_json::Value,
    tunnels: serde_json::Value,
) -> String {
    let answer = Answer {
        status: serde_json::from_value(status).expect("a status"),
        connections: serde_json::from_value(connections).expect("connections"),
        tunnels: serde_json::from_value(tunnels).expect("tunnels"),
        bonds: serde_json::from_value(json!({"bonds": [
            {"id": "b04d0001", "client": "laptop", "detached_flows": 0, "kept_bytes": 5000, "alone_seconds": null},
            {"id": "b04d0002", "client": "sensor", "detached_flows": 2, "kept_bytes": 70_000, "alone_seconds": 61.0},
        ]})).expect("bonds"),
    };
    page(&answer, NOW.parse().expect("a time"))
}

fn status(reload: &serde_json::Value) -> serde_json::Value {
    json!({
        "version": "0.1.0", "side": "server", "pid": 4711, "started_at": "2026-07-29T07:10:00Z",
        "uptime_seconds": 277_201.5, "ready": true, "reason": null, "listen": ["udp [::]:7500"],
        "workers": 2, "workers_silent": [], "connections": 2, "tunnels": 25, "sent_bytes": 1,
        "received_bytes": 1, "reload": reload, "detached_tunnels": 2, "bonds": 2,
        "kept_bytes": 75_000, "moves": 606, "move_seconds_p50": 0.75, "move_seconds_p99": 2.0,
        "moves_refused": 0,
    })
}

fn connection(peer: Option<&str>, remote: &str) -> serde_json::Value {
    json!({
        "remote": remote, "protocol": "quictun/1", "peer": peer, "age_seconds": 7325.0,
        "unresponsive": peer.is_none(), "flows": 3, "rtt_seconds": 0.0234, "loss_ratio": 0.0123,
        "sent_bytes": 1_234_567, "received_bytes": 99_949, "id": 1, "worker": 0,
        "opened_at": "2026-08-01T10:07:55Z", "limited_by": "application", "packets_sent": 1000,
        "packets_lost": 12,
    })
}

fn tunnel(target: &str, bytes: u64) -> serde_json::Value {
    json!({
        "id": "18618c52", "worker": 0, "connection": 1, "target": target, "client_app": null, "server_app": "127.0.0.1:22", "age_seconds": 61.0,
        "established": bytes > 0, "detached_seconds": (bytes == 23).then_some(12.0), "to_tunnel_bytes": bytes, "to_app_bytes": 1000 * bytes,
    })
}

#[test]
fn a_page_has_80_columns_and_the_busiest_tunnels_first() {
    let reload = json!({
        "reloaded_at": "2026-08-01T12:04:59Z", "reload_error": null,
        "changes": ["client \"a\": added", "client \"b\": removed"], "restart": ["listen"],
    });
    let remote = "[2001:db8:1234:5678:9abc:def0:1234:5678]:50000";
    let connections = json!({"workers_silent": [], "connections": [
        connection(Some("laptop.example.net"), "192.0.2.1:50000"), connection(None, remote),
    ]});
    let mut tunnels: Vec<_> = (0..24).map(|n| tunnel("tcp:127.0.0.1:22", n)).collect();
    tunnels.push(tunnel(
        "tcp:a-name-that-is-too-long-for-its-column.example:443",
        999_999,
    ));
    let text = shown(status(&reload), connections, json!({"tunnels": tunnels}));
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let expected = "\
quictun server 0.1.0, process 4711, up 3d05h: ready
listens on UDP [::]:7500
workers: 2, all answer
configuration: reloaded 5m01s ago, changes: 2
needs a restart: listen

2 connections
PEER       ADDRESS                    UP FLOWS     RTT   LOSS     SENT RECEIVED
laptop.ex… 192.0.2.1:50000         2h02m     3   23 ms  1.2 %   1.2 MB  99.9 kB
quictun/1  [2001:db8:1234:5678:…   2h02m     3  SILENT  1.2 %   1.2 MB  99.9 kB

2 bonds, 75.0 kB kept; 606 moves of flows, half within 750 ms, 99 % within 2 s
CLIENT                        BOND                    WAITS     FLOWS      KEPT
sensor                        b04d0002                1m01s         2   70.0 kB

25 flows
TARGET                        ADDRESS                    UP TO TUNNEL    TO APP
tcp:a-name-that-is-too-long-… 127.0.0.1:22            1m01s    1.0 MB    1.0 GB
tcp:127.0.0.1:22              moving for 12s          1m01s      23 B   23.0 kB
";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.ends_with("\nand 5 more: --json shows all\n"), "{text}");
}

#[test]
fn several_servers_are_shown_with_the_reason_for_their_state() {
    let mut client = status(&json!(null));
    let server = |name: &str, why: &str, rtt: Option<f64>| json!({"name": name, "why": why, "flows": 3, "rtt_seconds": rtt});
    let near = server("near.example:7500", "in use: it is faster", Some(0.02));
    let lost = "cannot be used: the connection timed out after a while";
    client["servers"] = json!([near, server("far.example:7500", lost, None)]);
    let nothing = json!({"connections": [], "workers_silent": []});
    let text = shown(client.clone(), nothing.clone(), json!({"tunnels": []}));
    let expected = "
2 servers
SERVER                            RTT FLOWS STATE
near.example:7500               20 ms     3 in use: it is faster
far.example:7500                          3 cannot be used: the connection timed
                                            out after a while
";
    assert!(text.contains(expected), "{text}");
    client["servers"].as_array_mut().expect("a list").pop();
    let text = shown(client.clone(), nothing.clone(), json!({"tunnels": []}));
    assert!(!text.contains("SERVER"), "a table of one: {text}");
    client["servers"][0]["tls_address"] = json!("near.example:443");
    let text = shown(client.clone(), nothing.clone(), json!({"tunnels": []}));
    let passes =
        "Where QUIC does not pass to near.example:7500, TLS over TCP to near.example:443 does.";
    assert!(text.contains(passes), "{text}");
    client["servers"][0]["quic"] = json!("blocked");
    client["listen"] = json!(["udp [::]:7500", "tls [::]:443"]);
    client["outbound_proxy"] = json!("http://proxy.example:3128");
    let text = shown(client.clone(), nothing.clone(), json!({"tunnels": []}));
    let proxy = "\nTLS over TCP leads through the proxy http://proxy.example:3128\n";
    assert!(text.contains(proxy), "{text}");
    let carries = "TLS over TCP to near.example:443 carries the flows";
    assert!(text.contains(carries), "{text}");
    assert!(
        text.contains("\nlistens on TCP [::]:443, for TLS\n"),
        "{text}"
    );
    client["servers"][0]["rtt_seconds"] = json!(null);
    let text = shown(client, nothing, json!({"tunnels": []}));
    assert!(text.contains("is tried first"), "no connection: {text}");
}

#[test]
fn servers_of_a_service_are_shown_with_their_priority_and_weight() {
    let mut client = status(&json!(null));
    let server = |name: &str, record: [Option<u16>; 2], why: &str| {
        let [priority, weight] = record;
        json!({
            "name": name, "service": "srv:example", "priority": priority, "weight": weight,
            "why": why, "flows": 3, "rtt_seconds": 0.02,
        })
    };
    let used = "in use: first by priority and weight";
    let stands_by = "stands by: one with a lower priority number answers";
    client["servers"] = json!([
        server("one.example:7500", [Some(10), Some(65_535)], used),
        server("two.example:7500", [Some(20), Some(0)], stands_by),
        server("far.example:7500", [None, None], "is being connected to"),
    ]);
    let nothing = json!({"connections": [], "workers_silent": []});
    let text = shown(client, nothing, json!({"tunnels": []}));
    let expected = "
3 servers
SERVER                     PRIO WEIGHT     RTT FLOWS STATE
one.example:7500             10  65535   20 ms     3 in use: first by priority
                                                     and weight
two.example:7500             20      0   20 ms     3 stands by: one with a lower
                                                     priority number answers
far.example:7500                         20 ms     3 is being connected to
";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn faults_are_in_capitals_and_no_text_acts_on_the_terminal() {
    let reload = json!({
        "reloaded_at": "2026-08-01T12:09:59Z", "reload_error": "bad\u{1b}[31m file", "changes": [],
        "restart": [],
    });
    let mut bad = status(&reload);
    bad["ready"] = json!(false);
    bad["reason"] = json!("draining: open flows are being finished");
    bad["workers_silent"] = json!([1]);
    bad["connections"] = json!(0);
    bad["tunnels"] = json!(1);
    bad["bonds"] = json!(0);
    bad["moves"] = json!(0);
    let evil = "tcp:\u{202e}evil\u{7}\u{9b}31m\n:22";
    let text = shown(
        bad,
        json!({"connections": [], "workers_silent": []}),
        json!({"tunnels": [tunnel(evil, 0)]}),
    );
    let expected = "\
quictun server 0.1.0, process 4711, up 3d05h: NOT READY: draining: open flows
  are being finished
listens on UDP [::]:7500
workers: 2, and 1 do NOT answer: [1]
configuration: the reload 1s ago FAILED: bad?[31m file

0 connections

1 flow
TARGET                        ADDRESS                    UP TO TUNNEL    TO APP
tcp:?evil??31m?:22            connecting              1m01s       0 B       0 B
";
    assert_eq!(text, expected);
}

#[test]
fn flows_that_a_take_over_would_reset_are_counted_by_their_reasons() {
    let mut server = status(&json!(null));
    let empty = || json!({"connections": [], "workers_silent": []});
    let fates = |lost: usize| json!({"continuing": 9, "without_bond": lost, "half_reset": 0, "unanswered": lost, "own_socket": lost / 2});
    server["take_over"] = fates(0);
    let text = shown(server.clone(), empty(), json!({"tunnels": []}));
    assert!(!text.contains("--take-over"), "{text}");
    server["take_over"] = fates(2);
    let text = shown(server, empty(), json!({"tunnels": []}));
    let expected = "
25 flows
--take-over would continue 9, and reset the others: 2 without a bond, 2 not
  answered yet, 1 that only this process can carry
";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_process_that_has_not_been_reloaded_says_so_and_one_that_cannot_says_nothing() {
    let none = json!({"reloaded_at": null, "reload_error": null, "changes": [], "restart": []});
    let empty = || {
        (
            json!({"connections": [], "workers_silent": []}),
            json!({"tunnels": []}),
        )
    };
    let (connections, tunnels) = empty();
    let text = shown(status(&none), connections, tunnels);
    assert!(text.contains("configuration: as at the start\n"), "{text}");
    let (connections, tunnels) = empty();
    let text = shown(status(&json!(null)), connections, tunnels);
    assert!(!text.contains("configuration"), "{text}");
}

#[test]
fn a_program_at_the_https_proxy_has_its_client_and_no_round_trip_time() {
    let mut program = connection(Some("laptop"), "192.0.2.1:50000");
    program["protocol"] = json!("http/1.1");
    program["carrier"] = json!("tls");
    let connections = json!({"workers_silent": [], "connections": [program]});
    let text = shown(status(&json!(null)), connections, json!({"tunnels": []}));
    let line = text.lines().find(|line| line.starts_with("laptop "));
    let columns: Vec<_> = line.expect("a line").split_whitespace().collect();
    assert_eq!(columns[4..6], ["-", "HTTPS"], "{text}");
}

#[test]
fn the_certificate_has_a_line_and_a_problem_has_another() {
    for (expires, problem, expected) in [
        (
            json!("2026-08-31T12:10:00Z"),
            json!(null),
            "certificate for a.example, b.example: expires in 30d00h; next order in 2h00m\nworkers",
        ),
        (
            json!("2026-07-31T12:10:00Z"),
            json!("firewall: check it"),
            "certificate for a.example, b.example: EXPIRED 1d00h ago; next order in 2h00m\nno new certificate: firewall: check it\nworkers",
        ),
        (
            json!(null),
            json!(null),
            "certificate for a.example, b.example: NONE YET; next order in 2h00m\nworkers",
        ),
    ] {
        let mut server = status(&json!(null));
        server["certificate"] = json!({
            "names": ["a.example", "b.example"], "expires_at": expires, "problem": problem,
            "next_attempt_at": "2026-08-01T14:10:00Z",
        });
        let nothing = json!({"connections": [], "workers_silent": []});
        let text = shown(server, nothing, json!({"tunnels": []}));
        assert!(text.contains(expected), "{text}");
    }
}
