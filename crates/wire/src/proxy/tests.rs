use proptest::prelude::*;

use super::*;
use crate::check::proxy_run as run;

/// Returns the outcome of a handshake with a server whose only user is `ann` with the password `wonder`.
fn outcome(protected: bool, bytes: &[u8]) -> (Vec<u8>, HandshakeStep) {
    let known = |login: &Credentials| login.user == b"ann" && login.password == b"wonder";
    run(protected, &known, bytes, bytes.len().max(1))
}

fn connects(protected: bool, bytes: &[u8]) -> (Vec<u8>, String, Vec<u8>) {
    match outcome(protected, bytes) {
        (said, HandshakeStep::Connect(Request { target, rest, .. })) => {
            (said, target.to_string(), rest)
        }
        other => panic!("{other:?}"),
    }
}

fn refuses(protected: bool, bytes: &[u8]) -> Vec<u8> {
    match outcome(protected, bytes) {
        (mut said, HandshakeStep::Refuse(refusal)) => {
            said.extend(refusal.answer);
            said
        }
        other => panic!("{other:?}"),
    }
}

fn http_status(text: &str) -> String {
    let answer = String::from_utf8(refuses(false, text.as_bytes())).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a whole answer");
    let length = format!("Content-Length: {}\r\n", body.len());
    assert!(head.contains(&length), "{answer}");
    answer[9..12].to_owned()
}

/// The request of RFC 1928 section 4, after a greeting that offers no authentication.
fn socks5(command: u8, address: &[u8]) -> Vec<u8> {
    [&[5, 1, 0, 5, command, 0], address].concat()
}

// RFC 1928 sections 3 to 5.
#[test]
fn socks5_without_authentication_names_an_address_of_either_family_or_a_name() {
    for (address, target) in [
        (&b"\x01\xc0\x00\x02\x07\x00\x50"[..], "tcp:192.0.2.7:80"),
        (b"\x03\x09a.EXAMPLE\x01\xbb", "tcp:a.example:443"),
        (b"\x03\x09192.0.2.7\x00\x50", "tcp:192.0.2.7:80"),
        (b"\x03\x03::1\x00\x50", "tcp:[::1]:80"),
        (
            b"\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x00\x50",
            "tcp:[2001:db8::1]:80",
        ),
    ] {
        let mut bytes = socks5(1, address);
        bytes.extend(b"early");
        let expected = (vec![5, 0], target.to_owned(), b"early".to_vec());
        assert_eq!(connects(false, &bytes), expected);
    }
}

// RFC 1928 sections 3 and 6.
#[test]
fn socks5_answers_unsupported_requests() {
    let v4 = b"\x01\x7f\0\0\x01\0\x50";
    let refusal = |code: u8| [&[5, 0, 5, code, 0, 1], &[0; 6][..]].concat();
    // BIND, and two commands that RFC 1928 does not have.
    for command in [2, 0, 9] {
        assert_eq!(refuses(false, &socks5(command, v4)), refusal(7));
    }
    assert_eq!(refuses(false, &socks5(1, b"\x02\0\0")), refusal(8));
    // An empty host, port 0, and names that are not UTF-8, have NUL, or have colons.
    for address in [
        &b"\x03\x00\x00\x50"[..],
        b"\x01\x7f\0\0\x01\0\0",
        b"\x03\x02\xff\xfe\0\x50",
        b"\x03\x03a\0b\0\x50",
        b"\x03\x05a:1:2\0\x50",
    ] {
        assert_eq!(refuses(false, &socks5(1, address)), refusal(1));
    }
    // Another version, or a reserved byte that is not zero.
    assert_eq!(refuses(false, b"\x05\x01\x00\x04\x01\x00\x01"), refusal(1));
    assert_eq!(refuses(false, b"\x05\x01\x00\x05\x01\x01\x01"), refusal(1));
    // No method, and only methods that are not supported.
    for greeting in [&b"\x05\x00"[..], b"\x05\x02\x01\x80"] {
        assert_eq!(refuses(false, greeting), [5, 0xff]);
    }
}

