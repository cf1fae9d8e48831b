//! Tests the loop itself, with a role that only records its calls.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use quictun_engine::{
    EngineConfig, FlowId, Server, ServerEngine, ServerEvent, ServerRole, Transport,
};
use quictun_io::poller::WaitPlan;
use quictun_io::udp_port;
use quictun_trust::identity;
use quictun_trust::tls;
use quictun_wire::code::FlowCode;

use super::*;
use crate::mailbox::mailbox;
use crate::role::ServerContext;

/// Records every call. Its fields configure its answers.
#[derive(Debug, Default)]
struct Recorder {
    calls: Vec<&'static str>,
    /// A connection to this listener makes the role fail.
    listener: Option<TcpListener>,
    timeout: Option<Instant>,
    busy: bool,
    failed: bool,
}

/// Sends the recorded calls when the worker is dropped.
#[derive(Debug)]
struct RecordingRole(Recorder, std::sync::mpsc::Sender<Vec<&'static str>>);

impl Drop for RecordingRole {
    fn drop(&mut self) {
        self.1
            .send(std::mem::take(&mut self.0.calls))
            .expect("the test waits");
    }
}

impl WorkerPart for RecordingRole {
    type Role = Server;

    fn start(&mut self, cx: &mut ServerContext<'_>) -> io::Result<()> {
        self.0.calls.push("start");
        if let Some(listener) = &self.0.listener {
            cx.poller.add_listener(listener.as_fd(), Key::Listener(7))?;
        }
        Ok(())
    }

    fn handle_ready(&mut self, _: &mut ServerContext<'_>, ready: ReadyEvent) {
        assert_eq!(ready.key, Key::Listener(7));
        assert!(ready.readable && !ready.writable);
        self.0.calls.push("ready");
        self.0.failed = true;
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.0.timeout
    }

    fn handle_timeout(&mut self, cx: &mut ServerContext<'_>) {
        if self.0.timeout.take_if(|at| *at <= cx.now).is_some() {
            self.0.calls.push("timeout");
            self.0.busy = false;
        }
    }

    fn stop_accepting(&mut self, _: &mut ServerContext<'_>) {
        self.0.calls.push("stop accepting");
    }

    fn failure(&self) -> Option<io::Error> {
        self.0.failed.then(|| io::Error::other("no use any more"))
    }

    fn is_busy(&self) -> bool {
        self.0.busy
    }
}

impl WorkerRole for RecordingRole {
    fn handle_event(&mut self, _: &mut ServerContext<'_>, _: ServerEvent) {
        self.0.calls.push("event");
    }

    fn handle_message(&mut self, _: &mut ServerContext<'_>, message: Message) {
        assert!(
            matches!(message, Message::TargetResolved { .. }),
            "{message:?}"
        );
        self.0.calls.push("message");
    }

    fn handle_pause(&mut self, _: &mut ServerContext<'_>, _: Instant) {
        self.0.calls.push("pause");
    }
}

fn engine() -> ServerEngine<AppSocket> {
    let identity = identity::ephemeral().expect("a key");
    let crypto = tls::server_config(&identity, &tls::SharedConfig::default());
    let role = ServerRole {
        crypto: crypto.expect("a configuration"),
        max_connections: 10,
        max_handshakes: 10,
        retry_above: 10,
        always_retry: false,
        https_proxy: false,
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
struct Fixture {
    parts: WorkerParts<RecordingRole>,
    mailbox: Mailbox,
    sibling: Inbox,
    calls: std::sync::mpsc::Receiver<Vec<&'static str>>,
    udp: std::net::SocketAddr,
}

fn fixture(role: Recorder) -> Fixture {
    let (mailbox, inbox) = mailbox(1 << 30).expect("a mailbox");
    let (other, sibling) = crate::mailbox::mailbox(1 << 30).expect("a mailbox");
    let socket = udp_port::bind("127.0.0.1:0".parse().expect("an address"), false);
    let socket = socket.expect("a port");
    let udp = socket.local_addr().expect("it is bound");
    let (sender, calls) = std::sync::mpsc::channel();
    let parts = WorkerParts {
        index: 0,
        engine: engine(),
        udp: UdpPort::new(socket, 1 << 20, true).expect("options"),
        inbox,
        siblings: vec![mailbox.clone(), other],
        role: RecordingRole(role, sender),
    };
    Fixture {
        parts,
        mailbox,
        sibling,
        calls,
        udp,
    }
}

/// Runs the worker to its end. Returns the result and the recorded calls.
fn outcome(fixture: Fixture) -> (io::Result<()>, Vec<&'static str>) {
    let result = run(fixture.parts);
    (result, fixture.calls.recv().expect("the recorded calls"))
}

#[test]
fn the_worker_ends_on_close() {
    let fixture = fixture(Recorder::default());
    fixture.mailbox.send(Message::Close);
    let (result, calls) = outcome(fixture);
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(calls, ["start"]);
}

#[test]
fn a_drain_accepts_nothing_new_and_waits_for_work_under_way() {
    let fixture = fixture(Recorder {
        busy: true,
        timeout: Some(Instant::now() + Duration::from_millis(20)),
        ..Recorder::default()
    });
    fixture.mailbox.send(Message::Drain);
    let (result, calls) = outcome(fixture);
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(calls, ["start", "stop accepting", "timeout"]);
}

#[test]
fn a_failed_role_ends_the_worker_unless_it_drains() {
    let failing = || Recorder {
        failed: true,
        ..Recorder::default()
    };
    let (result, _) = outcome(fixture(failing()));
    assert_eq!(
        result.expect_err("a failure").to_string(),
        "no use any more"
    );
    let draining = fixture(failing());
    draining.mailbox.send(Message::Drain);
    let (result, _) = outcome(draining);
    assert!(result.is_ok(), "{result:?}");
}

#[test]
fn the_role_handles_its_listeners_and_its_messages() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let _waiting = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let fixture = fixture(Recorder {
        listener: Some(listener),
        ..Recorder::default()
    });
    fixture.mailbox.send(Message::TargetResolved {
        flow: FlowId(1),
        result: Err(FlowCode::NameNotFound),
    });
    let (result, mut calls) = outcome(fixture);
    assert!(result.is_err());
    calls.sort_unstable();
    assert_eq!(calls, ["message", "ready", "start"]);
}

#[test]
fn a_snapshot_request_gets_a_snapshot() {
    let fixture = fixture(Recorder::default());
    let (reply, told) = tokio::sync::oneshot::channel();
    let detail = Detail::Flows;
    assert!(fixture.mailbox.ask(SnapshotRequest { detail, reply }));
    fixture.mailbox.send(Message::Close);
    outcome(fixture).0.expect("an end");
    let snapshot = told.blocking_recv().expect("an answer");
    assert_eq!((snapshot.worker, snapshot.flows.len()), (0, 0));
    assert!(snapshot.udp.recv_buffer > 0);
}

#[test]
fn a_datagram_of_another_workers_connection_is_handed_over() {
    let mut fixture = fixture(Recorder {
        timeout: Some(Instant::now() + Duration::from_secs(20)),
        ..Recorder::default()
    });
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
    // A short header, and a connection id that names worker 1.
    let datagram = [
        0x40, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    client.send_to(&datagram, fixture.udp).expect("it goes");
    let (mailbox, calls) = (fixture.mailbox, fixture.calls);
    let (ended, handed) = std::thread::scope(|scope| {
        let watching = scope.spawn(move || {
            let handed = next_datagram(&mut fixture.sibling);
            mailbox.send(Message::Close);
            handed
        });
        (run(fixture.parts), watching.join().expect("no panic"))
    });
    ended.expect("an end");
    let handed = handed.expect("it was handed over");
    assert_eq!(handed.data[..], datagram);
    assert_eq!(Some(handed.remote), client.local_addr().ok());
    drop(calls);
}

/// Waits for the mailbox's wake-up, as a worker does. Returns `None` if there is none.
fn next_datagram(inbox: &mut Inbox) -> Option<udp_port::ReceivedDatagram> {
    let mut poller = Poller::new().expect("a poller");
    poller
        .add_input(&*inbox, Key::Wake)
        .expect("it can be watched");
    let until = Instant::now() + Duration::from_secs(20);
    let mut ready = Vec::new();
    loop {
        let waited = poller.wait(Some(until), WaitPlan::default(), &mut ready);
        waited.expect("it waits");
        if ready.is_empty() {
            return None;
        }
        inbox.begin_turn();
        if let Some(InboxItem::Datagram(datagram)) = inbox.receive() {
            return Some(datagram);
        }
    }
}

#[test]
fn a_turn_that_begins_a_second_late_is_a_pause_and_handles_what_has_arrived_first() {
    let pauses = |late: &[Duration]| {
        let Fixture { parts, calls, .. } = fixture(Recorder::default());
        let mut worker = Worker::new(parts).expect("a worker");
        let due = Instant::now();
        let ready = [ReadyEvent {
            key: Key::Listener(7),
            readable: true,
            writable: false,
            failed: false,
        }];
        for late in late {
            worker.take_input(&ready, Some(due), due + *late);
        }
        worker.take_input(&[], None, due + Duration::from_hours(1));
        drop(worker);
        calls.recv().expect("it is gone")
    };
    let second = Duration::from_secs(1);
    let almost = Duration::from_millis(999);
    assert_eq!(pauses(&[Duration::ZERO, almost]), ["ready"; 2]);
    let late = ["ready", "pause"];
    let expected = [&["ready"][..], &late, &late].concat();
    assert_eq!(pauses(&[almost, second, 60 * second]), expected);
}
