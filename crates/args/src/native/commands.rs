//! The flags and commands of `quictun`.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgGroup, Command, ValueHint};

use crate::options::{self, Opt, Section};
use crate::transport;
use crate::tun_flags;

/// Prefix of the environment variables.
pub const PREFIX: &str = "QUICTUN_";

/// Flags of `quictun server`.
pub static SERVER: &[&Section] = &[
    &SERVER_TUNNEL,
    &SERVER_TRUST,
    &GENERAL,
    &LOGS,
    &transport::SERVER,
    &transport::BOTH,
];

/// Flags of `quictun client`.
pub static CLIENT: &[&Section] = &[
    &CLIENT_TUNNEL,
    &CLIENT_TRUST,
    &GENERAL,
    &LOGS,
    &transport::CLIENT,
    &transport::BOTH,
];

static SERVER_TUNNEL: Section = Section {
    heading: "Tunnel",
    options: &[
        Opt::one("listen", "ADDR", "[::]:7500", "UDP address").key("listen"),
        Opt::list(
            "allow",
            "RULE",
            "",
            "A target that the client 'default' may reach; repeatable",
        ),
    ],
};

static SERVER_TRUST: Section = Section {
    heading: "Trust",
    options: &[
        Opt::one(
            "state-dir",
            "DIR",
            "",
            "Where the key and secrets made on the first run are kept",
        )
        .key("identity.state_dir"),
        Opt::one(
            "cert",
            "FILE",
            "",
            "Certificate chain, PEM, in place of one made on the first run",
        )
        .key("identity.cert"),
        Opt::one("key", "FILE", "", "The certificate's private key, PEM").key("identity.key"),
        Opt::one(
            "ca",
            "FILE",
            "",
            "Authorities for clients known by the name in their certificate, PEM",
        )
        .key("ca"),
    ],
};

static CLIENT_TUNNEL: Section = Section {
    heading: "Tunnel",
    options: &[
        Opt::one(
            "server",
            "HOST:PORT",
            "",
            "The server to dial; resolved again on every attempt",
        )
        .key("server"),
        Opt::list(
            "forward",
            "LISTEN=TARGET",
            "",
            "Carry what connects to LISTEN to TARGET; repeatable",
        )
        .short('L')
        .key("forward"),
        tun_flags::TUN.key("tun"),
        tun_flags::ROUTE.key("route"),
        tun_flags::EXCLUDE.key("exclude"),
        tun_flags::FAIL_OPEN.key("fail_open"),
        tun_flags::CONFIRM,
        Opt::one(
            "tun-fd",
            "NUMBER",
            "",
            "Descriptor of a TUN device whose connections are carried, as `quictun run` makes one",
        ),
        tun_flags::ONE_PROCESS,
        tun_flags::NETSTACK_FD,
        tun_flags::FOR_COMMAND,
        tun_flags::SERVER_ADDRESS,
        tun_flags::DNS.key("dns"),
        Opt::one(
            "offer",
            "WHICH",
            "native",
            "Protocols offered: native (quictun/1), compat (quic-tun) or both",
        )
        .choices(&["native", "compat", "both"])
        .key("offer"),
    ],
};

static CLIENT_TRUST: Section = Section {
    heading: "Trust",
    options: &[
        Opt::list(
            "pin",
            "PIN",
            "",
            "The server's public key, sha256:..., as its start-up lines print it; repeatable",
        )
        .key("pin"),
        Opt::one(
            "ca",
            "FILE|system",
            "",
            "Authorities that vouch for the server, PEM, or the system's",
        )
        .key("ca"),
        Opt::one("cert", "FILE", "", "This client's certificate chain, PEM").key("cert"),
        Opt::one("key", "FILE", "", "The certificate's private key, PEM").key("key"),
        Opt::one(
            "psk-file",
            "FILE",
            "",
            "File with a secret shared with the server",
        )
        .key("psk_file"),
    ],
};

static GENERAL: Section = Section {
    heading: "General",
    options: &[
        Opt::one("config", "FILE", "", "Configuration file, TOML").short('c'),
        Opt::one(
            "http",
            "ADDR",
            "127.0.0.1:8086",
            "HTTP interface (/metrics, /v1/tunnels, ...), also unix:/PATH; off: none",
        )
        .key("control.http"),
        Opt::one(
            "http-mode",
            "MODE",
            "0600",
            "Permissions of its Unix socket: who may connect",
        )
        .key("control.http_mode"),
        Opt::list(
            "http-name",
            "NAME",
            "",
            "A name that it answers to, beside addresses and localhost; repeatable",
        )
        .key("control.http_names"),
        Opt::switch(
            "compat-json",
            "Keep quic-tun's misspellings in /tunnels (webdev, unknow)",
        )
        .key("control.compat_json"),
        Opt::switch(
            "no-confine",
            "Keep all rights, files and system calls: for debugging only",
        ),
    ],
};

/// Flags of `quictun status`.
pub static STATUS: &[&Section] = &[&ASKED];

static ASKED: Section = Section {
    heading: "Which process",
    options: &[
        Opt::one(
            "config",
            "FILE",
            "",
            "Its configuration file: control.http there is asked",
        )
        .short('c'),
        Opt::one(
            "http",
            "ADDR",
            "127.0.0.1:8086",
            "Its HTTP interface, an address or unix:/PATH",
        )
        .key("control.http"),
    ],
};

