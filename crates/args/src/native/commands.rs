//! The commands of `quictun`, except the commands for measurements.

use std::ffi::OsString;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgGroup, Command, ValueHint};

use super::flags;
use crate::programs::{QUICTUN, QUICTUN_CLIENT, QUICTUN_SERVER};

/// Builds the program without its commands.
pub fn program() -> Command {
    parent(
        QUICTUN,
        "Carries TCP and Unix-socket connections over QUIC, encrypted, through one UDP port.",
        include_str!("help.txt"),
    )
    .before_help(include_str!("first_help.txt").trim_end())
    .help_template("{about}\n\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}")
    .version(env!("CARGO_PKG_VERSION"))
    .max_term_width(100)
}

/// Returns the command that a command line names, such as `quictun config check`, for messages about it.
pub fn named(program: &Command, args: &[OsString]) -> String {
    let (mut command, mut name) = (program, program.get_name().to_owned());
    for word in args.iter().skip(1) {
        let Some(child) = command.find_subcommand(word) else {
            break;
        };
        command = child;
        name = format!("{name} {}", child.get_name());
    }
    name
}

/// Builds the two ends of a tunnel: `quictun server` and `quictun client`.
pub fn ends() -> [Command; 2] {
    [
        flags::SERVER.add_to(command(
            "server",
            "Accept connections from clients and connect them to the targets that each client may reach",
            include_str!("server_help.txt"),
        )),
        flags::CLIENT.add_to(command(
            "client",
            "Listen for local applications and forward their connections through a server",
            include_str!("client_help.txt"),
        )),
    ]
}

/// Builds the commands around a tunnel.
pub fn around() -> [Command; 11] {
    let dir = out("Directory for client.key and client.crt; created if missing");
    [
        flags::CONNECT
            .add_to(command(
                "connect",
                "Connect standard input and output to one target: a ProxyCommand for ssh",
                include_str!("connect_help.txt"),
            ))
            .override_usage("quictun connect [FLAGS] TARGET")
            .args([
                Arg::new("target")
                    .value_name("TARGET")
                    .required(true)
                    .help("HOST:PORT, [IPV6]:PORT or unix:/PATH, as seen from the server"),
                Arg::new("port")
                    .value_name("PORT")
                    .help("Port, if TARGET is a host alone"),
            ]),
        command(
            "confirm",
            "Keep a tunnel that `quictun client --tun --confirm SECONDS` would undo",
            include_str!("confirm_help.txt"),
        ),
        command(
            "down",
            "Clean up after a killed `quictun client --tun`: device, routes, packet filter",
            include_str!("down_help.txt"),
        ),
        flags::STATUS.add_to(
            command(
                "status",
                "Show the state of a running server or client: connections, flows, the latest reload",
                include_str!("status_help.txt"),
            )
            .arg(
                switch(
                    "watch",
                    "Refresh the page, with rates, until q or Ctrl-C",
                )
                .short('w'),
            )
            .arg(switch(
                "json",
                "Print one JSON object; with --watch, one per line",
            )),
        ),
        flags::RECONNECT.add_to(command(
            "reconnect",
            "Make a running client replace its connections; flows move to the new ones",
            include_str!("reconnect_help.txt"),
        )),
        flags::DRAIN.add_to(
            command(
                "drain",
                "Make a running server or client end once its flows have ended",
                include_str!("drain_help.txt"),
            )
            .arg(switch(
                "dry-run",
                "Only say how many flows are open, and how many a take-over would reset",
            ))
            .arg(switch("wait", "Wait until the process has ended, with progress"))
            .arg(json()),
        ),
        config(),
        invite(),
        join(),
        command(
            "keygen",
            "Create a client's key and certificate, and print the pin for the server's configuration",
            include_str!("keygen_help.txt"),
        )
        .arg(dir.required(true)),
        command(
            "demo",
            "Run a server, a client and two applications on this machine, and show the results",
            include_str!("demo_help.txt"),
        )
        .arg(switch(
            "json",
            "Print only one JSON object, at the end",
        ))
        .arg(switch(
            "loopback",
            "Use the loopback device instead of an emulated link, to show this machine's speed",
        )),
    ]
}

/// Builds the commands about this machine.
pub fn machine() -> [Command; 2] {
    [
        flags::DOCTOR
            .add_to(command(
            "doctor",
            "Check what this machine supports, or which ways lead to a server, and what is missing",
            include_str!("doctor_help.txt"),
        ))
        .arg(
            Arg::new("server")
                .value_name("HOST[:PORT]")
                .conflicts_with_all(["redirect", "tproxy"])
                .help("Only check whether UDP, TCP and large packets pass to this server, at port 7500 unless given"),
        )
        .arg(
            Arg::new("tls-port")
                .long("tls-port")
                .value_name("PORT")
                .requires("server")
                .value_parser(clap::value_parser!(u16).range(1..))
                .help("TCP port of that server, if it is another one"),
        )
        .arg(json())
        .arg(rules("redirect", "7501"))
        .arg(rules("tproxy", "7502"))
        .arg(switch("udp", "With --tproxy, lead UDP, too").requires("tproxy")),
        command(
            "tune",
            "Show the system settings that affect a tunnel, and optionally change them",
            include_str!("tune_help.txt"),
        )
        .arg(switch(
            "apply",
            "Apply the recommended settings; needs root",
        ))
        .arg(json()),
    ]
}

/// Builds an option of `quictun doctor` that prints rules for this flag of the client.
fn rules(flag: &'static str, port: &'static str) -> Arg {
    let other = if flag == "redirect" {
        "tproxy"
    } else {
        "redirect"
    };
    Arg::new(flag)
        .long(flag)
        .value_name("PORT")
        .num_args(0..=1)
        .default_missing_value(port)
        .value_parser(clap::value_parser!(u16).range(1..))
        .conflicts_with_all([other, "json"])
        .help(format!("Only print the nftables commands that direct connections to `quictun client --{flag} PORT`"))
}

