//! Tests of the client's side against a scripted stack.

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, IoSlice};
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quictun_ipc::{Message, PeerPayload, Request, Server, WaitPolicy};
use quictun_netstack::{Datagram, Event, StackFlowId};

use super::message::{
    self, DATAGRAMS_ROOM, LISTEN, OK, RECV, RECV_DATAGRAMS, REFUSE_DATAGRAM, SEND, SEND_DATAGRAMS,
};
use super::remote::{DATAGRAMS_MANY, NetstackProcess, PIECE, PIECE_MIN, PIECE_MOST, RemoteFlow};
use quictun_io::poller::{Key, Poller, WaitPlan};

/// Limit for every wait in these tests.
const DEADLINE: Duration = Duration::from_mins(1);

/// Room for a piece or two of all the flows together.
const SMALL: u32 = 64 * 1024;

const FLOWS: u32 = 40;

/// Number of bytes that are sent to each application.
const DOWN: usize = SMALL as usize;

/// The number of bytes that a stack has moved.
#[derive(Debug, Default)]
pub(crate) struct MovedBytes {
    /// Bytes that the stack gave to the client, and bytes that it took.
    given: usize,
    taken: usize,
    /// Datagrams that it took for programs, in that many calls, and refusals.
    replies: Vec<Datagram>,
    reply_calls: usize,
    refused: usize,
}

fn room(request: &Request) -> u32 {
    request.buffer().map_or(0, PeerPayload::len)
}

fn datagram() -> Datagram {
    Datagram {
        client: ([192, 0, 2, 1], 1).into(),
        target: ([192, 0, 2, 2], 53).into(),
        payload: b"who is it?".to_vec(),
    }
}

/// The number of datagrams that the stack drops with each call that brings it some. It has more than 32 bits after a few.
const DROPS: u64 = 1 << 30;

/// Starts a stack that reports these events and then answers every call. Each RECV fills its buffer, each SEND takes
/// all bytes, and each `RECV_DATAGRAMS` gets a datagram.
pub(crate) fn stack(socket: OwnedFd, events: Vec<Message>) -> JoinHandle<MovedBytes> {
    std::thread::spawn(move || {
        let channel = quictun_ipc::accept(socket, DEADLINE).expect("a client");
        let (server, mut executor) = Server::new(channel, WaitPolicy::Interrupt);
        let moved = std::rc::Rc::new(std::cell::RefCell::new(MovedBytes::default()));
        let counted = moved.clone();
        executor.spawner().spawn(1, async move {
            let mut events = VecDeque::from(events);
            let mut listening = Vec::new();
            while let Ok(request) = server.recv().await {
                let (op, length) = (request.message().op(), room(&request));
                let answer = match op {
                    LISTEN => {
                        let Some(event) = events.pop_front() else {
                            listening.push(request);
                            continue;
                        };
                        event
                    }
                    RECV => {
                        counted.borrow_mut().given += length as usize;
                        Message::new(OK).with_arg(length.into())
                    }
                    SEND => {
                        counted.borrow_mut().taken += length as usize;
                        Message::new(OK).with_arg(length.into())
                    }
                    RECV_DATAGRAMS => {
                        let mut bytes = Vec::new();
                        message::append_datagram(&mut bytes, &datagram());
                        if let Some(buffer) = request.buffer() {
                            server.with_channel(|channel| channel.answer(buffer, 0, &bytes));
                        }
                        let calls = counted.borrow().reply_calls as u64;
                        let told = message::with_dropped(bytes.len() as u64, DROPS * calls);
                        Message::new(OK).with_arg(told)
                    }
                    SEND_DATAGRAMS => {
                        let length = request.message().arg().min(length.into());
                        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
                        if let Some(buffer) = request.buffer() {
                            server.with_channel(|channel| channel.read(buffer, 0, &mut bytes));
                        }
                        let mut rest = bytes.as_slice();
                        let mut moved = counted.borrow_mut();
                        moved.reply_calls += 1;
                        let all = std::iter::from_fn(|| message::next_datagram(&mut rest));
                        moved.replies.extend(all);
                        let told = message::with_dropped(0, DROPS * moved.reply_calls as u64);
                        Message::new(OK).with_arg(told)
                    }
                    REFUSE_DATAGRAM => {
                        let ends = message::ends_of(request.message()).expect("addresses");
                        assert_eq!(ends, (datagram().client, datagram().target));
                        counted.borrow_mut().refused += 1;
                        Message::new(OK)
                    }
                    _ => Message::new(OK),
                };
                if server.reply(request, answer).await.is_err() {
                    break;
                }
            }
        });
        executor.run();
        drop(executor);
        std::rc::Rc::into_inner(moved)
            .expect("no other reference is left")
            .into_inner()
    })
}

