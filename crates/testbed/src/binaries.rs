//! The programs under test, built by cargo from this workspace in the same profile as the tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};

/// Environment variable with the directory of the programs; if unset, cargo builds them.
pub const DIRECTORY: &str = "QUICTUN_E2E_BIN_DIR";

const PROGRAMS: [&str; 3] = ["quictun", "quictun-server", "quictun-client"];

/// Returns the directory of `quictun`, `quictun-server` and `quictun-client`; the first call builds them.
///
/// # Errors
///
/// Fails if the programs do not build.
pub fn directory() -> Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| find_or_build().map_err(|error| format!("{error:#}")));
    built.clone().map_err(anyhow::Error::msg)
}

/// Returns the path of one program under test.
///
/// # Errors
///
/// Fails if the programs do not build.
pub fn path(program: &str) -> Result<PathBuf> {
    Ok(directory()?.join(program))
}

/// Returns the directory of this build, in which tests may keep files they have made.
///
/// # Errors
///
/// Fails if this program is not in a target directory.
pub fn own_directory() -> Result<PathBuf> {
    profile_directory(&std::env::current_exe()?)
}

fn describes_a_package(name: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

fn find_or_build() -> Result<PathBuf> {
    if let Some(given) = std::env::var_os(DIRECTORY) {
        return Ok(given.into());
    }
    let exe = std::env::current_exe()?;
    let directory = profile_directory(&exe)?;
    let profile = directory
        .file_name()
        .and_then(|name| name.to_str())
        .context("the profile directory has no name")?;
    let target = directory
        .parent()
        .context("the profile directory has no parent")?;
    let of_a_test = directory != parent(&exe)?;
    let packages: &[&str] = if of_a_test {
        // Build the whole workspace and one test: cargo then selects the same features as for `cargo test --workspace`,
        // so a later test run has nothing left to build.
        &["--quiet", "--workspace", "--test", "e2e"]
    } else {
        &["--package", "quictun-cli"]
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build
        .arg("build")
        .args(packages)
        .args(PROGRAMS.iter().flat_map(|program| ["--bin", program]))
        .arg("--profile")
        .arg(if profile == "debug" { "dev" } else { profile })
        .arg("--target-dir")
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    // Cargo sets variables that describe a package for the programs that it runs. Build scripts that depend on these
    // variables would run again, and cargo would rebuild all dependents, including this program while it runs.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(describes_a_package) {
            build.env_remove(name);
        }
    }
    let status = build.status().with_context(|| format!("{build:?}"))?;
    ensure!(
        status.success(),
        "the programs under test do not build: {build:?}"
    );
    Ok(directory)
}

/// Returns `target/<profile>`, given `target/<profile>/deps/<test>` or `target/<profile>/<program>`.
fn profile_directory(exe: &Path) -> Result<PathBuf> {
    let parent = parent(exe)?;
    let profile = if parent.ends_with("deps") {
        parent.parent()
    } else {
        Some(parent)
    };
    profile
        .map(Path::to_owned)
        .context("this program is not in a target directory")
}

fn parent(exe: &Path) -> Result<&Path> {
    exe.parent().context("this program has no directory")
}
