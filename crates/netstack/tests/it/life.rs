//! Opening and ending flows: refusals, half-closes and resets mean the same as in TCP, in both directions.

use std::time::{Duration, Instant};

use quictun_netstack::{Config, Event, FlowEnding, FlowError, Stack, StackFlowId, StackRead};
use smoltcp::socket::tcp::State;

use crate::raw::{ACK, FIN, RST, RawSegment, SYN, give, take};
use crate::service::OfferAnswer;
use crate::simulation::{StackSimulation, base, v4, v6, wire};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_syn_gets_no_answer_before_its_flow_is_accepted() {
    let mut sim = StackSimulation::new(Config::default(), wire(), 1);
    sim.service.answer = OfferAnswer::Silence;
    sim.connect(v4(), 100);
    sim.peer.connections[0].stays = true;
    sim.run(SECOND / 2, |_| false);
    assert_eq!(sim.packets, 0);
    assert_eq!(sim.stack.counters().offered, 1);
    // The application retransmits its SYN, which belongs to the same flow.
    sim.run(SECOND * 4, |_| false);
    assert_eq!((sim.stack.counters().offered, sim.packets), (1, 0));
    let flow = sim.service.offered[0];
    assert_eq!(
        sim.stack.read(sim.now, flow, |_| 0),
        Err(FlowError::NotAccepted)
    );
    assert_eq!(
        sim.stack.write(sim.now, flow, b"early"),
        Err(FlowError::NotAccepted)
    );
    sim.stack.accept(sim.now, flow).unwrap();
    assert_eq!(sim.stack.accept(sim.now, flow), Err(FlowError::NotOffered));
    assert_eq!(sim.stack.refuse(flow), Err(FlowError::NotOffered));
    sim.run(SECOND, |sim| sim.service.opened == 1);
    assert_eq!(sim.peer.connections[0].state(), State::Established);
}

#[test]
fn a_refusal_is_a_connection_refused() {
    for target in [v4(), v6()] {
        let mut sim = StackSimulation::new(Config::default(), wire(), 1);
        sim.service.answer = OfferAnswer::Refuse;
        sim.connect(target, 100);
        assert!(sim.run(SECOND, |sim| sim.peer.connections[0].state()
            == State::Closed));
        assert!(!sim.peer.connections[0].was_open);
        assert_eq!(sim.stack.usage().flows, 0);
        assert_eq!(sim.service.endings, []);
    }
}

#[test]
fn an_application_that_finishes_first_still_gets_everything() {
    let mut sim = StackSimulation::new(Config::default(), wire(), 1);
    sim.service.stays = true;
    sim.connect(v4(), 300_000);
    let half = |sim: &StackSimulation| sim.peer.connections[0].received == 300_000;
    assert!(sim.run(SECOND * 9, half));
    assert_eq!(sim.peer.connections[0].state(), State::FinWait2);
    // After the half-close, the other direction stays open without a time limit, and gets large buffers.
    sim.run(SECOND * 3600, |_| false);
    let flow = sim.service.offered[0];
    assert_eq!(
        sim.stack.read(sim.now, flow, |_| 0),
        Ok(StackRead::Finished)
    );
    sim.stack.finish(sim.now, flow).unwrap();
    assert_eq!(
        sim.stack.write(sim.now, flow, b"late"),
        Err(FlowError::Finished)
    );
    assert!(sim.run(SECOND, |sim| !sim.service.endings.is_empty()));
    assert!(sim.peer.connections[0].saw_end);
    assert_eq!(sim.service.endings, [(flow, FlowEnding::Finished)]);
    assert_eq!(sim.stack.counters().grown, 1);
}

