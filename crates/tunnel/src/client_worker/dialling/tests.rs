use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quictun_control::flow_log::FlowLog;
use quictun_control::settings::Phrases;
use quictun_engine::report::Side;
use quictun_engine::{
    ClientEngine, ClientEvent, ClientRole, Engine, EngineConfig, ServerPlace, Transport,
};
use quictun_io::poller::Poller;
use quictun_io::udp_port::{self, UdpPort};
use quictun_trust::settings::HeaderTargets;
use quictun_wire::listening::HOLDER_LEN;
use tokio::sync::mpsc::{self, Receiver};

use super::super::reverse::ReverseForwarder;
use super::super::{ClientWorker, FlowsToContinue, Forwards};
use super::*;
use crate::app_socket::AppSocket;
use crate::carrier_dials::CarrierDials;
use crate::moves::Moves;
use crate::role::WorkerRole;
use crate::servers::Servers;
use crate::service::Services;

const SERVER: ServerId = ServerId(0);

/// A worker without listeners, and its requests.
fn worker() -> (ClientWorker, Receiver<(usize, Request)>) {
    let (control, requests) = mpsc::channel(8);
    let places = [ServerPlace::default()];
    let names = ["server.example:7500"].into_iter().collect();
    let control = Requester::new(0, control);
    let worker = ClientWorker {
        forwards: Forwards::new(
            control.clone(),
            BTreeMap::new(),
            Default::default(),
            Phrases::Own,
        ),
        reverse: ReverseForwarder::new(
            (control.clone(), true),
            (Vec::new(), HeaderTargets::default()),
            [0; HOLDER_LEN],
            Default::default(),
        ),
        tun: None,
        single_flow: None,
        dialling: ServerDialling::new(control, Arc::new(Servers::new(&places, names, true)), 1),
        moves: Moves::default(),
        log: FlowLog::new(Side::Client, 0, Phrases::Own),
        carriers: CarrierDials::new(None, None, None),
        dialled: Arc::default(),
        services: Services::default(),
        taken: FlowsToContinue::default(),
    };
    (worker, requests)
}

fn engine() -> ClientEngine<AppSocket> {
    let role = ClientRole {
        servers: Vec::new(),
        connections: 1,
        joiner: None,
        reverse: false,
        wait_timeout: Duration::ZERO,
        bond_ttl: Duration::ZERO,
        compat_streams: 1,
        surroundings: quictun_engine::Surroundings::default(),
    };
    Engine::client(EngineConfig {
        role,
        transport: Transport::new(Arc::new(|_| 1200)),
        worker: 0,
        seed: [0; 32],
        reset_key: [0; 32],
    })
    .expect("an engine")
}

/// Hands the worker the engine's event about a server that answers on a connection that was silent.
fn answer(worker: &mut ClientWorker, now: Instant) {
    let localhost = "127.0.0.1:0".parse().expect("an address");
    let socket = udp_port::bind(localhost, false).expect("a port");
    let event = ClientEvent::ServerAnswers {
        server: SERVER,
        remote: "192.0.2.1:7500".parse().expect("an address"),
    };
    let cx = &mut ClientContext {
        now,
        engine: &mut engine(),
        poller: &Poller::new().expect("a set"),
        udp: &UdpPort::new(socket, 1 << 20, true).expect("options"),
    };
    worker.handle_event(cx, event);
}

#[test]
fn each_silence_that_a_connection_survives_is_reported() {
    let (mut worker, mut requests) = worker();
    let (start, second) = (Instant::now(), Duration::from_secs(1));
    for outage in 0..3 {
        let start = start + 10 * outage * second;
        worker.dialling.each[0].handle_attempt(start);
        worker
            .dialling
            .probe_silent_servers(start + outage_log::SILENCE_LIMIT, false);
        let request = requests.try_recv();
        assert!(matches!(request, Ok((0, Request::Unanswered(SERVER)))));
        answer(&mut worker, start + 3 * second);
        assert_eq!(
            worker
                .dialling
                .servers
                .get(SERVER)
                .and_then(|it| it.outages.cause()),
            None
        );
    }
}

#[test]
fn a_server_that_has_answered_meanwhile_is_not_called_silent() {
    let (mut worker, mut requests) = worker();
    let start = Instant::now();
    worker.dialling.each[0].handle_attempt(start);
    answer(&mut worker, start + outage_log::SILENCE_LIMIT / 2);
    worker
        .dialling
        .probe_silent_servers(start + outage_log::SILENCE_LIMIT, false);
    assert!(requests.try_recv().is_err());
}

#[test]
fn a_server_that_refuses_this_client_is_not_called_silent() {
    let (mut dialling, start) = (DialState::default(), Instant::now());
    let second = Duration::from_secs(1);
    dialling.handle_attempt(start);
    dialling.handle_disconnected(&LossReason::TimedOut);
    let limit = start + outage_log::SILENCE_LIMIT;
    assert_eq!(dialling.silent_at, Some(limit), "it has not answered");
    dialling.handle_disconnected(&LossReason::NotAuthorized);
    dialling.handle_attempt(start + second);
    assert_eq!(dialling.silent_at, Some(limit + second));
}
