use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use tempfile::TempDir;

use super::*;

const STAGING: &str = "https://staging.example/directory";
const PRODUCTION: &str = "https://production.example/directory";

/// Returns a certificate for a.example that an authority has issued.
fn stored(directory: &str) -> StoredCertificate {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(["a.example".to_owned()]).expect("a name");
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2100, 1, 1);
    let certificate = params.self_signed(&key).expect("signed");
    StoredCertificate {
        directory: directory.to_owned(),
        chain: certificate.pem(),
        key: key.serialize_pem().into(),
    }
}

/// Starts with what is in the state directory.
fn open(state: &TempDir, directory: &str) -> Acme {
    let settings = AcmeSettings {
        names: vec!["a.example".to_owned()],
        directory: directory.to_owned(),
        contact: None,
        listen_http: None,
    };
    let clients = Directory::of(state.path());
    let (public, reports) = (PublicCertificates::default(), CertificateReports::default());
    Acme::open(settings, clients, public, reports).expect("in order")
}

fn orders_at_once(acme: &Acme) -> bool {
    acme.schedule.step(SystemTime::now()) == ScheduleStep::Order
}

#[tokio::test]
async fn a_certificate_of_another_authority_stays_in_service_until_there_is_one_of_the_right_one() {
    let state = tempfile::tempdir().expect("a directory");
    let mut acme = open(&state, STAGING);
    acme.state.certificate = Some(stored(STAGING));
    acme.store().await.expect("stored");
    assert!(!orders_at_once(&open(&state, STAGING)));
    // The second start follows one whose first attempt has failed: the account is stored before.
    for _ in 0..2 {
        let acme = open(&state, PRODUCTION);
        assert!(acme.current.is_some() && orders_at_once(&acme));
        acme.store().await.expect("stored");
    }
    assert!(!orders_at_once(&open(&state, STAGING)), "a way back");
}
