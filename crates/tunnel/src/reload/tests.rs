//! Tests of a server's reload: the rules that it reads, and the changes that it reports.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use quictun_wire::target::{Family, Target};
use tempfile::TempDir;

use super::change::Rules;
use super::server::ServerRules;
use super::*;
use crate::reverse::bind::{self, KeeperRules};
use crate::settings::{ServerSettings, TokenParser, TransportSettings};
use quictun_control::settings::ControlSettings;
use quictun_trust::access::{AccessDenied, OwnHttp, Peer, Policy};
use quictun_trust::identity;
use quictun_trust::settings::{
    Access, CertificateFiles, ClientProof, HeaderTargets, NamedClient, Pin, ServerIdentity,
};
use quictun_trust::tls;

/// Creates a directory with a server's key and two secrets.
fn directory() -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    identity::generate(dir.path(), "server").expect("a key");
    for name in ["a", "b"] {
        fs::write(dir.path().join(name), format!("0123456789abcdef {name}")).expect("written");
    }
    dir
}

fn client(name: &str, proof: ClientProof, allow: &[&str]) -> NamedClient {
    NamedClient {
        name: name.to_owned(),
        proofs: vec![proof],
        allow: allow
            .iter()
            .map(|rule| rule.parse().expect("a rule"))
            .collect(),
        listen: Vec::new(),
        limits: quictun_trust::settings::ClientLimits::default(),
        names_sources: false,
    }
}

fn settings(dir: &Path, clients: Vec<NamedClient>) -> ServerSettings {
    ServerSettings {
        listen: ([127, 0, 0, 1], 7500).into(),
        listen_tls: None,
        https_proxy: false,
        take_over: false,
        identity: ServerIdentity::State(dir.to_owned()),
        certificate: None,
        access: Access::Named { clients, ca: None },
        clients_in: None,
        header_targets: HeaderTargets::default(),
        token_parser: TokenParser::Cleartext,
        reverse_grace: Duration::ZERO,
        dial_timeout: Duration::from_secs(10),
        dial_family: Family::Any,
        transport: TransportSettings::default(),
        control: ControlSettings::default(),
    }
}

/// Returns the reload of a server that was started with `old` and reads `new`.
fn source_of(
    old: &ServerSettings,
    new: impl Fn() -> Result<ServerSettings, ConfigReadError> + Send + Sync + 'static,
) -> ReloadSource {
    let again = move || {
        new().map(|settings| RereadServer {
            settings,
            restart: vec!["listen"],
            warnings: Vec::new(),
        })
    };
    let policy = Policy::new(&old.access).expect("a policy");
    let ServerIdentity::State(dir) = &old.identity else {
        panic!("a state directory");
    };
    let identity = identity::load(dir, "server").expect("a key");
    let shared = tls::SharedConfig::default();
    let rules = ServerRules::new(&old.access, policy, &identity, &shared).expect("rules");
    let own_http = OwnHttp::Tcp(([127, 0, 0, 1], 8086).into());
    let load = source::of_server(Arc::new(again), Some(own_http), shared);
    ReloadSource::new(load, Rules::Server(Arc::new(rules)), old.transport.clone())
}

#[test]
fn changes_are_listed_by_client_without_secrets() {
    let dir = directory();
    let secret = |name: &str| ClientProof::PskFile(dir.path().join(name));
    let pin = |byte| ClientProof::Pin(Pin([byte; 32]));
    let old = settings(
        dir.path(),
        vec![
            client("gone", pin(1), &["*:22"]),
            client("key", pin(2), &["*:22"]),
            client("rules", pin(3), &["db:5432", "*:22"]),
            client("same", pin(4), &["*:22", "*:23"]),
            client("secret", secret("a"), &["*:22"]),
        ],
    );
    let new = settings(
        dir.path(),
        vec![
            client("key", pin(5), &["*:22"]),
            client("new", pin(1), &["*:22"]),
            client("rules", pin(3), &["db:5433", "*:22"]),
            client("same", pin(4), &["*:23", "*:22"]),
            client("secret", secret("b"), &["*:22"]),
        ],
    );
    let source = source_of(&old, move || Ok(new.clone()));
    let prepared = source.read().expect("the configuration is valid");
    let keys = [2, 5].map(|byte| Pin([byte; 32]));
    assert_eq!(
        prepared.changes.lines,
        [
            "client \"gone\": removed".to_owned(),
            format!("client \"key\": key -{} +{}", keys[0], keys[1]),
            "client \"new\": added".to_owned(),
            "client \"rules\": allow -db:5432 +db:5433".to_owned(),
            "client \"secret\": psk_file: another secret".to_owned(),
        ]
    );
    // Reading alone changes nothing: the next reading is compared with the rules in force.
    assert_eq!(source.read().expect("as before").changes, prepared.changes);
    source.commit(&prepared.rules);
    let changes = source.read().expect("as before").changes;
    assert!(changes.lines.is_empty(), "{changes:?}");
}

#[test]
fn new_rules_keep_the_http_interface_closed() {
    let dir = directory();
    let clients = vec![client("c", ClientProof::Pin(Pin([1; 32])), &["*:*"])];
    let same = settings(dir.path(), clients);
    let prepared = source_of(&same.clone(), move || Ok(same.clone())).read();
    let Rules::Server(rules) = prepared.expect("in order").rules else {
        panic!("a server's");
    };
    let peer = rules.policy.by_name("c").map(Peer::Named);
    let target = Target::parse("tcp:127.0.0.1:8086").expect("a target");
    let verdict = rules.policy.may_reach(&peer.expect("a client"), &target);
    assert!(
        matches!(verdict, Err(AccessDenied::ClosedByName { .. })),
        "{verdict:?}"
    );
}

