use super::*;

#[test]
fn flow_codes_have_their_published_numbers() {
    let numbers = [
        (FlowCode::AppReset, 0x01),
        (FlowCode::BadOpen, 0x02),
        (FlowCode::Unreachable, 0x03),
        (FlowCode::Denied, 0x04),
        (FlowCode::Unauthenticated, 0x05),
        (FlowCode::DialTimeout, 0x06),
        (FlowCode::Refused, 0x07),
        (FlowCode::Limit, 0x08),
        (FlowCode::ShuttingDown, 0x09),
        (FlowCode::NameNotFound, 0x0a),
        (FlowCode::Internal, 0x0b),
        (FlowCode::Unsupported, 0x0c),
        (FlowCode::ConnectionLost, 0x0d),
        (FlowCode::NoBond, 0x0e),
        (FlowCode::NoFlow, 0x0f),
        (FlowCode::Moved, 0x10),
        (FlowCode::TooOld, 0x11),
        (FlowCode::Revoked, 0x12),
        (FlowCode::Quota, 0x13),
    ];
    assert_eq!(numbers.map(|(code, _)| code), FlowCode::ALL);
    for (code, number) in numbers {
        assert_eq!(code.to_u64(), number);
        assert_eq!(FlowCode::from_u64(number), Some(code));
    }
}

// PROTOCOL CODE-2.
#[test]
fn a_peer_is_sent_every_code_except_a_lost_connection() {
    for code in FlowCode::ALL {
        let sent = FlowCode::from_u64(code.to_peer());
        let expected = if code == FlowCode::ConnectionLost {
            FlowCode::AppReset
        } else {
            code
        };
        assert_eq!(sent, Some(expected));
    }
}

#[test]
fn close_codes_have_their_published_numbers() {
    let numbers = [
        (CloseCode::Done, 0x00),
        (CloseCode::ProtocolViolation, 0x01),
        (CloseCode::NotAuthorized, 0x02),
        (CloseCode::Shutdown, 0x03),
        (CloseCode::TooManyConnections, 0x04),
        (CloseCode::Revoked, 0x05),
        (CloseCode::Expired, 0x06),
        (CloseCode::NotStored, 0x07),
    ];
    assert_eq!(numbers.map(|(code, _)| code), CloseCode::ALL);
    for (code, number) in numbers {
        assert_eq!(code.to_u64(), number);
        assert_eq!(CloseCode::from_u64(number), Some(code));
    }
}

#[test]
fn listen_codes_have_their_published_numbers() {
    let numbers = [
        (ListenCode::BadAddress, 0x01),
        (ListenCode::NotAllowed, 0x02),
        (ListenCode::InUse, 0x03),
        (ListenCode::TooMany, 0x04),
        (ListenCode::Taken, 0x05),
        (ListenCode::Failed, 0x06),
        (ListenCode::Revoked, 0x07),
        (ListenCode::ShuttingDown, 0x08),
    ];
    assert_eq!(numbers.map(|(code, _)| code), ListenCode::ALL);
    for (code, number) in numbers {
        assert_eq!(code.to_u64(), number);
        assert_eq!(ListenCode::from_u64(number), Some(code));
    }
}

// PROTOCOL CODE-1.
#[test]
fn unassigned_numbers_have_no_code() {
    for number in [0x00, 0x14, 0xff, crate::varint::MAX, u64::MAX] {
        assert_eq!(FlowCode::from_u64(number), None);
    }
    for number in [0x08, 0xff, u64::MAX] {
        assert_eq!(CloseCode::from_u64(number), None);
    }
}

#[test]
fn labels_fit_metrics_and_differ_as_do_the_sentences() {
    fn check(labels: &[&str], sentences: &[String]) {
        for label in labels {
            assert!(
                label
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
                "{label}"
            );
        }
        for list in [
            labels.to_vec(),
            sentences.iter().map(String::as_str).collect(),
        ] {
            let mut unique = list.clone();
            unique.sort_unstable();
            unique.dedup();
            assert_eq!(unique.len(), list.len());
        }
    }
    check(
        &FlowCode::ALL.map(FlowCode::label),
        &FlowCode::ALL.map(|code| code.to_string()),
    );
    check(
        &CloseCode::ALL.map(CloseCode::label),
        &CloseCode::ALL.map(|code| code.to_string()),
    );
}

#[test]
fn the_original_learns_whether_its_token_or_the_target_was_at_fault() {
    for code in FlowCode::ALL {
        let ack = match code {
            FlowCode::BadOpen | FlowCode::Unsupported => 0x02,
            _ => 0x03,
        };
        assert_eq!(code.compat_ack().to_byte(), ack, "{code:?}");
    }
}

#[test]
fn the_code_tables_match_the_protocol_document() {
    let document = include_str!("../../../../docs/PROTOCOL.md");
    let rows = |heading: &str| -> Vec<String> {
        let section = document.split(heading).nth(1).expect("the section");
        let rows = section.lines().skip_while(|line| !line.starts_with("| 0x"));
        let rows = rows.take_while(|line| line.starts_with("| 0x"));
        rows.map(|line| line.split('|').take(4).collect()).collect()
    };
    let flow = |code: FlowCode| format!(" 0x{:02x}  {code:?}  `{}` ", code.to_u64(), code.label());
    assert_eq!(rows("### 6.1 Flow codes"), FlowCode::ALL.map(flow));
    let close =
        |code: CloseCode| format!(" 0x{:02x}  {code:?}  `{}` ", code.to_u64(), code.label());
    assert_eq!(rows("### 6.2 Close codes"), CloseCode::ALL.map(close));
}
