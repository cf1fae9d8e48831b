//! Tests the interface over TCP, with fake workers.

mod compat;
mod health;
mod limits;
mod reconnect;
mod status;
mod v1;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use quictun_engine::report::Side;
use tokio::sync::oneshot;

use super::clock::ProcessClock;
use super::*;
use crate::flow_uuids::FlowUuids;
use crate::settings::ControlSettings;
use crate::snapshot::WorkerSnapshot;

const HOUR: Duration = Duration::from_hours(1);

/// A server in a thread of its own, which dropping shuts down.
struct Server {
    address: SocketAddr,
    state: Arc<RestState>,
    shutdown: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(state: RestState) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a loopback socket");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(state);
        let (shutdown, wait) = oneshot::channel();
        let served = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let listener = Listener::new(BoundListener::Tcp(listener)).expect("a listener");
                serve(listener, served, wait).await;
            });
        });
        Self {
            address,
            state,
            shutdown: Some(shutdown),
            thread: Some(thread),
        }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).expect("the server listens")
    }

    /// Sends `request` and returns everything that the server sends until it closes the connection.
    fn exchange(&self, request: &str) -> Response {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).expect("sent");
        read_response(&mut stream)
    }

    fn get(&self, path: &str) -> Response {
        self.exchange(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    fn stop(&mut self) {
        drop(self.shutdown.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server ended without a panic");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.shutdown.take());
    }
}

struct Response {
    head: String,
    body: String,
}

impl Response {
    fn status(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or("")
    }

    fn has_header(&self, header: &str) -> bool {
        self.head.split("\r\n").any(|line| line == header)
    }
}

fn read_response(stream: &mut TcpStream) -> Response {
    let mut text = String::new();
    stream
        .read_to_string(&mut text)
        .expect("text until the server closes");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    Response {
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// Returns a state over fake workers, in which everything is fixed that would differ between runs.
fn state(side: Side, make: fn(u64) -> Vec<WorkerSnapshot>) -> RestState {
    let wall = Timestamp::new(1_785_585_600, 123_456_000).expect("in range");
    let zone = TimeZone::posix("CEST-2").expect("a zone");
    let (workers, _) = fake::workers(make);
    let settings = ControlSettings {
        compat_json: true,
        ..ControlSettings::default()
    };
    RestState {
        uuids: FlowUuids { seed: [7; 16] },
        rate_window: Duration::from_millis(1),
        clock: ProcessClock::fixed(*fake::START, wall, zone),
        ..RestState::new(side, workers, &settings, ProcessFacts::default(), None)
            .with_uses(Box::new(fake::uses))
    }
}

/// Collects every field name that occurs in `value`.
fn keys(value: &serde_json::Value, into: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                into.insert(name.clone());
                keys(value, into);
            }
        }
        serde_json::Value::Array(list) => list.iter().for_each(|value| keys(value, into)),
        _ => {}
    }
}

/// Returns the names in the first column of the tables in one section of the documentation.
fn documented(section: &str) -> BTreeSet<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/REST.md");
    let text = std::fs::read_to_string(path).expect("committed");
    let start = text
        .find(&format!("\n## {section}\n"))
        .expect("the section");
    let section = text[start + 1..]
        .split("\n## ")
        .next()
        .expect("a section")
        .to_owned();
    let rows = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    rows.map(|(name, _)| name.to_owned()).collect()
}

fn check_fields(section: &str, value: &serde_json::Value) {
    let mut found = BTreeSet::new();
    keys(value, &mut found);
    assert_eq!(
        documented(section),
        found,
        "the documented fields under {section} differ from those of the answer"
    );
}

#[test]
fn metrics_are_served_in_the_requested_format() {
    let server = Server::start(state(Side::Server, fake::snapshots));
    let open_metrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let text = "text/plain; version=0.0.4; charset=utf-8";
    for (accept, content_type) in [
        ("", text),
        ("Accept: */*\r\n", text),
        ("Accept: application/openmetrics-text\r\n", open_metrics),
        (
            "Accept: text/plain;q=0.5\r\nAccept: application/openmetrics-text; version=1.0.0\r\n",
            open_metrics,
        ),
    ] {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{accept}\r\n");
        let response = server.exchange(&request);
        assert_eq!(response.status(), "200");
        let header = format!("Content-Type: {content_type}");
        assert!(response.has_header(&header), "{accept}: {}", response.head);
        assert!(response.has_header("Vary: Accept"), "{}", response.head);
        let sample = "\nquictun_flows_opened_total 4040\n";
        assert!(response.body.contains(sample), "{}", response.body);
        let ends = response.body.ends_with("# EOF\n");
        assert_eq!(ends, content_type == open_metrics, "{accept}");
    }
}

#[test]
fn an_unknown_path_is_answered_with_the_known_ones() {
    let response = Server::start(state(Side::Server, fake::snapshots)).get("/tunnel");
    assert_eq!(response.status(), "404");
    assert!(response.body.contains("/tunnels"), "{}", response.body);
}

#[test]
fn pages_of_other_sites_learn_nothing_from_any_resource() {
    let server = Server::start(RestState {
        names: vec!["gateway.example".to_owned()],
        ..state(Side::Server, fake::snapshots)
    });
    let paths = [
        "/tunnels",
        "/v1",
        "/v1/tunnels",
        "/v1/connections",
        "/v1/bonds",
        "/v1/status",
        "/v1/reload",
        "/v1/reconnect",
        "/metrics",
        "/healthz",
        "/readyz",
        "/nothing",
    ];
    for path in paths {
        for headers in [
            "Host: evil.example:8086",
            "Host: localhost\r\nOrigin: http://evil.example",
            "Host: localhost\r\nOrigin: null",
            "Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors",
        ] {
            let response = server.exchange(&format!("GET {path} HTTP/1.1\r\n{headers}\r\n\r\n"));
            assert_eq!(response.status(), "403", "{path} with {headers}");
            assert!(
                response.body.starts_with(r#"{"error":""#),
                "{}",
                response.body
            );
        }
    }
    for host in [
        "127.0.0.1:8086",
        "[::1]:8086",
        "localhost",
        "Gateway.Example:8086",
    ] {
        let response = server.exchange(&format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(response.status(), "200", "{host}");
    }
}
