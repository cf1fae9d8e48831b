use proptest::prelude::*;

use super::*;
use crate::check;
use crate::check::outbound_run as run;
use crate::proxy::{Handshake, HandshakeStep};

use OutboundProtocol::{Http, Socks5};

fn end(protocol: OutboundProtocol, login: bool, said: &[u8]) -> OutboundStep {
    run(protocol, login, said, said.len().max(1)).step
}

fn error(protocol: OutboundProtocol, login: bool, said: &[u8]) -> String {
    match end(protocol, login, said) {
        OutboundStep::Failed(why) => why.to_string(),
        other => panic!("{other:?}"),
    }
}

fn http(login: bool, head: &str) -> String {
    error(Http, login, format!("HTTP/1.1 {head}\r\n\r\n").as_bytes())
}

// RFC 9110 section 9.3.6, RFC 7617 section 2.
#[test]
fn connect_names_the_server_and_has_the_login() {
    let said = |login| String::from_utf8(run(Http, login, b"", 1).sent).expect("text");
    let open = "CONNECT server.example:7500 HTTP/1.1\r\nHost: server.example:7500\r\n\r\n";
    assert_eq!(said(false), open);
    assert!(said(true).contains("\r\nProxy-Authorization: Basic YW5uOndvbmRlcg==\r\n\r\n"));
    let target = OutboundTarget {
        host: "2001:db8::1".to_owned(),
        port: 443,
    };
    assert_eq!(target.authority(), "[2001:db8::1]:443");
}

#[test]
fn what_follows_the_answer_belongs_to_the_connection() {
    for head in [
        "HTTP/1.1 200 Connection established\r\n\r\n",
        "HTTP/1.0 200 Connection established\r\nProxy-agent: tinyproxy/1.11\r\n\r\n",
        "HTTP/1.1 204\nContent-Length: 0\n\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200\r\n\r\n",
    ] {
        let said = [head.as_bytes(), b"\x16\x03\x03HTTP/1.1"].concat();
        for piece in [1, 2, 1000] {
            let end = run(Http, false, &said, piece);
            assert_eq!((end.step, end.used), (OutboundStep::Connected, head.len()));
        }
    }
}

#[test]
fn each_status_is_one_sentence_that_says_what_to_do() {
    let basic = "407 No\r\nProxy-Authenticate: Basic realm=\"a\"";
    for (login, head, expected) in [
        (false, basic, "give --via-credentials FILE"),
        (true, basic, "refuses this user and password"),
        (true, "407 No", "refuses this user and password"),
        (true, "401 Unauthorized", "refuses this user and password"),
        (
            true,
            "407 No\r\nProxy-Authenticate: Negotiate\r\nProxy-Authenticate: NTLM",
            "accepts no password in the scheme Basic, but Negotiate, NTLM",
        ),
        (
            false,
            "403 Forbidden",
            "forbids connections to the server (403 Forbidden for server.example:7500)",
        ),
        (
            false,
            "502 Bad Gateway",
            "cannot reach the server (502 Bad Gateway for",
        ),
        (false, "504 Gateway Timeout", "cannot reach the server (504"),
        (
            false,
            "302 Found\r\nLocation: https://login.example/\u{1b}[2J",
            "redirects to https://login.example/?[2J instead",
        ),
        (false, "511 Network Authentication Required", "sends a page"),
        (
            false,
            "200 OK\r\nContent-Type: text/html",
            "log in to this network",
        ),
        (
            false,
            "418 I'm a teapot",
            "answers \"418 I'm a teapot\" instead",
        ),
        (false, "2 OK", "breaks its protocol"),
        (false, "20000", "breaks its protocol"),
    ] {
        let said = http(login, head);
        assert!(said.contains(expected), "{head}: {said}");
    }
}

#[test]
fn another_protocol_is_named() {
    let tls = "answers in TLS, which is not supported";
    for (protocol, said, expected) in [
        (Http, &b"SSH-2.0-OpenSSH_9.2\r\n"[..], "answers in SSH"),
        (Http, b"\x15\x03\x03\x00\x02\x02\x28", tls),
        (Http, b"\x05\xff", "answers in SOCKS5 (socks5://)"),
        (
            Http,
            b"220 mail.example ESMTP\r\n",
            "begins with \"220 mail.example ESMTP\"",
        ),
        (
            Socks5,
            b"HTTP/1.1 400 Bad Request\r\n",
            "answers in HTTP (http://)",
        ),
        (Socks5, b"\x15\x03\x01\x00\x02\x02\x0a", tls),
        (
            Socks5,
            b"\0\x5b",
            "does not speak SOCKS5, but begins with \"?[\"",
        ),
    ] {
        let found = error(protocol, false, said);
        assert!(found.contains(expected), "{found}");
    }
}

