//! `GET /v1/status` and `GET /v1/reload`.

use std::time::Duration;

use super::*;
use crate::reload::{Changes, ReloadOutcome};
use crate::rest::fake::check_document;

/// Creates the state of a process with this latest reload, and with this outcome of a reload now.
fn reloadable(would: Result<Changes, String>, was: Option<ReloadOutcome>) -> RestState {
    RestState {
        facts: ProcessFacts {
            listen: vec!["udp [::]:7500".to_owned()].into(),
            certificate: CertificateReports::default(),
            aead: "AES-128-GCM by ring (64 KiB take ring 11400 ns, aws-lc 20300 ns)".to_owned(),
            reverse: reverse(),
            ..ProcessFacts::default()
        },
        reload: Some(fake::reload(would, was)),
        ..state(Side::Server, fake::snapshots)
    }
}

fn reverse() -> ReverseForwards {
    let forwards = ReverseForwards::default();
    forwards.set(vec![ReverseForward {
        listen: "tcp:127.0.0.1:0".to_owned(),
        target: "tcp:127.0.0.1:8080".to_owned(),
        bound: Some("tcp:127.0.0.1:41234".to_owned()),
        refused: None,
    }]);
    forwards
}

fn some_changes() -> Changes {
    Changes {
        lines: vec![r#"client "laptop": allow -db:5432 +db:5433"#.to_owned()],
        restart: vec!["transport.idle_timeout"],
    }
}

#[test]
fn v1_status_is_as_documented() {
    let at = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_785_585_630);
    let changes = Changes {
        lines: vec!["psk_file: another secret".to_owned()],
        restart: vec!["server"],
    };
    let was = ReloadOutcome {
        at,
        result: Ok(changes),
    };
    // A client's status has all the fields, beside that of a server's certificate.
    let state = reloadable(Ok(Changes::default()), Some(was));
    state.facts.certificate.set(Some(CertificateReport {
        names: vec!["web.example.org".to_owned()],
        expires: Some(at + Duration::from_hours(24 * 30)),
        problem: None,
        next_attempt: Some(at + Duration::from_hours(24 * 5)),
    }));
    let state = RestState {
        side: Side::Client,
        facts: ProcessFacts {
            listen: vec!["127.0.0.1:2222".to_owned()].into(),
            servers: ["a.example:7500", "b.example:7500"].into_iter().collect(),
            ..state.facts
        },
        ..state
    };
    state.readiness.set_listening();
    let response = Server::start(state).get("/v1/status");
    assert_eq!(response.status(), "200", "{}", response.body);
    let mut value: serde_json::Value = serde_json::from_str(&response.body).expect("JSON");
    check_fields("GET /v1/status", &value);
    assert_eq!(value["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(value["pid"], std::process::id());
    // The values are those in the documentation.
    value["version"] = "0.1.0".into();
    value["pid"] = 4711.into();
    let pretty = serde_json::to_string_pretty(&value).expect("JSON");
    check_document(
        "REST.md",
        "example of /v1/status",
        &format!("```json\n{pretty}\n```\n"),
    );
}

#[test]
fn v1_status_shows_a_withdrawn_server_until_its_flows_have_ended() {
    // In these snapshots the first server has flows, and the second one has none.
    for (withdrawn, expected) in [(0, "a.example:7500 b.example:7500"), (1, "a.example:7500")] {
        let names: ServerNames = ["a.example:7500", "b.example:7500"].into_iter().collect();
        let mut left = names.get(withdrawn).expect("a server");
        left.withdrawn_from = Some("srv:example".to_owned());
        names.set(withdrawn, Some(left));
        let client = state(Side::Client, fake::snapshots);
        let client = RestState {
            facts: ProcessFacts {
                servers: names,
                ..client.facts
            },
            ..client
        };
        let body = Server::start(client).get("/v1/status").body;
        let value: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        let servers = value["servers"].as_array().expect("a list");
        let names = servers.iter().filter_map(|server| server["name"].as_str());
        assert_eq!(names.collect::<Vec<_>>().join(" "), expected);
        let is_withdrawn = servers[0]["service"] == "srv:example";
        assert_eq!(is_withdrawn, withdrawn == 0, "{servers:?}");
    }
}

#[test]
fn v1_status_says_why_a_process_is_not_ready_and_why_a_reload_failed() {
    let was = ReloadOutcome {
        at: std::time::SystemTime::UNIX_EPOCH,
        result: Err("server.toml: line 3: missing `]`".to_owned()),
    };
    let server = Server::start(reloadable(Ok(Changes::default()), Some(was)));
    let value: serde_json::Value =
        serde_json::from_str(&server.get("/v1/status").body).expect("JSON");
    assert_eq!(value["ready"], false);
    assert_eq!(value["reason"], "not listening yet");
    assert_eq!(
        value["reload"]["reload_error"],
        "server.toml: line 3: missing `]`"
    );
}

#[test]
fn v1_reload_previews_changes_and_makes_none() {
    let server = Server::start(reloadable(Ok(some_changes()), None));
    let response = server.get("/v1/reload");
    assert_eq!(response.status(), "200");
    let value: serde_json::Value = serde_json::from_str(&response.body).expect("JSON");
    check_fields("GET /v1/reload", &value);
    assert_eq!(value["error"], serde_json::Value::Null);
    assert_eq!(
        value["restart"],
        serde_json::json!(["transport.idle_timeout"])
    );
    // Frequent requests do not read the configuration each time.
    for _ in 0..20 {
        assert_eq!(server.get("/v1/reload").body, response.body);
    }
    let reload = server.state.reload.as_ref().expect("a reload");
    assert!(reload.state().get().is_none(), "nothing was reloaded");
    let bad = Server::start(reloadable(Err("bad".to_owned()), None));
    let response = bad.get("/v1/reload");
    assert_eq!(
        (response.status(), response.body.as_str()),
        ("200", r#"{"error":"bad","changes":[],"restart":[]}"#)
    );
    let without = Server::start(state(Side::Client, fake::snapshots)).get("/v1/reload");
    assert_eq!(without.status(), "404");
    assert!(
        without.body.starts_with(r#"{"error":""#),
        "{}",
        without.body
    );
}