// RFC 1928 sections 4, 6 and 7.
#[test]
fn socks5_associates_datagrams_with_the_port_that_the_application_names() {
    let associate = |address: &[u8]| outcome(false, &socks5(3, address));
    for (address, from_port) in [
        (&b"\x01\0\0\0\0\0\0"[..], None),
        (b"\x01\x7f\0\0\x01\x13\x88", Some(5000)),
        (b"\x03\x00\0\0", None),
        (
            b"\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x13\x88",
            Some(5000),
        ),
    ] {
        let step = HandshakeStep::Associate { from_port };
        assert_eq!(associate(address), (vec![5, 0], step));
        let cut = associate(&address[..address.len() - 1]);
        assert_eq!(cut, (vec![5, 0], HandshakeStep::More));
    }
    assert_eq!(refuses(true, &socks5(3, b"\x01\0\0\0\0\0\0")), [5, 0xff]);
    let v4 = associated(([192, 0, 2, 1], 4711).into());
    assert_eq!(v4, [5, 0, 0, 1, 192, 0, 2, 1, 0x12, 0x67]);
    let v6 = associated((std::net::Ipv6Addr::LOCALHOST, 4711).into());
    assert_eq!(v6[..4], [5, 0, 0, 4]);
    assert_eq!(v6[18..], [0, 1, 0x12, 0x67]);
}

// RFC 1929 section 2.
#[test]
fn socks5_asks_for_user_and_password_if_they_are_required() {
    let request = b"\x05\x01\x00\x03\x02db\x00\x16";
    let good = [&b"\x05\x02\x00\x02\x01\x03ann\x06wonder"[..], request].concat();
    let expected = (vec![5, 2, 1, 0], "tcp:db:22".to_owned(), Vec::new());
    assert_eq!(connects(true, &good), expected);
    for wrong in [
        &b"\x05\x01\x02\x01\x03ann\x06wondeR"[..],
        b"\x05\x01\x02\x01\x03ann\x05wonde",
        b"\x05\x01\x02\x01\x00\x00",
        b"\x05\x01\x02\x05\x01\x00",
    ] {
        let bytes = [wrong, request].concat();
        assert_eq!(refuses(true, &bytes), [5, 2, 1, 1], "{wrong:?}");
    }
    assert_eq!(refuses(true, b"\x05\x01\x00\x05\x01"), [5, 0xff]);
}

// RFC 1928 section 3, RFC 1929 section 2. A program with a user in its settings often offers no other method.
#[test]
fn an_open_proxy_accepts_any_user_and_password_from_a_program_that_insists_on_them() {
    let request = b"\x05\x01\x00\x03\x02db\x00\x16early";
    for login in [
        &b"\x01\x03ann\x06wonder"[..],
        b"\x01\x03bob\x00",
        b"\x01\x00\x00",
    ] {
        let bytes = [&b"\x05\x01\x02"[..], login, request].concat();
        let expected = (vec![5, 2, 1, 0], "tcp:db:22".to_owned(), b"early".to_vec());
        assert_eq!(connects(false, &bytes), expected, "{login:?}");
    }
    // It does not ask a program for a password that can do without.
    let both = [&b"\x05\x02\x02\x00"[..], request].concat();
    assert_eq!(connects(false, &both).0, [5, 0]);
    // The form of a login still has to be right.
    assert_eq!(refuses(false, b"\x05\x01\x02\x05\x01\x00"), [5, 2, 1, 1]);
}

#[test]
fn socks4_names_an_address_and_socks4a_a_name() {
    let v4 = b"\x04\x01\x00\x16\xc0\x00\x02\x07me\0SSH-2.0";
    let expected = (
        Vec::new(),
        "tcp:192.0.2.7:22".to_owned(),
        b"SSH-2.0".to_vec(),
    );
    assert_eq!(connects(false, v4), expected);
    let named = b"\x04\x01\x01\xbb\0\0\0\x01\0a.example\0";
    let expected = (Vec::new(), "tcp:a.example:443".to_owned(), Vec::new());
    assert_eq!(connects(false, named), expected);
    let long = [&b"\x04\x01\x00\x16\x7f\0\0\x01"[..], &[b'u'; 255], b"\0"].concat();
    assert_eq!(connects(false, &long).1, "tcp:127.0.0.1:22");
}

#[test]
fn socks4_refuses_unsupported_requests() {
    let start = b"\x04\x01\x00\x16\x7f\0\0\x01";
    let long = [&start[..], &[b'u'; 256]].concat();
    let long_name = [&b"\x04\x01\x00\x16\0\0\0\x01\0"[..], &[b'n'; 256]].concat();
    for bytes in [
        &b"\x04\x02\x00\x16\x7f\0\0\x01\0"[..],
        b"\x04\x01\x00\x00\x7f\0\0\x01\0",
        b"\x04\x01\x00\x16\0\0\0\x01\0\0",
        b"\x04\x01\x00\x16\0\0\0\x01\0\xff\0",
        &long,
        &long_name,
    ] {
        assert_eq!(refuses(false, bytes), socks4::REJECTED, "{bytes:?}");
    }
    // SOCKS4 has no password to send.
    assert_eq!(
        refuses(true, b"\x04\x01\x00\x16\x7f\0\0\x01ann\0"),
        socks4::REJECTED
    );
}