fn id(number: u32) -> StackFlowId {
    StackFlowId::from_bits(u64::from(number) << 32 | u64::from(number))
}

fn offered(flow: StackFlowId) -> Event {
    Event::Offered {
        flow,
        client: ([192, 0, 2, 1], 1).into(),
        target: ([192, 0, 2, 2], 2).into(),
    }
}

/// Runs turns of the engine's loop until `done` returns true.
fn turn_until(remote: &mut NetstackProcess, mut done: impl FnMut(&mut NetstackProcess) -> bool) {
    let mut poller = Poller::new().expect("epoll");
    poller.add_input(remote.wakes(), Key::Tun).expect("epoll");
    let (mut ready, deadline) = (Vec::new(), Instant::now() + DEADLINE);
    loop {
        let more = remote.advance().expect("the stack is there");
        if done(remote) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "no progress: {:?}",
            remote.shared()
        );
        // The work in `done` may have started coroutines.
        if !more && !remote.shared().spawned.get() {
            let waited = poller.wait(Some(deadline), WaitPlan::default(), &mut ready);
            waited.expect("epoll");
            remote.handle_ready();
        }
    }
}

/// The situation when hundreds of uploads and downloads begin at once.
#[test]
fn flows_without_room_in_shared_memory_get_their_turn() {
    let (here, there) = quictun_ipc::sockets().expect("sockets");
    let all = || (1..=FLOWS).map(id);
    let offers = all().map(offered);
    let told = offers.chain(all().map(Event::Readable));
    let stack = stack(there, told.map(message::encode_event).collect());
    let mut remote = NetstackProcess::with_arena(here, SMALL).expect("a stack");
    // For each flow, the number of bytes received and of bytes still to send.
    let mut flows: BTreeMap<_, _> = all().map(|id| (id, (0, DOWN))).collect();
    turn_until(&mut remote, |remote| {
        let shared = remote.shared().clone();
        while let Some(event) = shared.poll_event() {
            match event {
                Event::Offered { flow, .. } => shared.accept(flow),
                Event::Open(_) | Event::Ended { .. } => panic!("{event:?}"),
                Event::Readable(_) | Event::Writable(_) => {}
            }
        }
        for (id, (received, unsent)) in &mut flows {
            match shared.take(*id, usize::MAX) {
                Ok(bytes) => *received += bytes.len(),
                // The flow has not been offered yet.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => continue,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            match shared.write(*id, &[IoSlice::new(&vec![0; *unsent])]) {
                Ok(taken) => *unsent -= taken,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        flows
            .values()
            .all(|(received, unsent)| *received > 0 && *unsent == 0)
    });
    let received: usize = flows.values().map(|(received, _)| received).sum();
    turn_until(&mut remote, |remote| {
        let flows = remote.shared().flows.borrow();
        !flows.values().any(|flow| flow.sending)
    });
    drop(remote);
    let moved = stack.join().expect("the stack does not panic");
    assert_eq!(
        (moved.given, moved.taken),
        (received, FLOWS as usize * DOWN)
    );
}

/// The situation when programs ask name servers while other flows fill the memory.
#[test]
fn a_waiting_datagram_call_keeps_its_memory() {
    let (here, there) = quictun_ipc::sockets().expect("sockets");
    let stack = stack(there, Vec::new());
    let mut remote =
        NetstackProcess::with_arena(here, SMALL + 3 * DATAGRAMS_ROOM).expect("a stack");
    // All coroutines that wait for datagrams have begun.
    remote.advance().expect("the stack is there");
    let shared = remote.shared().clone();
    let all = std::iter::from_fn(|| shared.client.reserve(64));
    let others: Vec<_> = all.collect();
    // There are more of these flows than calls for datagrams, and each needs only as much memory as one of those calls.
    for flow in (1..=FLOWS).map(id) {
        let waits = RemoteFlow {
            accepted: true,
            room: true,
            rest: vec![7; 2000].into(),
            ..RemoteFlow::default()
        };
        shared.flows.borrow_mut().insert(flow, waits);
        shared.write_more(flow);
    }
    let mut datagrams = 0;
    turn_until(&mut remote, |remote| {
        // The stack has a datagram for every call, so that there is no end of them.
        let waiting = remote.shared().datagrams.borrow().len();
        assert!(waiting <= DATAGRAMS_MANY + 1, "{waiting}");
        for _ in 0..waiting {
            assert_eq!(remote.shared().poll_datagram(), Some(datagram()));
            datagrams += 1;
        }
        datagrams > 10 * DATAGRAMS_MANY
    });
    for buffer in others {
        shared.client.release(buffer);
    }
    drop((shared, remote));
    stack.join().expect("the stack does not panic");
}

/// The situation when a batch brings datagrams for many programs, and a program floods a closed port.
#[test]
fn datagrams_of_one_turn_share_calls_and_those_beyond_a_limit_are_dropped() {
    let (here, there) = quictun_ipc::sockets().expect("sockets");
    let stack = stack(there, Vec::new());
    let mut remote = NetstackProcess::with_arena(here, 8 * DATAGRAMS_ROOM).expect("a stack");
    let shared = remote.shared().clone();
    let dropped = std::cell::Cell::new(0);
    let sends = |length: usize, times: usize| {
        for _ in 0..times {
            let payload = vec![7; length];
            let datagram = datagram();
            let sent = shared.send_datagram(Datagram {
                payload,
                ..datagram
            });
            dropped.set(dropped.get() + usize::from(!sent));
        }
    };
    // Bulk flows have taken all memory that the process had not kept for datagrams.
    let all = std::iter::from_fn(|| shared.client.reserve(64));
    let others: Vec<_> = all.collect();
    sends(100, 1000);
    for _ in 0..10_000 {
        shared.refuse_datagram(datagram().client, datagram().target);
    }
    let replied = |remote: &mut NetstackProcess| remote.shared().reply_buffer.borrow().is_some();
    turn_until(&mut remote, replied);
    sends(60_000, 20);
    // No packet is as long.
    sends(65_536, 1);
    turn_until(&mut remote, replied);
    assert_eq!((shared.reply_bytes.get(), dropped.get()), (0, 13));
    assert_eq!(shared.take_dropped(), 13 * DROPS, "all calls tell");
    let of_an_older_answer = 12 * DROPS;
    shared.take_length(message::with_dropped(0, of_an_older_answer));
    assert_eq!(shared.take_dropped(), 0);
    for buffer in others {
        shared.client.release(buffer);
    }
    drop((shared, remote));
    let moved = stack.join().expect("the stack does not panic");
    let count = |length| {
        moved
            .replies
            .iter()
            .filter(move |it| it.payload == vec![7; length])
    };
    assert_eq!((count(100).count(), count(60_000).count()), (1000, 8));
    assert_eq!((moved.replies.len(), moved.reply_calls), (1008, 5 + 8));
    assert!((1..=50).contains(&moved.refused), "{}", moved.refused);
}

#[test]
fn receive_calls_grow_when_they_return_full() {
    let mut flow = RemoteFlow::default();
    assert_eq!(flow.piece(), PIECE);
    // A stack may hold a little less of a flow than a power of two.
    for wanted in [2 * PIECE, PIECE_MOST, PIECE_MOST] {
        flow.note_received(flow.piece(), flow.piece() - 1);
        assert_eq!(flow.piece(), wanted);
    }
    flow.note_received(flow.piece(), flow.piece() / 3);
    assert_eq!(flow.piece(), PIECE_MOST, "a third full changes nothing");
    for wanted in [2 * PIECE, PIECE, PIECE] {
        flow.note_received(flow.piece(), 100);
        assert_eq!(flow.piece(), wanted);
    }
    // The length that the arena had room for counts, not the wanted length.
    flow.note_received(PIECE_MIN, PIECE_MIN);
    assert_eq!(flow.piece(), 2 * PIECE);
}
