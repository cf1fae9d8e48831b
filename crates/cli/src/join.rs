//! `quictun join`: makes this machine a client with the code of an invitation.

use std::io::{self, BufRead, ErrorKind, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::ArgMatches;
use quictun_control::log::printable;
use quictun_control::put;
use quictun_trust::enrolment::InviteSecret;
use quictun_trust::identity;
use quictun_trust::settings::{CertificateFiles, Pin};
use quictun_tunnel::join::{self, JoinError, JoinRequest};
use quictun_tunnel::outbound_proxy::OutboundProxy;
use quictun_tunnel::settings::CarrierChoice;
use quictun_wire::invitation::{Code, CodeError, MAX_TEXT};
use quictun_wire::join::Grant;
use quictun_wire::target::Target;
use toml::Value;

use crate::exit::{self, ProgramError, say};
use quictun_args::address::parse_server;
use quictun_args::fault::Fault;
use quictun_args::inputs::Inputs;
use quictun_args::native;
use quictun_args::options::InvalidValue;

/// Ports below this one need a right that a client lacks. Forwards of such ports listen higher by [`MOVED_BY`], which
/// follows a common custom: 80 becomes 8080.
const FIRST_FREE_PORT: u16 = 1024;
const MOVED_BY: u16 = 8000;

/// The character that some programs put at the beginning of a text file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The way in which one `quictun join` command joins.
#[derive(Debug)]
pub struct Options {
    /// Directory for the client's files.
    directory: PathBuf,
    /// The carriers that may lead to the server.
    carrier: CarrierChoice,
    /// The proxy through which TLS leads to the server.
    outbound_proxy: Option<OutboundProxy>,
}

/// Reads the options, unless the code was given as an argument.
pub(crate) fn parse(matches: &ArgMatches, inputs: &Inputs<'_>) -> Result<Options, Fault> {
    if matches.contains_id("code") {
        let why = "is not an argument, because other users of this machine could see it";
        let next = "run `quictun join` and paste the code when asked, or `quictun join < FILE`";
        return Err(Fault::usage("the code", why).next(next));
    }
    let (carrier, outbound_proxy) = native::read_join(matches, inputs)?;
    Ok(Options {
        directory: directory(native::path(matches, "out"), inputs)?,
        carrier,
        outbound_proxy,
    })
}

/// Returns the given directory, or else the default one of this user.
fn directory(given: Option<PathBuf>, inputs: &Inputs<'_>) -> Result<PathBuf, Fault> {
    if let Some(given) = given {
        return Ok(given);
    }
    if rustix::process::geteuid().is_root() {
        return Ok("/etc/quictun".into());
    }
    let absolute = |name| inputs.absolute(name);
    let config = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    let config = config.map(|config| config.join("quictun"));
    config.ok_or_else(|| Fault::usage("--out", "no absolute HOME: name a directory"))
}

pub(crate) fn main(options: &Options) -> Result<(), ProgramError> {
    let directory = std::path::absolute(&options.directory)?;
    let file = directory.join("client.toml");
    if file.try_exists()? {
        let fault = Fault::failure(
            file.display().to_string(),
            "there is a configuration already",
        );
        let next = "name another directory with --out, or move the file away";
        return Err(fault.next(next).into());
    }
    let code = read_code()?;
    let server = parse_server(code.server())
        .map_err(|InvalidValue(why)| Fault::usage("the code", format!("names no server: {why}")))?;
    // A second attempt uses the same key, in case the first one was accepted but its answer was lost.
    let made = identity::load_or_generate(&directory, "client");
    made.map_err(anyhow::Error::from)?;
    let own = CertificateFiles {
        cert: directory.join("client.crt"),
        key: directory.join("client.key"),
    };
    let joining = JoinRequest {
        server,
        written: code.server().to_owned(),
        tls_port: code.tls_port(),
        pin: Pin(code.pin()),
        name: code.name().to_owned(),
        secret: InviteSecret::of(code.secret()),
        own: own.clone(),
        carrier: options.carrier,
        outbound_proxy: options.outbound_proxy.clone(),
    };
    let grant = join::run(joining).map_err(failed)?;
    let forwards = forwards(&grant.allow);
    let text = configuration(&code, &own, &grant, &forwards);
    let written = identity::write_new(&file, text.as_bytes());
    if !written.map_err(anyhow::Error::from)? {
        return Err(Fault::failure(
            file.display().to_string(),
            "another program has made this file in the meantime",
        )
        .into());
    }
    // The packages' units run as a user of their own, which is in the group of this directory.
    let shared = identity::share_with_group(&directory, &[&file, &own.key]);
    let shared = shared.map_err(anyhow::Error::from)?;
    Ok(exit::print(&summary(
        &code, &grant, &forwards, &file, shared,
    ))?)
}

/// Reads the code from a person or a program. Arguments would be visible to other users, so the code is not taken from
/// them (PROTOCOL PROOF-4).
fn read_code() -> Result<Code, ProgramError> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        say("Paste the code that `quictun invite` has printed, and press Enter:");
    }
    code_of(stdin.lock().take(MAX_TEXT as u64), || {
        if stdin.is_terminal() {
            say(
                "The code is incomplete, or a character is wrong: paste the rest, or press Enter to end.",
            );
        }
    })
}

