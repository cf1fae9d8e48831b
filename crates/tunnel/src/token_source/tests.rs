//! Tests the plugins as the control thread uses them, and the server's parser.

use std::future::Future;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use quictun_wire::code::FlowCode;
use quictun_wire::target::Target;

use super::*;
use crate::settings::TokenParser;

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(future)
}

fn app() -> AppAddr {
    AppAddr::Ip("10.0.0.1:5000".parse().expect("an address"))
}

fn file_with(content: &str) -> (tempfile::TempDir, TokenPlugin) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tokens");
    std::fs::write(&path, content).expect("written");
    let plugin = TokenPlugin::new(&TokenSource::File(path)).expect("a plugin");
    (dir, plugin)
}

#[test]
fn fixed_token_needs_no_look_up() {
    let plugin =
        TokenPlugin::new(&TokenSource::Fixed("tcp:127.0.0.1:22".to_owned())).expect("a plugin");
    assert_eq!(plugin.fixed(), Some("tcp:127.0.0.1:22"));
    assert_eq!(
        run(plugin.token(&app())).expect("a token"),
        "tcp:127.0.0.1:22"
    );
    assert_eq!(
        run(plugin.token(&AppAddr::Unix)).expect("a token"),
        "tcp:127.0.0.1:22"
    );
}

#[test]
fn fixed_token_that_cannot_be_sent_is_refused_at_the_start() {
    let fixed = |token: &str| TokenPlugin::new(&TokenSource::Fixed(token.to_owned()));
    assert!(fixed(&"x".repeat(512)).is_ok());
    for token in ["", "a\0b", &"x".repeat(513)] {
        let error = fixed(token).expect_err("no token");
        assert!(matches!(error, TokenSourceError::Fixed { .. }), "{error:?}");
    }
}

#[test]
fn file_token_is_looked_up_for_each_application() {
    let (_dir, plugin) = file_with("10.0.0.1 tcp:a:1\nunix tcp:b:2\n");
    assert_eq!(plugin.fixed(), None);
    assert_eq!(run(plugin.token(&app())).expect("a token"), "tcp:a:1");
    assert_eq!(
        run(plugin.token(&AppAddr::Unix)).expect("a token"),
        "tcp:b:2"
    );
}

#[test]
fn file_errors_name_the_file() {
    let (dir, plugin) = file_with("10.0.0.2 x\n");
    let error = run(plugin.token(&app())).expect_err("no line");
    let path = dir.path().join("tokens");
    assert_eq!(
        error.to_string(),
        format!("no token from the file {}", path.display())
    );
    assert!(matches!(
        error,
        TokenError::File(_, FileError::NoLine { .. })
    ));

    std::fs::remove_file(&path).expect("removed");
    let error = run(plugin.token(&app())).expect_err("no file");
    assert!(matches!(error, TokenError::File(_, FileError::Read(_))));
}

#[test]
fn token_that_cannot_be_sent_is_an_error_of_its_own() {
    let (_dir, plugin) = file_with(&format!(
        "10.0.0.1 {}\n* {}\n",
        "x".repeat(513),
        "y".repeat(512)
    ));
    let error = run(plugin.token(&app())).expect_err("too long");
    assert_eq!(error.to_string(), "the token for 10.0.0.1:5000 is unusable");
    assert!(matches!(
        error,
        TokenError::Unusable(_, PackError::TooLong { len: 513 })
    ));
    assert_eq!(
        run(plugin.token(&AppAddr::Unix)).expect("a token").len(),
        512
    );
}

