//! `quictun invite`: makes the code by which one machine joins this server, lists the clients that are invited or have
//! joined, and revokes them.

use std::io::{self, IsTerminal as _};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use clap::ArgMatches;
use jiff::Timestamp;
use quictun_io::udp_port::any_address;
use quictun_trust::enrolment::{Directory, InviteError};
use quictun_trust::identity;
use quictun_trust::limits::timestamp;
use quictun_trust::settings::{ClientLimits, NamedClient, Pin, ServerIdentity, TargetRule};
use quictun_tunnel::settings::ServerSettings;
use quictun_wire::invitation::{Code, ContentError};
use serde::{Serialize, Serializer};

use crate::exit::{self, ProgramError, say};
use quictun_args::address::parse_server;
use quictun_args::fault::Fault;
use quictun_args::inputs::Inputs;
use quictun_args::native;
use quictun_args::native::limits;
use quictun_args::native::settings::Server;
use quictun_args::options::InvalidValue;
use quictun_args::state_dir::SERVICE_STATE;
use quictun_args::values::time_between;

mod list;
mod login;
mod qr;

/// Configuration and state of the server that runs as a system service.
const SERVICE_FILE: &str = "/etc/quictun/server.toml";

/// The action of one `quictun invite` command, and the server whose clients it concerns.
#[derive(Debug)]
pub struct Options {
    server: Server,
    what: InviteAction,
    json: bool,
    /// The state directory that the command line names.
    named_state: Option<PathBuf>,
    /// Without flags that name a server, this user's server was found before that of the system's service.
    passed_service: bool,
}

#[derive(Debug)]
enum InviteAction {
    List,
    Revoke(String),
    Invite(InviteRequest),
    /// Makes a login for programs that use the server as an HTTPS proxy.
    Login(InviteRequest),
}

#[derive(Debug)]
struct InviteRequest {
    name: String,
    allow: Vec<String>,
    limits: ClientLimits,
    /// `HOST:PORT` of the server. `None`: an address of this machine is used.
    address: Option<String>,
    /// The server's TCP port for TLS, if it is another one than that of its address.
    tls_port: Option<u16>,
    valid: Duration,
}

pub(crate) fn parse(matches: &ArgMatches, inputs: &Inputs<'_>) -> Result<Options, Fault> {
    let flags = server_flags(matches);
    let server = server(&flags, inputs, has_key)?;
    let passed_service = flags.is_empty()
        && server.state_dir != Path::new(SERVICE_STATE)
        && has_key_in(Path::new(SERVICE_STATE));
    let what = match text(matches, "name") {
        None => InviteAction::List,
        Some(name) if matches.get_flag("revoke") => InviteAction::Revoke(name),
        Some(name) if matches.get_flag("proxy") => {
            InviteAction::Login(invite(matches, name, &server)?)
        }
        Some(name) => InviteAction::Invite(invite(matches, name, &server)?),
    };
    Ok(Options {
        server,
        what,
        json: matches.get_flag("json"),
        named_state: native::path(matches, "state-dir"),
        passed_service,
    })
}

fn text(matches: &ArgMatches, name: &str) -> Option<String> {
    matches.get_one::<String>(name).cloned()
}

fn invite(matches: &ArgMatches, name: String, server: &Server) -> Result<InviteRequest, Fault> {
    let allow: Vec<String> = matches
        .get_many("allow")
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    if allow.is_empty() {
        let fault = Fault::usage("--allow", format!("{name:?} could reach nothing"));
        return Err(fault.next(format!("quictun invite {name} --allow 127.0.0.1:22")));
    }
    for rule in &allow {
        let read: Result<TargetRule, _> = rule.parse();
        read.map_err(|error| Fault::usage(format!("--allow {rule}"), error))?;
    }
    let valid = text(matches, "valid").unwrap_or_default();
    let valid = time_between(&valid, "1m", "7d")
        .map_err(|InvalidValue(why)| Fault::usage("--valid", why))?;
    let address = text(matches, "address");
    let address = address.map(|text| with_port(&text, server.settings.listen.port()));
    Ok(InviteRequest {
        address: address.transpose()?,
        tls_port: matches
            .get_one("tls-port")
            .copied()
            .or_else(|| own_tls_port(&server.settings)),
        limits: limits::of_flags(matches)?,
        name,
        allow,
        valid,
    })
}

/// Returns the first TCP port on which the server listens for TLS, unless one of them is its UDP port.
fn own_tls_port(settings: &ServerSettings) -> Option<u16> {
    let addresses = settings.listen_tls.as_ref()?;
    let mut ports = addresses.iter().map(SocketAddr::port);
    let has_same = ports.clone().any(|port| port == settings.listen.port());
    // Port 0 changes with each start.
    ports.find(|port| *port != 0).filter(|_| !has_same)
}

