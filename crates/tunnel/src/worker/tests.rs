//! Tests the loop itself, with a duty that only records its calls.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use quictun_engine::{EngineConfig, FlowId, ServerRole, Transport};
use quictun_io::poller::Patience;
use quictun_io::udp_port;
use quictun_trust::identity;
use quictun_trust::tls;
use quictun_wire::code::FlowCode;

use super::*;
use crate::mailbox::mailbox;

/// Records every call. Its fields configure its answers.
#[derive(Debug, Default)]
struct Noting {
    calls: Vec<&'static str>,
    /// A connection to this listener makes the duty fail.
    listener: Option<TcpListener>,
    timeout: Option<Instant>,
    busy: bool,
    failed: bool,
}

/// Sends the recorded calls when the worker is dropped.
#[derive(Debug)]
struct Handing(Noting, std::sync::mpsc::Sender<Vec<&'static str>>);

impl Drop for Handing {
    fn drop(&mut self) {
        self.1
            .send(std::mem::take(&mut self.0.calls))
            .expect("the test waits");
    }
}

impl Duty for Handing {
    fn start(&mut self, io: &mut Io<'_>) -> io::Result<()> {
        self.0.calls.push("start");
        if let Some(listener) = &self.0.listener {
            io.poller.add_listener(listener.as_fd(), Key::Listener(7))?;
        }
        Ok(())
    }

    fn handle_event(&mut self, _: &mut Io<'_>, _: Event) {
        self.0.calls.push("event");
    }

    fn handle_ready(&mut self, _: &mut Io<'_>, ready: Ready) {
        assert_eq!(ready.key, Key::Listener(7));
        assert!(ready.readable && !ready.writable);
        self.0.calls.push("ready");
        self.0.failed = true;
    }

    fn handle_message(&mut self, _: &mut Io<'_>, message: Message) {
        assert!(
            matches!(message, Message::TargetResolved { .. }),
            "{message:?}"
        );
        self.0.calls.push("message");
    }

    fn handle_pause(&mut self, _: &mut Io<'_>, _: Duration) {
        self.0.calls.push("pause");
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.0.timeout
    }

    fn handle_timeout(&mut self, io: &mut Io<'_>) {
        if self.0.timeout.take_if(|at| *at <= io.now).is_some() {
            self.0.calls.push("timeout");
            self.0.busy = false;
        }
    }

    fn stop_accepting(&mut self, _: &mut Io<'_>) {
        self.0.calls.push("stop accepting");
    }

    fn failure(&self) -> Option<io::Error> {
        self.0.failed.then(|| io::Error::other("no use any more"))
    }

    fn is_busy(&self) -> bool {
        self.0.busy
    }
}

fn engine() -> Engine<AppSocket> {
    let identity = identity::ephemeral().expect("a key");
    let crypto = tls::server_config(&identity, &tls::Shared::default());
    let role = ServerRole {
        crypto: crypto.expect("a configuration"),
        max_connections: 10,
        max_handshakes: 10,
        retry_above: 10,
        always_retry: false,
        identify: false,
        open_timeout: Duration::from_secs(10),
        bond_ttl: Duration::ZERO,
    };
    Engine::server(EngineConfig {
        role,
        transport: Transport::new(Arc::new(|_| 1200)),
        worker: 0,
        seed: [0; 32],
        reset_key: [0; 32],
    })
    .expect("an engine")
}

/// A worker that has not started, its mailbox, and the receiving end of a sibling's mailbox.
struct Set {
    parts: Parts<Handing>,
    mailbox: Mailbox,
    sibling: Inbox,
    calls: std::sync::mpsc::Receiver<Vec<&'static str>>,
    udp: std::net::SocketAddr,
}

fn set(duty: Noting) -> Set {
    let (mailbox, inbox) = mailbox(1 << 30).expect("a mailbox");
    let (other, sibling) = crate::mailbox::mailbox(1 << 30).expect("a mailbox");
    let socket = udp_port::bind("127.0.0.1:0".parse().expect("an address"), false);
    let socket = socket.expect("a port");
    let udp = socket.local_addr().expect("it is bound");
    let (sender, calls) = std::sync::mpsc::channel();
    let parts = Parts {
        index: 0,
        engine: engine(),
        udp: UdpPort::new(socket, 1 << 20, true).expect("options"),
        inbox,
        siblings: vec![mailbox.clone(), other],
        duty: Handing(duty, sender),
    };
    Set {
        parts,
        mailbox,
        sibling,
        calls,
        udp,
    }
}

/// Runs the worker to its end. Returns the result and the recorded calls.
fn outcome(set: Set) -> (io::Result<()>, Vec<&'static str>) {
    let result = run(set.parts);
    (result, set.calls.recv().expect("the recorded calls"))
}

#[test]
fn it_ends_when_told_to() {
    let set = set(Noting::default());
    set.mailbox.send(Message::Close);
    let (result, calls) = outcome(set);
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(calls, ["start"]);
}

#[test]
fn a_drain_takes_nothing_new_and_waits_for_what_is_under_way() {
    let set = set(Noting {
        busy: true,
        timeout: Some(Instant::now() + Duration::from_millis(20)),
        ..Noting::default()
    });
    set.mailbox.send(Message::Drain);
    let (result, calls) = outcome(set);
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(calls, ["start", "stop accepting", "timeout"]);
}

#[test]
fn a_duty_that_fails_ends_the_worker_unless_it_drains() {
    let failing = || Noting {
        failed: true,
        ..Noting::default()
    };
    let (result, _) = outcome(set(failing()));
    assert_eq!(
        result.expect_err("a failure").to_string(),
        "no use any more"
    );
    let draining = set(failing());
    draining.mailbox.send(Message::Drain);
    let (result, _) = outcome(draining);
    assert!(result.is_ok(), "{result:?}");
}

#[test]
fn the_duty_is_told_of_its_listeners_and_of_its_messages() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let _waiting = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let set = set(Noting {
        listener: Some(listener),
        ..Noting::default()
    });
    set.mailbox.send(Message::TargetResolved {
        flow: FlowId(1),
        result: Err(FlowCode::NameNotFound),
    });
    let (result, mut calls) = outcome(set);
    assert!(result.is_err());
    calls.sort_unstable();
    assert_eq!(calls, ["message", "ready", "start"]);
}

