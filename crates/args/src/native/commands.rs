//! The commands of `quictun`, but for those that measure.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgGroup, Command, ValueHint};

use super::flags;

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
    flags::SERVER.add_to(command)
}

/// `quictun client`.
pub fn client() -> Command {
    let command = Command::new("client")
        .about("Listen for local applications and carry their connections to a server")
        .after_help(include_str!("client_help.txt"));
    flags::CLIENT.add_to(command)
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
    flags::STATUS.add_to(command)
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
