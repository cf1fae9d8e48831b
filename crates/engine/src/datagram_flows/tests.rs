use quictun_wire::datagram::MAX_PAYLOAD;

use super::*;

const KEY: FlowKey = FlowKey(7);
const MS: Duration = Duration::from_millis(1);
const IDLE: Duration = Duration::from_mins(2);

fn bytes(len: usize) -> Bytes {
    vec![1; len].into()
}

fn entered(now: Instant, token: &str) -> DatagramFlows {
    let mut flows = DatagramFlows::new(IDLE);
    flows.enter(now, KEY, token);
    flows
}

#[test]
fn the_oldest_give_way_and_leave_after_100_ms() {
    let now = Instant::now();
    let mut flows = entered(now, "udp:a:1");
    let flow = flows.get_mut(KEY).expect("entered");
    flow.begin(now);
    for len in 1..=100 {
        flow.push(now, bytes(1000 + len));
    }
    assert!(flow.queued <= QUEUE_MAX, "{}", flow.queued);
    let first = flow.pop(now).expect("waits");
    assert_eq!(flow.counters.dropped, first.len() as u64 - 1001);
    assert!(flow.pop(now + 99 * MS).is_some());
    assert!(flow.pop(now + 100 * MS).is_none());
    assert_eq!(flow.queued, 0);
    // One of the greatest length waits alone.
    flow.push(now, bytes(1));
    flow.push(now, bytes(MAX_PAYLOAD));
    assert_eq!(flow.pop(now).map(|it| it.len()), Some(MAX_PAYLOAD));
    assert!(!flow.has_outbound());
}

#[test]
fn what_arrives_displaces_what_waits() {
    let now = Instant::now();
    let mut flows = entered(now, "udp:a:1");
    let flow = flows.get_mut(KEY).expect("entered");
    for len in 1..=300 {
        assert!(flow.room(true) > 0);
        flow.push(now, bytes(60_000 + len));
    }
    assert_eq!(flow.room(false), 0, "the socket keeps the next");
    assert!(flow.queued <= QUEUE_MAX, "{}", flow.queued);
    assert_eq!(flow.pop(now).map(|it| it.len()), Some(60_300));
}

// PROTOCOL UDP-8.
#[test]
fn a_flow_is_idle_after_the_time_of_its_port() {
    for (token, answered, idle) in [
        ("udp:a:51820", true, 120),
        ("udp:a:53", false, 17),
        ("udp:a:123", true, 10),
        ("udp:a:3478", true, 10),
        ("udp:a:3478", false, 120),
        ("a name without a port", false, 120),
    ] {
        let now = Instant::now();
        let mut flows = entered(now, token);
        let flow = flows.get_mut(KEY).expect("entered");
        flow.push(now, bytes(1));
        if answered {
            flow.take(now, None, bytes(1));
        }
        flows.note_changed(KEY);
        let before = now + Duration::from_secs(idle).saturating_sub(MS);
        let idle = now + Duration::from_secs(idle);
        assert_eq!(flows.next_timeout(), Some(idle), "{token}");
        assert_eq!(flows.pop_idle(before), None);
        assert_eq!(flows.pop_idle(idle), Some(KEY));
        assert_eq!(flows.pop_idle(idle), None);
    }
}

#[test]
fn a_datagram_keeps_a_flow() {
    let now = Instant::now();
    let mut flows = entered(now, "udp:a:53");
    let later = now + Duration::from_secs(16);
    flows.get_mut(KEY).expect("entered").push(later, bytes(1));
    flows.note_changed(KEY);
    assert_eq!(flows.pop_idle(now + Duration::from_secs(17)), None);
    assert_eq!(flows.next_timeout(), Some(later + Duration::from_secs(17)));
}

#[test]
fn all_memory_is_counted_and_given_back() {
    let now = Instant::now();
    let mut flows = entered(now, "udp:a:1");
    let flow = flows.get_mut(KEY).expect("entered");
    flow.push(now, bytes(1000));
    flow.keep_early(&bytes(500), true);
    let fragment = Fragment {
        sequence: 0,
        index: 0,
        count: 2,
    };
    flow.take(now, Some(fragment), bytes(100));
    flows.note_changed(KEY);
    assert!(flows.held() >= 1600 + ENTRY_COST as u64);
    flows.remove(KEY);
    assert_eq!((flows.held(), flows.next_timeout()), (0, None));
}

