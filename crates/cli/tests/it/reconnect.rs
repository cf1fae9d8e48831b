//! `quictun reconnect`: a move as the application, both logs and both HTTP interfaces see it.

use std::process::Command;

use serde_json::Value;

use crate::golden::live::{EchoTunnel, field};
use crate::programs::QUICTUN;

/// Returns the output of `quictun COMMAND --http ADDRESS`.
fn quictun(command: &[&str], http: &str) -> String {
    let output = Command::new(QUICTUN)
        .args(command)
        .args(["--http", http])
        .output()
        .expect("quictun");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_flow_moves_to_the_new_connection_and_both_sides_tell() {
    let home = tempfile::tempdir().expect("a directory");
    let mut tunnel = EchoTunnel::start(home.path());
    let (client_http, server_http) = (tunnel.client_http.clone(), tunnel.server_http.clone());
    let told = quictun(&["reconnect"], &client_http);
    assert_eq!(
        told,
        "1 connection is being replaced; flows move to the new one\n"
    );
    for (side, running) in [
        ("client", &mut tunnel.client),
        ("server", &mut tunnel.server),
    ] {
        let line = running.line("flows continue on a new connection");
        assert!(line.contains("\"flows\": 1,"), "{side}: {line}");
        let why = match side {
            "client" => "it was to be replaced",
            _ => "the client left it",
        };
        assert_eq!(field(&line, "left"), why, "{line}");
    }
    tunnel.exchange(*b"again");
    for http in [&client_http, &server_http] {
        // An answer may be up to 100 ms old, because requests within that time share one.
        let mut asks = std::iter::repeat_with(|| -> Value {
            let said = quictun(&["status", "--json"], http);
            serde_json::from_str(&said).expect("JSON")
        });
        let moved = |said: &Value| said["status"]["moves"] != 0;
        let said = asks.find(moved).expect("the flow moves");
        let status = &said["status"];
        assert_eq!(status["moves"], 1, "{said}");
        assert!(status["move_seconds_p50"].as_f64() > Some(0.0), "{said}");
        assert_eq!(status["tunnels"], 1, "{said}");
        // The old connection may still be open. Both connections belong to one bond.
        let bonds = said["bonds"].as_array().expect("a list");
        assert_eq!(bonds.len(), 1, "{said}");
        assert_eq!(said["connections"][0]["bond"], bonds[0]["id"], "{said}");
    }
    let refused = Command::new(QUICTUN)
        .args(["reconnect", "--http", &server_http])
        .output()
        .expect("quictun");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("a server does not dial"), "{said}");
    drop(tunnel.stream);
    tunnel.client.end();
    tunnel.server.end();
}
