//! The flags of `quictun-client` and `quictun-server`: those of quic-tun v0.0.1 to v0.0.5, and additional ones.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command};
use quictun_control::settings::{HttpListen, LogFormat, Phrases};
use quictun_trust::settings::{Offer, Pin};
use quictun_tunnel::settings::{HostPort, ListenOn, TokenParser};

use crate::address::{Wildcard, parse_listen, parse_network_listen, parse_server};
use crate::control::{
    COMPAT_JSON, ControlFlags, LOG_LEVEL, NO_CONFINE, parse_http, parse_mode, parse_name,
};
use crate::fault::Fault;
use crate::inputs::Inputs;
use crate::options;
use crate::options::{Arity, Flag, Many, Maybe, One, Section, Switch, Table};
use crate::programs::{QUICTUN_CLIENT, QUICTUN_SERVER};
use crate::values::{parse_bool, parsed, path, switch, text};
use crate::{transport, tun_flags, variables};

/// One of the two compatibility programs.
#[derive(Debug)]
pub struct Program {
    /// The program's name, and the name of its configuration file without extension.
    pub name: &'static str,
    /// The flags that the program accepts.
    pub table: Table,
    about: &'static str,
    after_help: &'static str,
}

/// The definition of `quictun-client`.
pub static CLIENT: Program = Program {
    name: QUICTUN_CLIENT,
    table: Table {
        prefix: "QUICTUN_CLIENT_",
        sections: &[
            &CLIENT_TUNNEL,
            &CLIENT_TRUST,
            &GENERAL,
            &LOGS,
            &transport::CLIENT,
            &transport::BOTH,
        ],
    },
    about: "Carries local TCP and Unix-socket connections to a quictun-server over QUIC.\n\
        Takes the flags, variables and files of quic-tun's client v0.0.1 to v0.0.5.",
    after_help: include_str!("client_help.txt"),
};

/// The definition of `quictun-server`.
pub static SERVER: Program = Program {
    name: QUICTUN_SERVER,
    table: Table {
        prefix: "QUICTUN_SERVER_",
        sections: &[
            &SERVER_TUNNEL,
            &SERVER_TRUST,
            &GENERAL,
            &LOGS,
            &transport::SERVER,
            &transport::BOTH,
        ],
    },
    about: "Accepts QUIC connections from quictun-client and connects each flow to the requested target.\n\
        Takes the flags, variables and files of quic-tun's server v0.0.1 to v0.0.5.",
    after_help: include_str!("server_help.txt"),
};

static CLIENT_TUNNEL: Section = Section {
    heading: "Tunnel",
    options: &[
        &SERVER_ENDPOINT,
        &CLIENT_LISTEN_ON,
        &TOKEN_SOURCE,
        &TOKEN_SOURCE_PLUGIN,
        &TOKEN,
        &tun_flags::TUN,
        &tun_flags::ROUTE,
        &tun_flags::EXCLUDE,
        &tun_flags::FAIL_OPEN,
        &tun_flags::CONFIRM,
        &tun_flags::ONE_PROCESS,
        &tun_flags::NETSTACK_FD,
        &tun_flags::FOR_COMMAND,
        &tun_flags::SERVER_ADDRESS,
        &tun_flags::DNS,
        &OFFER,
    ],
};

static CLIENT_TRUST: Section = Section {
    heading: "Trust",
    options: &[
        &PIN,
        &VERIFY_SERVER,
        &INSECURE_SKIP_VERIFY,
        &SERVER_AUTHORITIES,
        &CLIENT_CERT_FILE,
        &KEY_FILE,
    ],
};

static SERVER_TUNNEL: Section = Section {
    heading: "Tunnel",
    options: &[
        &SERVER_LISTEN_ON,
        &TOKEN_PARSER_PLUGIN,
        &TOKEN_PARSER_KEY,
        &ALLOW_UNIX,
        &ALLOW_LINK_LOCAL,
    ],
};

