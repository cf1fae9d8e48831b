use super::*;

/// Asks for the address of `a.example`. `edns` adds an EDNS record with that limit for answers.
fn question(edns: Option<u16>) -> Vec<u8> {
    let mut message = vec![
        0xab,
        0xcd,
        1,
        0,
        0,
        1,
        0,
        0,
        0,
        0,
        0,
        u8::from(edns.is_some()),
    ];
    message.extend(b"\x01a\x07example\0\0\x01\0\x01");
    if let Some(limit) = edns {
        message.extend([0, 0, 41]);
        message.extend(limit.to_be_bytes());
        message.extend([0; 6]);
    }
    message
}

fn answer(length: usize) -> Vec<u8> {
    let mut message = question(None);
    message[2] |= 0x80;
    message[3] = 0x80;
    message.resize(length, 7);
    message
}

#[test]
fn a_question_is_framed_and_its_answer_passed_on() {
    let asked = question(None);
    let query = Query::parse(&asked).expect("a question");
    let framed = query.framed();
    assert_eq!(framed[..2], [0, 27]);
    assert_eq!(framed[2..], asked);
    let told = answer(100);
    assert_eq!(query.reply(&told), told);
}

#[test]
fn an_answer_that_is_too_long_becomes_a_hint_to_ask_over_tcp() {
    for (edns, limit) in [(None, 512), (Some(1232), 1232), (Some(100), 512)] {
        let query = Query::parse(&question(edns)).expect("a question");
        assert_eq!(query.reply(&answer(limit)).len(), limit);
        let cut = query.reply(&answer(limit + 1));
        assert_eq!(cut.len(), question(None).len());
        assert_eq!(cut[2..12], [0x83, 0x80, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(cut[12..], question(None)[12..]);
    }
}

#[test]
fn a_wrong_answer_and_silence_are_failures() {
    let query = Query::parse(&question(Some(1232))).expect("a question");
    let failure = query.failure();
    assert_eq!(failure[..4], [0xab, 0xcd, 0x81, 2]);
    assert_eq!(failure.len(), question(None).len());
    let mut other = answer(100);
    other[0] ^= 1;
    for wrong in [&other[..], &question(None), &answer(100)[..11], &[]] {
        assert_eq!(query.reply(wrong), failure);
    }
}

#[test]
fn a_message_that_is_not_one_question_is_refused() {
    let good = question(Some(1232));
    for length in 0..good.len() {
        assert!(Query::parse(&good[..length]).is_err(), "{length} bytes");
    }
    for (at, value) in [(2, 0x81), (5, 0), (5, 2), (7, 1), (9, 1)] {
        let mut wrong = good.clone();
        wrong[at] = value;
        assert_eq!(Query::parse(&wrong), Err(QueryError::NoQuestion));
    }
    let mut wrong = good.clone();
    wrong[12] = 64;
    assert_eq!(Query::parse(&wrong), Err(QueryError::Malformed));
    let mut endless = good[..12].to_vec();
    endless.extend([1, b'a'].repeat(200));
    endless.extend([0; 30]);
    assert_eq!(Query::parse(&endless), Err(QueryError::Malformed));
}

#[test]
fn an_answer_is_whole_when_its_length_says_so() {
    let mut answer = AnswerReader::default();
    for byte in [0, 3, 1, 2] {
        answer.push(&[byte]);
        assert_eq!(answer.message(), None);
    }
    answer.push(&[3, 9, 9]);
    assert_eq!(answer.message(), Some(&[1, 2, 3][..]));
    // The buffer is capped at one message, no matter how many bytes arrive.
    answer.push(&vec![0; 1 << 20]);
    assert_eq!(answer.0.len(), 65_537);
}
