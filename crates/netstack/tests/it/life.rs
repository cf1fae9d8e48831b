//! Opening and ending flows: refusals, half-closes and resets mean the same as in TCP, in both directions.

use std::time::{Duration, Instant};

use quictun_netstack::{Config, Ending, Event, FlowError, FlowId, Read, Stack};
use smoltcp::socket::tcp::State;

use crate::raw::{ACK, FIN, RST, Raw, SYN, give, take};
use crate::service::Answer;
use crate::world::{World, base, v4, v6, wire};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn nothing_is_answered_before_somebody_accepts() {
    let mut world = World::new(Config::default(), wire(), 1);
    world.service.answer = Answer::Silence;
    world.connect(v4(), 100);
    world.peer.connections[0].stays = true;
    world.run(SECOND / 2, |_| false);
    assert_eq!(world.packets, 0);
    assert_eq!(world.stack.counters().offered, 1);
    // The application retransmits its SYN, which belongs to the same flow.
    world.run(SECOND * 4, |_| false);
    assert_eq!((world.stack.counters().offered, world.packets), (1, 0));
    let flow = world.service.offered[0];
    assert_eq!(
        world.stack.read(world.now, flow, |_| 0),
        Err(FlowError::NotAccepted)
    );
    assert_eq!(
        world.stack.write(world.now, flow, b"early"),
        Err(FlowError::NotAccepted)
    );
    world.stack.accept(world.now, flow).unwrap();
    assert_eq!(
        world.stack.accept(world.now, flow),
        Err(FlowError::NotOffered)
    );
    assert_eq!(world.stack.refuse(flow), Err(FlowError::NotOffered));
    world.run(SECOND, |world| world.service.opened == 1);
    assert_eq!(world.peer.connections[0].state(), State::Established);
}

#[test]
fn a_refusal_is_a_connection_refused() {
    for target in [v4(), v6()] {
        let mut world = World::new(Config::default(), wire(), 1);
        world.service.answer = Answer::Refuse;
        world.connect(target, 100);
        assert!(world.run(SECOND, |world| world.peer.connections[0].state()
            == State::Closed));
        assert!(!world.peer.connections[0].was_open);
        assert_eq!(world.stack.usage().flows, 0);
        assert_eq!(world.service.endings, []);
    }
}

#[test]
fn an_application_that_finishes_first_still_gets_everything() {
    let mut world = World::new(Config::default(), wire(), 1);
    world.service.stays = true;
    world.connect(v4(), 300_000);
    let half = |world: &World| world.peer.connections[0].received == 300_000;
    assert!(world.run(SECOND * 9, half));
    assert_eq!(world.peer.connections[0].state(), State::FinWait2);
    // After the half-close, the other direction stays open without a time limit, and gets large buffers.
    world.run(SECOND * 3600, |_| false);
    let flow = world.service.offered[0];
    assert_eq!(world.stack.read(world.now, flow, |_| 0), Ok(Read::Finished));
    world.stack.finish(world.now, flow).unwrap();
    assert_eq!(
        world.stack.write(world.now, flow, b"late"),
        Err(FlowError::Finished)
    );
    assert!(world.run(SECOND, |world| !world.service.endings.is_empty()));
    assert!(world.peer.connections[0].saw_end);
    assert_eq!(world.service.endings, [(flow, Ending::Finished)]);
    assert_eq!(world.stack.counters().grown, 1);
}