#[test]
fn who_asks_is_told_how_things_stand() {
    let set = set(Noting::default());
    let (reply, told) = tokio::sync::oneshot::channel();
    let detail = Detail::Flows;
    assert!(set.mailbox.ask(SnapshotRequest { detail, reply }));
    set.mailbox.send(Message::Close);
    outcome(set).0.expect("an end");
    let snapshot = told.blocking_recv().expect("an answer");
    assert_eq!((snapshot.worker, snapshot.flows.len()), (0, 0));
    assert!(snapshot.udp.recv_buffer > 0);
}

#[test]
fn a_datagram_of_another_workers_connection_is_handed_over() {
    let mut set = set(Noting {
        timeout: Some(Instant::now() + Duration::from_secs(20)),
        ..Noting::default()
    });
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
    // A short header, and a connection id that names worker 1.
    let datagram = [
        0x40, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    client.send_to(&datagram, set.udp).expect("it goes");
    let (mailbox, calls) = (set.mailbox, set.calls);
    let (ended, handed) = std::thread::scope(|scope| {
        let watching = scope.spawn(move || {
            let handed = next_datagram(&mut set.sibling);
            mailbox.send(Message::Close);
            handed
        });
        (run(set.parts), watching.join().expect("no panic"))
    });
    ended.expect("an end");
    let handed = handed.expect("it was handed over");
    assert_eq!(handed.data[..], datagram);
    assert_eq!(Some(handed.remote), client.local_addr().ok());
    drop(calls);
}

/// Waits for the mailbox's wake-up, as a worker does. Returns `None` if there is none.
fn next_datagram(inbox: &mut Inbox) -> Option<udp_port::Received> {
    let mut poller = Poller::new().expect("a poller");
    poller
        .add_input(&*inbox, Key::Wake)
        .expect("it can be watched");
    let until = Instant::now() + Duration::from_secs(20);
    let mut ready = Vec::new();
    loop {
        let waited = poller.wait(Some(until), Patience::default(), &mut ready);
        waited.expect("it waits");
        if ready.is_empty() {
            return None;
        }
        inbox.begin_turn();
        if let Some(Mail::Datagram(datagram)) = inbox.receive() {
            return Some(datagram);
        }
    }
}

#[test]
fn a_turn_that_begins_a_second_late_is_a_pause() {
    let pauses = |late: &[Duration]| {
        let Set { parts, calls, .. } = set(Noting::default());
        let mut worker = Worker::new(parts).expect("a worker");
        let due = Instant::now();
        for late in late {
            worker.note_late(Some(due), due + *late);
        }
        worker.note_late(None, due + Duration::from_hours(1));
        drop(worker);
        calls.recv().expect("it is gone")
    };
    let second = Duration::from_secs(1);
    let almost = Duration::from_millis(999);
    assert_eq!(pauses(&[Duration::ZERO, almost]), [""; 0]);
    assert_eq!(pauses(&[almost, second, 60 * second]), ["pause"; 2]);
}
