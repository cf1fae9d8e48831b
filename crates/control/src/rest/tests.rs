use super::*;
use crate::reload::{Changes, Outcome};
use crate::snapshot::WorkerSnapshot;
use fake::{check_document, check_golden};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Instant;

const HOUR: Duration = Duration::from_hours(1);

/// A server on a thread of its own, shut down when dropped.
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
                let listener = Listener::new(Bound::Tcp(listener)).expect("a listener");
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

    /// What comes back for `request`, until the server closes.
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
            thread.join().expect("the server ended well");
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

/// A state over fake workers, with everything fixed that would differ from run to run.
fn state(side: Side, make: fn(u64) -> Vec<WorkerSnapshot>) -> RestState {
    let wall = Timestamp::new(1_785_585_600, 123_456_000).expect("in range");
    let zone = TimeZone::posix("CEST-2").expect("a zone");
    let (workers, _) = fake::workers(make);
    RestState {
        uuids: FlowUuids { seed: [7; 16] },
        rate_window: Duration::from_millis(1),
        ..RestState::new(
            side,
            workers,
            true,
            ProcessClock::fixed(*fake::START, wall, zone),
        )
    }
}

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
    check_golden("tunnels-client.json", &response.body);
}

#[test]
fn tunnels_on_a_server_are_as_the_original_shows_them() {
    let response = Server::start(state(Side::Server, fake::server_snapshots)).get("/tunnels");
    check_golden("tunnels-server.json", &response.body);
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
    check_golden("tunnels-empty.json", &response.body);
}

#[test]
fn misspelt_channel_names_are_for_those_who_ask_for_them() {
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

/// Fetches `path`, keeps it as a golden file, and as the example in the documentation.
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
        // One of each is enough to read; the second tunnel is the one with everything.
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

/// Every name that occurs in `value`.
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

/// The names in the first column of the tables of one section of the documentation.
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
        "fields documented under {section}, and fields there are"
    );
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

#[test]
fn metrics_are_served_as_open_metrics() {
    let response = Server::start(state(Side::Server, fake::snapshots)).get("/metrics");
    assert_eq!(response.status(), "200");
    let content_type = "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(response.has_header(content_type), "{}", response.head);
    assert!(
        response
            .body
            .contains("\nquictun_flows_opened_total 4040\n"),
        "{}",
        response.body
    );
    assert!(response.body.ends_with("# EOF\n"));
}

