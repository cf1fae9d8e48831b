//! Tests of certificates and secrets against the register of clients.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use super::*;
use crate::identity;

fn directory() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

fn by_name(name: &str) -> NamedClient {
    settings(name, vec![ClientProof::CertificateName], &[])
}

fn policy(clients: Vec<NamedClient>, ca: Option<PathBuf>) -> Result<Policy, AccessError> {
    Policy::new(&Access::Named { clients, ca })
}

fn name_of(peer: &Peer) -> Option<&str> {
    match peer {
        Peer::Named(client) => Some(client.name()),
        Peer::Anyone | Peer::Unknown => None,
    }
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
}

impl Authority {
    fn new(dir: &TempDir, name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let cert = params.self_signed(&key).expect("a certificate");
        let file = dir.path().join(format!("{name}.pem"));
        fs::write(&file, cert.pem()).expect("written");
        Self {
            issuer: Issuer::new(params, key),
            file,
        }
    }

    fn issue(&self, names: &[&str]) -> CertificateDer<'static> {
        self.issue_with(&params(names))
    }

    fn issue_with(&self, params: &CertificateParams) -> CertificateDer<'static> {
        let key = KeyPair::generate().expect("a key");
        params
            .signed_by(&key, &self.issuer)
            .expect("a certificate")
            .der()
            .clone()
    }
}

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    CertificateParams::new(names).expect("names")
}

fn self_made(names: &[&str]) -> CertificateDer<'static> {
    let key = KeyPair::generate().expect("a key");
    params(names)
        .self_signed(&key)
        .expect("a certificate")
        .der()
        .clone()
}

#[test]
fn client_is_known_by_its_pinned_key() {
    let (one, two) = (
        identity::ephemeral().expect("made"),
        identity::ephemeral().expect("made"),
    );
    let other = identity::ephemeral().expect("made");
    let clients = vec![
        settings("one", vec![ClientProof::Pin(one.pin)], &[]),
        settings(
            "two",
            vec![ClientProof::Pin(Pin([0; 32])), ClientProof::Pin(two.pin)],
            &[],
        ),
    ];
    let policy = policy(clients, None).expect("a policy");
    assert_eq!(name_of(&policy.identify(Some(&one.chain))), Some("one"));
    assert_eq!(name_of(&policy.identify(Some(&two.chain))), Some("two"));
    assert_eq!(policy.identify(Some(&other.chain)), Peer::Unknown);
    assert_eq!(policy.identify(Some(&[])), Peer::Unknown);
    assert_eq!(policy.identify(None), Peer::Unknown);
    assert_eq!(
        policy.identify(Some(&[CertificateDer::from(vec![0x30])])),
        Peer::Unknown
    );
    // Only the first certificate is the client's own.
    let behind = [other.chain[0].clone(), one.chain[0].clone()];
    assert_eq!(policy.identify(Some(&behind)), Peer::Unknown);
}

#[test]
fn client_that_is_known_by_its_key_alone_gets_other_rules() {
    let dir = directory();
    let secret = dir.path().join("secret");
    fs::write(&secret, "0123456789abcdef").expect("written");
    let pin = |byte| ClientProof::Pin(Pin([byte; 32]));
    let clients = vec![
        settings("one", vec![pin(1)], &["a:1"]),
        settings("two", vec![pin(2), ClientProof::PskFile(secret)], &["a:1"]),
    ];
    let policy = policy(clients, None).expect("a policy");
    let with = |name: &str, byte| policy.with_client(&settings(name, vec![pin(byte)], &["b:2"]));
    let changed = with("one", 1).expect("the same client");
    assert_eq!(changed.rules_of("one"), ["b:2"]);
    assert_eq!(policy.changes(&changed).len(), 1);
    assert_eq!(
        with("new", 3).expect("one more client").rules_of("one"),
        ["a:1"]
    );
    for (name, byte) in [("one", 3), ("new", 1), ("one", 2), ("two", 2)] {
        assert!(with(name, byte).is_err(), "{name} {byte}");
    }
}