#[test]
fn a_finish_by_the_service_leaves_the_other_direction_open() {
    let mut sim = StackSimulation::new(Config::default(), wire(), 1);
    sim.connect(v4(), 0);
    sim.peer.connections[0].stays = true;
    assert!(sim.run(SECOND, |sim| sim.service.opened == 1));
    let flow = sim.service.offered[0];
    sim.stack.finish(sim.now, flow).unwrap();
    assert!(sim.run(SECOND, |sim| sim.peer.connections[0].saw_end));
    assert_eq!(sim.peer.connections[0].state(), State::CloseWait);
    sim.service.deaf = true;
    sim.peer.connections[0].to_send = 5000;
    sim.peer.connections[0].stays = false;
    sim.touch(0);
    sim.run(SECOND, |_| false);
    let mut got = Vec::new();
    while let Ok(StackRead::Data(_)) = sim.stack.read(sim.now, flow, |bytes| {
        got.extend_from_slice(bytes);
        bytes.len()
    }) {
        sim.flush();
    }
    assert_eq!(got.len(), 5000);
    assert_eq!(sim.service.endings, []);
    assert_eq!(
        sim.stack.read(sim.now, flow, |_| 0),
        Ok(StackRead::Finished)
    );
    sim.run(SECOND, |_| false);
    assert_eq!(sim.service.endings, [(flow, FlowEnding::Finished)]);
}

#[test]
fn a_reset_is_a_reset_on_both_sides() {
    let mut sim = StackSimulation::new(Config::default(), wire(), 1);
    sim.connect(v4(), 100);
    sim.connect(v6(), 100);
    for index in 0..2 {
        sim.peer.connections[index].stays = true;
    }
    let echoed = |sim: &StackSimulation| sim.peer.connections.iter().all(|one| one.received == 100);
    assert!(sim.run(SECOND, echoed));
    sim.peer.connections[0].reset();
    sim.touch(0);
    assert!(sim.run(SECOND, |sim| !sim.service.endings.is_empty()));
    let (first, second) = (sim.service.offered[0], sim.service.offered[1]);
    assert_eq!(sim.service.endings, [(first, FlowEnding::Reset)]);
    assert_eq!(sim.stack.write(sim.now, first, b"x"), Err(FlowError::Gone));
    sim.stack.reset(second).unwrap();
    assert_eq!(sim.stack.reset(second), Err(FlowError::Gone));
    assert!(sim.run(SECOND, |sim| sim.peer.connections[1].state()
        == State::Closed));
    assert!(!sim.peer.connections[1].saw_end, "a reset is not an end");
    assert_eq!(sim.stack.usage().flows, 0);
    assert_eq!(
        sim.service.endings.len(),
        1,
        "a local reset must not cause an event"
    );
}

#[test]
fn a_reset_reaches_a_flow_that_sleeps_and_one_that_sleeps_resets() {
    let mut sim = StackSimulation::new(Config::default(), wire(), 1);
    for _ in 0..2 {
        let index = sim.connect(v4(), 100);
        sim.peer.connections[index].stays = true;
    }
    sim.run(SECOND * 5, |_| false);
    assert_eq!(sim.stack.counters().slept, 2);
    sim.peer.connections[0].reset();
    sim.touch(0);
    sim.stack.reset(sim.service.offered[1]).unwrap();
    sim.run(SECOND, |_| false);
    assert_eq!(
        sim.service.endings,
        [(sim.service.offered[0], FlowEnding::Reset)]
    );
    assert_eq!(sim.peer.connections[1].state(), State::Closed);
    assert_eq!(sim.stack.usage().flows, 0);
}

#[test]
fn bytes_and_an_end_from_before_a_reset_are_read_before_it() {
    for finishes in [false, true] {
        let mut sim = StackSimulation::new(Config::default(), wire(), 1);
        sim.service.deaf = true;
        sim.connect(v4(), 5000);
        sim.peer.connections[0].stays = !finishes;
        sim.run(SECOND, |_| false);
        let flow = sim.service.offered[0];
        assert_eq!(sim.stack.queued(flow), Ok((0, 5000)));
        sim.peer.connections[0].reset();
        sim.touch(0);
        sim.run(SECOND, |_| false);
        assert_eq!(sim.service.endings, [], "there are bytes to read");
        assert_eq!(sim.stack.write(sim.now, flow, b"x"), Err(FlowError::Gone));
        assert_eq!(sim.stack.finish(sim.now, flow), Err(FlowError::Gone));
        let mut got = 0;
        let end = loop {
            match sim.stack.read(sim.now, flow, <[u8]>::len) {
                Ok(StackRead::Data(length)) => got += length,
                end => break end,
            }
        };
        assert_eq!(got, 5000);
        let wanted = if finishes {
            Ok(StackRead::Finished)
        } else {
            Err(FlowError::Gone)
        };
        assert_eq!(end, wanted);
        sim.run(SECOND, |_| false);
        assert_eq!(sim.service.endings, [(flow, FlowEnding::Reset)]);
        assert_eq!(sim.stack.usage().flows, 0);
    }
}