/// Reads lines until they form a code, or until an empty line. The code's line may have been broken on the way
/// (PROTOCOL INVITE-1).
fn code_of(mut input: impl BufRead, ask_for_more: impl Fn()) -> Result<Code, ProgramError> {
    if let Some(text) = utf16(&mut input).context("cannot read the code")? {
        return code_of(text.as_bytes(), ask_for_more);
    }
    let mut text = String::new();
    loop {
        let begin = text.len();
        let read = match input.read_line(&mut text) {
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                let fault = Fault::usage("the code", "is not plain text");
                let next = "save the code as UTF-8 text, with nothing else in the file";
                return Err(fault.next(next).into());
            }
            read => read.context("cannot read the code")?,
        };
        if begin == 0 && text.starts_with(BYTE_ORDER_MARK) {
            text.remove(0);
        }
        let has_code = !text.trim().is_empty();
        let is_last = read == 0 || (has_code && text[begin..].trim().is_empty());
        match text.parse() {
            Ok(code) => return Ok(code),
            Err(_) if !has_code && read > 0 => {}
            Err(_) if !has_code => {
                let fault = Fault::usage("the code", "is missing: the input is empty");
                let next = "quictun join < FILE, or paste it when asked";
                return Err(fault.next(next).into());
            }
            Err(CodeError::Length | CodeError::Checksum) if !is_last => ask_for_more(),
            Err(error) => return Err(Fault::usage("the code", error).into()),
        }
    }
}

/// Reads the whole input if it is UTF-16 with a byte order mark, as editors and shells of Windows write it.
fn utf16(input: &mut impl BufRead) -> io::Result<Option<String>> {
    let order = match input.fill_buf()? {
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        _ => return Ok(None),
    };
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes)?;
    let (units, _) = bytes.as_chunks();
    let units: Vec<u16> = units.iter().map(|unit| order(*unit)).collect();
    Ok(Some(String::from_utf16_lossy(&units)))
}

/// The address of a local listener, and the target to which it leads.
type ForwardEntry = (String, String);

/// Returns the server's rules for a person. Characters that hide or reorder text are escaped.
fn shown(rules: &[String]) -> String {
    printable(&rules.join(", "))
}

/// Returns a forward for each rule that names a single target. A rule with characters that hide or reorder text becomes
/// none: a person could not see where the forward leads.
fn forwards(rules: &[String]) -> Vec<ForwardEntry> {
    let mut taken = Vec::new();
    let plain = |rule: &&String| printable(rule) == **rule;
    let targets = rules
        .iter()
        .filter(|rule| !rule.ends_with('*') && plain(rule));
    let targets = targets.filter_map(|rule| Target::parse(rule).ok());
    // A person has to choose the port of datagrams: that of the program often is in use here, too.
    let targets = targets.filter(|target| !target.takes_datagrams());
    let forwards = targets.map(|target| {
        let wanted = match &target {
            Target::Tcp { port, .. } if *port < FIRST_FREE_PORT => port + MOVED_BY,
            Target::Tcp { port, .. } | Target::Udp { port, .. } => *port,
            Target::Unix { .. } => MOVED_BY,
        };
        let free = (wanted..=u16::MAX).find(|port| !taken.contains(port));
        let port = free.unwrap_or(wanted);
        taken.push(port);
        let text = target.to_string();
        let text = text.strip_prefix("tcp:").unwrap_or(&text);
        (format!("127.0.0.1:{port}"), text.to_owned())
    });
    forwards.collect()
}