// RFC 9110 section 9.3.6, RFC 9112 section 3.2.3.
#[test]
fn connect_names_host_and_port() {
    for (text, target) in [
        (
            "CONNECT a.example:443 HTTP/1.1\r\nHost: A.example:443\r\nUser-Agent: x\r\n\r\n",
            "tcp:a.example:443",
        ),
        (
            "CONNECT [::1]:80 HTTP/1.1\r\nhost:[::1]\r\n\r\n",
            "tcp:[::1]:80",
        ),
        ("CONNECT db:5432 HTTP/1.0\r\n\r\n", "tcp:db:5432"),
        (
            "CONNECT a.example.:443 HTTP/1.1\r\n\r\n",
            "tcp:a.example.:443",
        ),
    ] {
        let bytes = [text.as_bytes(), b"\x16\x03\x01"].concat();
        let expected = (Vec::new(), target.to_owned(), vec![0x16, 3, 1]);
        assert_eq!(connects(false, &bytes), expected);
    }
}

// Each of these requests comes from a program, or is one that squid and tinyproxy serve.
#[test]
fn connect_is_read_as_programs_write_it() {
    let line = "CONNECT a.example:443 HTTP/1.1\r\n";
    for text in [
        // Node's http.request names the proxy as the host.
        &format!("{line}Host: 127.0.0.1:1080\r\nConnection: keep-alive\r\n\r\n"),
        &format!("{line}Host: a.example\r\nContent-Length: 0\r\n\r\n"),
        &format!("{line}Content-Length: 0\r\ncontent-length: 0, 00\r\n\r\n"),
        &format!("{line}\r\n"),
        &format!("{line}Host:\r\n\r\n"),
        &format!("{line}HOST: b.example:80\r\nProxy-Connection: Keep-Alive\r\n\r\n"),
        "CONNECT a.example:443 HTTP/1.1\nHost: a.example:443\n\n",
        "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\n\r\n",
        "CONNECT a.example:443 HTTP/1.0\n\n",
        "CONNECT  a.example:443\t HTTP/1.1 \r\n\r\n",
        "CONNECT A.Example:443 HTTP/1.9\r\n\r\n",
        &format!("\r\n{line}\r\n"),
        &format!("\n\r\n{line}\r\n"),
        &format!("{line}User-Agent: a (b\u{e9}c)\r\nX-Empty:\r\n\r\n"),
    ] {
        let bytes = [text.as_bytes(), b"\n\nGET"].concat();
        let expected = (
            Vec::new(),
            "tcp:a.example:443".to_owned(),
            b"\n\nGET".to_vec(),
        );
        assert_eq!(connects(false, &bytes), expected, "{text:?}");
    }
    let other_encoding = [line.as_bytes(), b"User-Agent: \xe9\r\n\r\n"].concat();
    assert_eq!(connects(false, &other_encoding).1, "tcp:a.example:443");
}

#[test]
fn a_page_of_a_browser_gets_no_connection_even_if_it_could_send_connect() {
    for field in [
        "Origin: http://b.example",
        "origin: null",
        "Sec-Fetch-Site: same-origin",
    ] {
        let text = format!("CONNECT a.example:443 HTTP/1.1\r\n{field}\r\n");
        assert_eq!(http_status(&text), "403", "{field}");
    }
}