/// Appends the port on which the server listens if the address has none.
fn with_port(text: &str, port: u16) -> Result<String, Fault> {
    let of = |text: &str| Code::new("a", text, [0; 32], [0; 16]).ok();
    let code = of(text).or_else(|| of(&format!("{text}:{port}")));
    let code = code.ok_or_else(|| {
        let why = format!("{text:?} is no HOST or HOST:PORT; an IPv6 address has brackets");
        Fault::usage("--address", why)
    })?;
    let unusable = |InvalidValue(why)| Fault::usage("--address", why);
    if parse_server(code.server())
        .map_err(unusable)?
        .host
        .contains('%')
    {
        let why = format!("{text:?} names a device of this machine, and clients have others");
        return Err(Fault::usage("--address", why)
            .next("give an address that is not link-local, or a name"));
    }
    Ok(code.server().to_owned())
}

/// Returns the flags that name a server.
fn server_flags(matches: &ArgMatches) -> Vec<String> {
    let flag = |name: &str| {
        let given = native::path(matches, name);
        given.map(|path| [format!("--{name}"), path.display().to_string()])
    };
    let given = [flag("config"), flag("state-dir")];
    given.into_iter().flatten().flatten().collect()
}

/// Finds the server: the one that the flags name, else the first that has a key, of this user's server and the system
/// service.
fn server(
    given: &[String],
    inputs: &Inputs<'_>,
    has_key: impl Fn(&Server) -> bool,
) -> Result<Server, Fault> {
    let own = native::server_of(given, inputs)?;
    // Without a home directory, or in the container image, this user's server is the system service.
    let is_service = own.state_dir == Path::new(SERVICE_STATE);
    if !given.is_empty() || has_key(&own) && !is_service {
        return Ok(own);
    }
    let [file, state] = [["--config", SERVICE_FILE], ["--state-dir", SERVICE_STATE]];
    // An existing file counts even if it is wrong: without it, the code would name another port or key.
    let ways = if inputs.files.read(Path::new(SERVICE_FILE)).is_ok() {
        vec![file.to_vec(), [file, state].concat()]
    } else {
        vec![state.to_vec()]
    };
    for way in ways {
        let words: Vec<String> = way.into_iter().map(str::to_owned).collect();
        let server = native::server_of(&words, inputs)?;
        if has_key(&server) {
            return Ok(server);
        }
    }
    Ok(own)
}

fn has_key(server: &Server) -> bool {
    match &server.settings.identity {
        ServerIdentity::Files(_) => true,
        ServerIdentity::State(dir) => has_key_in(dir),
    }
}

fn has_key_in(state: &Path) -> bool {
    state.join("server.key").exists()
}

pub(crate) fn main(options: &Options) -> Result<(), ProgramError> {
    if let (Some(dir), InviteAction::List | InviteAction::Revoke(_)) =
        (&options.named_state, &options.what)
    {
        check_state(dir)?;
    }
    if options.passed_service {
        say(&format!(
            "This concerns the server whose key is in {}. For the system's service, give --state-dir {SERVICE_STATE}.",
            options.server.state_dir.display()
        ));
    }
    let clients = Directory::of(&options.server.state_dir);
    let now_s = u64::try_from(Timestamp::now().as_second()).unwrap_or(0);
    match &options.what {
        InviteAction::List => {
            let clients = list::clients(&clients, &options.server, now_s)?;
            Ok(exit::show(&clients, options.json)?)
        }
        InviteAction::Revoke(name) => revoke(&clients, name, options.json),
        InviteAction::Invite(invite) => {
            let (made, replaced) = make(&options.server, &clients, invite, now_s)?;
            print(&made, replaced, options.json)
        }
        InviteAction::Login(invite) => {
            check_request(&options.server, invite, now_s)?;
            login::make(&options.server, &clients, invite, now_s, options.json)
        }
    }
}

/// Checks that a state directory exists whose clients are to be read. A misspelt directory would look like that of a
/// server without clients.
fn check_state(dir: &Path) -> Result<(), Fault> {
    let why = match dir.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => "there is no such directory",
        Ok(found) if !found.is_dir() => "it is not a directory",
        // Reading the clients reports other errors.
        _ => return Ok(()),
    };
    let fault = Fault::failure(format!("--state-dir {}", dir.display()), why);
    Err(fault.next(
        "name the server's state directory, which `quictun config print --server FILE` shows, or its configuration with -c FILE",
    ))
}

/// The new invitation, as `--json` prints it.
#[derive(Debug, Serialize)]
struct InvitationReport {
    name: String,
    code: String,
    server: String,
    /// TCP port for TLS, if it is another one than that of `server`.
    tls_port: Option<u16>,
    #[serde(serialize_with = "as_text")]
    expires: Timestamp,
    allow: Vec<String>,
    #[serde(skip)]
    address_is_guessed: bool,
}