#[test]
fn a_finish_of_ours_leaves_the_other_direction_open() {
    let mut world = World::new(Config::default(), wire(), 1);
    world.connect(v4(), 0);
    world.peer.connections[0].stays = true;
    assert!(world.run(SECOND, |world| world.service.opened == 1));
    let flow = world.service.offered[0];
    world.stack.finish(world.now, flow).unwrap();
    assert!(world.run(SECOND, |world| world.peer.connections[0].saw_end));
    assert_eq!(world.peer.connections[0].state(), State::CloseWait);
    world.service.deaf = true;
    world.peer.connections[0].to_send = 5000;
    world.peer.connections[0].stays = false;
    world.touch(0);
    world.run(SECOND, |_| false);
    let mut got = Vec::new();
    while let Ok(Read::Data(_)) = world.stack.read(world.now, flow, |bytes| {
        got.extend_from_slice(bytes);
        bytes.len()
    }) {
        world.flush();
    }
    assert_eq!(got.len(), 5000);
    assert_eq!(world.service.endings, []);
    assert_eq!(world.stack.read(world.now, flow, |_| 0), Ok(Read::Finished));
    world.run(SECOND, |_| false);
    assert_eq!(world.service.endings, [(flow, Ending::Finished)]);
}

#[test]
fn a_reset_is_a_reset_on_both_sides() {
    let mut world = World::new(Config::default(), wire(), 1);
    world.connect(v4(), 100);
    world.connect(v6(), 100);
    for index in 0..2 {
        world.peer.connections[index].stays = true;
    }
    let echoed = |world: &World| world.peer.connections.iter().all(|one| one.received == 100);
    assert!(world.run(SECOND, echoed));
    world.peer.connections[0].reset();
    world.touch(0);
    assert!(world.run(SECOND, |world| !world.service.endings.is_empty()));
    let (first, second) = (world.service.offered[0], world.service.offered[1]);
    assert_eq!(world.service.endings, [(first, Ending::Reset)]);
    assert_eq!(
        world.stack.write(world.now, first, b"x"),
        Err(FlowError::Gone)
    );
    world.stack.reset(second).unwrap();
    assert_eq!(world.stack.reset(second), Err(FlowError::Gone));
    assert!(world.run(SECOND, |world| world.peer.connections[1].state()
        == State::Closed));
    assert!(!world.peer.connections[1].saw_end, "a reset is not an end");
    assert_eq!(world.stack.usage().flows, 0);
    assert_eq!(
        world.service.endings.len(),
        1,
        "a local reset must not cause an event"
    );
}

#[test]
fn a_reset_reaches_a_flow_that_sleeps_and_one_that_sleeps_resets() {
    let mut world = World::new(Config::default(), wire(), 1);
    for _ in 0..2 {
        let index = world.connect(v4(), 100);
        world.peer.connections[index].stays = true;
    }
    world.run(SECOND * 5, |_| false);
    assert_eq!(world.stack.counters().slept, 2);
    world.peer.connections[0].reset();
    world.touch(0);
    world.stack.reset(world.service.offered[1]).unwrap();
    world.run(SECOND, |_| false);
    assert_eq!(
        world.service.endings,
        [(world.service.offered[0], Ending::Reset)]
    );
    assert_eq!(world.peer.connections[1].state(), State::Closed);
    assert_eq!(world.stack.usage().flows, 0);
}

