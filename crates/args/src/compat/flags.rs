//! The flags of `quictun-client` and `quictun-server`: those of quic-tun v0.0.1 to v0.0.5, and ours.

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::fault::Fault;
use crate::layers::parse_bool;
use crate::options::{self, Kind, Opt, Section};
use crate::transport::{self, Side};
use crate::tun_flags;

/// One of the two programs.
#[derive(Debug)]
pub struct Program {
    /// Name of the program, and of its configuration file without extension.
    pub name: &'static str,
    /// Prefix of its environment variables.
    pub prefix: &'static str,
    /// Which end of the tunnel it is.
    pub side: Side,
    /// Its flags.
    pub sections: &'static [&'static Section],
    about: &'static str,
    after_help: &'static str,
}

/// `quictun-client`.
pub static CLIENT: Program = Program {
    name: "quictun-client",
    prefix: "QUICTUN_CLIENT_",
    side: Side::Client,
    sections: &[
        &CLIENT_TUNNEL,
        &CLIENT_TRUST,
        &GENERAL,
        &LOGS,
        &transport::CLIENT,
        &transport::BOTH,
    ],
    about: "Carries local TCP and Unix-socket connections to a quictun-server over QUIC.\n\
        Takes the flags, variables and files of quic-tun's client v0.0.1 to v0.0.5.",
    after_help: include_str!("client_help.txt"),
};

/// `quictun-server`.
pub static SERVER: Program = Program {
    name: "quictun-server",
    prefix: "QUICTUN_SERVER_",
    side: Side::Server,
    sections: &[
        &SERVER_TUNNEL,
        &SERVER_TRUST,
        &GENERAL,
        &LOGS,
        &transport::SERVER,
        &transport::BOTH,
    ],
    about: "Accepts QUIC connections from quictun-client and connects each flow to the target it asks for.\n\
        Takes the flags, variables and files of quic-tun's server v0.0.1 to v0.0.5.",
    after_help: include_str!("server_help.txt"),
};

static CLIENT_TUNNEL: Section = Section {
    heading: "Tunnel",
    options: &[
        Opt::one(
            "server-endpoint",
            "HOST:PORT",
            "",
            "The server to dial; resolved again on every attempt",
        ),
        Opt::one(
            "listen-on",
            "ADDR",
            "tcp:127.0.0.1:6500",
            "Where applications connect: tcp:ADDRESS:PORT or unix:/PATH",
        ),
        Opt::one(
            "token-source",
            "TEXT",
            "",
            "Fixed: the target, tcp:HOST:PORT or unix:/PATH; File: a file of \
            'ADDRESS TARGET' lines; Http: a URL that answers {\"token\": \"TARGET\"}",
        ),
        Opt::one(
            "token-source-plugin",
            "NAME",
            "Fixed",
            "What --token-source is: Fixed, File or Http",
        )
        .choices(&["Fixed", "File", "Http"]),
        Opt::one(
            "token",
            "TARGET",
            "",
            "The target (v0.0.1's name of --token-source)",
        ),
        tun_flags::TUN,
        tun_flags::ROUTE,
        tun_flags::EXCLUDE,
        tun_flags::FAIL_OPEN,
        tun_flags::CONFIRM,
        tun_flags::ONE_PROCESS,
        tun_flags::NETSTACK_FD,
        tun_flags::FOR_COMMAND,
        tun_flags::SERVER_ADDRESS,
        tun_flags::DNS,
        Opt::one(
            "offer",
            "WHICH",
            "both",
            "Protocols offered to the server: native (quictun/1), compat (quic-tun) or both",
        )
        .choices(&["both", "native", "compat"]),
    ],
};

