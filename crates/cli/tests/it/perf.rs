//! `quictun perf`: the results of its flags, and the input that it refuses.

use std::time::Duration;

use quictun_args::fault::Fault;
use quictun_cli::native::Action;
use quictun_cli::perf::{Action as PerfAction, PerfClient, PerfServer};
use quictun_perf::{Amount, EventLoop, Mode, Plan, Transport};

use crate::test_inputs::{TestInputs, usage};

fn asked(inputs: &TestInputs, line: &str) -> Result<PerfAction, Fault> {
    match inputs.native(line)? {
        Action::Perf(action) => Ok(*action),
        other => panic!("{line}: not an action of quictun perf: {other:?}"),
    }
}

fn client(line: &str) -> PerfClient {
    let line = format!("perf client --connect host:7600 {line}");
    match asked(&TestInputs::default(), &line) {
        Ok(PerfAction::Client(client)) => *client,
        other => panic!("{line}: not a client: {other:?}"),
    }
}

fn server(inputs: &TestInputs, line: &str) -> PerfServer {
    match asked(inputs, line) {
        Ok(PerfAction::Server(server)) => server,
        other => panic!("{line}: not a server: {other:?}"),
    }
}

#[test]
fn without_flags_it_is_a_stream_over_tcp_for_five_seconds() {
    let client = client("");
    assert_eq!(client.plan, Plan::new(Transport::Tcp, Mode::Stream));
    assert_eq!(
        (client.server.host.as_str(), client.server.port),
        ("host", 7600)
    );
    assert_eq!(client.json, None);
    let server = server(&TestInputs::default(), "perf server");
    assert_eq!(server.options.listen.to_string(), "[::]:7600");
    assert_eq!(
        (server.options.only, server.options.event_loop),
        (None, None)
    );
}

#[test]
fn flags_make_the_plan() {
    let plan = |line| client(line).plan;
    let rr = plan(
        "--transport tls --mode rr --rr 80kB,100 --rate 1000/s --flows 4 --duration 250ms --warm-up 0",
    );
    assert_eq!((rr.transport, rr.mode), (Transport::Tls, Mode::Rr));
    assert_eq!((rr.request, rr.response), (80_000, 100));
    assert_eq!((rr.rate, rr.flows), (Some(1000), 4));
    assert_eq!(rr.amount, Amount::Time(Duration::from_millis(250)));
    assert_eq!(rr.warm_up, Duration::ZERO);
    assert_eq!(plan("--bytes 100MB").amount, Amount::Bytes(100_000_000));
    assert_eq!(plan("--mode crr --count 7").amount, Amount::Count(7));
    assert_eq!(
        plan("--transport udp --rate 100mbit").rate,
        Some(100_000_000)
    );
    let levers = plan("--transport quic --congestion newreno --mtu 1500 --ack-every 2 --reverse");
    assert_eq!(levers.congestion.as_deref(), Some("newreno"));
    assert_eq!(
        (levers.mtu, levers.ack_every, levers.reverse),
        (Some(1500), 2, true)
    );
    let inputs = TestInputs::default().env("QUICTUN_PERF_LOOP", "event");
    let server = server(&inputs, "perf server --transport quic --listen 127.0.0.1:0");
    assert_eq!(server.options.event_loop, Some(EventLoop::Event));
    assert_eq!(server.options.only, Some(Transport::Quic));
}

#[test]
fn the_event_loop_decides_on_offload_by_default() {
    for (line, event_loop, gso, gro) in [
        ("", EventLoop::EventGso, true, true),
        ("--loop event", EventLoop::Event, false, false),
        ("--loop poll-100us", EventLoop::Poll100us, false, false),
        (
            "--loop sleep-timeout",
            EventLoop::SleepTimeout,
            false,
            false,
        ),
        ("--loop event --gro on", EventLoop::Event, false, true),
        ("--gso off", EventLoop::EventGso, false, true),
    ] {
        let plan = client(line).plan;
        assert_eq!(
            (plan.event_loop, plan.gso, plan.gro),
            (event_loop, gso, gro),
            "{line}"
        );
    }
}

#[test]
fn a_server_may_leave_its_port_to_the_default() {
    for (given, expected) in [
        ("host", "host:7600"),
        ("[::1]", "[::1]:7600"),
        ("host:1", "host:1"),
    ] {
        let line = format!("perf client --connect {given}");
        match asked(&TestInputs::default(), &line) {
            Ok(PerfAction::Client(client)) => assert_eq!(client.server.to_string(), expected),
            other => panic!("{line}: not a client: {other:?}"),
        }
    }
    let serving = server(&TestInputs::default(), "perf server");
    assert_eq!(serving.options.listen.port(), 7600, "the same default");
}

#[test]
fn invalid_settings_are_refused_with_the_remedy() {
    let inputs = TestInputs::default();
    for (line, expected) in [
        (
            "",
            "--connect: is missing: name the server | quictun perf client --connect HOST:7600",
        ),
        (
            "--connect h:1 --bytes 1 --count 1",
            "command line: --duration, --bytes and --count exclude each other: give one of them",
        ),
        (
            "--connect h:1 --transport udp",
            "command line: --transport udp --mode stream needs a --rate, as in --rate 100mbit",
        ),
        (
            "--connect h:1 --rr 5",
            "--rr: \"5\" is not two sizes: write 1,1 or 80kB,80kB",
        ),
        (
            "--connect h:1 --mode rr --rate 5mbit",
            "--rate: \"5mbit\" is not a transaction rate: write 1000/s",
        ),
        (
            "--connect h:1 --transport sctp",
            "--transport: unknown value \"sctp\": choose tcp, tls, quic or udp",
        ),
        (
            "--connect h:1 --flows 2000",
            "command line: flows times connections must be 1 to 1024: change --flows or --connections",
        ),
    ] {
        let line = format!("perf client {line}");
        usage(asked(&inputs, &line), expected, &line);
    }
}