// PROTOCOL UDP-7: the client is not known yet.
#[test]
fn a_stranger_makes_the_server_keep_one_packet() {
    let now = Instant::now();
    let mut flows = entered(now, "udp:a:1");
    let flow = flows.get_mut(KEY).expect("entered");
    flow.keep_early(&bytes(STRANGER_MAX), false);
    flow.keep_early(&bytes(1200), false);
    flow.keep_early(&bytes(1), false);
    assert_eq!((flow.take_early().len(), flow.counters.dropped), (1, 2));
}

#[test]
fn datagrams_wait_for_the_first_stream_and_for_the_queue() {
    let now = Instant::now();
    let mut flows = entered(now, "udp:a:1");
    let flow = flows.get_mut(KEY).expect("entered");
    flow.push(now, bytes(1));
    let later = now + Duration::from_secs(9);
    flow.drop_aged(later);
    assert!(flow.has_outbound());
    flow.begin(later);
    flow.drop_aged(later + 99 * MS);
    assert!(flow.has_outbound() && flow.room(false) > 0);
    flow.push(later + 99 * MS, bytes(QUEUE_MAX / 2));
    assert!(flow.room(false) == 0, "the socket keeps the next one");
    flow.drop_aged(later + 199 * MS);
    assert!(!flow.has_outbound());
}

// PROTOCOL UDP-8.
#[test]
fn the_flow_that_would_be_idle_next_gives_way_unless_it_is_at_work() {
    let now = Instant::now();
    let [other, query] = [FlowKey(8), FlowKey(9)];
    let mut flows = entered(now, "udp:a:1");
    flows.enter(now, other, "udp:a:1");
    flows.enter(now + 10 * MS, query, "udp:a:53");
    assert_eq!(flows.pop_spare(now + 109 * MS), None, "the query");
    assert_eq!(flows.pop_spare(now + 110 * MS), Some(query));
    assert_eq!(flows.pop_spare(now + 209 * MS), None, "it is ending");
    flows.remove(query);
    let later = now + Duration::from_mins(1);
    flows.get_mut(KEY).expect("entered").push(later, bytes(1));
    flows.note_changed(KEY);
    assert_eq!(flows.pop_spare(later), Some(other), "one is active");
    flows.remove(other);
    assert_eq!(flows.pop_spare(later + 99 * MS), None);
    assert_eq!(flows.pop_spare(later + 100 * MS), Some(KEY));
}

// PROTOCOL REVERSE-16.
#[test]
fn a_source_that_has_sent_one_datagram_gets_eight_answers_and_one_a_second() {
    let now = Instant::now();
    let mut flows = entered(now, "udp:127.0.0.1:53");
    let flow = flows.get_mut(KEY).expect("entered");
    flow.is_source = true;
    flow.push(now, bytes(1));
    let answered =
        |flow: &mut DatagramFlow, at| (0..100).filter(|_| flow.may_deliver(at, 1000)).count();
    assert_eq!(answered(flow, now), UNANSWERED_MAX);
    assert_eq!(answered(flow, now + UNANSWERED_EVERY), 1);
    flow.push(now, bytes(1));
    assert_eq!(answered(flow, now), 100);
}

// The client learns the target of a server's flow after the first datagram.
#[test]
fn a_target_that_becomes_known_later_decides_on_the_idle_time() {
    let now = Instant::now();
    let mut flows = entered(now, "");
    flows.enter(now, KEY, "udp:a:53").push(now, bytes(1));
    flows.note_changed(KEY);
    assert_eq!(flows.next_timeout(), Some(now + Duration::from_secs(17)));
}

#[test]
fn the_idle_time_is_settable_and_applies_to_open_flows() {
    for (token, set, idle) in [
        ("udp:a:51820", 3600, 3600),
        ("udp:a:51820", 5, 5),
        ("udp:a:53", 3600, 17),
        ("udp:a:53", 5, 5),
        ("udp:a:123", 3600, 10),
    ] {
        let now = Instant::now();
        let mut flows = entered(now, token);
        let flow = flows.get_mut(KEY).expect("entered");
        flow.push(now, bytes(1));
        flow.take(now, None, bytes(1));
        flows.note_changed(KEY);
        flows.set_idle(Duration::from_secs(set));
        let idle = now + Duration::from_secs(idle);
        assert_eq!(flows.next_timeout(), Some(idle), "{token} {set}");
        assert_eq!(flows.pop_idle(idle), Some(KEY));
    }
}
