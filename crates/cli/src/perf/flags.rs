//! The flags and commands of `quictun perf`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Command;
use quictun_args::address::{Wildcard, parse_listen, parse_server_at};
use quictun_args::native::commands;
use quictun_args::options;
use quictun_args::options::{InvalidValue, Maybe, One, Section, Switch, Table};
use quictun_args::values::{number, parsed, path, size, switch, text, time};
use quictun_perf::{EventLoop, Mode, Transport};
use quictun_tunnel::settings::HostPort;

/// The port that a client dials if no other is given: that of the default of `--listen`.
const PORT: u16 = 7600;

/// Prefix of the environment variables that set flags.
const PREFIX: &str = "QUICTUN_PERF_";

/// Flags of `quictun perf server`.
pub static SERVER: Table = Table {
    prefix: PREFIX,
    sections: &[&Section {
        heading: "Server",
        options: &[&LISTEN, &ONLY, &SERVER_LOOP, &NOTES],
    }],
};

/// Flags of `quictun perf client`.
pub static CLIENT: Table = Table {
    prefix: PREFIX,
    sections: &[&TRAFFIC, &LEVERS, &RESULT],
};

static TRAFFIC: Section = Section {
    heading: "Traffic",
    options: &[
        &CONNECT,
        &TRANSPORT,
        &MODE,
        &DURATION,
        &WARM_UP,
        &BYTES,
        &COUNT,
        &RR,
        &RATE,
        &FLOWS,
        &CONNECTIONS,
        &REVERSE,
    ],
};

static LEVERS: Section = Section {
    heading: "Levers",
    options: &[&CONGESTION, &MTU, &GSO, &GRO, &ACK_EVERY, &LOOP],
};

static RESULT: Section = Section {
    heading: "Result",
    options: &[&JSON],
};

const TRANSPORTS: &[(&str, Transport)] = &[
    ("tcp", Transport::Tcp),
    ("tls", Transport::Tls),
    ("quic", Transport::Quic),
    ("udp", Transport::Udp),
];

const LOOPS: &[(&str, EventLoop)] = &[
    ("sleep-timeout", EventLoop::SleepTimeout),
    ("poll-100us", EventLoop::Poll100us),
    ("event", EventLoop::Event),
    ("event+gso", EventLoop::EventGso),
];

const ON_OFF: &[(&str, bool)] = &[("on", true), ("off", false)];

options! {
    pub(super) LISTEN: One<SocketAddr> = "listen" "ADDR", by |text| parse_listen(text, Wildcard::AsWritten), default "[::]:7600";
        "TCP and UDP address; port 0: any free port, which is printed"
    pub(super) ONLY: Maybe<Transport> = "transport" "NAME", choice TRANSPORTS;
        "Serve only this transport: tcp, tls, quic or udp"
    pub(super) SERVER_LOOP: Maybe<EventLoop> = "loop" "NAME", choice LOOPS;
        "Wait strategy of the QUIC loop; overrides the client's"
    pub(super) NOTES: Maybe<PathBuf> = "json" "FILE", by path;
        "Write one JSON object per measurement to FILE"

    pub(super) CONNECT: Maybe<HostPort> = "connect" "HOST[:PORT]", by |text| parse_server_at(text, PORT);
        "Address of the server; port 7600 if none is given"
    pub(super) TRANSPORT: One<Transport> = "transport" "NAME", choice TRANSPORTS, default "tcp";
        "tcp, tls (TLS 1.3 over TCP, QUIC's cipher), quic (ALPN perf) or udp"
    pub(super) MODE: One<Mode> = "mode" "NAME", choice &[("stream", Mode::Stream), ("rr", Mode::Rr), ("crr", Mode::Crr)], default "stream";
        "stream, rr (request and response) or crr (one connection per request)"
    pub(super) DURATION: One<Duration> = "duration" "TIME", by time, default "5s";
        "Measured time"
    pub(super) WARM_UP: One<Duration> = "warm-up" "TIME", by time, default "1s";
        "Time before the measurement begins; with --duration only"
    pub(super) BYTES: Maybe<u64> = "bytes" "SIZE", by size;
        "Measure this number of bytes of a stream instead of a time: 100MB"
    pub(super) COUNT: Maybe<u64> = "count" "N", by parsed;
        "Measure this number of transactions instead of a time"
    pub(super) RR: One<(u64, u64)> = "rr" "REQ,RESP", by sizes, default "1,1";
        "Size of each request and of each response, bytes"
    pub(super) RATE: Maybe<String> = "rate" "RATE", by text;
        "Transactions to begin per second, late or not: 1000/s; UDP stream: 100mbit"
    pub(super) FLOWS: One<u32> = "flows" "N", by |text| number(text, 1..=u32::MAX), default "1";
        "Flows per connection; TCP: one connection per flow"
    pub(super) CONNECTIONS: One<u32> = "connections" "N", by |text| number(text, 1..=u32::MAX), default "1";
        "Number of connections"
    pub(super) REVERSE: Switch = "reverse" "BOOL", by switch;
        "Send streams from the server to the client"

    pub(super) CONGESTION: Maybe<String> = "congestion" "NAME", by text, words &["auto", "cubic", "newreno", "background", "fixed:", "reno", "bbr"];
        "Congestion control of the senders, as the kernel has it; QUIC: auto (default), cubic, newreno, background, fixed:RATE"
    pub(super) MTU: Maybe<u32> = "mtu" "BYTES", by parsed;
        "Largest packet, including its IP header; unset: the path's MTU"
    pub(super) GSO: Maybe<bool> = "gso" "on|off", choice ON_OFF;
        "UDP segmentation offload; unset: as --loop implies"
    pub(super) GRO: Maybe<bool> = "gro" "on|off", choice ON_OFF;
        "UDP receive offload; unset: as --loop implies"
    pub(super) ACK_EVERY: One<u32> = "ack-every" "N", by |text| number(text, 1..=u32::MAX), default "10";
        "QUIC packets per acknowledgement"
    pub(super) LOOP: One<EventLoop> = "loop" "NAME", choice LOOPS, default "event+gso";
        "Wait strategy of the QUIC loop; see below"

    pub(super) JSON: Maybe<PathBuf> = "json" "FILE|-", by path;
        "Write the result to FILE as JSON; -: to standard output, without other output"
}

/// Parses two sizes such as `80000,80000` or `80kB,80kB`.
fn sizes(text: &str) -> Result<(u64, u64), InvalidValue> {
    let Some((request, response)) = text.split_once(',') else {
        return Err(format!("{text:?} is not two sizes: write 1,1 or 80kB,80kB").into());
    };
    Ok((size(request)?, size(response)?))
}

/// Returns the definition of `quictun perf` for clap.
pub fn command() -> Command {
    let server = commands::command(
        "server",
        "Wait for clients, and measure with one at a time",
        include_str!("server_help.txt"),
    );
    let client = commands::command(
        "client",
        "Run one measurement",
        include_str!("client_help.txt"),
    );
    commands::parent(
        "perf",
        "Measure TCP, TLS, QUIC and UDP between two programs, and verify every byte",
        include_str!("help.txt"),
    )
    .subcommands([SERVER.add_to(server), CLIENT.add_to(client)])
}
