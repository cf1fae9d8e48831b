//! Tests token services on the loopback interface: the requests, and the results of various answers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;

use quictun_skip::knows_localhost;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use ureq::http::StatusCode;

use super::*;
use quictun_trust::identity::{self, Identity};

fn app(text: &str) -> AppAddr {
    AppAddr::Ip(text.parse().expect("an address and port"))
}

#[test]
fn address_is_added_to_the_query_and_replaces_nothing() {
    let from = app("10.0.0.1:5000");
    for (url, asked) in [
        ("http://h/t", "http://h/t?addr=10.0.0.1%3A5000"),
        ("http://h", "http://h?addr=10.0.0.1%3A5000"),
        ("http://h/t?vm=1", "http://h/t?vm=1&addr=10.0.0.1%3A5000"),
        (
            "http://h/t?vm=1&x=a%20b",
            "http://h/t?vm=1&x=a%20b&addr=10.0.0.1%3A5000",
        ),
        ("http://h/t?", "http://h/t?addr=10.0.0.1%3A5000"),
        ("http://h/t?vm=1&", "http://h/t?vm=1&addr=10.0.0.1%3A5000"),
        ("http://h/t?addr=1.2.3.4", "http://h/t?addr=1.2.3.4"),
        ("http://h/t?a=1&addr", "http://h/t?a=1&addr"),
        (
            "http://h/t?myaddr=1",
            "http://h/t?myaddr=1&addr=10.0.0.1%3A5000",
        ),
        (
            "http://h/addr=1?q",
            "http://h/addr=1?q&addr=10.0.0.1%3A5000",
        ),
    ] {
        assert_eq!(url_for(url, from), asked, "{url}");
    }
    assert_eq!(
        url_for("http://h/", app("[2001:db8::1]:22")),
        "http://h/?addr=%5B2001%3Adb8%3A%3A1%5D%3A22"
    );
    assert_eq!(
        url_for("http://h/", app("[::ffff:10.0.0.1]:22")),
        "http://h/?addr=10.0.0.1%3A22"
    );
    assert_eq!(url_for("http://h/", AppAddr::Unix), "http://h/?addr=unix");
}

#[test]
fn urls_that_cannot_be_asked_are_refused_at_once() {
    for url in [
        "",
        "localhost:80",
        "ftp://h/",
        "/path",
        "file:///etc/passwd",
        "unix:/x",
    ] {
        let error = HttpSource::new(url).err();
        assert!(
            matches!(error, Some(UrlError::Scheme | UrlError::Malformed)),
            "{url:?}: {error:?}"
        );
    }
    for url in ["http://", "http://h/a b", "https:///x"] {
        assert_eq!(
            HttpSource::new(url).err(),
            Some(UrlError::Malformed),
            "{url:?}"
        );
    }
    for url in [
        "http://h",
        "HTTPS://h:1/x?y",
        "http://[::1]:80/",
        "http://h/x#fragment",
    ] {
        assert!(HttpSource::new(url).is_ok(), "{url:?}");
    }
}

#[test]
fn loopback_services_are_asked_without_a_proxy() {
    for (host, here) in [
        ("localhost", true),
        ("LOCALHOST", true),
        ("127.0.0.1", true),
        ("127.9.9.9", true),
        ("[::1]", true),
        ("10.0.0.1", false),
        ("localhost.example", false),
        ("example.net", false),
    ] {
        assert_eq!(is_this_machine(host), here, "{host}");
    }
}

/// Serves one connection with these bytes and returns the request.
fn serve(answer: Vec<u8>) -> (SocketAddr, JoinHandle<String>) {
    serve_on(answer, |stream| stream)
}

fn serve_on<S: Read + Write>(
    answer: Vec<u8>,
    wrap: impl FnOnce(std::net::TcpStream) -> S + Send + 'static,
) -> (SocketAddr, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("an address");
    let served = std::thread::spawn(move || {
        let mut stream = wrap(listener.accept().expect("a connection").0);
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
            request.push(byte[0]);
        }
        // The client may have hung up already. The test checks only the client's result.
        let _sent = stream.write_all(&answer).and_then(|()| stream.flush());
        String::from_utf8(request).expect("text")
    });
    (addr, served)
}