#[test]
fn a_secret_that_changed_in_its_file_counts_as_a_change() {
    let dir = directory();
    let file = dir.path().join("a");
    let clients = vec![client("c", ClientProof::PskFile(file.clone()), &["*:22"])];
    let same = settings(dir.path(), clients);
    let source = source_of(&same.clone(), move || Ok(same.clone()));
    assert!(source.read().expect("in order").changes.lines.is_empty());
    fs::write(&file, "fedcba9876543210").expect("written");
    let changes = source.read().expect("in order").changes;
    assert_eq!(changes.lines, ["client \"c\": psk_file: another secret"]);
}

#[test]
fn a_new_key_or_certificate_and_a_setting_that_needs_a_restart_are_reported() {
    let (dir, other) = (directory(), directory());
    let old = settings(dir.path(), Vec::new());
    let new = settings(other.path(), Vec::new());
    let source = source_of(&old, move || Ok(new.clone()));
    let changes = source.read().expect("in order").changes;
    assert_eq!(changes.restart, ["listen"]);
    let [line] = &changes.lines[..] else {
        panic!("{changes:?}");
    };
    assert!(
        line.contains("clients that pin the old one cannot"),
        "{line}"
    );

    // The same key under another certificate.
    let files = CertificateFiles {
        cert: dir.path().join("server.crt"),
        key: dir.path().join("server.key"),
    };
    let renewed = settings(dir.path(), Vec::new());
    let source = source_of(&renewed.clone(), move || Ok(renewed.clone()));
    fs::remove_file(&files.cert).expect("the certificate's file exists");
    identity::load_or_generate(dir.path(), "server").expect("made again");
    let changes = source.read().expect("in order").changes;
    assert_eq!(
        changes.lines,
        ["server certificate: another one for the same key"]
    );
}

#[test]
fn an_unreadable_configuration_is_an_error_of_one_line() {
    let dir = directory();
    let old = || settings(dir.path(), Vec::new());
    let reason = |read: Box<dyn Fn() -> Result<ServerSettings, ConfigReadError> + Send + Sync>| {
        let error = source_of(&old(), read).read().expect_err("invalid");
        let line = error.one_line();
        assert!(!line.contains('\n'), "{line:?}");
        line
    };
    let toml =
        "server.toml: TOML parse error at line 3, column 5\n  |\n3 | x = [\n  |     ^\nmissing `]`";
    assert_eq!(
        reason(Box::new(move || Err(toml.into()))),
        "server.toml: TOML parse error at line 3, column 5: missing `]`"
    );
    let missing = ClientProof::PskFile(dir.path().join("missing"));
    let new = settings(dir.path(), vec![client("c", missing, &["*:22"])]);
    let line = reason(Box::new(move || Ok(new.clone())));
    assert!(line.contains("cannot read the secret"), "{line}");
    let nameless = client("", ClientProof::Pin(Pin([1; 32])), &["*:22"]);
    let new = settings(dir.path(), vec![nameless]);
    let line = reason(Box::new(move || Ok(new.clone())));
    assert!(line.contains("has no name"), "{line}");
    let empty = tempfile::tempdir().expect("a directory");
    let new = settings(empty.path(), Vec::new());
    let line = reason(Box::new(move || Ok(new.clone())));
    assert!(line.contains("cannot read"), "{line}");
    assert!(
        !empty.path().join("server.key").exists(),
        "a reload makes no key"
    );
}

#[test]
fn the_keeper_applies_the_rules_of_the_last_valid_reload_and_reads_nothing_to_bind() {
    let dir = directory();
    let with_rule = |rule: &str| {
        let pin = ClientProof::Pin(Pin([1; 32]));
        let mut client = client("c", pin, &[]);
        client.listen = vec![rule.parse().expect(rule)];
        settings(dir.path(), vec![client])
    };
    let (start, file) = (with_rule("127.0.0.1:0"), Arc::new(Mutex::new(None)));
    let (reads, read) = (Arc::new(AtomicUsize::new(0)), file.clone());
    let count = reads.clone();
    let again = move || {
        count.fetch_add(1, Ordering::Relaxed);
        let settings: Option<ServerSettings> = read.lock().expect("no panic").clone();
        Ok(RereadServer {
            settings: settings.ok_or("not valid")?,
            restart: Vec::new(),
            warnings: Vec::new(),
        })
    };
    let rules = KeeperRules::at_start(&start.access);
    let load = source::of_server(Arc::new(again), None, tls::SharedConfig::default());
    let kept = rules.clone();
    let load = source::reader(load, move |applied| kept.apply(applied));
    let fns = bind::by_rules(rules);
    let check = |yes: &str, no: &str| {
        let before = reads.load(Ordering::Relaxed);
        (fns.bind)(yes, None).expect(yes);
        let error = (fns.bind)(no, None).expect_err(no);
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{no}");
        assert_eq!(reads.load(Ordering::Relaxed), before);
    };
    let (old, new) = ("tcp:127.0.0.1:0", "tcp:127.0.0.2:0");
    check(old, new);
    let change = |settings| *file.lock().expect("no panic") = settings;
    change(Some(with_rule("127.0.0.2:0")));
    // The status page shows what a reload would change.
    load(LoadPurpose::Preview);
    check(old, new);
    load(LoadPurpose::Apply);
    check(new, old);
    // Neither a file that cannot be read nor one whose client has no name is put into force.
    change(None);
    load(LoadPurpose::Apply);
    check(new, old);
    let mut nameless = with_rule("127.0.0.1:0");
    if let Access::Named { clients, .. } = &mut nameless.access {
        clients[0].name.clear();
    }
    change(Some(nameless));
    load(LoadPurpose::Apply);
    check(new, old);
}
