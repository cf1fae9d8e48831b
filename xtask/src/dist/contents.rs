//! The files that a user installs: the program, its other names, documents, units and completion scripts.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::files::{Entry, Files};
use super::tarball::gzip;

/// The other names of the program, each a symbolic link to it.
pub(crate) const NAMES: [&str; 2] = ["quictun-server", "quictun-client"];
/// The systemd units of the services; a package's scripts restart them after an upgrade.
pub(crate) const UNITS: [&str; 3] = [
    "quictun-server.service",
    "quictun-client.service",
    "quictun-client-tun.service",
];
/// The program's directory in the unit files of the repository.
const UNIT_BIN: &str = "/usr/local/bin/";

/// The installed documents: path in the repository, and path below the documentation directory.
const DOCUMENTS: [(&str, &str); 7] = [
    ("CHANGELOG.md", "CHANGELOG.md"),
    ("docs/OPERATIONS.md", "OPERATIONS.md"),
    ("docs/METRICS.md", "METRICS.md"),
    ("docs/REST.md", "REST.md"),
    ("SECURITY.md", "SECURITY.md"),
    ("docs/examples/server.toml", "examples/server.toml"),
    ("docs/examples/client.toml", "examples/client.toml"),
];

/// Manual pages and completion scripts, which the program itself generates.
#[derive(Debug, Default)]
pub(crate) struct GeneratedFiles {
    /// The file name and the text of each manual page.
    pub(crate) pages: Vec<(String, Vec<u8>)>,
    /// The program, the shell and the text of each completion script.
    pub(crate) completions: Vec<(&'static str, &'static str, Vec<u8>)>,
}

impl GeneratedFiles {
    /// Runs `program` to generate its manual pages and completion scripts. This machine must be able to run it.
    pub(crate) fn by(program: &Path) -> Result<Self> {
        let dir = tempfile::tempdir().context("making a directory for manual pages")?;
        let path = dir.path().display().to_string();
        said(program, &["man", "--out", &path])?;
        let mut written = Self::default();
        for entry in std::fs::read_dir(dir.path()).context("reading manual pages")? {
            let entry = entry.context("reading manual pages")?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let text = std::fs::read(entry.path()).with_context(|| format!("reading {name}"))?;
            written.pages.push((name, text));
        }
        written.pages.sort();
        for shell in ["bash", "zsh", "fish"] {
            for of in ["quictun", NAMES[0], NAMES[1]] {
                let script = said(program, &["completion", shell, "--for", of])?;
                written.completions.push((of, shell, script));
            }
        }
        Ok(written)
    }
}

/// The installer of the files, which determines some of their paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Installer {
    /// `install.sh`, and distributions that use the default paths of shells and manual pages.
    Upstream,
    /// dpkg, with the paths and the compressed manual pages that Debian's policy asks for.
    Debian,
}

/// Returns the files below a prefix (`/usr`, `/usr/local`).
pub(crate) fn files(
    root: &Path,
    program: &[u8],
    written: &GeneratedFiles,
    installer: Installer,
) -> Result<Files> {
    let mut files = Files::default();
    files.program("bin/quictun", program);
    for name in NAMES {
        files.link(&format!("bin/{name}"), "quictun");
    }
    for (name, text) in &written.pages {
        match installer {
            Installer::Upstream => files.text(&format!("share/man/man1/{name}"), text),
            Installer::Debian => files.text(&format!("share/man/man1/{name}.gz"), gzip(text)?),
        }
    }
    for (program, shell, script) in &written.completions {
        let path = match (*shell, installer) {
            ("bash", _) => format!("share/bash-completion/completions/{program}"),
            ("fish", _) => format!("share/fish/vendor_completions.d/{program}.fish"),
            (_, Installer::Debian) => format!("share/zsh/vendor-completions/_{program}"),
            (_, Installer::Upstream) => format!("share/zsh/site-functions/_{program}"),
        };
        files.text(&path, script);
    }
    for (from, to) in DOCUMENTS {
        files.text(&format!("share/doc/quictun/{to}"), read(root, from)?);
    }
    for unit in UNITS {
        let text = read(root, &format!("packaging/systemd/{unit}"))?;
        files.text(&format!("lib/systemd/system/{unit}"), text);
    }
    for kind in ["sysusers", "tmpfiles"] {
        let text = read(root, &format!("packaging/{kind}.conf"))?;
        files.text(&format!("lib/{kind}.d/quictun.conf"), text);
    }
    Ok(files)
}

/// Moves the files below `/usr`, as a distribution's package has them, and adapts the paths in the unit files.
pub(crate) fn below_usr(files: &Files) -> Result<Files> {
    let mut below = Files::default();
    for (path, entry) in files.iter() {
        let mut entry = entry.clone();
        if let Entry::File(_, text) = &mut entry
            && path.starts_with("lib/systemd/")
        {
            let unit = std::str::from_utf8(text).with_context(|| path.to_owned())?;
            ensure!(unit.contains(UNIT_BIN), "{path}: no command in {UNIT_BIN}");
            *text = unit.replace(UNIT_BIN, "/usr/bin/").as_bytes().into();
        }
        below.insert(&format!("usr/{path}"), entry);
    }
    Ok(below)
}

/// Reads a file of the repository.
pub(crate) fn read(root: &Path, path: &str) -> Result<Vec<u8>> {
    std::fs::read(root.join(path)).with_context(|| format!("reading {path}"))
}

/// Returns the output of a program that runs with an empty environment.
fn said(program: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let mut command = Command::new(program);
    let output = command.args(arguments).env_clear().output();
    let output = output.with_context(|| format!("starting {}", program.display()))?;
    let error = String::from_utf8_lossy(&output.stderr);
    let command = format!("{} {}", program.display(), arguments.join(" "));
    ensure!(output.status.success(), "{command}: {error}");
    Ok(output.stdout)
}