/// Serializes a time as RFC 3339 text, in UTC.
fn as_text<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

fn make(
    server: &Server,
    clients: &Directory,
    invite: &InviteRequest,
    now_s: u64,
) -> Result<(InvitationReport, bool), ProgramError> {
    let name = &invite.name;
    check_request(server, invite, now_s)?;
    let pin = pin(server)?;
    let address = server_address(server, invite)?;
    // Checks all else before anything is written.
    let code = |secret| {
        let code = Code::new(name, &address, pin.0, secret)?;
        Ok(code.with_tls_port(invite.tls_port))
    };
    code([0; 16]).map_err(|error: ContentError| Fault::usage(name, error))?;
    let until_s = now_s + invite.valid.as_secs();
    let invited = clients.invite(name, &invite.allow, &invite.limits, until_s, now_s);
    let invited = invited.map_err(failed)?;
    let code = code(*invited.secret.as_bytes()).map_err(|error| Fault::usage(name, error))?;
    let until = Timestamp::from_second(i64::try_from(until_s).unwrap_or(i64::MAX));
    let made = InvitationReport {
        name: name.clone(),
        code: code.to_string(),
        server: code.server().to_owned(),
        tls_port: code.tls_port(),
        expires: until.context("the time of expiry is out of range")?,
        allow: invite.allow.clone(),
        address_is_guessed: invite.address.is_none(),
    };
    Ok((made, invited.replaced))
}

fn check_request(server: &Server, invite: &InviteRequest, now_s: u64) -> Result<(), Fault> {
    if configured(server, &invite.name) {
        let why = "the configuration has a client of this name already";
        return Err(Fault::usage(&invite.name, why));
    }
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(now_s);
    if let Some(expires) = invite.limits.expires.filter(|expires| *expires <= now) {
        let why = format!("{} has passed already", timestamp(expires));
        return Err(Fault::usage("--expires", why));
    }
    Ok(())
}

/// Returns `HOST:PORT` at which clients reach the server.
fn server_address(server: &Server, invite: &InviteRequest) -> Result<String, Fault> {
    match &invite.address {
        Some(address) => Ok(address.clone()),
        None => own_address(server.settings.listen),
    }
}

/// Returns whether the configuration names a client `name` that has not joined by an invitation.
fn configured(server: &Server, name: &str) -> bool {
    let clients = server.settings.access.clients();
    let is_named = |client: &NamedClient| client.name == name;
    let mut enrolled = server.enrolled.iter();
    // `--allow` makes a client of this name.
    name == "default" || clients.iter().any(is_named) && !enrolled.any(|other| other.name == name)
}

fn pin(server: &Server) -> Result<Pin, ProgramError> {
    let identity = match &server.settings.identity {
        ServerIdentity::Files(files) => identity::load_files(files),
        ServerIdentity::State(dir) if !has_key(server) => {
            let what = dir.join("server.key").display().to_string();
            let fault = Fault::failure(what, "the server has no key there yet");
            let next = "start the server once; or name its configuration (-c FILE) or its state directory (--state-dir DIR)";
            return Err(fault.next(next).into());
        }
        ServerIdentity::State(dir) => identity::load(dir, "server"),
    };
    Ok(identity.map_err(anyhow::Error::from)?.pin)
}

/// Returns the server's listening address. If that is unspecified, returns the source address that packets to the
/// Internet would carry.
fn own_address(listen: SocketAddr) -> Result<String, Fault> {
    let missing = |why: &str| {
        let fault = Fault::usage("--address", why);
        fault.next("quictun invite NAME --allow RULE --address HOST:PORT")
    };
    if listen.port() == 0 {
        return Err(missing("the server listens on a port that changes"));
    }
    let ip = if listen.ip().is_unspecified() {
        route_to("192.0.2.1:9").or_else(|| route_to("[2001:db8::1]:9"))
    } else {
        Some(listen.ip())
    };
    let ip = ip.ok_or_else(|| missing("this machine has no address that others reach"))?;
    Ok(SocketAddr::new(ip.to_canonical(), listen.port()).to_string())
}