static SERVER_TRUST: Section = Section {
    heading: "Trust",
    options: &[
        &VERIFY_CLIENTS,
        &VERIFY_CLIENT,
        &CLIENT_AUTHORITIES,
        &SERVER_CERT_FILE,
        &KEY_FILE,
    ],
};

static GENERAL: Section = Section {
    heading: "General",
    options: &[
        &CONFIG,
        &HTTPD_LISTEN_ON,
        &HTTPD_MODE,
        &HTTPD_NAME,
        &COMPAT_JSON,
        &NO_CONFINE,
    ],
};

static LOGS: Section = Section {
    heading: "Logs",
    options: &[
        &LOG_LEVEL,
        &LOG_FORMAT,
        &LOG_OUTPUT_PATHS,
        &LOG_ERROR_OUTPUT_PATHS,
        &LOG_DISABLE_CALLER,
        &LOG_DISABLE_STACKTRACE,
        &LOG_DEVELOPMENT,
        &LOG_NAME,
    ],
};

const NO_EFFECT: &str = "Accepted, without effect";

options! {
    pub(super) SERVER_ENDPOINT: Maybe<HostPort> = "server-endpoint" "HOST:PORT", by parse_server;
        "The server to dial; resolved again on every attempt"
    pub(super) CLIENT_LISTEN_ON: One<ListenOn> = "listen-on" "ADDR", by parse_network_listen, default "tcp:127.0.0.1:6500";
        "Address on which applications connect: tcp:ADDRESS:PORT or unix:/PATH"
    pub(super) TOKEN_SOURCE: Maybe<String> = "token-source" "TEXT", by text;
        "Fixed: the target, tcp:HOST:PORT or unix:/PATH; File: a file of \
        'ADDRESS TARGET' lines; Http: a URL that answers {\"token\": \"TARGET\"}"
    pub(super) TOKEN_SOURCE_PLUGIN: One<TokenSourceKind> = "token-source-plugin" "NAME", choice &[("Fixed", TokenSourceKind::Fixed), ("File", TokenSourceKind::File), ("Http", TokenSourceKind::Http)], default "Fixed";
        "Kind of --token-source: Fixed, File or Http"
    pub(super) TOKEN: Maybe<String> = "token" "TARGET", by text;
        "The target (v0.0.1's name of --token-source)"
    pub(super) OFFER: One<Offer> = "offer" "WHICH", choice &[("both", Offer::Both), ("native", Offer::Native), ("compat", Offer::Compat)], default "both";
        "Protocols offered to the server: native (quictun/1), compat (quic-tun) or both"
    pub(super) PIN: Many<Pin> = "pin" "PIN", by parsed;
        "Accept only a server with this public key, sha256:...; repeatable"
    pub(super) VERIFY_SERVER: Switch = "verify-remote-endpoint" "BOOL", by switch;
        "Accept only a server whose certificate is signed by an authority of \
        --ca-file, or of the system if there is no --ca-file"
    pub(super) INSECURE_SKIP_VERIFY: Switch = "insecure-skip-verify" "BOOL", by switch;
        "Accept any server, the default; false: verify it (v0.0.1 and v0.0.2)"
    pub(super) SERVER_AUTHORITIES: Maybe<PathBuf> = "ca-file" "FILE", by path;
        "CA certificates that the server's certificate must chain to, PEM"
    pub(super) CLIENT_CERT_FILE: Maybe<PathBuf> = "cert-file" "FILE", by path;
        "This client's certificate chain, PEM"

    pub(super) SERVER_LISTEN_ON: One<SocketAddr> = "listen-on" "ADDR", by |text| parse_listen(text, Wildcard::BothFamilies), default "0.0.0.0:7500";
        "UDP address; 0.0.0.0 stands for all addresses, IPv6 included"
    pub(super) TOKEN_PARSER_PLUGIN: One<()> = "token-parser-plugin" "NAME", choice &[("Cleartext", ())], default "Cleartext";
        "Plugin that converts a token into a target; only Cleartext exists"
    pub(super) TOKEN_PARSER_KEY: One<TokenParser> = "token-parser-key" "TEXT", choice &[("base64", TokenParser::Base64), ("", TokenParser::Cleartext)];
        "base64: tokens are in standard base64"
    pub(super) ALLOW_UNIX: Switch = "allow-unix" "BOOL", by switch;
        "Let clients reach Unix sockets of this machine"
    pub(super) ALLOW_LINK_LOCAL: Switch = "allow-link-local" "BOOL", by switch;
        "Let clients reach 169.254.0.0/16 and fe80::/10 (cloud metadata)"
    pub(super) VERIFY_CLIENTS: Switch = "verify-remote-endpoint" "BOOL", by switch;
        "Accept only clients whose certificate is signed by an authority of --ca-file"
    pub(super) VERIFY_CLIENT: Switch = "verify-client" "BOOL", by switch;
        "The same (v0.0.1's and v0.0.2's name)"
    pub(super) CLIENT_AUTHORITIES: Maybe<PathBuf> = "ca-file" "FILE", by path;
        "CA certificates that certificates of clients must chain to, PEM"
    pub(super) SERVER_CERT_FILE: Maybe<PathBuf> = "cert-file" "FILE", by path;
        "This server's certificate chain, PEM; without it the server creates a \
        key on its first run and keeps it"

    pub(super) KEY_FILE: Maybe<PathBuf> = "key-file" "FILE", by path;
        "Private key of the certificate, PEM"
    pub(super) CONFIG: Maybe<PathBuf> = "config" "FILE", by path, short 'c';
        "Configuration file: YAML, TOML or JSON"
    HTTPD_LISTEN_ON: One<Option<HttpListen>> = "httpd-listen-on" "ADDR", by |text| parse_http(text, Wildcard::BothFamilies), default "127.0.0.1:8086";
        "HTTP interface (/tunnels, /metrics, ...), also unix:/PATH; off: none"
    HTTPD_MODE: One<u32> = "httpd-mode" "MODE", by parse_mode, default "0600";
        "Permissions of the Unix socket of --httpd-listen-on, octal"
    HTTPD_NAME: Many<String> = "httpd-name" "NAME", by parse_name;
        "Host name that the HTTP interface answers to, besides addresses and localhost; \
        repeatable"
    LOG_FORMAT: One<LogFormat> = "log-format" "NAME", choice &[("console", LogFormat::Console), ("json", LogFormat::Json)], default "console";
        "console or json"
    pub(super) LOG_OUTPUT_PATHS: Many<String> = "log-output-paths" "PATHS", by text, words &["stdout", "stderr"], default "stdout";
        "stdout, stderr or files, separated by commas"
    pub(super) LOG_ERROR_OUTPUT_PATHS: Many<String> = "log-error-output-paths" "PATHS", by text, default "stderr", hidden true;
        NO_EFFECT
    pub(super) LOG_DISABLE_CALLER: Switch = "log-disable-caller" "BOOL", by switch, hidden true;
        NO_EFFECT
    LOG_DISABLE_STACKTRACE: Switch = "log-disable-stacktrace" "BOOL", by switch, hidden true;
        NO_EFFECT
    LOG_DEVELOPMENT: Switch = "log-development" "BOOL", by switch, hidden true;
        NO_EFFECT
    pub(super) LOG_NAME: Maybe<String> = "log-name" "NAME", by text, hidden true;
        NO_EFFECT
}