// Requests that a page in a browser can send, and those of programs that expect another kind of proxy.
#[test]
fn every_other_request_of_http_is_refused_by_its_first_line() {
    for line in [
        "GET / HTTP/1.1",
        "GET http://a.example/ HTTP/1.1",
        "POST / HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "connect a.example:443 HTTP/1.1",
        "\r\nGET / HTTP/1.1",
        "GET  /  HTTP/1.0",
    ] {
        let answer = refuses(false, format!("{line}\r\n").as_bytes());
        let answer = String::from_utf8(answer).expect("text");
        assert!(
            answer.starts_with("HTTP/1.1 405 Method Not Allowed\r\nAllow: CONNECT\r\n"),
            "{line}: {answer}"
        );
    }
    assert_eq!(http_status("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "405");
    assert_eq!(http_status("CONNECT a.example:443 HTTP/2.0\r\n"), "505");
}

// RFC 9112 sections 3.2, 5 and 6.3.
#[test]
fn an_ambiguous_request_is_refused() {
    let head = "CONNECT a.example:443 HTTP/1.1\r\n";
    let host = "Host: a.example:443\r\n";
    for fields in [
        &format!("{host}{host}\r\n"),
        "Content-Length: 5\r\n\r\nhello",
        "Content-Length: 0, 5\r\n\r\n",
        "Content-Length: 0\r\nContent-Length: 1\r\n\r\n",
        "Content-Length:\r\n\r\n",
        "Content-Length: +0\r\n\r\n",
        "Content-Length: 0x0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n",
        "Content-Length: 0\r\nTransfer-Encoding: identity\r\n\r\n",
        &format!("{host}X: a\r\n b\r\n\r\n"),
        "X: a\n\tb\n\n",
        &format!("{host}X : a\r\n\r\n"),
        &format!("{host}: a\r\n\r\n"),
        &format!("{host}X\r\n\r\n"),
        &format!("{host}X: a\0b\r\n\r\n"),
        &format!("{host}X: a\rb\r\n\r\n"),
        "X: a\r\r\n\r\n",
    ] {
        assert_eq!(http_status(&format!("{head}{fields}")), "400", "{fields:?}");
    }
    for line in [
        "X\r\n",
        "CONNECT a.example:443\r\n",
        "CONNECT a.example:443 b.example:443 HTTP/1.1\r\n",
        "CONNECT me@a.example:443 HTTP/1.1\r\n",
        "CONNECT http://a.example/ HTTP/1.1\r\n",
        "\rCONNECT a.example:443 HTTP/1.1\r\n",
    ] {
        assert_eq!(http_status(line), "400", "{line:?}");
    }
    for version in [
        "HTTP/0.9",
        "HTTP/1",
        "HTTP/1.",
        "HTTP/1.10",
        "http/1.1",
        "HTTP/2",
    ] {
        let line = format!("CONNECT a.example:443 {version}\r\n");
        assert_eq!(http_status(&line), "505", "{version}");
    }
    // An authority that is not a target is refused once the request is complete.
    for authority in [
        "a.example",
        "a.example:0",
        "a.example:65536",
        ":443",
        "a:b:1",
        "::1:443",
        "[::1]",
    ] {
        let text = format!("CONNECT {authority} HTTP/1.0\r\n\r\n");
        assert_eq!(http_status(&text), "400", "{authority}");
    }
}

// RFC 9110 section 11.7, RFC 7617 section 2.
#[test]
fn connect_asks_for_user_and_password_if_they_are_required() {
    let with =
        |field: &str| format!("CONNECT db:22 HTTP/1.1\r\nHost: db:22\r\n{field}\r\n").into_bytes();
    // printf ann:wonder | base64
    let good = with("Proxy-Authorization: basic  YW5uOndvbmRlcg==\r\n");
    assert_eq!(connects(true, &good).1, "tcp:db:22");
    for field in [
        "",
        "Authorization: Basic YW5uOndvbmRlcg==\r\n",
        "Proxy-Authorization: Basic YW5uOndvbmRlUg==\r\n",
        "Proxy-Authorization: Basic YW5uOndvbmRlcg\r\n",
        "Proxy-Authorization: Bearer YW5uOndvbmRlcg==\r\n",
        "Proxy-Authorization: Basic\r\n",
    ] {
        let answer = String::from_utf8(refuses(true, &with(field))).expect("text");
        assert!(
            answer.starts_with(
                "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="
            ),
            "{field}: {answer}"
        );
    }
}

#[test]
fn the_head_of_a_request_has_a_limit() {
    let start = "CONNECT db:22 HTTP/1.0\r\nX: ";
    let whole = |length: usize| {
        let filler = "x".repeat(length - start.len() - 4);
        format!("{start}{filler}\r\n\r\n")
    };
    assert_eq!(connects(false, whole(MAX_HEAD).as_bytes()).1, "tcp:db:22");
    assert_eq!(http_status(&whole(MAX_HEAD + 1)), "431");
    assert_eq!(http_status(&whole(64 << 10)), "431");
    // The limit also holds for a line without an end.
    let open = "C".repeat(MAX_HEAD);
    assert_eq!(http_status(&open), "431");
    assert_eq!(http_status(&"\r\n".repeat(MAX_HEAD / 2)), "431");
    assert_eq!(outcome(false, &open.as_bytes()[1..]).1, HandshakeStep::More);
}

#[test]
fn other_protocols_are_left_without_an_answer() {
    for byte in [0, 1, 3, 6, 0x16, b' ', b'0', 0x80, 0xff] {
        assert_eq!(refuses(false, &[byte]), b"", "{byte}");
    }
    assert_eq!(outcome(false, b"").1, HandshakeStep::More);
}

// RFC 1928 section 6.
#[test]
fn an_answer_reports_the_servers_code() {
    for (code, reply, status) in [
        (FlowCode::Refused, 5, "502"),
        (FlowCode::Unreachable, 4, "502"),
        (FlowCode::NameNotFound, 4, "502"),
        (FlowCode::Denied, 2, "403"),
        (FlowCode::Unauthenticated, 2, "403"),
        (FlowCode::Quota, 2, "403"),
        (FlowCode::DialTimeout, 6, "504"),
        (FlowCode::ConnectionLost, 3, "502"),
        (FlowCode::ShuttingDown, 3, "503"),
        (FlowCode::Limit, 1, "503"),
        (FlowCode::Internal, 1, "502"),
    ] {
        let socks = Dialect::Socks5.refused(Some(code));
        assert_eq!(socks, [5, reply, 0, 1, 0, 0, 0, 0, 0, 0], "{code}");
        assert_eq!(Dialect::Socks4.refused(Some(code)), socks4::REJECTED);
        let http = String::from_utf8(Dialect::Http.refused(Some(code))).expect("text");
        assert_eq!(&http[9..12], status, "{code}");
        assert!(http.ends_with(&format!("\r\n\r\n{code}\n")), "{http}");
    }
    assert_eq!(Dialect::Socks5.refused(None)[1], 1);
    assert_eq!(Dialect::Socks5.accepted()[..2], [5, 0]);
    assert_eq!(Dialect::Socks4.accepted()[..2], [0, 90]);
    // RFC 9110 section 9.3.6.
    let accepted = String::from_utf8_lossy(Dialect::Http.accepted());
    assert!(accepted.starts_with("HTTP/1.1 200 ") && !accepted.contains("Content-Length"));
}

#[test]
fn passwords_are_not_shown() {
    let mut handshake = Handshake::new(true);
    handshake.push(b"\x05\x01\x02\x01\x03ann\x06wonder");
    assert!(!format!("{handshake:?}").contains("wonder"));
    let mut step = handshake.poll();
    while !matches!(step, HandshakeStep::Login(_)) {
        step = handshake.poll();
    }
    assert!(!format!("{step:?}").contains("wonder"), "{step:?}");
}

const LINES: &[&str] = &[
    "CONNECT a:1 HTTP/1.1\r\n",
    "CONNECT [::1]:1 HTTP/1.0\n",
    "Host: b\r\n",
    "Content-Length: 0\n",
    "X:\r\n",
    " folded\n",
    "\r\n",
    "\n",
    "\r",
];

proptest! {
    #[test]
    fn any_bytes_in_any_pieces_are_safe(first in prop::sample::select(vec![4u8, 5, b'C', b'\n', 0]), rest: Vec<u8>) {
        let bytes = [vec![rest.len().try_into().unwrap_or(7), first], rest].concat();
        crate::check::proxy(&bytes);
    }

    #[test]
    fn heads_of_any_lines_end_at_their_first_empty_line(
        how: u8,
        lines in prop::collection::vec(prop::sample::select(LINES), 1..12),
    ) {
        crate::check::proxy(&[&[how], lines.concat().as_bytes()].concat());
    }

    #[test]
    fn names_reach_the_server_as_they_were_written(
        name in "[a-z]([a-z0-9-]{0,20}[a-z0-9])?(\\.[a-z]{1,8}){0,3}",
        port in 1u16..,
        early: Vec<u8>,
    ) {
        let length = u8::try_from(name.len()).expect("short");
        let mut socks5 = socks5(1, &[3, length]);
        socks5.extend(name.bytes().chain(port.to_be_bytes()));
        let [high, low] = port.to_be_bytes();
        let socks4 = [&[4, 1, high, low, 0, 0, 0, 1, 0], name.as_bytes(), &[0]].concat();
        let http = format!("CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n");
        for request in [socks5, socks4, http.into_bytes()] {
            let (_, target, rest) = connects(false, &[&request[..], &early].concat());
            prop_assert_eq!(target, format!("tcp:{name}:{port}"));
            prop_assert_eq!(&rest, &early);
        }
    }
}
