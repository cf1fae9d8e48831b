use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn fragment(sequence: u64, index: u8, count: u8) -> Fragment {
    Fragment {
        sequence,
        index,
        count,
    }
}

fn take(all: &mut Reassembly, fragment: Fragment, part: &'static [u8]) -> Option<Bytes> {
    all.take(Instant::now(), fragment, &Bytes::from_static(part))
}

#[test]
fn fragments_make_a_datagram_in_any_order_and_among_others() {
    let mut all = Reassembly::default();
    assert_eq!(take(&mut all, fragment(1, 2, 3), b"ef"), None);
    assert_eq!(take(&mut all, fragment(2, 0, 2), b"12"), None);
    assert_eq!(take(&mut all, fragment(1, 0, 3), b"ab"), None);
    assert_eq!(
        take(&mut all, fragment(2, 1, 2), b"34"),
        Some(b"1234"[..].into())
    );
    assert_eq!(
        take(&mut all, fragment(1, 1, 3), b"cd"),
        Some(b"abcdef"[..].into())
    );
    assert_eq!((all.held(), all.dropped), (0, 0));
}

// PROTOCOL UDP-5.
#[test]
fn fragments_that_repeat_or_contradict_each_other_make_nothing() {
    let mut all = Reassembly::default();
    assert_eq!(take(&mut all, fragment(1, 0, 2), b"ab"), None);
    assert_eq!(take(&mut all, fragment(1, 0, 2), b"xy"), None);
    assert_eq!(
        take(&mut all, fragment(1, 1, 2), b"cd"),
        Some(b"abcd"[..].into())
    );
    assert_eq!(take(&mut all, fragment(2, 0, 3), b"ab"), None);
    assert_eq!(take(&mut all, fragment(2, 1, 2), b"cd"), None);
    assert_eq!((all.held(), all.dropped), (0, 1));
    // One byte more than a datagram can have.
    let half = Bytes::from(vec![0; MAX_PAYLOAD / 2 + 1]);
    let now = Instant::now();
    assert_eq!(all.take(now, fragment(3, 0, 2), &half), None);
    assert_eq!(all.take(now, fragment(3, 1, 2), &half), None);
    assert_eq!((all.held(), all.dropped), (0, 2));
}

// PROTOCOL UDP-5: at the limit, and one above.
#[test]
fn an_incomplete_datagram_is_dropped_after_two_seconds() {
    let (mut all, now) = (Reassembly::default(), Instant::now());
    let part = Bytes::from_static(b"ab");
    assert_eq!(all.take(now, fragment(1, 0, 2), &part), None);
    assert_eq!(all.next_timeout(), Some(now + 2 * SECOND));
    all.expire(now + Duration::from_millis(1999));
    assert_eq!(all.dropped, 0);
    all.expire(now + 2 * SECOND);
    assert_eq!((all.held(), all.dropped, all.next_timeout()), (0, 1, None));
    // What comes later does not complete it.
    assert_eq!(all.take(now + 2 * SECOND, fragment(1, 1, 2), &part), None);
}

#[test]
fn a_flood_of_first_fragments_takes_bounded_memory() {
    let (mut all, now) = (Reassembly::default(), Instant::now());
    let part = Bytes::from(vec![0; 1000]);
    for sequence in 0..10_000 {
        let count = if sequence % 2 == 0 { 2 } else { 64 };
        assert_eq!(all.take(now, fragment(sequence, 0, count), &part), None);
        assert!(all.held() <= HELD_MAX, "{} bytes", all.held());
    }
    // The latest can still be completed.
    assert!(all.take(now, fragment(9998, 1, 2), &part).is_some());
}
