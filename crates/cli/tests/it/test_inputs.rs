//! A made-up process: arguments, environment and files that exist nowhere else. Its settings are lines of text, so that
//! a test can state the difference from the defaults.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use quictun_args::compat;
use quictun_args::compat::settings::{ProgramAction, ProgramSettings};
use quictun_args::fault::{Exit, Fault};
use quictun_args::inputs::{Files, Inputs};
use quictun_args::native::{ConfigTask, settings as native_settings};
use quictun_cli::native::{self, Action};
use quictun_control::settings::ControlSettings;
use quictun_trust::enrolment::Directory;
use quictun_tunnel::settings::{
    Address, CarrierChoice, ClientSettings, Congestion, ServerSettings, TransportSettings,
};

/// A valid pin: the hash of empty input.
pub(crate) const PIN: &str = "sha256:47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU";

#[derive(Clone, Debug, Default)]
pub(crate) struct TestInputs {
    env: BTreeMap<String, String>,
    files: VirtualFiles,
}

#[derive(Clone, Debug, Default)]
struct VirtualFiles(BTreeMap<PathBuf, Result<String, ErrorKind>>);

impl Files for VirtualFiles {
    fn read(&self, path: &Path) -> io::Result<String> {
        match self.0.get(path) {
            Some(Ok(text)) => Ok(text.clone()),
            Some(Err(kind)) => Err(io::Error::from(*kind)),
            None => Err(io::Error::from(ErrorKind::NotFound)),
        }
    }

    fn read_client(&self, path: &Path) -> io::Result<String> {
        self.read(path)
    }

    fn check_readable(&self, path: &Path) -> io::Result<()> {
        self.read(path).map(|_| ())
    }

    fn clients(&self, directory: &Directory) -> io::Result<Vec<String>> {
        let inside = self
            .0
            .keys()
            .filter(|path| path.parent() == Some(directory.path()));
        let names = inside.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()));
        Ok(names.collect())
    }
}

impl TestInputs {
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn file(mut self, path: &str, text: &str) -> Self {
        self.files.0.insert(path.into(), Ok(text.to_owned()));
        self
    }

    /// Adds a file that a directory lists but that cannot be opened, because it was removed since.
    pub(crate) fn gone_file(mut self, path: &str) -> Self {
        let gone = Err(ErrorKind::NotFound);
        self.files.0.insert(path.into(), gone);
        self
    }

    pub(crate) fn locked_file(mut self, path: &str) -> Self {
        self.files
            .0
            .insert(path.into(), Err(ErrorKind::PermissionDenied));
        self
    }

    fn inputs(&self, program: &str, line: &str) -> Inputs<'_> {
        let args = std::iter::once(program.to_owned())
            .chain(words(line))
            .map(Into::into)
            .collect();
        Inputs {
            args,
            env: self.env.clone(),
            cwd: "/home/me".into(),
            files: &self.files,
        }
    }

    pub(crate) fn compat_client(&self, line: &str) -> Result<ProgramAction<ClientSettings>, Fault> {
        compat::settings::client(&self.inputs("quictun-client", line))
    }

    pub(crate) fn compat_server(&self, line: &str) -> Result<ProgramAction<ServerSettings>, Fault> {
        compat::settings::server(&self.inputs("quictun-server", line))
    }

    pub(crate) fn native(&self, line: &str) -> Result<Action, Fault> {
        native::parse(&self.inputs("quictun", line))
    }

    pub(crate) fn native_client(&self, line: &str) -> Result<ClientSettings, Fault> {
        match self.native(line)? {
            Action::Client(client) => Ok(client.settings),
            Action::Config(ConfigTask::Client(_, client)) => Ok(client),
            other => panic!("not a client: {other:?}"),
        }
    }

    pub(crate) fn native_server(&self, line: &str) -> Result<native_settings::Server, Fault> {
        match self.native(line)? {
            Action::Server(server) | Action::Config(ConfigTask::Server(_, server)) => Ok(server),
            other => panic!("not a server: {other:?}"),
        }
    }

    pub(crate) fn printed(&self, line: &str) -> String {
        match self.native(line) {
            Ok(Action::Print(text) | Action::Config(ConfigTask::Print(text))) => text,
            other => panic!("nothing printed: {other:?}"),
        }
    }
}

