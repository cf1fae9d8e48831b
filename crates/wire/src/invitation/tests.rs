use proptest::prelude::*;

use super::*;

fn code() -> Code {
    Code::new("laptop", "vpn.example.net:7500", [7; 32], [9; 16]).expect("a code")
}

/// Returns the text of these bytes with a correct checksum.
fn sealed(bytes: &[u8]) -> String {
    let mut bytes = bytes.to_vec();
    bytes.extend(crc32::checksum(&bytes).to_be_bytes());
    format!("{PREFIX}{}", base32::encode(&bytes))
}

// PROTOCOL INVITE-1.
#[test]
fn a_code_is_written_as_the_protocol_says() {
    let code = Code::new("a", "b:1", [0xff; 32], [0; 16]).expect("a code");
    let mut bytes = vec![1];
    bytes.extend([0; 16]);
    bytes.extend([0xff; 32]);
    bytes.extend(b"\x01a\x03b:1");
    assert_eq!(code.to_string(), sealed(&bytes));
}

// PROTOCOL INVITE-5.
#[test]
fn a_tcp_port_of_its_own_makes_a_code_of_the_second_version() {
    let code = || Code::new("a", "b:1", [0xff; 32], [0; 16]).expect("a code");
    let fields = |version| [&[version][..], &[0; 16], &[0xff; 32], b"\x01a\x03b:1"].concat();
    let other = code().with_tls_port(Some(443));
    let text = sealed(&[&fields(2)[..], &[1, 0xbb]].concat());
    assert_eq!(other.to_string(), text);
    assert_eq!(
        text.parse::<Code>().map(|code| code.tls_port()),
        Ok(Some(443))
    );
    assert_eq!(text.parse(), Ok(other));
    // The port of the address is not written again.
    for port in [None, Some(0), Some(1)] {
        assert_eq!(code().with_tls_port(port), code(), "{port:?}");
    }
    for port in [&[][..], &[1], &[0, 0], &[0, 1], &[1, 0xbb, 0]] {
        let text = sealed(&[&fields(2)[..], port].concat());
        assert_eq!(text.parse::<Code>(), Err(CodeError::Content), "{port:?}");
    }
}

// PROTOCOL INVITE-1.
#[test]
fn a_code_is_read_in_either_case_and_with_white_space() {
    let text = code().to_string();
    assert_eq!(text.len(), 145);
    let (head, tail) = text.split_at(60);
    for text in [
        text.clone(),
        text.to_ascii_uppercase(),
        format!(" {head}\r\n\t{tail}\n"),
    ] {
        assert_eq!(text.parse(), Ok(code()), "{text}");
    }
}

#[test]
fn an_invalid_code_gets_a_reason() {
    let text = code().to_string();
    let swapped = text.replace("quictun-invite:ae", "quictun-invite:ea");
    assert_ne!(swapped, text);
    for (text, why) in [
        (String::new(), CodeError::Prefix),
        ("sha256:47DEQpj8".to_owned(), CodeError::Prefix),
        (text.replace(PREFIX, ""), CodeError::Prefix),
        (PREFIX.to_owned(), CodeError::Length),
        (format!("{text}1"), CodeError::Character('1')),
        (format!("{text}{text}"), CodeError::Character('-')),
        (swapped, CodeError::Checksum),
        (" ".repeat(MAX_TEXT + 1), CodeError::Length),
        (sealed(&[2]), CodeError::Content),
        (sealed(&[3]), CodeError::Version(3)),
        (sealed(&[]), CodeError::Length),
        (sealed(&[1; 50]), CodeError::Content),
    ] {
        assert_eq!(text.parse::<Code>(), Err(why), "{text:?}");
    }
}

#[test]
fn a_part_of_a_code_is_not_a_code() {
    let text = code().to_string();
    for length in 0..text.len() {
        assert!(text[..length].parse::<Code>().is_err(), "{length}");
    }
}

/// A correct checksum says nothing about the author of a code.
#[test]
fn fields_that_no_invitation_has_are_refused() {
    let with = |name: &str, server: &str| {
        let mut bytes = vec![1; 49];
        for text in [name, server] {
            bytes.push(u8::try_from(text.len()).expect("short"));
            bytes.extend(text.as_bytes());
        }
        sealed(&bytes).parse::<Code>()
    };
    assert!(with("laptop", "a:1").is_ok());
    assert!(with(&"x".repeat(MAX_NAME), "a:1").is_ok());
    let long = "x".repeat(MAX_NAME + 1);
    for name in ["", ".", "../x", "a/b", "a b", "ä", "-a", &long] {
        assert_eq!(with(name, "a:1"), Err(CodeError::Content), "{name:?}");
    }
    for server in [
        "", "a", "a:0", "a:70000", "A:1", "/x", "tcp:a:1", "::1:1", "a\n:1",
    ] {
        assert_eq!(with("a", server), Err(CodeError::Content), "{server:?}");
    }
}

#[test]
fn the_longest_name_and_address_fit_and_no_longer_ones() {
    let label = "x".repeat(63);
    let host = [&label[..], &label, &label, &label[..57]].join(".");
    let server = format!("{host}:65535");
    assert_eq!(server.len(), MAX_SERVER);
    let name = "n".repeat(MAX_NAME);
    let code = Code::new(&name, &server, [1; 32], [2; 16]).expect("a code");
    let code = code.with_tls_port(Some(443));
    let text = code.to_string();
    assert!(text.len() < MAX_TEXT / 2, "{}", text.len());
    assert_eq!(text.parse(), Ok(code));
    let long = Code::new("a", &format!("x{server}"), [1; 32], [2; 16]);
    assert_eq!(long, Err(ContentError::Server));
    let long = Code::new(&format!("n{name}"), "a:1", [1; 32], [2; 16]);
    assert_eq!(long, Err(ContentError::Name));
}

// PROTOCOL PROOF-4.
#[test]
fn debug_output_hides_the_secret() {
    let text = format!("{:?}", code());
    assert_eq!(
        text,
        "Code { name: \"laptop\", server: \"vpn.example.net:7500\", tls_port: None, .. }"
    );
}

proptest! {
    #[test]
    fn an_encoded_value_decodes_to_itself(
        name in "[a-z0-9A-Z][a-zA-Z0-9._-]{0,62}",
        host in "[a-z]([a-z0-9-]{0,20}[a-z])?|\\[fe80::1\\]|192\\.0\\.2\\.7",
        port in 1u16..,
        pin in any::<[u8; 32]>(),
        secret in any::<[u8; 16]>(),
        tls_port in any::<Option<u16>>(),
    ) {
        let code = Code::new(&name, &format!("{host}:{port}"), pin, secret).expect("a code");
        let code = code.with_tls_port(tls_port);
        prop_assert_eq!(code.to_string().parse(), Ok(code));
    }

    #[test]
    fn one_wrong_character_is_found(at in 15usize..145, shift in 1usize..32) {
        let text = code().to_string();
        let digits = b"abcdefghijklmnopqrstuvwxyz234567";
        let mut bytes = text.into_bytes();
        let was = digits.iter().position(|digit| *digit == bytes[at]).expect("a digit");
        bytes[at] = digits[(was + shift) % 32];
        let text = String::from_utf8(bytes).expect("ASCII");
        prop_assert!(text.parse::<Code>().is_err());
    }

    #[test]
    fn any_text_is_safe(text in ".{0,200}|quictun-invite:[a-z2-7]{0,200}") {
        crate::check::invitation(text.as_bytes());
    }
}
