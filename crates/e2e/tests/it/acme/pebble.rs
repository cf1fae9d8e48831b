//! Pebble, the test authority of Let's Encrypt: an ACME server that refuses some requests at random, as a real one may.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use quictun_testbed::deadline;
use quictun_testbed::machine::{self, Machine};
use quictun_testbed::program::{Program, installed};
use quictun_trust::identity;

use super::{HTTP, SERVER};

/// How to get Pebble, after `apt-get install -y`.
const PACKAGE: &str = "golang-go && go install github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.3";

/// URL of its directory.
pub(super) const DIRECTORY: &str = "https://localhost:14000/dir";

/// Time in which Pebble starts, on a busy machine.
const START: Duration = Duration::from_secs(30);

/// The files of a Pebble in the namespaces of the test, in which the test's names lead to this machine.
pub(super) struct Prepared {
    program: PathBuf,
    file: PathBuf,
    /// The certificate of its directory.
    pub(super) roots: PathBuf,
}

/// A Pebble that answers requests, until it is dropped.
pub(super) struct Pebble {
    program: Program,
    pub(super) roots: PathBuf,
}

impl Prepared {
    pub(super) fn run(&self) -> Result<Pebble> {
        let mut command = Machine::here().command(&self.program);
        command.arg("-config").arg(&self.file);
        // Otherwise each check would begin after some seconds.
        command.env("PEBBLE_VA_NOSLEEP", "1");
        let program = Program::start("pebble", &mut command)?;
        let serves = || std::net::TcpStream::connect("127.0.0.1:14000").is_ok();
        deadline::until("Pebble's port", START, serves)?;
        Ok(Pebble {
            program,
            roots: self.roots.clone(),
        })
    }
}

impl Pebble {
    /// Starts a Pebble whose certificates are valid for `lifetime`, with its files in a directory.
    pub(super) fn start(directory: &Path, lifetime: Duration) -> Result<Self> {
        Self::prepare(directory, lifetime)?.run()
    }

    /// Writes the files of a Pebble.
    pub(super) fn prepare(directory: &Path, lifetime: Duration) -> Result<Prepared> {
        let program = installed("pebble", PACKAGE)?;
        let roots = directory.join("localhost.crt");
        if !roots.exists() {
            identity::generate(directory, "localhost")?;
        }
        let http = HTTP.rsplit(':').next().unwrap_or_default();
        let config = serde_json::json!({"pebble": {
            "listenAddress": "127.0.0.1:14000",
            "managementListenAddress": "127.0.0.1:15000",
            "certificate": roots,
            "privateKey": directory.join("localhost.key"),
            "tlsPort": SERVER.port(),
            "httpPort": http.parse::<u16>()?,
            "retryAfter": {"authz": 1, "order": 1},
            "keyAlgorithm": "ecdsa",
            "profiles": {"default": {"description": "", "validityPeriod": lifetime.as_secs()}},
        }});
        let file = directory.join("pebble.json");
        fs::write(&file, config.to_string())?;
        let hosts = directory.join("hosts");
        fs::write(
            &hosts,
            "127.0.0.1 localhost web.example.org www.example.org\n",
        )?;
        machine::run(&format!("mount --bind {} /etc/hosts", hosts.display()))?;
        ensure!(roots.exists(), "no certificate for Pebble");
        Ok(Prepared {
            program,
            file,
            roots,
        })
    }

    /// Returns the number of accounts that were made.
    pub(super) fn accounts(&self) -> usize {
        self.program.count("accounts in memory")
    }
}
