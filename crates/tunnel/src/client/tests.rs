use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, channel};

use quictun_ipc::Message;

use super::*;
use crate::crash::Crash;
use crate::settings::{ClientIdentity, Offer, TransportSettings};
use crate::{netstackd, worker};

/// Nothing here may take longer.
const SOON: Duration = Duration::from_mins(1);

/// The end of a client's worker with the stack at the other end of a socket, and with a server that nobody can find.
fn worker(stack: OwnedFd) -> Receiver<Result<()>> {
    let settings = TransportSettings::default();
    let socket = udp_port::bind(([127, 0, 0, 1], 0).into(), false).expect("a socket");
    let udp = launch::open_udp(socket, &settings).expect("a socket");
    let identity = ClientIdentity::default();
    let crypto = tls::client_config(&ServerTrust::Insecure, &identity, Offer::Both, None);
    let Post {
        mailboxes,
        mut inboxes,
    } = launch::post(1, 1 << 30).expect("a mailbox");
    let plan = Plan {
        index: 0,
        transport: launch::transport(&settings, udp_port::path_mtu(None)).expect("defaults"),
        inbox: inboxes.pop().expect("one"),
        siblings: mailboxes,
        role: ClientRole {
            crypto: crypto.expect("defaults"),
            fallback: None,
            server_name: "server.invalid".to_owned(),
            connections: 1,
            prover: None,
            wait_timeout: WAIT_TIMEOUT,
            compat_streams: COMPAT_STREAMS,
        },
        forwards: Vec::new(),
        udp,
        tun: Some(TunPlan {
            source: Source::Apart(stack),
            dns: None,
            for_command: false,
        }),
        refused: Arc::default(),
        phrases: Phrases::default(),
        requests: control::requests().0,
    };
    let (sender, ended) = channel();
    std::thread::spawn(move || {
        let run = || {
            let parts = plan.build()?;
            Ok(worker::run(parts)?)
        };
        sender.send(run()).ok();
    });
    ended
}

#[test]
fn a_stack_that_says_what_makes_no_sense_ends_the_client_as_a_crash_does() {
    let (here, there) = quictun_ipc::sockets().expect("sockets");
    let stack = netstackd::tests::stack(there, vec![Message::new(u16::MAX)]);
    let ended = worker(here).recv_timeout(SOON);
    let error = ended
        .expect("its end")
        .expect_err("it has no device any more");
    assert_eq!(Crash::of(&error), Some(Crash::Netstack), "{error:#}");
    stack.join().expect("it ended with the client");
}