/// Returns the source address that datagrams to `target` would carry. Sends nothing.
fn route_to(target: &str) -> Option<IpAddr> {
    let target: SocketAddr = target.parse().ok()?;
    let socket = UdpSocket::bind(any_address(target.is_ipv6())).ok()?;
    socket.connect(target).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

fn print(made: &InvitationReport, replaced: bool, json: bool) -> Result<(), ProgramError> {
    if json {
        let text = exit::json(made).context("cannot write the invitation as JSON")?;
        return Ok(exit::print(&text)?);
    }
    if io::stdout().is_terminal() {
        // The drawing is as high as many terminals, so the code follows it and stays visible.
        exit::print(&format!("{}\n\n", qr::draw(&made.code)?))?;
    }
    exit::print(&format!("{}\n", made.code))?;
    let until = made.expires.to_zoned(jiff::tz::TimeZone::system());
    let until = until.strftime("%H:%M on %Y-%m-%d");
    let name = &made.name;
    if replaced {
        say(&format!(
            "The earlier code for {name} is worth nothing now."
        ));
    }
    say(&format!(
        "Until {until}, once: `quictun join` on {name}, and paste the code."
    ));
    say(&format!(
        "The machine that uses the code becomes {name}, and may reach {}.",
        made.allow.join(", ")
    ));
    if made.address_is_guessed {
        say(&format!(
            "The code names this server as {}; if clients need another address, give --address.",
            made.server
        ));
    }
    Ok(())
}

fn revoke(clients: &Directory, name: &str, json: bool) -> Result<(), ProgramError> {
    let had_joined = clients.revoke(name).map_err(failed)?;
    if json {
        let text = serde_json::json!({ "name": name, "had_joined": had_joined });
        return Ok(exit::print(&format!("{text:#}\n"))?);
    }
    Ok(exit::print(&if had_joined {
        format!(
            "{name} was revoked. A running server knows it until it reloads:\n  systemctl reload quictun-server\n"
        )
    } else {
        format!("the invitation of {name} was revoked: its code is worth nothing now\n")
    })?)
}

/// Converts an error: most are mistakes of the user, but those of the disk are failures.
fn failed(error: InviteError) -> ProgramError {
    let what = match &error {
        InviteError::Directory(path, _) | InviteError::Write(path, _) => {
            let clients = path.ancestors().find(|it| it.ends_with("clients"));
            let state = clients.and_then(Path::parent).unwrap_or(path);
            let state = format!("--state-dir {}", state.display());
            return anyhow::Error::from(error).context(state).into();
        }
        InviteError::Rule(_) | InviteError::Rules(_) => "--allow",
        InviteError::Limits => "--expires",
        _ => "invite",
    };
    Fault::usage(what, error).into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use quictun_args::inputs::Files;

    use super::*;

    /// The configuration of a system service that listens on port 443, and no other file.
    struct ServiceFile;

    impl Files for ServiceFile {
        fn read(&self, path: &Path) -> io::Result<String> {
            if path == Path::new(SERVICE_FILE) {
                return Ok("listen = \"[::]:443\"\n".to_owned());
            }
            Err(io::ErrorKind::NotFound.into())
        }

        fn read_client(&self, path: &Path) -> io::Result<String> {
            self.read(path)
        }

        fn check_readable(&self, path: &Path) -> io::Result<()> {
            self.read(path).map(drop)
        }

        fn clients(&self, _: &Directory) -> io::Result<Vec<String>> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn the_code_names_a_tcp_port_that_clients_could_not_guess() {
        let inputs = Inputs {
            args: Vec::new(),
            env: BTreeMap::new(),
            cwd: "/".into(),
            files: &ServiceFile,
        };
        for (flags, port) in [
            ("--listen 7500", None),
            ("--listen 7500 --listen-tls off", None),
            ("--listen 7500 --listen-tls 443 --listen-tls 7500", None),
            (
                "--listen 7500 --listen-tls 443 --listen-tls 8443",
                Some(443),
            ),
            ("--listen 7500 --listen-tls 0 --listen-tls 8443", Some(8443)),
        ] {
            let words: Vec<String> = flags.split(' ').map(str::to_owned).collect();
            let server = native::server_of(&words, &inputs).expect("a server");
            assert_eq!(own_tls_port(&server.settings), port, "{flags}");
        }
    }

    #[test]
    fn the_services_configuration_counts_if_its_state_is_the_users() {
        for (name, value, with_key, port) in [
            // The user's own server is found first, and the service if there is none.
            ("HOME", "/root", "/root/.local/state/quictun", 7500),
            ("HOME", "/root", SERVICE_STATE, 443),
            // A container, and a process without a home directory.
            ("STATE_DIRECTORY", SERVICE_STATE, SERVICE_STATE, 443),
            ("LANG", "C", SERVICE_STATE, 443),
        ] {
            let inputs = Inputs {
                args: Vec::new(),
                env: BTreeMap::from([(name.to_owned(), value.to_owned())]),
                cwd: "/".into(),
                files: &ServiceFile,
            };
            let has_key = |server: &Server| server.state_dir == Path::new(with_key);
            let found = server(&[], &inputs, has_key).expect("a server");
            assert_eq!(found.settings.listen.port(), port, "{name}={value}");
        }
    }
}