#[test]
fn a_reset_by_the_service_waits_until_the_application_has_what_was_written() {
    let mut sim = StackSimulation::new(Config::default(), wire(), 1);
    sim.service.deaf = true;
    sim.connect(v4(), 100);
    sim.peer.connections[0].stays = true;
    sim.peer.connections[0].deaf = true;
    sim.run(SECOND, |_| false);
    let flow = sim.service.offered[0];
    let mut written = 0;
    for _ in 0..100 {
        written += sim.stack.write(sim.now, flow, &vec![7; 50_000]).unwrap();
        sim.run(SECOND / 10, |_| false);
    }
    assert!(
        sim.stack.queued(flow).unwrap().0 > 0,
        "the application's buffer is full"
    );
    sim.stack.reset_after_sent(sim.now, flow).unwrap();
    assert_eq!(sim.stack.write(sim.now, flow, b"x"), Err(FlowError::Gone));
    sim.run(SECOND * 10, |_| false);
    assert_ne!(sim.peer.connections[0].state(), State::Closed);
    sim.peer.connections[0].deaf = false;
    sim.touch(0);
    assert!(sim.run(SECOND * 30, |sim| sim.peer.connections[0].state()
        == State::Closed));
    assert_eq!(sim.peer.connections[0].received, written as u64);
    assert!(!sim.peer.connections[0].saw_end, "a reset is not an end");
    assert_eq!(
        (sim.stack.usage().flows, &sim.service.endings[..]),
        (0, &[][..])
    );
}

#[test]
fn a_reset_by_the_service_does_not_wait_for_ever() {
    let mut sim = StackSimulation::new(Config::default(), wire(), 1);
    sim.service.deaf = true;
    sim.connect(v4(), 100);
    sim.peer.connections[0].stays = true;
    sim.peer.connections[0].deaf = true;
    sim.run(SECOND, |_| false);
    let flow = sim.service.offered[0];
    for _ in 0..100 {
        sim.stack.write(sim.now, flow, &vec![7; 50_000]).unwrap();
        sim.run(SECOND / 10, |_| false);
    }
    sim.stack.reset_after_sent(sim.now, flow).unwrap();
    sim.run(SECOND * 660, |sim| sim.stack.usage().flows == 0);
    assert_eq!(sim.stack.usage().flows, 0);
}

/// Offers and accepts a flow by hand. Returns it with its SYN and the answer to it.
fn accepted(now: Instant) -> (Stack, StackFlowId, RawSegment, RawSegment) {
    let mut stack = Stack::new(Config::default(), 1, now).unwrap();
    let syn = RawSegment::new("10.0.0.2:4000".parse().unwrap(), v4(), SYN);
    give(&mut stack, now, &syn);
    let Some(Event::Offered { flow, .. }) = stack.poll_event() else {
        panic!()
    };
    stack.accept(now, flow).unwrap();
    let answer = take(&mut stack, now).remove(0);
    (stack, flow, syn, answer)
}