static LOGS: Section = Section {
    heading: "Logs",
    options: &[
        Opt::one(
            "log-level",
            "LEVEL",
            "info",
            "trace, debug, info, warn, error, off; also MODULE=LEVEL,...",
        )
        .key("log.level"),
        Opt::one("log-format", "NAME", "text", "text or json")
            .choices(&["text", "json"])
            .key("log.format"),
        Opt::list(
            "log-output",
            "PATHS",
            "stdout",
            "stdout, stderr or files, separated by commas",
        )
        .key("log.output"),
    ],
};

/// The program without its commands.
pub fn program() -> Command {
    Command::new(super::PROGRAM)
        .version(env!("CARGO_PKG_VERSION"))
        .about(
            "Carries TCP and Unix-socket connections over QUIC, encrypted, through one UDP port.",
        )
        .after_help(include_str!("help.txt"))
        .max_term_width(100)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
}

/// `quictun server`.
pub fn server() -> Command {
    let command = Command::new("server")
        .about(
            "Accept connections from clients and connect them to the targets that each may reach",
        )
        .after_help(include_str!("server_help.txt"));
    options::add_to(command, SERVER)
}

/// `quictun client`.
pub fn client() -> Command {
    let command = Command::new("client")
        .about("Listen for local applications and carry their connections to a server")
        .after_help(include_str!("client_help.txt"));
    options::add_to(command, CLIENT)
}

/// `quictun confirm`.
pub fn confirm() -> Command {
    Command::new("confirm")
        .about("Keep a tunnel that `quictun client --tun --confirm SECONDS` would undo")
        .after_help(include_str!("confirm_help.txt"))
}

/// `quictun down`.
pub fn down() -> Command {
    Command::new("down")
        .about(
            "Remove what a killed `quictun client --tun` has left: device, routes, packet filter",
        )
        .after_help(include_str!("down_help.txt"))
}

/// `quictun status`.
pub fn status() -> Command {
    let command = Command::new("status")
        .about("Show how a running server or client is: connections, tunnels, the latest reload")
        .after_help(include_str!("status_help.txt"))
        .arg(json());
    options::add_to(command, STATUS)
}

/// `quictun config`.
pub fn config() -> Command {
    let file = |side: &'static str| {
        Arg::new(side)
            .long(side)
            .value_name("FILE")
            .value_hint(ValueHint::FilePath)
            .help(format!("The file is one of quictun {side}"))
    };
    let flags = Arg::new("flags")
        .value_name("FLAGS")
        .help("Flags that the program would be started with")
        .action(ArgAction::Append)
        .last(true);
    let which = |name: &'static str, about: &'static str| {
        Command::new(name)
            .about(about)
            .args([file("server"), file("client"), flags.clone()])
            .group(
                ArgGroup::new("side")
                    .args(["server", "client"])
                    .required(true),
            )
    };
    Command::new("config")
        .about("Check a configuration file, or show what it comes to")
        .after_help(include_str!("config_help.txt"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(which(
            "check",
            "Say whether the programs would start with this file, and what a reload would change",
        ))
        .subcommand(which(
            "print",
            "Print every value that would hold, and where it comes from",
        ))
}

/// `quictun keygen`.
pub fn keygen() -> Command {
    Command::new("keygen")
        .about("Make a client's key and certificate, and print the pin that the server knows it by")
        .after_help(include_str!("keygen_help.txt"))
        .arg(
            dir("Directory for client.key and client.crt; made where it is missing").required(true),
        )
}

/// `quictun demo`.
pub fn demo() -> Command {
    Command::new("demo")
        .about("Run a server, a client and two applications on this machine, and show what happens")
        .after_help(include_str!("demo_help.txt"))
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print one JSON object at the end, and nothing before"),
        )
        .arg(
            Arg::new("loopback")
                .long("loopback")
                .action(ArgAction::SetTrue)
                .help("Use the loopback device in place of an emulated link: how fast this machine is"),
        )
}

/// `quictun doctor`.
pub fn doctor() -> Command {
    Command::new("doctor")
        .about(
            "Tell what this machine can do for a tunnel and for measurements, and what is missing",
        )
        .after_help(include_str!("doctor_help.txt"))
        .arg(json())
}

/// `quictun tune`.
pub fn tune() -> Command {
    Command::new("tune")
        .about("Show the settings of the system that matter, and set them if asked to")
        .after_help(include_str!("tune_help.txt"))
        .arg(
            Arg::new("apply")
                .long("apply")
                .action(ArgAction::SetTrue)
                .help("Change what should be different; needs root"),
        )
        .arg(json())
}

fn json() -> Arg {
    Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .help("Print one JSON object")
}

/// `quictun completion`.
pub fn completion() -> Command {
    let shells = PossibleValuesParser::new(["bash", "zsh", "fish"]);
    let programs = PossibleValuesParser::new(["quictun", "quictun-server", "quictun-client"]);
    Command::new("completion")
        .about("Print a completion script")
        .after_help(include_str!("completion_help.txt"))
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .value_parser(shells)
                .required(true)
                .help("The shell"),
        )
        .arg(
            Arg::new("for")
                .long("for")
                .value_name("PROGRAM")
                .value_parser(programs)
                .default_value("quictun")
                .help("The program to complete"),
        )
}

/// `quictun man`.
pub fn man() -> Command {
    Command::new("man")
        .about("Print the manual page, or write those of all commands and programs")
        .arg(dir("Write all pages into this directory"))
}

/// `quictun version`.
pub fn version() -> Command {
    Command::new("version").about("Print name and version")
}

fn dir(help: &'static str) -> Arg {
    Arg::new("out")
        .long("out")
        .value_name("DIR")
        .value_hint(ValueHint::DirPath)
        .help(help)
}