/// Builds the commands about this program.
pub fn about() -> [Command; 3] {
    let shells = PossibleValuesParser::new(["bash", "zsh", "fish"]);
    let programs = PossibleValuesParser::new([QUICTUN, QUICTUN_SERVER, QUICTUN_CLIENT]);
    let shell = Arg::new("shell")
        .value_name("SHELL")
        .value_parser(shells)
        .required(true)
        .help("Shell that runs the script");
    let program = Arg::new("for")
        .long("for")
        .value_name("PROGRAM")
        .value_parser(programs)
        .default_value(QUICTUN)
        .help("Program to complete");
    [
        command(
            "completion",
            "Print a completion script",
            include_str!("completion_help.txt"),
        )
        .args([shell, program]),
        Command::new("man")
            .about("Print the manual page, or write the pages of all commands and programs")
            .arg(out("Write all pages into this directory")),
        Command::new("version").about("Print name and version"),
    ]
}

fn invite() -> Command {
    let file = |name: &'static str, value: &'static str, hint, help: &'static str| {
        let arg = Arg::new(name).long(name).value_name(value);
        arg.value_hint(hint).help(help)
    };
    let value = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    command(
        "invite",
        "Invite a client: print a code with which one machine can join this server, once",
        include_str!("invite_help.txt"),
    )
    .args([
        Arg::new("name")
            .value_name("NAME")
            .help("Name of the client in logs, metrics and REST"),
        value(
            "allow",
            "RULE",
            "Target that the client may reach; repeatable",
        )
        .action(ArgAction::Append),
        value(
            "address",
            "HOST[:PORT]",
            "Address at which clients reach this server [default: an address of this machine]",
        ),
        value(
            "tls-port",
            "PORT",
            "TCP port at which clients on networks without UDP reach this server [default: that of listen_tls, else that of the address]",
        )
        .value_parser(clap::value_parser!(u16).range(1..)),
        value("valid", "DURATION", "Time until the code expires").default_value("1h"),
        value(
            "max-flows",
            "N",
            "Maximum number of flows that the client may have open",
        ),
        value("rate", "RATE", "Rate limit of each direction: 20mbit"),
        value("rate-up", "RATE", "Rate limit from the client to targets"),
        value("rate-down", "RATE", "Rate limit from targets to the client"),
        value(
            "quota",
            "SIZE",
            "Bytes that the client may use in a calendar month: 500GB",
        ),
        value(
            "expires",
            "DATE",
            "Last day on which the client may connect: 2027-03-31",
        ),
        switch(
            "proxy",
            "Make a login for programs that use the server as an HTTPS proxy: print the proxy's address with it, and write NAME.pac for browsers",
        )
        .conflicts_with_all(["list", "revoke", "valid"]),
        switch("list", "List the clients that are invited or have joined"),
        switch(
            "revoke",
            "Revoke the client NAME, whether it has joined or not",
        ),
        file(
            "config",
            "FILE",
            ValueHint::FilePath,
            "Configuration file of the server",
        )
        .short('c'),
        file(
            "state-dir",
            "DIR",
            ValueHint::DirPath,
            "State directory of the server",
        ),
        json(),
    ])
    .group(ArgGroup::new("what").args(["name", "list"]).required(true))
}

fn join() -> Command {
    let command = command(
        "join",
        "Join a server with an invitation code, and write the client's configuration",
        include_str!("join_help.txt"),
    );
    let command = command.arg(out(
        "Directory for client.toml, client.key and client.crt [default: /etc/quictun for root, else ~/.config/quictun]",
    ));
    // Many people try this. A code that is given here gets an answer of its own, which does not repeat the secret.
    let code = Arg::new("code").num_args(1..).hide(true);
    flags::JOIN.add_to(command.arg(code))
}

fn config() -> Command {
    let file = |side: &'static str| {
        Arg::new(side)
            .long(side)
            .value_name("FILE")
            .value_hint(ValueHint::FilePath)
            .help(format!("Configuration file of quictun {side}"))
    };
    let flags = Arg::new("flags")
        .value_name("FLAGS")
        .help("Flags with which the program would start")
        .action(ArgAction::Append)
        .last(true);
    let which = |name: &'static str, about: &'static str| {
        let sides = ["server", "client"];
        Command::new(name)
            .about(about)
            .args(sides.map(file))
            .arg(flags.clone())
            .group(ArgGroup::new("side").args(sides).required(true))
    };
    parent(
        "config",
        "Check a configuration file, or show the resulting values",
        include_str!("config_help.txt"),
    )
    .subcommand(which(
        "check",
        "Check whether the program would start with this file, and what a reload would change",
    ))
    .subcommand(which("print", "Print every effective value and its source"))
}

/// Builds a command with its help.
pub fn command(name: &'static str, about: &'static str, help: &'static str) -> Command {
    Command::new(name).about(about).after_help(help)
}

/// Builds a command that requires a subcommand.
pub fn parent(name: &'static str, about: &'static str, help: &'static str) -> Command {
    command(name, about, help)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
}

fn switch(name: &'static str, help: &'static str) -> Arg {
    let switch = Arg::new(name).long(name).action(ArgAction::SetTrue);
    switch.help(help)
}

fn json() -> Arg {
    switch("json", "Print one JSON object")
}

fn out(help: &'static str) -> Arg {
    Arg::new("out")
        .long("out")
        .value_name("DIR")
        .value_hint(ValueHint::DirPath)
        .help(help)
}