fn response(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn source(url: &str, deadline: Duration) -> HttpSource {
    HttpSource::with(url, Vec::<Certificate<'static>>::new().into(), deadline).expect("a URL")
}

fn ask(answer: Vec<u8>) -> (Result<String, HttpError>, String) {
    let (addr, served) = serve(answer);
    let source = source(&format!("http://{addr}/token?vm=7"), DEADLINE);
    let answer = source.token(app("10.0.0.1:5000"));
    (answer, served.join().expect("served"))
}

#[test]
fn token_of_the_answer_is_taken() {
    let (token, request) = ask(response("200 OK", r#"{"token": "tcp:127.0.0.1:22"}"#));
    assert_eq!(token.expect("a token"), "tcp:127.0.0.1:22");
    let mut lines = request.lines();
    assert_eq!(
        lines.next(),
        Some("GET /token?vm=7&addr=10.0.0.1%3A5000 HTTP/1.1")
    );
    assert!(
        lines.any(|line| line.eq_ignore_ascii_case("user-agent: quictun/0.1.0")),
        "{request}"
    );

    let (token, _) = ask(response(
        "200 OK",
        r#"{"ttl": 5, "token": "t", "more": {"a": [1]}}"#,
    ));
    assert_eq!(token.expect("a token"), "t");
}

#[test]
fn other_statuses_carry_no_token() {
    let good = r#"{"token": "t"}"#;
    for status in [
        "404 Not Found",
        "500 Oops",
        "204 No Content",
        "201 Created",
        "401 Unauthorized",
    ] {
        let (error, _) = ask(response(
            status,
            if status.starts_with("204") { "" } else { good },
        ));
        let Err(HttpError::Status(named)) = error else {
            panic!("{status}: {error:?}")
        };
        assert!(status.starts_with(named.as_str()));
    }
    let (error, _) = ask(response("503 Service Unavailable", good));
    assert_eq!(
        error.expect_err("no token").to_string(),
        format!(
            "the service answered {}: only 200 carries a token",
            StatusCode::SERVICE_UNAVAILABLE
        )
    );
}

#[test]
fn answers_that_are_not_the_json_expected_are_errors() {
    for body in [
        "",
        "tcp:127.0.0.1:22",
        r#"["token"]"#,
        r#""token""#,
        r#"{"token": "a""#,
        r#"{"token": "a"} x"#,
    ] {
        let (error, _) = ask(response("200 OK", body));
        assert!(
            matches!(error, Err(HttpError::NotJson(_))),
            "{body}: {error:?}"
        );
    }
    for body in [
        "{}",
        r#"{"token": 5}"#,
        r#"{"token": null}"#,
        r#"{"token": ["a"]}"#,
        r#"{"tokens": "a"}"#,
    ] {
        let (error, _) = ask(response("200 OK", body));
        assert!(
            matches!(error, Err(HttpError::NoToken)),
            "{body}: {error:?}"
        );
    }
    let (error, _) = ask(b"hello\r\n\r\n".to_vec());
    assert!(matches!(error, Err(HttpError::Request(_))), "{error:?}");
    // A truncated body is an error.
    let (error, _) =
        ask(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"token\": \"t\"}".to_vec());
    assert!(matches!(error, Err(HttpError::Request(_))), "{error:?}");
}

#[test]
fn body_is_read_up_to_the_limit() {
    let limit = usize::try_from(MAX_BODY).expect("it fits");
    let body = |len: usize| {
        let json = r#"{"token": "t"}"#;
        json.to_owned() + &" ".repeat(len - json.len())
    };
    assert_eq!(
        ask(response("200 OK", &body(limit))).0.expect("a token"),
        "t"
    );
    let (error, _) = ask(response("200 OK", &body(limit + 1)));
    assert!(matches!(error, Err(HttpError::TooLarge)), "{error:?}");
}

#[test]
fn a_missing_service_is_an_error() {
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address")
    };
    let error = source(&format!("http://{closed}/"), DEADLINE).token(AppAddr::Unix);
    assert!(matches!(error, Err(HttpError::Request(_))), "{error:?}");
}

#[test]
fn silent_and_dripping_services_end_at_the_deadline() {
    let deadline = Duration::from_millis(200);
    // The backlog accepts the connection, and no answer follows.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = silent.local_addr().expect("an address");
    let error = source(&format!("http://{addr}/"), deadline).token(AppAddr::Unix);
    assert!(
        matches!(error, Err(HttpError::Deadline { .. })),
        "{error:?}"
    );

    // The deadline applies to the whole answer, not to each piece.
    let dripping = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = dripping.local_addr().expect("an address");
    let served = std::thread::spawn(move || {
        let (mut stream, _) = dripping.accept().expect("a connection");
        let mut piece = b"HTTP/1.1 200 OK\r\n".as_slice();
        while stream.write_all(piece).is_ok() {
            piece = b"x: y\r\n";
            // Paces the pieces: without a pause the limit on headers would end the request first.
            std::thread::park_timeout(Duration::from_millis(20));
        }
    });
    let error = source(&format!("http://{addr}/"), deadline).token(AppAddr::Unix);
    assert!(
        matches!(error, Err(HttpError::Deadline { .. })),
        "{error:?}"
    );
    served.join().expect("ended");
}

fn tls_server(identity: &Identity) -> (SocketAddr, JoinHandle<String>) {
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(identity.chain.clone(), identity.key.clone_key())
        .expect("a pair");
    serve_on(
        response("200 OK", r#"{"token": "secret"}"#),
        move |stream| {
            StreamOwned::new(
                ServerConnection::new(Arc::new(config)).expect("a connection"),
                stream,
            )
        },
    )
}

#[test]
fn https_services_are_verified() {
    if !knows_localhost("token_source::http::tests::https_services_are_verified") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (own, _) = identity::load_or_generate(dir.path(), "localhost").expect("made");
    let trusted = Certificate::from_der(&own.chain[0]).to_owned();
    let ask = |roots: Vec<Certificate<'static>>| {
        let (addr, served) = tls_server(&own);
        let url = format!("https://localhost:{}/token", addr.port());
        let answer = HttpSource::with(&url, roots.into(), DEADLINE)
            .expect("a URL")
            .token(AppAddr::Unix);
        (answer, served.join().expect("served"))
    };
    let (token, request) = ask(vec![trusted]);
    assert_eq!(token.expect("a token"), "secret");
    assert!(
        request.starts_with("GET /token?addr=unix HTTP/1.1\r\n"),
        "{request}"
    );

    let (error, request) = ask(Vec::new());
    assert!(matches!(error, Err(HttpError::Request(_))), "{error:?}");
    assert_eq!(
        request, "",
        "nothing is said to a server that is not trusted"
    );
}