#[test]
fn bad_url_is_refused_at_the_start() {
    let error =
        TokenPlugin::new(&TokenSource::Http("tokens.example".to_owned())).expect_err("no URL");
    assert!(matches!(error, TokenSourceError::Url { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "the token source \"tokens.example\" is not a usable URL"
    );
}

/// Makes a plugin with a deadline and a limit that the test chooses.
fn http_plugin(url: &str, deadline: Duration, look_ups: usize) -> TokenPlugin {
    let roots = Vec::<ureq::tls::Certificate<'static>>::new().into();
    let http = HttpSource::with(url, roots, deadline).expect("a URL");
    TokenPlugin {
        source: PluginSource::Http(Arc::new(http)),
        permits: Arc::new(Semaphore::new(look_ups)),
    }
}

/// Answers this many requests, each with its query as the token.
fn echo_service(requests: usize) -> (SocketAddr, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("an address");
    let served = std::thread::spawn(move || {
        for _ in 0..requests {
            let mut stream = listener.accept().expect("a connection").0;
            let mut request = [0; 4096];
            let len = stream.read(&mut request).expect("a request");
            let request = String::from_utf8_lossy(&request[..len]).into_owned();
            let query = request.split(['?', ' ']).nth(2).expect("a query");
            let body = format!("{{\"token\": \"{query}\"}}");
            write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
            .expect("answered");
        }
    });
    (addr, served)
}

#[test]
fn http_token_is_asked_for_each_application() {
    let (addr, served) = echo_service(2);
    let plugin =
        TokenPlugin::new(&TokenSource::Http(format!("http://{addr}/t"))).expect("a plugin");
    assert_eq!(plugin.fixed(), None);
    run(async {
        assert_eq!(
            plugin.token(&app()).await.expect("a token"),
            "addr=10.0.0.1%3A5000"
        );
        assert_eq!(
            plugin.token(&AppAddr::Unix).await.expect("a token"),
            "addr=unix"
        );
    });
    served.join().expect("served");
}

#[test]
fn empty_and_oversize_http_tokens_are_refused() {
    for (token, expected) in [
        ("", PackError::Empty),
        (&*"x".repeat(513), PackError::TooLong { len: 513 }),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("an address");
        let body = format!("{{\"token\": \"{token}\"}}");
        let served = std::thread::spawn(move || {
            let mut stream = listener.accept().expect("a connection").0;
            let mut request = [0; 4096];
            let len = stream.read(&mut request).expect("a request");
            assert!(len > 0);
            write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
            .expect("answered");
        });
        let plugin =
            TokenPlugin::new(&TokenSource::Http(format!("http://{addr}"))).expect("a plugin");
        let error = run(plugin.token(&app())).expect_err("no token");
        let TokenError::Unusable(_, source) = error else {
            panic!("{error:?}")
        };
        assert_eq!(source, expected);
        served.join().expect("served");
    }
}

#[test]
fn waiting_for_a_turn_counts_towards_the_deadline() {
    // The backlog accepts the connection, and no answer follows: the only permit is never returned.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", silent.local_addr().expect("an address"));
    let plugin = http_plugin(&url, Duration::from_millis(300), 1);
    let (one, two) = (app(), AppAddr::Unix);
    let both = run(async { tokio::join!(plugin.token(&one), plugin.token(&two)) });
    for result in [both.0, both.1] {
        let error = result.expect_err("no answer");
        assert!(
            matches!(&error, TokenError::Http(_, HttpError::Deadline { .. })),
            "{error:?}"
        );
        assert_eq!(error.to_string(), format!("no token from {url}"));
    }
    assert_eq!(
        plugin.permits.available_permits(),
        1,
        "given back at the end"
    );
}

#[test]
fn look_ups_wait_while_all_turns_are_taken() {
    let (addr, served) = echo_service(1);
    let plugin = http_plugin(&format!("http://{addr}/"), Duration::from_millis(300), 2);
    run(async {
        let turns = plugin.permits.acquire_many(2).await.expect("open");
        // The service would answer a request at once.
        let error = plugin.token(&app()).await.expect_err("no turn");
        assert!(
            matches!(error, TokenError::Http(_, HttpError::Deadline { .. })),
            "{error:?}"
        );
        drop(turns);
        assert_eq!(
            plugin.token(&AppAddr::Unix).await.expect("a token"),
            "addr=unix"
        );
    });
    served.join().expect("served");
}

#[test]
fn clear_text_token_is_the_target() {
    let parsed = parse_token(TokenParser::Cleartext, "tcp:127.0.0.1:22").expect("a target");
    assert_eq!(parsed, Target::parse("tcp:127.0.0.1:22").expect("a target"));
    let error = parse_token(TokenParser::Cleartext, "udp4:127.0.0.1:53").expect_err("no target");
    assert!(matches!(error, ParseTokenError::Target(_)), "{error:?}");
}

#[test]
fn base64_token_is_what_go_and_base64_write() {
    let expected = Target::parse("tcp:127.0.0.1:5201").expect("a target");
    for token in [
        "dGNwOjEyNy4wLjAuMTo1MjAx",
        "dGNwOjEyNy4w\nLjAuMTo1MjAx\n",
        "dGNwOjEyNy4w\r\nLjAuMTo1MjAx",
    ] {
        assert_eq!(
            parse_token(TokenParser::Base64, token),
            Ok(expected.clone()),
            "{token:?}"
        );
    }
    // One and two bytes in the last group. Go ignores the bits after them.
    let ssh = Target::parse("tcp:db:22").expect("a target");
    assert_eq!(
        parse_token(TokenParser::Base64, "ZGI6MjI="),
        Ok(ssh.clone())
    );
    assert_eq!(parse_token(TokenParser::Base64, "ZGI6MjJ="), Ok(ssh));
    assert!(
        parse_token(TokenParser::Base64, "L3J1bi94Cg==").is_err(),
        "a newline within the target"
    );
    assert_eq!(
        parse_token(TokenParser::Base64, "L3g="),
        Ok(Target::parse("/x").expect("a target"))
    );
}

#[test]
fn a_token_that_is_not_base64_of_a_target_is_refused_with_the_reason() {
    for token in [
        "tcp:127.0.0.1:22",
        "ZGI6MjI",
        "ZGI6MjI==",
        "ZGI6 MjI=",
        "ZGI6-_I=",
        "Z",
    ] {
        let error = parse_token(TokenParser::Base64, token).expect_err(token);
        assert!(
            matches!(error, ParseTokenError::NotBase64(_)),
            "{token}: {error:?}"
        );
    }
    let binary = parse_token(TokenParser::Base64, "/////w==");
    assert_eq!(binary, Err(ParseTokenError::NotText));
    let code = |token| {
        parse_token(TokenParser::Base64, token)
            .expect_err(token)
            .code()
    };
    assert_eq!(code("!"), FlowCode::BadOpen);
    assert_eq!(code("/////w=="), FlowCode::BadOpen);
    assert_eq!(code("dWRwNDphOjE="), FlowCode::Unsupported, "udp4:a:1");
    let nothing = parse_token(TokenParser::Base64, "");
    assert!(
        matches!(nothing, Err(ParseTokenError::Target(_))),
        "{nothing:?}"
    );
    let no_target = parse_token(TokenParser::Base64, "aGVsbG8=");
    assert!(
        matches!(no_target, Err(ParseTokenError::Target(_))),
        "{no_target:?}"
    );
}