#[test]
fn healthy_is_who_answers() {
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
    server.state.readiness().set_listening();
    check("200", r#"{"ok":true}"#);
    server.state.readiness().set_draining();
    check(
        "503",
        r#"{"ok":false,"reason":"draining: open flows are being finished"}"#,
    );
}

#[test]
fn a_client_is_ready_when_the_server_answers_it() {
    let check = |make: fn(u64) -> Vec<WorkerSnapshot>, status, body| {
        let server = Server::start(state(Side::Client, make));
        server.state.readiness().set_listening();
        let response = server.get("/readyz");
        assert_eq!((response.status(), response.body.as_str()), (status, body));
    };
    check(fake::snapshots, "200", r#"{"ok":true}"#);
    let nothing = r#"{"ok":false,"reason":"no usable connection to the server"}"#;
    // A connection that is still in its handshake, and one that does not answer.
    let unusable = |round| {
        let mut snapshots = fake::snapshots(round);
        snapshots[0].connections.truncate(1);
        snapshots
    };
    check(unusable, "503", nothing);
    check(|_| Vec::new(), "503", nothing);
}

#[test]
fn an_unknown_path_says_which_there_are() {
    let response = Server::start(state(Side::Server, fake::snapshots)).get("/tunnel");
    assert_eq!(response.status(), "404");
    assert!(response.body.contains("/tunnels"), "{}", response.body);
}

#[test]
fn a_large_body_and_large_headers_are_refused() {
    let server = Server::start(state(Side::Server, fake::snapshots));
    let response =
        server.exchange("GET /tunnels HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4097\r\n\r\n");
    assert_eq!(response.status(), "413");
    let mut stream = server.connect();
    // The server may close before it has taken all of it.
    stream
        .write_all(format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(20_000)).as_bytes())
        .ok();
    let mut first = [0; 12];
    stream.read_exact(&mut first).expect("an answer");
    assert_eq!(&first, b"HTTP/1.1 431");
}

#[test]
fn nonsense_is_answered_and_harms_nobody() {
    let server = Server::start(state(Side::Server, fake::snapshots));
    assert_eq!(
        server.exchange("\x16\x03\x01 nonsense\r\n\r\n").status(),
        "400"
    );
    assert_eq!(server.get("/healthz").status(), "200");
}

#[test]
fn a_client_that_does_not_finish_its_headers_is_cut_off() {
    let limits = http::Limits {
        header_deadline: Duration::from_millis(20),
        ..http::Limits::default()
    };
    let server = Server::start(RestState {
        limits,
        ..state(Side::Server, fake::snapshots)
    });
    let mut stream = server.connect();
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost:")
        .expect("sent");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("closed by the server");
    assert!(!rest.starts_with(b"HTTP/1.1 200"));
}

#[test]
fn a_connection_ends_at_its_deadline_whatever_it_does() {
    let limits = http::Limits {
        connection_deadline: Duration::from_millis(20),
        ..http::Limits::default()
    };
    let server = Server::start(RestState {
        limits,
        ..state(Side::Server, fake::snapshots)
    });
    let mut stream = server.connect();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("closed by the server");
    assert!(rest.is_empty());
}

#[test]
fn connections_beyond_the_limit_wait_for_a_place() {
    let limits = http::Limits {
        connections: 2,
        header_deadline: HOUR,
        connection_deadline: HOUR,
        ..http::Limits::default()
    };
    let server = Server::start(RestState {
        limits,
        ..state(Side::Server, fake::snapshots)
    });
    let idle = [server.connect(), server.connect()];
    let mut third = server.connect();
    third
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("sent");
    third
        .set_read_timeout(Some(Duration::from_millis(50)))
        .expect("a socket");
    let error = third.read(&mut [0; 1]).expect_err("no place yet");
    assert!(
        matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        "{error}"
    );
    drop(idle);
    third.set_read_timeout(None).expect("a socket");
    assert_eq!(read_response(&mut third).status(), "200");
}

#[test]
fn shutdown_closes_the_listener_and_does_not_wait_for_idle_clients() {
    let limits = http::Limits {
        drain_deadline: Duration::from_millis(20),
        ..http::Limits::default()
    };
    let mut server = Server::start(RestState {
        limits,
        ..state(Side::Server, fake::snapshots)
    });
    let idle = server.connect();
    // Connections are accepted in their order, so the idle one is by then.
    assert_eq!(server.get("/healthz").status(), "200");
    let begun = Instant::now();
    server.stop();
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(TcpStream::connect(server.address).is_err());
    drop(idle);
}

#[test]
fn a_client_that_shuts_its_sending_side_is_answered() {
    let server = Server::start(state(Side::Server, fake::snapshots));
    let mut stream = server.connect();
    stream
        .write_all(b"GET /healthz HTTP/1.0\r\n\r\n")
        .expect("sent");
    stream
        .shutdown(std::net::Shutdown::Write)
        .expect("a socket");
    assert_eq!(read_response(&mut stream).status(), "200");
}

/// The child half of the next test; does nothing in an ordinary run.
#[test]
fn child_runs_out_of_descriptors() {
    if std::env::var_os("QUICTUN_TEST_CHILD").is_none() {
        return;
    }
    let server = Server::start(state(Side::Server, fake::snapshots));
    assert_eq!(server.get("/healthz").status(), "200");
    let limit = rustix::process::Rlimit {
        current: Some(64),
        maximum: Some(64),
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit)
        .expect("lowering is allowed");
    let hoard: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    let mut stdin = std::io::stdin().lines();
    std::io::stdout()
        .write_all(format!("\nADDRESS {}\n", server.address).as_bytes())
        .expect("the parent reads");
    stdin
        .next()
        .expect("the parent has connected")
        .expect("text");
    drop(hoard);
    // The parent closes its end when it has its answer.
    assert!(stdin.next().is_none());
}

#[test]
fn running_out_of_descriptors_does_not_end_the_server() {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args([
            "--exact",
            "rest::tests::child_runs_out_of_descriptors",
            "--nocapture",
        ])
        .env("QUICTUN_TEST_CHILD", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    let mut output = BufReader::new(child.stdout.take().expect("piped"))
        .lines()
        .map_while(Result::ok);
    let address = output
        .find_map(|line| line.strip_prefix("ADDRESS ").map(str::to_owned))
        .expect("an address");
    let mut stream = TcpStream::connect(address).expect("the backlog takes it");
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("sent");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(b"connected\n").expect("the child reads");
    assert_eq!(read_response(&mut stream).status(), "200");
    drop(stdin);
    assert!(child.wait().expect("ends").success());
}

/// A state that was reloaded, and what a reload would do now.
fn reloadable(would: Result<Changes, String>, was: Option<Outcome>) -> RestState {
    let reload = fake::reload(would, was);
    RestState {
        version: "0.1.0",
        pid: 4711,
        ..state(Side::Server, fake::snapshots)
    }
    .with_listen(vec!["udp [::]:7500".to_owned()])
    .with_reload(Some(reload))
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
    let was = Outcome {
        at,
        result: Ok(some_changes()),
    };
    let state = reloadable(Ok(Changes::default()), Some(was));
    state.readiness().set_listening();
    let response = Server::start(state).get("/v1/status");
    assert_eq!(response.status(), "200", "{}", response.body);
    let value: serde_json::Value = serde_json::from_str(&response.body).expect("JSON");
    check_fields("GET /v1/status", &value);
    let pretty = serde_json::to_string_pretty(&value).expect("JSON");
    check_document(
        "REST.md",
        "example of /v1/status",
        &format!("```json\n{pretty}\n```\n"),
    );
}

#[test]
fn v1_status_says_why_a_process_is_not_ready_and_why_a_reload_failed() {
    let was = Outcome {
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
fn v1_reload_says_what_would_change_and_changes_nothing() {
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
    // It is not read again for everyone who asks.
    for _ in 0..20 {
        assert_eq!(server.get("/v1/reload").body, response.body);
    }
    let reload = server.state.reload.as_ref().expect("it was given");
    assert!(reload.state().latest().is_none(), "nothing was reloaded");
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

#[test]
fn errors_under_v1_are_json_with_one_sentence() {
    let server = Server::start(state(Side::Server, fake::snapshots));
    for (request, status) in [
        ("GET /v1/nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
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

#[test]
fn pages_of_other_sites_learn_nothing_from_any_resource() {
    let own = state(Side::Server, fake::snapshots).with_names(&["gateway.example".to_owned()]);
    let server = Server::start(own);
    let paths = [
        "/tunnels",
        "/v1/tunnels",
        "/v1/connections",
        "/v1/status",
        "/v1/reload",
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