/// RFC 5961 section 3.2: only a reset with the next sequence number is valid.
#[test]
fn a_reset_that_is_not_the_next_in_order_ends_no_flow_that_sleeps() {
    let now = base();
    let (mut stack, flow, raw, answer) = accepted(now);
    let next = raw.seq.wrapping_add(1);
    let raw = RawSegment {
        seq: next,
        ack: answer.seq.wrapping_add(1),
        flags: ACK,
        ..raw
    };
    give(&mut stack, now, &raw);
    assert_eq!(stack.poll_event(), Some(Event::Open(flow)));
    let now = now + SECOND * 60;
    stack.handle_timeout(now);
    take(&mut stack, now);
    assert_eq!(stack.counters().slept, 1);
    let reset = |seq| RawSegment {
        seq,
        flags: RST,
        ..raw.clone()
    };
    give(&mut stack, now, &reset(next.wrapping_add(100)));
    assert_eq!(stack.poll_event(), None);
    give(&mut stack, now, &reset(next));
    let ending = FlowEnding::Reset;
    assert_eq!(stack.poll_event(), Some(Event::Ended { flow, ending }));
}

#[test]
fn a_port_that_is_used_again_opens_a_new_flow() {
    let now = base();
    let mut stack = Stack::new(Config::default(), 1, now).unwrap();
    let from = "10.0.0.2:4000".parse().unwrap();
    let mut raw = RawSegment::new(from, v4(), SYN);
    give(&mut stack, now, &raw);
    let Some(Event::Offered { flow: first, .. }) = stack.poll_event() else {
        panic!()
    };
    // The application gives up before the flow is accepted.
    raw.seq = 5000;
    give(&mut stack, now, &raw);
    assert_eq!(
        stack.poll_event(),
        Some(Event::Ended {
            flow: first,
            ending: FlowEnding::Reset
        })
    );
    let Some(Event::Offered { flow: second, .. }) = stack.poll_event() else {
        panic!()
    };
    stack.accept(now, second).unwrap();
    let answer = take(&mut stack, now).remove(0);
    assert_eq!((answer.flags, answer.ack), (SYN | ACK, 5001));
    // Both sides finish, the stack first.
    raw = RawSegment {
        seq: 5001,
        ack: answer.seq.wrapping_add(1),
        flags: ACK,
        ..raw
    };
    give(&mut stack, now, &raw);
    assert_eq!(stack.poll_event(), Some(Event::Open(second)));
    stack.finish(now, second).unwrap();
    let fin = take(&mut stack, now).remove(0);
    assert_eq!(fin.flags, FIN | ACK);
    raw = RawSegment {
        ack: fin.seq.wrapping_add(1),
        flags: FIN | ACK,
        ..raw
    };
    give(&mut stack, now, &raw);
    assert_eq!(stack.poll_event(), Some(Event::Readable(second)));
    assert_eq!(stack.read(now, second, |_| 0), Ok(StackRead::Finished));
    let last = take(&mut stack, now).remove(0);
    assert_eq!((last.flags, last.ack), (ACK, 5002));
    assert_eq!(
        stack.poll_event(),
        Some(Event::Ended {
            flow: second,
            ending: FlowEnding::Finished
        })
    );
    // A retransmitted FIN is acknowledged again, and a new SYN opens a flow.
    give(&mut stack, now, &raw);
    let again = take(&mut stack, now).remove(0);
    assert_eq!((again.flags, again.seq, again.ack), (ACK, last.seq, 5002));
    give(
        &mut stack,
        now,
        &RawSegment {
            seq: 9000,
            flags: SYN,
            ..raw
        },
    );
    assert!(matches!(stack.poll_event(), Some(Event::Offered { .. })));
    assert_eq!(stack.usage().flows, 1);
}

#[test]
fn an_application_that_vanishes_is_reset_in_the_end() {
    let mut sim = StackSimulation::new(Config::default(), wire(), 1);
    sim.connect(v4(), 0);
    sim.peer.connections[0].stays = true;
    assert!(sim.run(SECOND, |sim| sim.service.opened == 1));
    sim.vanished = true;
    let flow = sim.service.offered[0];
    sim.stack
        .write(sim.now, flow, b"is it still there?")
        .unwrap();
    sim.run(SECOND * 290, |_| false);
    assert_eq!(sim.service.endings, []);
    sim.run(SECOND * 20, |_| false);
    assert_eq!(sim.service.endings, [(flow, FlowEnding::TimedOut)]);
    assert!(sim.packets < 20, "{} packets sent", sim.packets);
}

