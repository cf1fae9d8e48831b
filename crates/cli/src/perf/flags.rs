//! The flags and commands of `quictun perf`.

use clap::Command;

use quictun_args::options::{self, Opt, Section};

/// Prefix of the environment variables.
pub const PREFIX: &str = "QUICTUN_PERF_";

/// Flags of `quictun perf server`.
pub static SERVER: &[&Section] = &[&SERVING];

/// Flags of `quictun perf client`.
pub static CLIENT: &[&Section] = &[&TRAFFIC, &LEVERS, &RESULT];

const TRANSPORTS: &[&str] = &["tcp", "tls", "quic", "udp"];
const LOOPS: &[&str] = &["sleep-timeout", "poll-100us", "event", "event+gso"];

static SERVING: Section = Section {
    heading: "Server",
    options: &[
        Opt::one(
            "listen",
            "ADDR",
            "[::]:7600",
            "TCP and UDP address; port 0: any, which is printed",
        ),
        Opt::one(
            "transport",
            "NAME",
            "",
            "Serve only this one: tcp, tls, quic or udp",
        )
        .choices(TRANSPORTS),
        Opt::one(
            "loop",
            "NAME",
            "",
            "How the QUIC loop waits, whatever the client asks for",
        )
        .choices(LOOPS),
        Opt::one(
            "json",
            "FILE",
            "",
            "Write one JSON object here for each measurement",
        ),
    ],
};

static TRAFFIC: Section = Section {
    heading: "Traffic",
    options: &[
        Opt::one("connect", "HOST:PORT", "", "The server"),
        Opt::one(
            "transport",
            "NAME",
            "tcp",
            "tcp, tls (TLS 1.3 over TCP, QUIC's cipher), quic (ALPN perf) or udp",
        )
        .choices(TRANSPORTS),
        Opt::one(
            "mode",
            "NAME",
            "stream",
            "stream, rr (request and response), crr (each on its own connection)",
        )
        .choices(&["stream", "rr", "crr"]),
        Opt::one("duration", "TIME", "5s", "How long it counts"),
        Opt::one(
            "warm-up",
            "TIME",
            "1s",
            "What comes before, with --duration only",
        ),
        Opt::one(
            "bytes",
            "SIZE",
            "",
            "So many bytes of a stream in place of a time: 100MB",
        ),
        Opt::one("count", "N", "", "So many transactions in place of a time"),
        Opt::one(
            "rr",
            "REQ,RESP",
            "1,1",
            "Bytes of each request and of each response",
        ),
        Opt::one(
            "rate",
            "RATE",
            "",
            "Begin so many transactions per second, late or not: 1000/s; UDP stream: 100mbit",
        ),
        Opt::one(
            "flows",
            "N",
            "1",
            "Flows on each connection; TCP: a connection for each",
        ),
        Opt::one("connections", "N", "1", "Connections"),
        Opt::switch("reverse", "Streams go from the server to the client"),
    ],
};

static LEVERS: Section = Section {
    heading: "Levers",
    options: &[
        Opt::one(
            "congestion",
            "NAME",
            "",
            "Of the senders: what the kernel has; QUIC: auto (default), cubic, newreno, background, fixed:RATE",
        ),
        Opt::one(
            "mtu",
            "BYTES",
            "",
            "Longest packet, its IP header included; unset: the path's",
        ),
        Opt::one(
            "gso",
            "on|off",
            "",
            "UDP segmentation offload; unset: by --loop",
        )
        .choices(&["on", "off"]),
        Opt::one("gro", "on|off", "", "UDP receive offload; unset: by --loop")
            .choices(&["on", "off"]),
        Opt::one(
            "ack-every",
            "N",
            "10",
            "QUIC packets after which to acknowledge",
        ),
        Opt::one(
            "loop",
            "NAME",
            "event+gso",
            "How the QUIC loop waits; see below",
        )
        .choices(LOOPS),
    ],
};

static RESULT: Section = Section {
    heading: "Result",
    options: &[Opt::one(
        "json",
        "FILE|-",
        "",
        "Write the result here as JSON; -: to standard output, and nothing else there",
    )],
};

/// `quictun perf`.
pub fn command() -> Command {
    Command::new("perf")
        .about("Measure TCP, TLS, QUIC and UDP between two programs, every byte compared")
        .after_help(include_str!("help.txt"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommands([server(), client()])
}

fn server() -> Command {
    let command = Command::new("server")
        .about("Wait for clients, and measure with one after the other")
        .after_help(include_str!("server_help.txt"));
    options::add_to(command, SERVER)
}

fn client() -> Command {
    let command = Command::new("client")
        .about("Measure once")
        .after_help(include_str!("client_help.txt"));
    options::add_to(command, CLIENT)
}