static CLIENT_TRUST: Section = Section {
    heading: "Trust",
    options: &[
        Opt::list(
            "pin",
            "PIN",
            "",
            "Accept only a server with this public key, sha256:...; repeatable",
        ),
        Opt::switch(
            "verify-remote-endpoint",
            "Accept only a server whose certificate --ca-file vouches for (or, \
            without one, the system's authorities)",
        ),
        Opt::switch(
            "insecure-skip-verify",
            "Accept any server, the default; false: verify it (v0.0.1 and v0.0.2)",
        ),
        Opt::one(
            "ca-file",
            "FILE",
            "",
            "Authorities that vouch for the server, PEM",
        ),
        Opt::one(
            "cert-file",
            "FILE",
            "",
            "This client's certificate chain, PEM",
        ),
        Opt::one("key-file", "FILE", "", "The certificate's private key, PEM"),
    ],
};

static SERVER_TUNNEL: Section = Section {
    heading: "Tunnel",
    options: &[
        Opt::one(
            "listen-on",
            "ADDR",
            "0.0.0.0:7500",
            "UDP address; 0.0.0.0 stands for all addresses, IPv6 included",
        ),
        Opt::one(
            "token-parser-plugin",
            "NAME",
            "Cleartext",
            "How a token becomes a target; Cleartext is the only way",
        )
        .choices(&["Cleartext"]),
        Opt::one(
            "token-parser-key",
            "TEXT",
            "",
            "base64: tokens come in standard base64",
        )
        .choices(&["base64"]),
        Opt::switch(
            "allow-unix",
            "Let clients reach Unix sockets of this machine",
        ),
        Opt::switch(
            "allow-link-local",
            "Let clients reach 169.254.0.0/16 and fe80::/10 (cloud metadata)",
        ),
    ],
};

static SERVER_TRUST: Section = Section {
    heading: "Trust",
    options: &[
        Opt::switch(
            "verify-remote-endpoint",
            "Accept only clients whose certificate --ca-file vouches for",
        ),
        Opt::switch("verify-client", "The same (v0.0.1's and v0.0.2's name)"),
        Opt::one(
            "ca-file",
            "FILE",
            "",
            "Authorities that vouch for clients, PEM",
        ),
        Opt::one(
            "cert-file",
            "FILE",
            "",
            "This server's certificate chain, PEM; without it the server makes a \
            key on its first run and keeps it",
        ),
        Opt::one("key-file", "FILE", "", "The certificate's private key, PEM"),
    ],
};

static GENERAL: Section = Section {
    heading: "General",
    options: &[
        Opt::one(
            "config",
            "FILE",
            "",
            "Configuration file: YAML, TOML or JSON",
        )
        .short('c'),
        Opt::one(
            "httpd-listen-on",
            "ADDR",
            "127.0.0.1:8086",
            "HTTP interface (/tunnels, /metrics, ...), also unix:/PATH; off: none",
        ),
        Opt::one(
            "httpd-mode",
            "MODE",
            "0600",
            "Permissions of its Unix socket: who may connect",
        ),
        Opt::list(
            "httpd-name",
            "NAME",
            "",
            "A name that it answers to, beside addresses and localhost; repeatable",
        ),
        Opt::switch(
            "compat-json",
            "Keep quic-tun's misspellings in /tunnels (webdev, unknow)",
        ),
        Opt::switch(
            "no-confine",
            "Keep all rights, files and system calls: for debugging only",
        ),
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
        ),
        Opt::one("log-format", "NAME", "console", "console or json").choices(&["console", "json"]),
        Opt::list(
            "log-output-paths",
            "PATHS",
            "stdout",
            "stdout, stderr or files, separated by commas",
        ),
        Opt::list("log-error-output-paths", "PATHS", "stderr", NO_EFFECT).hidden(),
        Opt::switch("log-disable-caller", NO_EFFECT).hidden(),
        Opt::switch("log-disable-stacktrace", NO_EFFECT).hidden(),
        Opt::switch("log-development", NO_EFFECT).hidden(),
        Opt::one("log-name", "NAME", "", NO_EFFECT).hidden(),
    ],
};

const NO_EFFECT: &str = "Accepted, without effect";

/// Words that are no flags. The original takes and ignores them.
const STRAY: &str = "stray";