// PROTOCOL BOND-4.
#[test]
fn the_successor_of_a_client_has_its_key_under_whatever_name() {
    let with = |clients: &[(&str, &[u8])]| {
        let clients = clients.iter().map(|(name, keys)| {
            let pins = keys.iter().map(|byte| ClientProof::Pin(Pin([*byte; 32])));
            settings(name, pins.collect(), &[])
        });
        policy(clients.collect(), None).expect("a policy")
    };
    let before = with(&[("a", &[1]), ("b", &[2]), ("c", &[3, 4])]);
    let successor = |after: &Policy, name: &str| {
        let known = before.by_name(name).expect("a client");
        let found = after.successor(&known);
        found.map(|client| client.name().to_owned())
    };
    let check = |after: &[(&str, &[u8])], expected: [Option<&str>; 3]| {
        let after = with(after);
        let found = ["a", "b", "c"].map(|name| successor(&after, name));
        assert_eq!(found, expected.map(|name| name.map(str::to_owned)));
    };
    check(&[("x", &[1]), ("b", &[2])], [Some("x"), Some("b"), None]);
    check(&[("b", &[1]), ("a", &[2])], [Some("b"), Some("a"), None]);
    check(&[("a", &[9]), ("b", &[2, 9 + 1])], [None, Some("b"), None]);
    // The keys of one client are now of two: only its old name tells which one has its flows.
    check(&[("c", &[3]), ("d", &[4])], [None, None, Some("c")]);
    check(&[("d", &[3]), ("e", &[4])], [None; 3]);
    check(&[("c", &[3, 5]), ("d", &[6])], [None, None, Some("c")]);
    let dir = directory();
    let secret = dir.path().join("secret");
    fs::write(&secret, "a secret, long enough").expect("written");
    let with_secret = |name| {
        let proofs = vec![ClientProof::PskFile(secret.clone())];
        policy(vec![settings(name, proofs, &[])], None).expect("a policy")
    };
    let known = with_secret("a").by_name("a").expect("a client");
    let after = with_secret("b");
    assert_eq!(
        after.successor(&known).map(|it| it.name().to_owned()),
        Some("b".to_owned())
    );
    fs::write(&secret, "another secret, long enough").expect("written");
    assert_eq!(with_secret("a").successor(&known), None);
}

#[test]
fn client_is_known_by_the_name_in_a_certificate_of_the_authorities() {
    let dir = directory();
    let (ca, other) = (Authority::new(&dir, "ca"), Authority::new(&dir, "other"));
    let clients = vec![by_name("laptop.example"), by_name("phone")];
    let policy = policy(clients, Some(ca.file.clone())).expect("a policy");
    let identify =
        |cert: CertificateDer<'static>| name_of(&policy.identify(Some(&[cert]))).map(str::to_owned);

    assert_eq!(
        identify(ca.issue(&["laptop.example"])).as_deref(),
        Some("laptop.example")
    );
    assert_eq!(
        identify(ca.issue(&["x.example", "PHONE"])).as_deref(),
        Some("phone")
    );
    assert_eq!(identify(ca.issue(&["tablet.example"])), None);
    assert_eq!(identify(ca.issue(&["*.example"])), None);
    assert_eq!(identify(ca.issue(&[])), None);
    assert_eq!(identify(other.issue(&["phone"])), None);
    // A name in a self-made certificate identifies no client, even if the handshake accepts the certificate.
    assert_eq!(identify(self_made(&["phone"])), None);

    let mut expired = params(&["phone"]);
    expired.not_after = rcgen::date_time_ymd(2001, 1, 2);
    assert_eq!(identify(ca.issue_with(&expired)), None);
    let mut for_servers = params(&["phone"]);
    for_servers.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    assert_eq!(identify(ca.issue_with(&for_servers)), None);
}

#[test]
fn certificate_name_counts_for_clients_that_asked_for_it_only() {
    let dir = directory();
    let ca = Authority::new(&dir, "ca");
    let clients = vec![
        settings("laptop", vec![ClientProof::Pin(Pin([1; 32]))], &[]),
        by_name("phone"),
    ];
    let policy = policy(clients, Some(ca.file.clone())).expect("a policy");
    assert_eq!(
        policy.identify(Some(&[ca.issue(&["laptop"])])),
        Peer::Unknown
    );
}