/// Offers and accepts a flow by hand. Returns it with its SYN and the answer to it.
fn accepted(now: Instant) -> (Stack, FlowId, Raw, Raw) {
    let mut stack = Stack::new(Config::default(), 1, now).unwrap();
    let syn = Raw::new("10.0.0.2:4000".parse().unwrap(), v4(), SYN);
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
    let raw = Raw {
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
    let reset = |seq| Raw {
        seq,
        flags: RST,
        ..raw.clone()
    };
    give(&mut stack, now, &reset(next.wrapping_add(100)));
    assert_eq!(stack.poll_event(), None);
    give(&mut stack, now, &reset(next));
    let ending = Ending::Reset;
    assert_eq!(stack.poll_event(), Some(Event::Ended { flow, ending }));
}

#[test]
fn a_port_that_is_used_again_opens_a_new_flow() {
    let now = base();
    let mut stack = Stack::new(Config::default(), 1, now).unwrap();
    let from = "10.0.0.2:4000".parse().unwrap();
    let mut raw = Raw::new(from, v4(), SYN);
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
            ending: Ending::Reset
        })
    );
    let Some(Event::Offered { flow: second, .. }) = stack.poll_event() else {
        panic!()
    };
    stack.accept(now, second).unwrap();
    let answer = take(&mut stack, now).remove(0);
    assert_eq!((answer.flags, answer.ack), (SYN | ACK, 5001));
    // Both sides finish, the stack first.
    raw = Raw {
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
    raw = Raw {
        ack: fin.seq.wrapping_add(1),
        flags: FIN | ACK,
        ..raw
    };
    give(&mut stack, now, &raw);
    assert_eq!(stack.poll_event(), Some(Event::Readable(second)));
    assert_eq!(stack.read(now, second, |_| 0), Ok(Read::Finished));
    let last = take(&mut stack, now).remove(0);
    assert_eq!((last.flags, last.ack), (ACK, 5002));
    assert_eq!(
        stack.poll_event(),
        Some(Event::Ended {
            flow: second,
            ending: Ending::Finished
        })
    );
    // A retransmitted FIN is acknowledged again, and a new SYN opens a flow.
    give(&mut stack, now, &raw);
    let again = take(&mut stack, now).remove(0);
    assert_eq!((again.flags, again.seq, again.ack), (ACK, last.seq, 5002));
    give(
        &mut stack,
        now,
        &Raw {
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
    let mut world = World::new(Config::default(), wire(), 1);
    world.connect(v4(), 0);
    world.peer.connections[0].stays = true;
    assert!(world.run(SECOND, |world| world.service.opened == 1));
    world.vanished = true;
    let flow = world.service.offered[0];
    world
        .stack
        .write(world.now, flow, b"is it still there?")
        .unwrap();
    world.run(SECOND * 290, |_| false);
    assert_eq!(world.service.endings, []);
    world.run(SECOND * 20, |_| false);
    assert_eq!(world.service.endings, [(flow, Ending::TimedOut)]);
    assert!(world.packets < 20, "{} packets sent", world.packets);
}

#[test]
fn a_hand_shake_answered_wrongly_is_reset() {
    let now = base();
    let (mut stack, _, syn, answer) = accepted(now);
    let wrong = answer.seq.wrapping_add(1000);
    give(
        &mut stack,
        now,
        &Raw {
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
fn a_closed_window_that_takes_the_end_leaves_silence() {
    let mut now = base();
    let mut stack = Stack::new(Config::default(), 1, now).unwrap();
    let mut raw = Raw::new("10.0.0.2:4000".parse().unwrap(), v4(), SYN);
    give(&mut stack, now, &raw);
    let Some(Event::Offered { flow, .. }) = stack.poll_event() else {
        panic!()
    };
    stack.accept(now, flow).unwrap();
    let answer = take(&mut stack, now).remove(0);
    let begins = answer.seq.wrapping_add(1);
    raw = Raw {
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
    let syn = Raw::new("10.0.0.2:4000".parse().unwrap(), v4(), SYN);
    give(&mut stack, now, &syn);
    let Some(Event::Offered { flow, .. }) = stack.poll_event() else {
        panic!()
    };
    stack.accept(now, flow).unwrap();
    let answer = take(&mut stack, now).remove(0);
    let begins = answer.seq.wrapping_add(1);
    let raw = Raw {
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
        let wrong = Raw { ack, ..raw.clone() };
        give(&mut stack, now, &wrong);
        assert_eq!(stack.queued(flow), Ok((100, 0)));
        let answer = take(&mut stack, now).remove(0);
        assert_eq!((answer.flags, answer.seq, answer.ack), (ACK, begins, 1001));
    }
    let far = Raw {
        seq: 1001u32.wrapping_add(1 << 31),
        payload: vec![1; 10],
        ..raw
    };
    give(&mut stack, now, &far);
    assert_eq!(take(&mut stack, now).len(), 1);
    assert_eq!(stack.queued(flow), Ok((100, 0)));
}
