//! Tests of `POST /v1/reconnect` and its limits.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const ASK: &str = "Host: localhost\r\nQuictun-Request: 1\r\n\r\n";

/// Returns a client, and the number of times that it was asked to replace its connections.
fn client() -> (Server, Arc<AtomicUsize>) {
    let asked = Arc::<AtomicUsize>::default();
    let counted = asked.clone();
    let state = state(Side::Client, fake::snapshots).with_reconnect(Box::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    (Server::start(state), asked)
}

#[test]
fn a_client_replaces_its_connections_once_a_second_at_most() {
    let (server, asked) = client();
    let response = server.exchange(&format!("POST /v1/reconnect HTTP/1.1\r\n{ASK}"));
    assert_eq!(response.status(), "200", "{}", response.body);
    let value: serde_json::Value = serde_json::from_str(&response.body).expect("JSON");
    check_fields("POST /v1/reconnect", &value);
    assert_eq!(value["connections"], 2, "handshakes do not count");
    let again = server.exchange(&format!("POST /v1/reconnect HTTP/1.1\r\n{ASK}"));
    assert_eq!(again.status(), "429", "{}", again.body);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[test]
fn requests_that_a_page_can_send_change_nothing() {
    let (server, asked) = client();
    let origin = "Host: localhost\r\nQuictun-Request: 1\r\nOrigin: http://evil.example\r\n\r\n";
    let form = "Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 0\r\n\r\n";
    for (method, headers, status) in [
        ("GET", ASK, "405"),
        ("HEAD", ASK, "405"),
        ("OPTIONS", ASK, "405"),
        ("POST", "Host: localhost\r\n\r\n", "403"),
        (
            "POST",
            "Host: evil.example\r\nQuictun-Request: 1\r\n\r\n",
            "403",
        ),
        ("POST", origin, "403"),
        ("POST", form, "403"),
    ] {
        let response = server.exchange(&format!("{method} /v1/reconnect HTTP/1.1\r\n{headers}"));
        assert_eq!(response.status(), status, "{method} {headers}");
        assert!(
            !response
                .head
                .to_ascii_lowercase()
                .contains("access-control"),
            "{}",
            response.head
        );
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[test]
fn a_server_cannot_replace_connections() {
    let server = Server::start(state(Side::Server, fake::snapshots));
    let response = server.exchange(&format!("POST /v1/reconnect HTTP/1.1\r\n{ASK}"));
    assert_eq!(response.status(), "404");
    assert!(
        response.body.starts_with(r#"{"error":""#),
        "{}",
        response.body
    );
}