// PROTOCOL PROOF-2.
#[test]
fn client_is_known_by_a_proof_of_its_secret() {
    let dir = directory();
    let secret = |name: &str, content: &str| {
        let path = dir.path().join(name);
        fs::write(&path, content).expect("written");
        ClientProof::PskFile(path)
    };
    let clients = vec![
        settings("one", vec![secret("1", "0123456789abcdef\n")], &[]),
        settings(
            "two",
            vec![
                secret("2", "fedcba9876543210"),
                secret("3", "another secret of two"),
            ],
            &[],
        ),
    ];
    let policy = policy(clients, None).expect("a policy");
    let exporter = [9; 32];
    for (secret, name) in [
        ("0123456789abcdef", Some("one")),
        ("fedcba9876543210", Some("two")),
        ("another secret of two", Some("two")),
        ("0123456789abcdef\n", None),
        ("", None),
    ] {
        let proof = psk::proof(secret.as_bytes(), &exporter);
        let client = policy.identify_by_proof(&exporter, &proof);
        assert_eq!(client.as_deref().map(Client::name), name, "{secret:?}");
    }
    assert!(policy.accepts_proofs());
    assert!(!policy_of_pins().accepts_proofs());
    // A proof heard on one connection is useless on another.
    let heard = psk::proof(b"0123456789abcdef", &exporter);
    assert_eq!(policy.identify_by_proof(&[8; 32], &heard), None);
}

fn policy_of_pins() -> Policy {
    let clients = vec![settings("a", vec![ClientProof::Pin(Pin([1; 32]))], &[])];
    policy(clients, None).expect("a policy")
}

#[test]
fn open_mode_identifies_no_client() {
    let policy = open(Guard::default());
    let cert = identity::ephemeral().expect("made").chain.clone();
    assert_eq!(policy.identify(None), Peer::Anyone);
    assert_eq!(policy.identify(Some(&cert)), Peer::Anyone);
    assert!(!policy.accepts_proofs());
    assert_eq!(
        policy.identify_by_proof(&[0; 32], &psk::proof(b"", &[0; 32])),
        None
    );
}

#[test]
fn open_mode_with_authorities_refuses_clients_without_a_certificate() {
    let dir = directory();
    let access = Access::Open {
        ca: Some(Authority::new(&dir, "ca").file),
        guard: Guard::default(),
    };
    let policy = Policy::new(&access).expect("a policy");
    let peer = policy.identify(None);
    assert_eq!(peer, Peer::Unknown);
    let refused = policy.may_reach(&peer, &target("tcp:127.0.0.1:22"));
    assert!(
        matches!(refused, Err(AccessDenied::UnknownClient { .. })),
        "{refused:?}"
    );
    assert!(
        policy
            .may_reach_addr(&peer, &target("tcp:db:22"), addr("10.0.0.1"))
            .is_err()
    );
}

