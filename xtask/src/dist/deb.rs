//! Writes the `.deb`: an `ar` archive of a version, a control archive and a data archive (deb(5)).

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};

use super::contents::{self, Installer};
use super::files::Files;
use super::release::{DESCRIPTION, Release, SUMMARY};
use super::tarball::{gzip, tar};
use super::target::Target;
use super::{Package, PackageInputs, digest, elf};

/// The revision of the packaging. It starts again at 1 with each version.
const REVISION: u32 = 1;

/// Builds the Debian package of a target.
pub(crate) fn build(
    sources: &PackageInputs<'_>,
    target: Target,
    program: &[u8],
) -> Result<Package> {
    let PackageInputs { root, release, .. } = sources;
    let version = format!("{}-{REVISION}", release.version);
    let data = data(sources, &version, program)?;
    let mut control = Files::default();
    let architecture = target.debian;
    let libc = elf::libc(program).context("the program for packages is not linked with glibc")?;
    let fields = fields(release, &version, architecture, &libc, data.size());
    control.text("control", fields);
    control.text("md5sums", md5sums(&data));
    for script in ["postinst", "prerm", "postrm"] {
        let text = contents::read(root, &format!("packaging/debian/{script}"))?;
        control.program(script, text);
    }
    let archive = |files: &Files| gzip(&tar(files, release.date)?);
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", archive(&control)?),
        ("data.tar.gz", archive(&data)?),
    ];
    let name = format!("quictun_{version}_{architecture}.deb");
    Ok((name, ar(&members, release.date)?))
}

fn data(sources: &PackageInputs<'_>, version: &str, program: &[u8]) -> Result<Files> {
    let PackageInputs { root, release, .. } = sources;
    let files = contents::files(root, program, &sources.written, Installer::Debian)?;
    let mut data = contents::below_usr(&files)?;
    let documents = "usr/share/doc/quictun";
    let copyright = contents::read(root, "packaging/debian/copyright")?;
    data.text(&format!("{documents}/copyright"), copyright);
    let third_party = gzip(sources.third_party.as_bytes())?;
    data.text(&format!("{documents}/third-party.gz"), third_party);
    let changes = contents::read(root, "CHANGELOG.md")?;
    data.remove(&format!("{documents}/CHANGELOG.md"));
    data.text(&format!("{documents}/changelog.gz"), gzip(&changes)?);
    let date = release.date_as("%a, %d %b %Y %H:%M:%S +0000")?;
    let changes = format!(
        "quictun ({version}) unstable; urgency=medium\n\n  * What has changed is in changelog.gz.\n\n -- {}  {date}\n",
        release.maintainer
    );
    let changes = gzip(changes.as_bytes())?;
    data.text(&format!("{documents}/changelog.Debian.gz"), changes);
    let overrides = contents::read(root, "packaging/debian/lintian-overrides")?;
    data.text("usr/share/lintian/overrides/quictun", overrides);
    Ok(data)
}

fn fields(release: &Release, version: &str, architecture: &str, libc: &str, size: u64) -> String {
    let size = size.div_ceil(1024);
    let maintainer = &release.maintainer;
    let mut text = format!(
        "Package: quictun\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {maintainer}\n\
         Installed-Size: {size}\n\
         Depends: libc6 (>= {libc}), libgcc-s1, systemd | systemd-standalone-sysusers | systemd-sysusers, \
         systemd | systemd-standalone-tmpfiles | systemd-tmpfiles\n\
         Section: net\nPriority: optional\nDescription: {SUMMARY}\n"
    );
    for line in DESCRIPTION.lines() {
        writeln!(text, " {line}").expect("invariant: writing to a String does not fail");
    }
    text
}

fn md5sums(data: &Files) -> String {
    let line = |(path, content)| format!("{}  {path}\n", digest::md5(content));
    data.contents().map(line).collect()
}

/// Writes the common `ar` format: a header of 60 bytes before each member, and members at even offsets.
fn ar(members: &[(&str, Vec<u8>)], date: u64) -> Result<Vec<u8>> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, content) in members {
        let size = content.len();
        let header = format!(
            "{name:<16}{date:<12}{:<6}{:<6}{:<8}{size:<10}`\n",
            0, 0, 100_644
        );
        ensure!(header.len() == 60, "{name}: too long for its header");
        archive.extend(header.as_bytes());
        archive.extend(content);
        if size % 2 == 1 {
            archive.push(b'\n');
        }
    }
    Ok(archive)
}