#[test]
fn a_handshake_answered_wrongly_is_reset() {
    let now = base();
    let (mut stack, _, syn, answer) = accepted(now);
    let wrong = answer.seq.wrapping_add(1000);
    give(
        &mut stack,
        now,
        &RawSegment {
            seq: 1001,
            ack: wrong,
            flags: ACK,
            ..syn
        },
    );
    let reset = take(&mut stack, now).remove(0);
    assert_eq!((reset.flags & RST, reset.seq), (RST, wrong));
}

#[test]
fn a_fin_into_a_closed_window_causes_no_endless_segments() {
    let mut now = base();
    let mut stack = Stack::new(Config::default(), 1, now).unwrap();
    let mut raw = RawSegment::new("10.0.0.2:4000".parse().unwrap(), v4(), SYN);
    give(&mut stack, now, &raw);
    let Some(Event::Offered { flow, .. }) = stack.poll_event() else {
        panic!()
    };
    stack.accept(now, flow).unwrap();
    let answer = take(&mut stack, now).remove(0);
    let begins = answer.seq.wrapping_add(1);
    raw = RawSegment {
        seq: 1001,
        ack: begins,
        flags: ACK,
        window: 0,
        ..raw
    };
    give(&mut stack, now, &raw);
    stack.write(now, flow, b"x").unwrap();
    stack.finish(now, flow).unwrap();
    assert_eq!(take(&mut stack, now).len(), 0, "the window is closed");
    // Only window probes get through. The probe is acknowledged, and the window stays closed.
    give(&mut stack, now, &raw);
    let mut probe = Vec::new();
    while probe.is_empty() {
        now = stack.next_timeout().unwrap();
        stack.handle_timeout(now);
        probe = take(&mut stack, now);
    }
    assert_eq!(
        (probe[0].payload.as_slice(), probe[0].flags & FIN),
        (b"x".as_slice(), FIN)
    );
    raw.ack = begins.wrapping_add(2);
    give(&mut stack, now, &raw);
    let until = now + SECOND * 60;
    let mut said = take(&mut stack, now).len();
    while let Some(at) = stack.next_timeout().filter(|at| *at < until) {
        now = at;
        stack.handle_timeout(now);
        said += take(&mut stack, now).len();
    }
    assert!(said < 5, "{said} useless segments");
}

#[test]
fn an_acknowledgement_of_what_was_not_sent_is_not_believed() {
    let now = base();
    let mut stack = Stack::new(Config::default(), 1, now).unwrap();
    let syn = RawSegment::new("10.0.0.2:4000".parse().unwrap(), v4(), SYN);
    give(&mut stack, now, &syn);
    let Some(Event::Offered { flow, .. }) = stack.poll_event() else {
        panic!()
    };
    stack.accept(now, flow).unwrap();
    let answer = take(&mut stack, now).remove(0);
    let begins = answer.seq.wrapping_add(1);
    let raw = RawSegment {
        seq: 1001,
        ack: begins,
        flags: ACK,
        window: 0,
        ..syn
    };
    give(&mut stack, now, &raw);
    assert_eq!(stack.write(now, flow, &[7; 100]), Ok(100));
    assert_eq!(take(&mut stack, now).len(), 0);
    for ack in [begins.wrapping_add(50), begins.wrapping_add(1 << 31)] {
        let wrong = RawSegment { ack, ..raw.clone() };
        give(&mut stack, now, &wrong);
        assert_eq!(stack.queued(flow), Ok((100, 0)));
        let answer = take(&mut stack, now).remove(0);
        assert_eq!((answer.flags, answer.seq, answer.ack), (ACK, begins, 1001));
    }
    let far = RawSegment {
        seq: 1001u32.wrapping_add(1 << 31),
        payload: vec![1; 10],
        ..raw
    };
    give(&mut stack, now, &far);
    assert_eq!(take(&mut stack, now).len(), 1);
    assert_eq!(stack.queued(flow), Ok((100, 0)));
}
