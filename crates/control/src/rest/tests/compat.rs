//! `GET /tunnels`, which answers like the original.

use super::*;

#[test]
fn tunnels_on_a_client_are_as_the_original_shows_them() {
    let response = Server::start(state(Side::Client, fake::snapshots)).get("/tunnels");
    assert_eq!(response.status(), "200");
    assert!(
        response.has_header("Content-Type: text/plain; charset=utf-8"),
        "{}",
        response.head
    );
    assert!(
        response.has_header(&format!("Content-Length: {}", response.body.len())),
        "{}",
        response.head
    );
    fake::check_golden("tunnels-client.json", &response.body);
}

#[test]
fn tunnels_on_a_server_are_as_the_original_shows_them() {
    let response = Server::start(state(Side::Server, fake::server_snapshots)).get("/tunnels");
    fake::check_golden("tunnels-server.json", &response.body);
}

#[test]
fn without_tunnels_the_answer_is_null_and_comes_at_once() {
    let without = |_| {
        let mut snapshots = fake::snapshots(0);
        for snapshot in &mut snapshots {
            snapshot.flows.clear();
        }
        snapshots
    };
    let state = RestState {
        rate_window: HOUR,
        ..state(Side::Client, without)
    };
    let response = Server::start(state).get("/tunnels");
    assert_eq!(response.status(), "200");
    fake::check_golden("tunnels-empty.json", &response.body);
}

#[test]
fn misspelt_channel_names_need_the_compatibility_setting() {
    let state = RestState {
        compat_json: false,
        ..state(Side::Client, fake::snapshots)
    };
    let correct = Server::start(state).get("/tunnels").body;
    let golden = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/golden/tunnels-client.json"
    ));
    let golden = golden.expect("committed");
    assert!(golden.contains("\"webdev\"") && golden.contains("\"unknow\""));
    assert_eq!(
        correct,
        golden
            .replace("\"webdev\"", "\"webdav\"")
            .replace("\"unknow\"", "\"unknown\"")
    );
}

#[test]
fn tunnels_knows_get_only() {
    let server = Server::start(state(Side::Client, fake::snapshots));
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "HEAD"] {
        let response = server.exchange(&format!(
            "{method} /tunnels HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{{}}"
        ));
        assert_eq!(response.status(), "405", "{method}");
        assert!(
            response.has_header("Content-Type: text/plain; charset=utf-8"),
            "{}",
            response.head
        );
        let body = if method == "HEAD" {
            ""
        } else {
            r#"{"message":"Please use GET request method"}"#
        };
        assert_eq!(response.body, body, "{method}");
    }
}

#[test]
fn tunnels_has_the_fields_that_are_documented() {
    let body = Server::start(state(Side::Client, fake::snapshots))
        .get("/tunnels")
        .body;
    let server = Server::start(state(Side::Server, fake::server_snapshots))
        .get("/tunnels")
        .body;
    let both = format!("[{body},{server}]");
    check_fields("GET /tunnels", &serde_json::from_str(&both).expect("JSON"));
}