/// Splits a line at spaces; `''` is the empty word.
fn words(line: &str) -> Vec<String> {
    line.split_whitespace()
        .map(|word| {
            if word == "''" {
                String::new()
            } else {
                word.to_owned()
            }
        })
        .collect()
}

pub(crate) fn run<T: Debug>(asked: Result<ProgramAction<T>, Fault>) -> ProgramSettings<T> {
    match asked {
        Ok(ProgramAction::Run(ready)) => ready,
        other => panic!("does not run: {other:?}"),
    }
}

/// Returns the whole text of an error that a user reads, and the exit code.
pub(crate) fn fault<T: Debug>(outcome: Result<T, Fault>) -> (String, Exit) {
    match outcome {
        Err(fault) => {
            let next = fault
                .next
                .as_ref()
                .map_or(String::new(), |next| format!(" | {next}"));
            (format!("{fault}{next}"), fault.exit)
        }
        Ok(asked) => panic!("no fault: {asked:?}"),
    }
}

pub(crate) fn usage<T: Debug>(outcome: Result<T, Fault>, expected: &str, context: &str) {
    assert_eq!(
        fault(outcome),
        (expected.to_owned(), Exit::Usage),
        "{context}"
    );
}

pub(crate) fn failure<T: Debug>(outcome: Result<T, Fault>, expected: &str, context: &str) {
    assert_eq!(
        fault(outcome),
        (expected.to_owned(), Exit::Failure),
        "{context}"
    );
}

/// Returns the settings of the data path without any options.
pub(crate) fn default_transport() -> TransportSettings {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    TransportSettings {
        workers: cores,
        connections: cores,
        carrier: CarrierChoice::Auto,
        tcp_congestion: None,
        congestion: Congestion::Auto,
        idle_timeout: Duration::from_mins(1),
        keep_alive: Duration::from_secs(2),
        datagram_idle: Duration::from_mins(2),
        bond_ttl: None,
        memory_budget: None,
        max_flows: 16_384,
        max_connections: 10_000,
        udp_buffer: 8 << 20,
        max_udp_payload: None,
        gso: true,
        drain: Duration::from_secs(10),
        aead: quictun_trust::settings::Aead::Auto,
        key_log: None,
        qlog_dir: None,
    }
}

/// Settings, one `name = value` each.
pub(crate) type SettingLines = BTreeMap<&'static str, String>;

pub(crate) fn client_lines(settings: &ClientSettings) -> SettingLines {
    let ClientSettings {
        server,
        server_addresses,
        tls_port,
        outbound_proxy,
        other_servers,
        forwards,
        proxy_users,
        reverse,
        header_targets,
        sends_sources,
        tun,
        take_over,
        state_dir,
        state_dir_is_default: _,
        offer,
        trust,
        identity,
        transport,
        control,
    } = settings;
    let mut lines = SettingLines::from([
        (
            "server",
            match server {
                Address::At(at) => format!("{} {}", at.host, at.port),
                Address::Service(service) => service.to_string(),
            },
        ),
        (
            "forwards",
            forwards
                .iter()
                .map(|f| format!("{:?} -> {:?}", f.listen, f.to))
                .collect::<Vec<_>>()
                .join("; "),
        ),
        ("reverse", format!("{reverse:?}")),
        (
            "headed",
            header_targets.texts().collect::<Vec<_>>().join(" "),
        ),
        ("sends_sources", sends_sources.to_string()),
        ("server_addresses", format!("{server_addresses:?}")),
        ("tls_port", format!("{tls_port:?}")),
        ("via", format!("{outbound_proxy:?}")),
        ("proxy_users", format!("{proxy_users:?}")),
        ("other_servers", format!("{other_servers:?}")),
        ("tun", format!("{tun:?}")),
        ("take_over", format!("{take_over} {state_dir:?}")),
        ("offer", format!("{offer:?}")),
        ("trust", format!("{trust:?}")),
        ("certificate", format!("{:?}", identity.certificate)),
        ("psk_file", format!("{:?}", identity.psk_file)),
    ]);
    transport_lines(&mut lines, transport);
    control_lines(&mut lines, control);
    lines
}

