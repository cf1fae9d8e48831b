//! Tests `GET /v1/tunnels` and `GET /v1/connections`, and error answers under `/v1`.

use super::*;
use crate::rest::fake::{check_document, check_golden};

/// Fetches `path`, and compares the answer with a golden file and with the example in the documentation.
fn check_v1(path: &str, name: &str) -> serde_json::Value {
    let response = Server::start(state(Side::Client, fake::snapshots)).get(path);
    assert_eq!(response.status(), "200");
    assert!(
        response.has_header("Content-Type: application/json"),
        "{}",
        response.head
    );
    let value: serde_json::Value = serde_json::from_str(&response.body).expect("JSON");
    let pretty = serde_json::to_string_pretty(&value).expect("JSON") + "\n";
    check_golden(&format!("{name}.json"), &pretty);
    let mut example = value.clone();
    for (_, list) in example.as_object_mut().expect("an object") {
        // One entry of each list is enough for readers. The third tunnel has all fields.
        let list = list.as_array_mut().expect("lists");
        list.truncate(3);
        list.drain(..list.len().saturating_sub(1));
    }
    let pretty = serde_json::to_string_pretty(&example).expect("JSON");
    check_document(
        "REST.md",
        &format!("example of {path}"),
        &format!("```json\n{pretty}\n```\n"),
    );
    value
}

#[test]
fn v1_tunnels_is_as_documented() {
    check_fields("GET /v1/tunnels", &check_v1("/v1/tunnels", "v1-tunnels"));
}

#[test]
fn v1_connections_is_as_documented() {
    check_fields(
        "GET /v1/connections",
        &check_v1("/v1/connections", "v1-connections"),
    );
}

#[test]
fn v1_bonds_is_as_documented() {
    check_fields("GET /v1/bonds", &check_v1("/v1/bonds", "v1-bonds"));
}

#[test]
fn v1_clients_is_as_documented() {
    check_fields("GET /v1/clients", &check_v1("/v1/clients", "v1-clients"));
}

#[test]
fn v1_lists_its_resources_and_each_of_them_answers() {
    let server = Server::start(RestState {
        reload: Some(fake::reload(Ok(crate::reload::Changes::default()), None)),
        ..state(Side::Server, fake::snapshots)
    });
    for path in ["/v1", "/v1/"] {
        let response = server.get(path);
        assert_eq!(response.status(), "200", "{path}");
        let value: serde_json::Value = serde_json::from_str(&response.body).expect("JSON");
        check_fields("GET /v1", &value);
        let resources = value["resources"].as_array().expect("a list");
        assert_eq!(resources.len(), 6, "{value}");
        for resource in resources {
            let path = resource["path"].as_str().expect("a path");
            assert_eq!(server.get(path).status(), "200", "{path}");
        }
    }
}

#[test]
fn errors_under_v1_are_json_with_one_sentence() {
    let server = Server::start(state(Side::Server, fake::snapshots));
    for (request, status) in [
        ("GET /v1/nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        ("POST /v1 HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
        (
            "POST /v1/tunnels HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "405",
        ),
        (
            "DELETE /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "405",
        ),
        (
            "PUT /v1/connections HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n",
            "413",
        ),
        (
            "GET /v1/status HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            "403",
        ),
    ] {
        let response = server.exchange(request);
        assert_eq!(response.status(), status, "{request}");
        assert!(
            response.has_header("Content-Type: application/json"),
            "{request}: {}",
            response.head
        );
        let value: serde_json::Value = serde_json::from_str(&response.body).expect("JSON");
        let fields = value.as_object().expect("an object");
        assert!(
            fields.len() == 1 && fields["error"].is_string(),
            "{request}: {value}"
        );
    }
}