/// The kinds of token source for `--token-source-plugin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenSourceKind {
    Fixed,
    File,
    Http,
}

pub(super) const CONTROL_FLAGS: ControlFlags = ControlFlags {
    http: &HTTPD_LISTEN_ON,
    http_mode: &HTTPD_MODE,
    http_name: &HTTPD_NAME,
    log_format: &LOG_FORMAT,
    log_output: &LOG_OUTPUT_PATHS,
    verbosity: None,
    phrases: Phrases::Original,
};

/// The id of words that are not flags. The original accepts and ignores them.
const STRAY: &str = "stray";

/// The parsed command line.
#[derive(Debug)]
pub(super) enum CommandLine {
    Print(String),
    /// Print the version and the commit. Only the program itself knows the commit.
    Version,
    /// Run, after reporting the warnings.
    Run {
        matches: ArgMatches,
        warnings: Vec<String>,
    },
}

impl Program {
    /// Builds the command for help, man page and completion.
    pub fn command(&self) -> Command {
        let command = Command::new(self.name)
            .version(env!("CARGO_PKG_VERSION"))
            .about(self.about)
            .after_help(self.after_help)
            .max_term_width(100)
            .override_usage(format!("{} [flags]", self.name))
            .arg(Arg::new(STRAY).action(ArgAction::Append).hide(true));
        self.table.add_to(command)
    }