pub(crate) fn server_lines(settings: &ServerSettings) -> SettingLines {
    let ServerSettings {
        listen,
        listen_tls,
        https_proxy,
        take_over,
        identity,
        certificate,
        access,
        // The value follows from the state directory, which is in `identity`.
        clients_in: _,
        header_targets,
        token_parser,
        dial_timeout,
        reverse_grace,
        dial_family,
        transport,
        control,
    } = settings;
    let mut lines = SettingLines::from([
        ("listen", listen.to_string()),
        ("listen_tls", format!("{listen_tls:?}")),
        ("https_proxy", https_proxy.to_string()),
        ("take_over", take_over.to_string()),
        ("identity", format!("{identity:?}")),
        ("public_certificate", format!("{certificate:?}")),
        ("access", format!("{access:?}")),
        (
            "headed",
            header_targets.texts().collect::<Vec<_>>().join(" "),
        ),
        ("token_parser", format!("{token_parser:?}")),
        ("dial_timeout", format!("{dial_timeout:?}")),
        ("reverse_grace", format!("{reverse_grace:?}")),
        ("dial_family", format!("{dial_family:?}")),
    ]);
    transport_lines(&mut lines, transport);
    control_lines(&mut lines, control);
    lines
}

fn transport_lines(lines: &mut SettingLines, transport: &TransportSettings) {
    let TransportSettings {
        workers,
        connections,
        carrier,
        tcp_congestion,
        congestion,
        idle_timeout,
        keep_alive,
        datagram_idle,
        bond_ttl,
        memory_budget,
        max_flows,
        max_connections,
        udp_buffer,
        max_udp_payload,
        gso,
        drain,
        aead,
        key_log,
        qlog_dir,
    } = transport;
    lines.extend([
        ("workers", workers.to_string()),
        ("connections", connections.to_string()),
        ("carrier", format!("{carrier:?}")),
        ("tcp_congestion", format!("{tcp_congestion:?}")),
        ("congestion", format!("{congestion:?}")),
        ("idle_timeout", format!("{idle_timeout:?}")),
        ("keep_alive", format!("{keep_alive:?}")),
        ("datagram_idle", format!("{datagram_idle:?}")),
        ("bond_ttl", format!("{bond_ttl:?}")),
        (
            "memory_budget",
            memory_budget.map_or("auto".to_owned(), |bytes| bytes.to_string()),
        ),
        ("max_flows", max_flows.to_string()),
        ("max_connections", max_connections.to_string()),
        ("udp_buffer", udp_buffer.to_string()),
        ("max_udp_payload", format!("{max_udp_payload:?}")),
        ("gso", gso.to_string()),
        ("drain", format!("{drain:?}")),
        ("aead", format!("{aead:?}")),
        ("key_log", format!("{key_log:?}")),
        ("qlog_dir", format!("{qlog_dir:?}")),
    ]);
}

fn control_lines(lines: &mut SettingLines, control: &ControlSettings) {
    let ControlSettings {
        httpd,
        httpd_is_default,
        http_names,
        compat_json,
        confine,
        banner: _,
        program: _,
        log,
    } = control;
    lines.extend([
        (
            "httpd",
            httpd
                .as_ref()
                .map_or_else(|| "off".to_owned(), ToString::to_string),
        ),
        ("httpd_is_default", httpd_is_default.to_string()),
        ("http_names", http_names.join(" ")),
        ("compat_json", compat_json.to_string()),
        ("confine", confine.to_string()),
        ("log.level", log.level.to_string()),
        ("log.format", format!("{:?}", log.format)),
        ("log.outputs", log.outputs.join(" ")),
        ("log.phrases", format!("{:?}", log.phrases)),
    ]);
}

/// Asserts that `lines` differ from `base` exactly by `expected`.
pub(crate) fn differ(
    lines: &SettingLines,
    base: &SettingLines,
    expected: &[(&str, &str)],
    context: &str,
) {
    let found: Vec<(&str, &str)> = lines
        .iter()
        .filter(|(name, value)| base.get(*name) != Some(value))
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(found, expected, "{context}");
}