#[test]
fn settings_that_cannot_be_enforced_are_errors() {
    let dir = directory();
    let path = dir.path().join("psk");
    fs::write(&path, "0123456789abcdef").expect("written");
    let pin = || vec![ClientProof::Pin(Pin([1; 32]))];
    let psk = || vec![ClientProof::PskFile(path.clone())];
    let missing = || vec![ClientProof::PskFile("/nonexistent/psk".into())];
    let error =
        |clients: Vec<NamedClient>| policy(clients, None).expect_err("no policy").to_string();

    assert_eq!(
        error(vec![settings("", pin(), &[])]),
        "a client has no name: names appear in logs and metrics"
    );
    assert_eq!(
        error(vec![settings("a", pin(), &[]), settings("a", vec![], &[])]),
        "two clients are named \"a\": give each its own name"
    );
    assert_eq!(
        error(vec![settings("a", pin(), &[]), settings("b", pin(), &[])]),
        format!(
            "the clients \"a\" and \"b\" have the same key {}: give each its own",
            Pin([1; 32])
        )
    );
    assert_eq!(
        error(vec![settings("a", psk(), &[]), settings("b", psk(), &[])]),
        "the clients \"a\" and \"b\" have the same secret: give each its own"
    );
    assert_eq!(
        error(vec![settings("a", missing(), &[])]),
        "the client \"a\" has no usable secret"
    );
    assert_eq!(
        error(vec![by_name("a")]),
        "the client \"a\" is known by its certificate's name but there are no authorities: name their file with ca, or pin the client's key"
    );
    let ca = Authority::new(&dir, "ca").file;
    let error = policy(vec![by_name("Bob's laptop")], Some(ca)).expect_err("a bad name");
    assert!(
        matches!(error, AccessError::NotADnsName { .. }),
        "{error:?}"
    );
    let error = policy(vec![], Some(dir.path().join("none.pem"))).expect_err("no authorities");
    assert!(
        matches!(error, AccessError::Authorities(TlsError::Authorities(_))),
        "{error:?}"
    );
}

#[test]
fn the_files_of_keygen_make_a_client_that_is_known() {
    let dir = directory();
    let pin = identity::generate(dir.path(), "client").expect("made");
    let files = CertificateFiles {
        cert: dir.path().join("client.crt"),
        key: dir.path().join("client.key"),
    };
    let shown = identity::load_files(&files).expect("a pair");
    let clients = vec![settings(
        "laptop",
        vec![ClientProof::Pin(pin)],
        &["127.0.0.1:22"],
    )];
    let policy = policy(clients, None).expect("a policy");
    let peer = policy.identify(Some(&shown.chain));
    assert_eq!(
        dialled(&policy, &peer, &target("tcp:127.0.0.1:22"), None),
        Ok(())
    );
    assert!(dialled(&policy, &peer, &target("tcp:127.0.0.1:23"), None).is_err());
}

// PROTOCOL SOURCE-3.
#[test]
fn reported_addresses_are_believed_only_if_the_current_rules_of_the_client_allow_it() {
    let policy_with = |names_sources| {
        let client = NamedClient {
            names_sources,
            ..settings("laptop", vec![ClientProof::Pin(Pin([1; 32]))], &["*"])
        };
        policy(vec![client], None).expect("a policy")
    };
    let peer = |policy: &Policy| Peer::Named(policy.by_name("laptop").expect("a client"));
    let (no, yes) = (policy_with(false), policy_with(true));
    assert!(yes.believes_sources(&peer(&yes)) && !no.believes_sources(&peer(&no)));
    // The client made its request before a reload, and the rules have changed since.
    assert!(yes.believes_sources(&peer(&no)) && !no.believes_sources(&peer(&yes)));
    assert!(!yes.believes_sources(&Peer::Anyone) && !yes.believes_sources(&Peer::Unknown));
    assert!(!open(Guard::default()).believes_sources(&Peer::Anyone));
    assert_eq!(
        no.changes(&yes),
        ["client \"laptop\": proxy_protocol = true"]
    );
}

// PROTOCOL HEADER-1.
#[test]
fn another_client_or_another_rule_of_a_client_changes_no_headers() {
    let client = || settings("laptop", vec![ClientProof::Pin(Pin([1; 32]))], &[]);
    let header_targets = HeaderTargets::new(vec!["192.0.2.7:80".parse().expect("a rule")]);
    let policy = policy(vec![], None)
        .expect("a policy")
        .with_header_targets(header_targets);
    let more = policy.with_client(&client()).expect("a new client");
    let at = DialAddress::Tcp(([192, 0, 2, 7], 80).into());
    assert!(policy.gets_header(at) && more.gets_header(at));
    let none = more.with_header_targets(HeaderTargets::default());
    assert!(!none.gets_header(at));
    assert_eq!(
        policy
            .with_client(&client())
            .expect("a new client")
            .changes(&none),
        ["proxy_protocol -192.0.2.7:80"]
    );
}
