//! The release's version, date and maintainer, and other facts that every package states.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;

/// The environment variable that names the maintainer of the packages, as `NAME <ADDRESS>`.
const MAINTAINER: &str = "QUICTUN_MAINTAINER";
/// The maintainer if the variable is unset. The address cannot exist (RFC 2606 section 2).
const NOBODY: &str = "quictun maintainers <maintainers@quictun.invalid>";
pub(crate) const LICENCE: &str = "MIT OR Apache-2.0";
pub(crate) const SUMMARY: &str = "TCP connections carried over QUIC";
pub(crate) const DESCRIPTION: &str = "\
quictun carries TCP and Unix connections to another host, each on a stream of
its own over QUIC: a lost packet holds up one connection and not the others,
and a connection continues after its network changes or the QUIC connection
under it is lost. A server lets each client reach what its rules name.
quictun-server and quictun-client speak the protocol of quic-tun.";

/// The version, the date and the maintainer of a release.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    pub(crate) version: String,
    /// The timestamp of every file in the packages, in seconds since 1970.
    pub(crate) date: u64,
    /// The maintainer of the packages, as `NAME <ADDRESS>`.
    pub(crate) maintainer: String,
}

impl Release {
    /// Reads the version from the manifest, and the maintainer from the variable `QUICTUN_MAINTAINER`.
    ///
    /// The date is that of the last commit, unless the variable `SOURCE_DATE_EPOCH` sets another one.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let manifest = std::fs::read_to_string(root.join("Cargo.toml")).context("Cargo.toml")?;
        let manifest: toml::Table = manifest.parse().context("Cargo.toml")?;
        let package = manifest.get("workspace").and_then(|all| all.get("package"));
        let version = package.and_then(|package| package.get("version")?.as_str());
        let version = version.context("Cargo.toml: workspace.package.version is missing")?;
        let date = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(given) => given,
            Err(_) => commit_date(root)?,
        };
        let date = date.trim().parse();
        Ok(Self {
            version: version.to_owned(),
            date: date.context("SOURCE_DATE_EPOCH is not a number of seconds")?,
            maintainer: maintainer(std::env::var(MAINTAINER).ok().as_deref())?,
        })
    }

    /// Returns the date in UTC, formatted with `format` (as `strftime` does).
    pub(crate) fn date_as(&self, format: &str) -> Result<String> {
        let seconds = i64::try_from(self.date).context("the date is out of range")?;
        let time = Timestamp::from_second(seconds).context("the date is out of range")?;
        Ok(time.strftime(format).to_string())
    }
}

/// Returns the maintainer of the packages. `given` is the value of the variable, in the form that dpkg requires.
pub(crate) fn maintainer(given: Option<&str>) -> Result<String> {
    let given = given.unwrap_or(NOBODY);
    let parts = given.strip_suffix('>').and_then(|all| all.split_once(" <"));
    let is_one = |(name, address): (&str, &str)| {
        let address = address.split_once('@');
        let is_word = |word: &str| !word.is_empty() && !word.contains([' ', '<', '>']);
        !name.trim().is_empty()
            && !name.contains(['<', '>'])
            && address.is_some_and(|(user, host)| is_word(user) && is_word(host))
            && !given.contains(char::is_control)
    };
    ensure!(
        parts.is_some_and(is_one),
        "{MAINTAINER}: write NAME <ADDRESS>, on one line"
    );
    Ok(given.to_owned())
}

fn commit_date(root: &Path) -> Result<String> {
    let mut git = Command::new("git");
    let output = git
        .args(["log", "-1", "--format=%ct"])
        .current_dir(root)
        .output();
    let output = output.context("starting git for the commit's date; or set SOURCE_DATE_EPOCH")?;
    ensure!(
        output.status.success(),
        "this is not a git clone: set SOURCE_DATE_EPOCH to the release's date, in seconds since 1970"
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