// RFC 1928 sections 3 to 6, RFC 1929 section 2.
#[test]
fn socks5_passes_names_and_addresses_on() {
    let bound = b"\x05\0\0\x03\x04name\0\x50";
    let said = [b"\x05\x02\x01\0", &bound[..], b"rest"].concat();
    let whole = run(Socks5, true, &said, said.len());
    assert_eq!(
        (&whole.step, whole.used),
        (&OutboundStep::Connected, said.len() - 4)
    );
    let expected = b"\x05\x02\0\x02\x01\x03ann\x06wonder\x05\x01\0\x03\x0eserver.example\x1d\x4c";
    assert_eq!(whole.sent, expected);
    for (host, address) in [
        ("192.0.2.1", &[1, 192, 0, 2, 1][..]),
        ("::1", &[4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
    ] {
        let host = host.to_owned();
        let target = OutboundTarget { host, port: 80 };
        let mut handshake = OutboundHandshake::new(Socks5, target, None);
        assert_eq!(handshake.poll(), OutboundStep::Send(vec![5, 1, 0]));
        assert_eq!(
            handshake.handle_bytes(&[5, 0, 5]),
            2,
            "one message at a time"
        );
        let request = [&[5, 1, 0], address, &[0, 80]].concat();
        assert_eq!(handshake.poll(), OutboundStep::Send(request));
    }
    let host = "a".repeat(256);
    let mut handshake = OutboundHandshake::new(Socks5, OutboundTarget { host, port: 80 }, None);
    handshake.poll();
    handshake.handle_bytes(&[5, 0]);
    assert_eq!(
        handshake.poll(),
        OutboundStep::Failed(OutboundError::NameTooLong)
    );
}

#[test]
fn each_socks5_code_is_one_sentence_that_says_what_to_do() {
    let code = |code| error(Socks5, false, &[5, 0, 5, code, 0, 1]);
    assert!(code(2).contains("ask its operator to permit them"));
    for (number, why) in [
        (3, "network"),
        (4, "host"),
        (5, "refused"),
        (6, "time-out"),
        (1, "general"),
    ] {
        let said = code(number);
        assert!(
            said.contains("cannot reach the server") && said.contains(why),
            "{said}"
        );
    }
    assert!(code(7).contains("CONNECT is not supported"));
    assert!(error(Socks5, false, b"\x05\xff").contains("give --via-credentials"));
    assert!(error(Socks5, true, b"\x05\xff").contains("ask its operator"));
    assert!(error(Socks5, true, b"\x05\x02\x01\x01").contains("refuses this user"));
    assert!(error(Socks5, false, b"\x05\x01").contains("breaks its protocol"));
    assert!(error(Socks5, false, b"\x05\0\x05\0\0\x07").contains("breaks its protocol"));
}

#[test]
fn an_answer_is_bounded_and_its_end_is_noticed() {
    let endless = [b"HTTP/1.1 200 OK\r\nX: ".to_vec(), vec![b'x'; MAX_ANSWER]].concat();
    let whole = run(Http, false, &endless, endless.len());
    assert_eq!(whole.step, OutboundStep::Failed(OutboundError::TooLong));
    assert_eq!(whole.used, MAX_ANSWER);
    let blank = vec![b'\n'; MAX_ANSWER - 1];
    assert_eq!(end(Http, false, &blank), OutboundStep::More);
    for (said, why) in [
        (&b""[..], OutboundError::Closed),
        (b"HTTP/1.1 2", OutboundError::Cut),
    ] {
        let target = OutboundTarget {
            host: "a".to_owned(),
            port: 1,
        };
        let mut handshake = OutboundHandshake::new(Http, target, None);
        handshake.poll();
        assert_eq!(handshake.handle_bytes(said), said.len());
        handshake.handle_end();
        assert_eq!(handshake.poll(), OutboundStep::Failed(why));
    }
}

#[test]
fn the_password_is_not_in_the_debug_text() {
    let login = Credentials {
        user: b"ann".to_vec(),
        password: b"wonder".to_vec(),
    };
    let target = OutboundTarget {
        host: "a".to_owned(),
        port: 1,
    };
    let handshake = OutboundHandshake::new(Http, target, Some(login));
    assert!(!format!("{handshake:?}").contains("wonder"));
}

// The proxy of this crate is one that people run.
#[test]
fn the_proxy_of_clients_understands_the_requests() {
    for (protocol, login) in [(Http, false), (Http, true), (Socks5, false), (Socks5, true)] {
        let host = "server.example".to_owned();
        let credentials = login.then(|| Credentials {
            user: b"ann".to_vec(),
            password: b"wonder".to_vec(),
        });
        let target = OutboundTarget { host, port: 7500 };
        let mut client = OutboundHandshake::new(protocol, target, credentials);
        let mut proxy = Handshake::new(login);
        loop {
            match client.poll() {
                OutboundStep::Send(bytes) => proxy.push(&bytes),
                OutboundStep::More => {}
                OutboundStep::Connected => break,
                OutboundStep::Failed(why) => panic!("{why}"),
            }
            let mut step = proxy.poll();
            if let HandshakeStep::Login(credentials) = &step {
                let known = credentials.user == b"ann" && credentials.password == b"wonder";
                step = proxy.handle_login(known);
            }
            match step {
                HandshakeStep::More => {}
                HandshakeStep::Reply(bytes) => {
                    client.handle_bytes(&bytes);
                }
                HandshakeStep::Connect(request) => {
                    assert_eq!(request.target.to_string(), "tcp:server.example:7500");
                    client.handle_bytes(request.dialect.accepted());
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

proptest! {
    #[test]
    fn any_answer_has_the_same_meaning_in_any_pieces(
        how in any::<u8>(),
        begin in prop::sample::select(vec![
            &b""[..], b"HTTP/1.1 ", b"HTTP/1.1 200 ", b"HTTP/1.1 407 ", b"\x05\0", b"\x05\x02\x01\0", b"\x05\0\x05\0\0",
        ]),
        rest in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"\r\n: H/12".to_vec())], 0..200),
    ) {
        check::outbound_proxy(&[&[how], begin, &rest].concat());
    }
}
