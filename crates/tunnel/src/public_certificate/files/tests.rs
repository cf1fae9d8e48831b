use std::fs;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use tempfile::TempDir;

use super::*;

/// Files with a certificate, and what was reported about it.
struct Watched {
    _directory: TempDir,
    files: CertificateFiles,
    reports: CertificateReports,
    watch: WatchedFiles,
}

/// Replaces the certificate in the files by one for these years.
fn write(files: &CertificateFiles, name: &str, years: (i32, i32)) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
    params.not_before = date_time_ymd(years.0, 1, 1);
    params.not_after = date_time_ymd(years.1, 1, 1);
    let certificate = params.self_signed(&key).expect("signed");
    fs::write(&files.cert, certificate.pem()).expect("written");
    fs::write(&files.key, key.serialize_pem()).expect("written");
}

impl Watched {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let files = CertificateFiles {
            cert: directory.path().join("web.crt"),
            key: directory.path().join("web.key"),
        };
        write(&files, "first.example", (2020, 2100));
        let (public, reports) = (PublicCertificates::default(), CertificateReports::default());
        let watch = WatchedFiles::open(&files, public, reports.clone()).expect("in order");
        Self {
            _directory: directory,
            files,
            reports,
            watch,
        }
    }

    /// Looks at the files. Returns the reported names and problem.
    fn look(&mut self) -> (String, Option<String>) {
        let read = PublicCertificate::load(&self.files);
        let read = read.map_err(|error| error.to_string());
        self.watch.follow(SystemTime::now(), read, false);
        let report = self.reports.get().expect("a report");
        assert_eq!(report.expires, Some(self.watch.current.dates.not_after));
        (report.names.join(","), report.problem)
    }
}

#[test]
fn a_new_pair_is_presented_and_a_bad_one_keeps_the_old_one_in_service() {
    let mut watched = Watched::new();
    assert_eq!(watched.look(), ("first.example".to_owned(), None));
    write(&watched.files, "second.example", (2020, 2100));
    assert_eq!(watched.look(), ("second.example".to_owned(), None));

    // The key of another certificate.
    let before = fs::read(&watched.files.cert).expect("there");
    write(&watched.files, "third.example", (2020, 2100));
    let new = fs::read(&watched.files.cert).expect("there");
    fs::write(&watched.files.cert, before).expect("written");
    let (names, problem) = watched.look();
    assert_eq!(names, "second.example");
    assert!(problem.is_some_and(|it| it.contains("does not belong to the certificate")));
    fs::write(&watched.files.cert, new).expect("written");
    assert_eq!(watched.look(), ("third.example".to_owned(), None));

    for (years, words) in [
        ((2020, 2021), "expired on 2021-01-01"),
        ((2099, 2100), "is not valid before"),
    ] {
        write(&watched.files, "late.example", years);
        let (names, problem) = watched.look();
        assert_eq!(names, "third.example");
        assert!(
            problem.as_ref().is_some_and(|it| it.contains(words)),
            "{problem:?}"
        );
    }
    fs::remove_file(&watched.files.key).expect("removed");
    let (names, problem) = watched.look();
    assert_eq!(names, "third.example");
    assert!(problem.is_some_and(|it| it.contains("cannot read")));
}

#[test]
fn an_expired_certificate_is_presented_at_the_start_and_another_one_later() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = CertificateFiles {
        cert: directory.path().join("web.crt"),
        key: directory.path().join("web.key"),
    };
    write(&files, "late.example", (2020, 2021));
    let (public, reports) = (PublicCertificates::default(), CertificateReports::default());
    let watch = WatchedFiles::open(&files, public, reports.clone()).expect("a late certificate");
    assert_eq!(reports.get().expect("a report").names, ["late.example"]);
    drop(watch);
    fs::write(&files.key, "no key").expect("written");
    let (public, reports) = (PublicCertificates::default(), CertificateReports::default());
    let error = WatchedFiles::open(&files, public, reports).expect_err("no key");
    assert!(
        error.to_string().contains("contains no private key"),
        "{error}"
    );
}