/// Returns the text of `client.toml`. No rule of the server can leave its comment line.
fn configuration(
    code: &Code,
    own: &CertificateFiles,
    grant: &Grant,
    forwards: &[ForwardEntry],
) -> String {
    let text = |text: &str| Value::from(text).to_string();
    let path = |path: &Path| text(&path.display().to_string());
    let mut out = format!(
        "# quictun client --config client.toml\n#\n# Written by `quictun join`: the server knows this machine as {:?}.\n",
        grant.name
    );
    for (key, value) in [
        ("server", text(code.server())),
        ("pin", text(&Pin(code.pin()).to_string())),
        ("cert", path(&own.cert)),
        ("key", path(&own.key)),
    ] {
        put!(out, "{key} = {value}\n");
    }
    if let Some(port) = code.tls_port() {
        put!(out, "tls_port = {port}\n");
    }
    put!(
        out,
        "\n# Targets that the server allows: {}\n",
        shown(&grant.allow)
    );
    for (listen, target) in forwards {
        let (listen, target) = (text(listen), text(target));
        put!(out, "\n[[forward]]\nlisten = {listen}\ntarget = {target}\n");
    }
    if forwards.is_empty() {
        out.push_str(
            "# No rule names a single target: write a table for each target that you want.\n# [[forward]]\n# listen = \"127.0.0.1:8080\"\n# target = \"HOST:PORT\"\n",
        );
    }
    out
}

/// Returns the text for the user. With `shared`, the group of the directory can read the files.
fn summary(
    code: &Code,
    grant: &Grant,
    forwards: &[ForwardEntry],
    path: &Path,
    shared: bool,
) -> String {
    let file = path.display();
    let mut out = format!("joined {} as {}: {file}\n", code.server(), grant.name);
    for (listen, target) in forwards {
        put!(out, "  {listen} leads to {target}\n");
    }
    if forwards.is_empty() {
        let allow = shown(&grant.allow);
        let lines = [
            format!("  the rules name no single target: {allow}"),
            format!("start it: quictun client -c {file} -L 8080=HOST:PORT"),
            "  HOST:PORT is the target to which port 8080 of this machine is to lead".to_owned(),
            "  with -D 1080 instead of -L, programs reach all targets through a proxy".to_owned(),
        ];
        out.push_str(&lines.join("\n"));
        out.push('\n');
        if shared {
            out.push_str("as a service: add a [[forward]] table to that file, then\n  systemctl enable --now quictun-client\n");
        }
        return out;
    }
    if shared {
        out.push_str("as a service: systemctl enable --now quictun-client\n");
    }
    put!(out, "start it: quictun client -c {file}\n");
    out
}

