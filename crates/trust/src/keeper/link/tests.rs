use super::*;

#[test]
fn a_request_that_waits_for_a_disk_keeps_no_log_and_no_rule_waiting() {
    let of = |requests: &[u8]| requests.iter().map(|it| lane(*it)).collect::<Vec<_>>();
    let lanes = of(&[READ, APPEND, ENROL, LOAD]);
    for (index, one) in lanes.iter().enumerate() {
        assert!((*one as usize) < LANES);
        assert!(!lanes[..index].contains(one), "{one:?}");
    }
    assert_eq!(of(&[STORE, LISTEN, REMOVE]), of(&[ENROL, LOAD, LOAD]));
}

#[test]
fn an_answer_that_takes_long_is_awaited() {
    let (mut near, far) = UnixStream::pair().expect("a pair of sockets");
    let slow = Duration::from_millis(1);
    let answering = std::thread::spawn(move || {
        let mut far = far;
        std::thread::park_timeout(20 * slow);
        answer(&mut far, Ok(Zeroizing::new(b"late".to_vec()))).map(|()| far)
    });
    let Reply::Done(content, None) = receive(&mut near, slow).expect("an answer") else {
        panic!("an answer with content");
    };
    assert_eq!(*content, b"late");
    let far = answering.join().expect("it returns").expect("sent");
    drop(far);
    let Err(error) = receive(&mut near, slow) else {
        panic!("the keeper has ended");
    };
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}
