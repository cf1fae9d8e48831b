//! Tests `GET /healthz` and `GET /readyz`.

use super::*;

#[test]
fn a_process_that_answers_is_healthy() {
    let response = Server::start(state(Side::Server, fake::snapshots)).get("/healthz");
    assert_eq!(
        (response.status(), response.body.as_str()),
        ("200", r#"{"ok":true}"#)
    );
    let one_worker = |round| fake::snapshots(round)[..1].to_vec();
    let response = Server::start(state(Side::Server, one_worker)).get("/healthz");
    let reason = r#"{"ok":false,"reason":"no answer within 500 ms from worker 1 of 2"}"#;
    assert_eq!((response.status(), response.body.as_str()), ("503", reason));
}

#[test]
fn a_server_is_ready_from_listening_to_draining() {
    let server = Server::start(state(Side::Server, |_| Vec::new()));
    let check = |status, body| {
        let response = server.get("/readyz");
        assert_eq!((response.status(), response.body.as_str()), (status, body));
    };
    check("503", r#"{"ok":false,"reason":"not listening yet"}"#);
    server.state.readiness.set_listening();
    check("200", r#"{"ok":true}"#);
    server.state.readiness.set_draining();
    check(
        "503",
        r#"{"ok":false,"reason":"draining: open flows are being finished"}"#,
    );
}

#[test]
fn a_client_is_ready_when_the_server_answers_it() {
    let check = |make: fn(u64) -> Vec<WorkerSnapshot>, status, body| {
        let server = Server::start(state(Side::Client, make));
        server.state.readiness.set_listening();
        let response = server.get("/readyz");
        assert_eq!((response.status(), response.body.as_str()), (status, body));
    };
    check(fake::snapshots, "200", r#"{"ok":true}"#);
    let nothing = r#"{"ok":false,"reason":"no usable connection to the server"}"#;
    // One connection is still in its handshake, and the peer of the other one does not answer.
    let unusable = |round| {
        let mut snapshots = fake::snapshots(round);
        snapshots[0].connections.truncate(1);
        snapshots
    };
    check(unusable, "503", nothing);
    check(|_| Vec::new(), "503", nothing);
}