/// What the command line says.
#[derive(Debug)]
pub enum Line {
    /// Print this and end.
    Print(String),
    /// Run.
    Run {
        /// What clap made of it.
        matches: ArgMatches,
        /// For the user to know before anything runs.
        warnings: Vec<String>,
    },
}

impl Program {
    /// The command, for help, man page and completion.
    pub fn command(&self) -> Command {
        let command = Command::new(self.name)
            .version(env!("CARGO_PKG_VERSION"))
            .about(self.about)
            .after_help(self.after_help)
            .max_term_width(100)
            .override_usage(format!("{} [flags]", self.name))
            .arg(Arg::new(STRAY).action(ArgAction::Append).hide(true));
        options::add_to(command, self.sections)
    }

    /// Reads the command line.
    pub fn read(&self, args: &[OsString]) -> Result<Line, Fault> {
        let mut warnings = Vec::new();
        let args = join_switch_words(self.sections, args, &mut warnings)?;
        let mut command = self.command();
        let matches = match command.try_get_matches_from_mut(&args) {
            Ok(matches) => matches,
            Err(error) if !error.use_stderr() => {
                return Ok(Line::Print(error.render().to_string()));
            }
            Err(error) => return Err(self.fault(&error)),
        };
        let stray: Vec<&String> = matches.get_many(STRAY).into_iter().flatten().collect();
        match stray.first().map(|word| word.as_str()) {
            Some("version") if args.len() == 2 => return Ok(Line::Print(command.render_version())),
            Some("help") if args.len() == 2 => {
                return Ok(Line::Print(command.render_help().to_string()));
            }
            _ => {}
        }
        warnings.extend(
            stray
                .iter()
                .map(|word| format!("{word:?} belongs to no flag and is ignored, as by quic-tun")),
        );
        Ok(Line::Run { matches, warnings })
    }

    fn fault(&self, error: &clap::Error) -> Fault {
        let fault = Fault::from_clap(self.name, error);
        let other = if self.side == Side::Client {
            &SERVER
        } else {
            &CLIENT
        };
        let name = fault.what.trim_start_matches('-');
        if other
            .sections
            .iter()
            .any(|section| section.options.iter().any(|option| option.name == name))
        {
            return Fault {
                why: format!("a flag of {}, not of {}", other.name, self.name),
                next: None,
                ..fault
            };
        }
        fault
    }
}

/// Joins `--switch WORD` to `--switch=WORD` where the word is a truth value.
///
/// Go's flag package takes the word for an argument of its own, so that `--insecure-skip-verify false` turned
/// verification *off*. That flag means here what it says. With the others an "off" that turned things on can
/// not be guessed at, and is refused.
fn join_switch_words(
    sections: &[&'static Section],
    args: &[OsString],
    warnings: &mut Vec<String>,
) -> Result<Vec<OsString>, Fault> {
    let options = || sections.iter().flat_map(|section| section.options);
    let is_switch =
        |name: &str| options().any(|option| option.kind == Kind::Switch && option.name == name);
    let mut joined = Vec::with_capacity(args.len());
    let mut rest = args.iter().peekable();
    while let Some(arg) = rest.next() {
        let switch = arg
            .to_str()
            .and_then(|arg| arg.strip_prefix("--"))
            .filter(|name| is_switch(name));
        let word = rest.peek().and_then(|word| word.to_str());
        let (Some(name), Some(word)) = (switch, word) else {
            joined.push(arg.clone());
            continue;
        };
        match parse_bool(word) {
            None => joined.push(arg.clone()),
            Some(false) if name != "insecure-skip-verify" => {
                let why = format!("quic-tun ignores the word {word:?} after it and turns it on");
                return Err(Fault::usage(arg.to_string_lossy(), why)
                    .next(format!("--{name}=false, or --{name} alone")));
            }
            Some(on) => {
                if !on {
                    warnings.push(format!(
                        "--{name} {word} is read as --{name}={word}: the server is verified (quic-tun ignored the word)"
                    ));
                }
                joined.push(format!("--{name}={word}").into());
                rest.next();
            }
        }
    }
    Ok(joined)
}