    /// Returns warnings about environment variables that look like misspelt settings.
    pub fn misspelt_variables(&self, inputs: &Inputs<'_>) -> Vec<String> {
        variables::misspelt(&self.table, &[&self.table], inputs)
    }

    /// Parses the command line.
    pub(super) fn read(&self, args: &[OsString]) -> Result<CommandLine, Fault> {
        let mut warnings = Vec::new();
        let args = join_switch_words(&self.table, args, &mut warnings)?;
        let mut command = self.command();
        let is_short = |word: &OsString| word == "-V";
        let matches = match command.try_get_matches_from_mut(&args) {
            Ok(matches) => matches,
            Err(error)
                if error.kind() == ErrorKind::DisplayVersion && !args.iter().any(is_short) =>
            {
                return Ok(CommandLine::Version);
            }
            Err(error) if !error.use_stderr() => {
                return Ok(CommandLine::Print(error.render().to_string()));
            }
            Err(error) => return Err(self.fault(&error)),
        };
        let stray: Vec<&String> = matches.get_many(STRAY).into_iter().flatten().collect();
        match stray.first().map(|word| word.as_str()) {
            Some("version") if args.len() == 2 => return Ok(CommandLine::Version),
            Some("help") if args.len() == 2 => {
                return Ok(CommandLine::Print(command.render_help().to_string()));
            }
            _ => {}
        }
        warnings.extend(
            stray
                .iter()
                .map(|word| format!("{word:?} belongs to no flag and is ignored, as by quic-tun")),
        );
        Ok(CommandLine::Run { matches, warnings })
    }

    fn fault(&self, error: &clap::Error) -> Fault {
        let fault = Fault::from_clap(self.name, error);
        let other = if self.name == CLIENT.name {
            &SERVER
        } else {
            &CLIENT
        };
        let name = fault.what.trim_start_matches('-');
        if other.table.flags().any(|flag| flag.spec().name == name) {
            return Fault {
                why: format!("a flag of {}, not of {}", other.name, self.name),
                next: None,
                ..fault
            };
        }
        fault
    }
}

/// Joins `--switch WORD` to `--switch=WORD` if the word is a truth value.
///
/// Go's flag package treats the word as a separate argument, so that `--insecure-skip-verify false` turned verification
/// *off* in quic-tun. Here that flag takes the word as its value. For the other switches the intent of a false word,
/// which turned the switch on in quic-tun, is ambiguous: it is refused.
fn join_switch_words(
    table: &Table,
    args: &[OsString],
    warnings: &mut Vec<String>,
) -> Result<Vec<OsString>, Fault> {
    let is_switch = |name: &str| {
        let mut specs = table.flags().map(Flag::spec);
        specs.any(|spec| spec.arity == Arity::Switch && spec.name == name)
    };
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
