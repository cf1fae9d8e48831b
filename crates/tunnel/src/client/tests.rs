use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use quictun_engine::{ServerPlace, Transport};
use quictun_ipc::{Message, Server, WaitPolicy};

use super::tun_setup::TunSource;
use super::*;
use crate::launch::WorkerInputs;
use crate::listener;
use crate::mailbox::mailbox;
use crate::reload::join_messages::joins;
use crate::requests::Requester;
use crate::settings::{Forward, ForwardTo, ListenOn};
use crate::worker;
use quictun_control::settings::Phrases;
use quictun_io::crash::Crash;
use quictun_io::udp_port;
use quictun_trust::settings::{ClientIdentity, HeaderTargets, Offer};

/// Time limit of each wait in these tests.
const SOON: Duration = Duration::from_mins(1);

/// Runs a client's worker whose network stack is at the other end of a socket and whose server cannot be found. Returns
/// its outcome.
fn worker(stack: OwnedFd) -> Receiver<Result<()>> {
    let settings = TransportSettings::default();
    let socket = udp_port::bind(([127, 0, 0, 1], 0).into(), false).expect("a socket");
    let udp = launch::open_udp(socket, &settings).expect("a socket");
    let identity = ClientIdentity::default();
    let crypto = tls::client_config(
        &ServerTrust::Insecure,
        &identity,
        Offer::Both,
        &tls::SharedConfig::default(),
    );
    let (mailbox, inbox) = mailbox(1 << 30).expect("a mailbox");
    let inputs = WorkerInputs {
        index: 0,
        udp,
        inbox,
        siblings: vec![mailbox],
        transport: Transport::new(udp_port::path_mtu(None)),
        requests: Requester::new(0, tokio::sync::mpsc::channel(1).0),
        joins: joins().0,
    };
    let role = ClientRole {
        servers: vec![ServerToDial {
            crypto: crypto.expect("defaults"),
            fallback: None,
            name: "server.invalid".to_owned(),
            prover: None,
            carrier: CarrierChoice::Quic,
            place: ServerPlace::default(),
        }],
        connections: 1,
        joiner: None,
        reverse: false,
        wait_timeout: WAIT_TIMEOUT,
        bond_ttl: Duration::ZERO,
        compat_streams: COMPAT_STREAMS,
        surroundings: Surroundings::default(),
    };
    let tun = TunSetup {
        source: TunSource::Apart(stack),
        dns: None,
        for_command: false,
    };
    let names = ["server.invalid:7500"].into_iter().collect();
    let template = ClientTemplate {
        role,
        servers: Arc::new(Servers::new(&[ServerPlace::default()], names, false)),
        forwards: BTreeMap::new(),
        logins: None,
        sends_sources: false,
        header_targets: HeaderTargets::default(),
        reverse_shown: ReverseForwards::default(),
        lines: LineBudget::default(),
        phrases: Phrases::default(),
        tcp_congestion: None,
        outbound_proxy: None,
        dialled: Arc::default(),
        services: Services::default(),
        taken: TakenFlows::default(),
    };
    let first = FirstSources {
        tun: Some(tun),
        ..FirstSources::default()
    };
    let (sender, ended) = channel();
    std::thread::spawn(move || {
        let run = || Ok(worker::run(template.build(inputs, first, None)?)?);
        sender.send(run()).ok();
    });
    ended
}

/// Starts a process in place of a network stack that answers every call with a message that no stack sends.
fn violating_stack(socket: OwnedFd) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let channel = quictun_ipc::accept(socket, SOON).expect("a client");
        let (server, mut executor) = Server::new(channel, WaitPolicy::Interrupt);
        executor.spawner().spawn(1, async move {
            while let Ok(request) = server.recv().await {
                if server.reply(request, Message::new(u16::MAX)).await.is_err() {
                    break;
                }
            }
        });
        executor.run();
    })
}

#[test]
fn a_stack_that_violates_the_protocol_ends_the_client_like_a_crash() {
    let (here, there) = quictun_ipc::sockets().expect("sockets");
    let stack = violating_stack(there);
    let ended = worker(here).recv_timeout(SOON);
    let error = ended
        .expect("its end")
        .expect_err("the network stack is gone");
    assert_eq!(
        Crash::of(error.as_ref()),
        Some(Crash::Netstack),
        "{error:#}"
    );
    stack.join().expect("it ended with the client");
}

// A listener that systemd has made may be open to other machines, whatever the configuration says.
#[test]
fn a_proxy_that_other_machines_reach_needs_users_with_any_listener() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("users");
    std::fs::write(&path, "ann:wonder\n").expect("a file");
    let listener = |address: &str| {
        let listen = ListenOn::Tcp(address.parse().expect("an address"));
        vec![listener::bind(&listen).expect("a free port")]
    };
    let forward = |to| Forward {
        listen: ListenOn::Tcp(([127, 0, 0, 1], 1080).into()),
        to,
    };
    let proxy = [forward(ForwardTo::Proxy)];
    let target = [forward(ForwardTo::Target("h:1".parse().expect("a target")))];
    let open = listener("0.0.0.0:0");
    let refused = logins(None, &proxy, &open).expect_err("an open proxy");
    assert!(
        refused.to_string().contains("--proxy-users FILE"),
        "{refused}"
    );
    for (forwards, listeners) in [(&proxy, listener("127.0.0.1:0")), (&target, open)] {
        assert!(
            logins(None, forwards, &listeners)
                .expect("it is fine")
                .is_none()
        );
    }
    let users = logins(Some(&path), &proxy, &listener("0.0.0.0:0")).expect("users");
    assert!(users.is_some_and(|users| users.knows(b"ann", b"wonder")));
}