fn failed(error: JoinError) -> ProgramError {
    let next = match &error {
        JoinError::Refused(_) => {
            "ask for a new code; the server's log says why it refused this one, and which client used it"
        }
        JoinError::NoAnswer { .. } => {
            "check that the server runs, and that a firewall lets UDP or TCP through to it; the code is still valid"
        }
        JoinError::NothingListens { .. } => {
            "check that the server runs and listens on that port; the code is still valid"
        }
        JoinError::NoRoute { address, .. } => {
            let next = format!(
                "check that this machine is online: `ip route get {address}` shows its route to the server; the code is still valid"
            );
            return Fault::failure("join", error).next(next).into();
        }
        JoinError::NotStored(_) => {
            "the server's log names the error; ask its administrator to free its disk, and then join again: the code is still valid"
        }
        JoinError::OtherKey(_) => {
            "ask for a new code: this one is for another server, or was made before the server's key was"
        }
        JoinError::Expired(_) => {
            "ask for a new code with a later --expires; the server's administrator revokes this client first"
        }
        JoinError::OtherName { .. } => {
            "this machine is a client already; name another directory with --out"
        }
        _ => return anyhow::Error::from(error).into(),
    };
    Fault::failure("join", error).next(next).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(rules: &[&str]) -> Vec<String> {
        rules.iter().map(|rule| (*rule).to_owned()).collect()
    }

    #[test]
    fn a_code_may_span_lines_and_ends_at_an_empty_line() {
        let code = Code::new("laptop", "vpn.example.net:7500", [7; 32], [9; 16]).expect("a code");
        let whole = code.to_string();
        let (one, two) = whole.split_at(whole.len() / 2);
        let (two, three) = two.split_at(10);
        let asked = std::cell::Cell::new(0);
        let read = |text: &str| {
            asked.set(0);
            code_of(text.as_bytes(), || asked.set(asked.get() + 1))
        };
        for (text, lines) in [
            (format!("{whole}\n"), 0),
            (format!("\n\n  {whole}  "), 0),
            (format!("{one}\n{two}\r\n  {three}\n"), 2),
        ] {
            assert_eq!(read(&text).expect("a code").to_string(), whole);
            assert_eq!(asked.get(), lines, "{text}");
        }
        for text in [
            "",
            "\n \n",
            one,
            &format!("{one}\n\n{two}{three}\n"),
            "nonsense\n",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_code_may_be_in_any_unicode_encoding_with_a_byte_order_mark() {
        let code = Code::new("laptop", "vpn.example.net:7500", [7; 32], [9; 16]).expect("a code");
        let line = format!("\u{feff}{code}\r\n");
        let utf16 = |order: fn(u16) -> [u8; 2]| line.encode_utf16().flat_map(order).collect();
        let texts: [Vec<u8>; 3] = [
            line.clone().into_bytes(),
            utf16(u16::to_le_bytes),
            utf16(u16::to_be_bytes),
        ];
        for text in texts {
            let read = code_of(text.as_slice(), || ()).map(|code| code.to_string());
            assert_eq!(read.ok(), Some(code.to_string()), "{text:?}");
        }
    }

    #[test]
    fn a_code_that_is_not_text_is_refused_as_such() {
        let refused = code_of(&b"quictun-invite:\x80\n"[..], || ());
        let Err(ProgramError::Fault(fault)) = refused else {
            panic!("not refused as wrong usage: {refused:?}");
        };
        assert_eq!(fault.to_string(), "the code: is not plain text");
        assert!(fault.next.is_some_and(|next| next.contains("UTF-8")));
    }

    // SECURITY-MODEL, "server: grants rules with characters that hide or reorder text".
    #[test]
    fn rules_with_hidden_characters_are_shown_escaped_and_become_no_forwards() {
        let rules = texts(&[
            "unix:/run/\u{202e}kcos",
            "db:5432",
            "unix:/a\u{200b}b",
            "unix:/\u{2066}*",
        ]);
        let forwards = forwards(&rules);
        assert_eq!(
            forwards,
            [("127.0.0.1:5432".to_owned(), "db:5432".to_owned())]
        );
        let code = Code::new("laptop", "vpn.example.net:7500", [7; 32], [9; 16]).expect("a code");
        let own = CertificateFiles {
            cert: "client.crt".into(),
            key: "client.key".into(),
        };
        let hidden =
            |text: &str| text.contains(|c: char| !c.is_ascii() || (c.is_control() && c != '\n'));
        let grant = Grant::new("laptop", rules.clone());
        let file = configuration(&code, &own, &grant, &forwards);
        assert!(
            file.contains("unix:/run/\\u{202e}kcos") && !hidden(&file),
            "{file}"
        );
        let grant = Grant::new("laptop", rules[2..].to_vec());
        let said = summary(&code, &grant, &[], Path::new("client.toml"), false);
        assert!(
            said.contains("unix:/a\\u{200b}b") && !hidden(&said),
            "{said}"
        );
    }

    #[test]
    fn rules_for_one_target_become_forwards_on_unprivileged_ports() {
        let rules = texts(&[
            "127.0.0.1:22",
            "db.internal:5432",
            "other:5432",
            "10.0.0.0/8:443",
            "*:80",
            "web:*",
            "*",
            "[2001:db8::1]:80",
            "unix:/run/docker.sock",
            "unix:/run/*",
        ]);
        let forwards = forwards(&rules);
        let forwards: Vec<(&str, &str)> = forwards
            .iter()
            .map(|(listen, target)| (listen.as_str(), target.as_str()))
            .collect();
        assert_eq!(
            forwards,
            [
                ("127.0.0.1:8022", "127.0.0.1:22"),
                ("127.0.0.1:5432", "db.internal:5432"),
                ("127.0.0.1:5433", "other:5432"),
                ("127.0.0.1:8080", "[2001:db8::1]:80"),
                ("127.0.0.1:8000", "unix:/run/docker.sock"),
            ]
        );
    }

    #[test]
    fn the_command_to_start_has_a_forward_even_if_no_rule_names_a_target() {
        let code = Code::new("laptop", "vpn.example.net:7500", [7; 32], [9; 16]).expect("a code");
        let path = Path::new("/home/me/client.toml");
        let said = |rules: &[&str], shared| {
            let grant = Grant::new("laptop", texts(rules));
            summary(&code, &grant, &forwards(&grant.allow), path, shared)
        };
        let start = "start it: quictun client -c /home/me/client.toml";
        assert!(said(&["db:5432", "*:*"], false).ends_with(&format!("{start}\n")));
        let open = said(&["*:*", "10.0.0.0/8:443"], false);
        assert!(
            open.contains(&format!("{start} -L 8080=HOST:PORT\n")),
            "{open}"
        );
        assert!(open.contains("*:*, 10.0.0.0/8:443\n"), "{open}");
        assert!(!open.contains("systemctl"), "{open}");
        let service = said(&["*"], true);
        let (before, _) = service.split_once("systemctl").expect("a service");
        assert!(before.contains("[[forward]]"), "{service}");
    }

    #[test]
    fn the_configuration_is_one_that_the_client_reads() {
        let code = Code::new("laptop", "vpn.example.net:7500", [7; 32], [9; 16]).expect("a code");
        let own = CertificateFiles {
            cert: "/etc/qu\"ictun/client.crt".into(),
            key: "/etc/quictun/client.key".into(),
        };
        let grant = |rules: &[&str]| Grant::new("laptop", texts(rules));
        let with = grant(&["127.0.0.1:22", "*:443"]);
        let text = configuration(&code, &own, &with, &forwards(&with.allow));
        let table: toml::Table = text.parse().expect("TOML");
        assert_eq!(table["server"].as_str(), Some("vpn.example.net:7500"));
        let pin = Pin([7; 32]).to_string();
        assert_eq!(table["pin"].as_str(), Some(pin.as_str()));
        assert_eq!(table["cert"].as_str(), Some("/etc/qu\"ictun/client.crt"));
        let forward = &table["forward"][0];
        assert_eq!(forward["listen"].as_str(), Some("127.0.0.1:8022"));
        assert_eq!(forward["target"].as_str(), Some("127.0.0.1:22"));
        assert!(text.contains("127.0.0.1:22, *:443"));
        let other = text.parse::<toml::Table>().expect("TOML");
        assert!(!other.contains_key("tls_port"));
        let code = code.with_tls_port(Some(443));
        let text = configuration(&code, &own, &with, &[]);
        let table: toml::Table = text.parse().expect("TOML");
        assert_eq!(table["tls_port"].as_integer(), Some(443));
        let without = grant(&["*"]);
        let text = configuration(&code, &own, &without, &[]);
        assert!(text.contains("# [[forward]]"));
        let table: toml::Table = text.parse().expect("TOML");
        assert!(!table.contains_key("forward"));
        assert!(
            !text.contains(&code.to_string()[60..]),
            "the file must not contain the code"
        );
    }
}
