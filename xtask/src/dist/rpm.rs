//! Writes the `.rpm` (format 4): a lead, a header with digests, a header with all other tags, and a payload.

use anyhow::{Context as _, Result};

use super::contents::{self, Installer};
use super::files::{Entry, Files};
use super::tarball::gzip;
use super::target::Target;
use super::{Package, PackageInputs, elf};
use header::header;

mod cpio;
mod header;
mod tags;

/// The revision of the packaging. It starts again at 1 with each version.
const REVISION: u32 = 1;

/// One file, link or directory of an rpm.
#[derive(Debug)]
pub(crate) struct Node<'a> {
    path: String,
    /// The file type and the permissions, as in `st_mode`.
    mode: u16,
    content: &'a [u8],
    target: &'a str,
}

/// Builds the RPM package of a target.
pub(crate) fn build(
    sources: &PackageInputs<'_>,
    target: Target,
    program: &[u8],
) -> Result<Package> {
    let PackageInputs { root, release, .. } = sources;
    let files = contents::files(root, program, &sources.written, Installer::Upstream)?;
    let mut files = contents::below_usr(&files)?;
    files.extend("usr/share/licenses/quictun", &sources.licences);
    let nodes = nodes(&files);
    let date =
        u32::try_from(release.date).context("the date does not fit the 32 bits of an rpm")?;
    let plain = cpio::archive(&nodes, date);
    let payload = gzip(&plain)?;
    let libc = elf::libc(program).context("the program for packages is not linked with glibc")?;
    let mut facts = tags::package(release, REVISION, target.machine, date);
    facts.extend(tags::files(&nodes, date)?);
    facts.extend(tags::needs(&libc));
    facts.extend(tags::scripts(|name| {
        let text = contents::read(root, &format!("packaging/rpm/{name}"))?;
        String::from_utf8(text).with_context(|| format!("packaging/rpm/{name}"))
    })?);
    facts.extend(tags::payload(&payload, &plain, files.size())?);
    facts.sort_by_key(|(tag, _)| *tag);
    let main = header(tags::IMMUTABLE, &facts)?;
    let signature = header(tags::SIGNATURES, &tags::digests(&main, &payload, &plain)?)?;
    let name = format!("quictun-{}-{REVISION}", release.version);
    let mut package = lead(&name);
    package.extend(signature);
    package.resize(package.len().next_multiple_of(8), 0);
    package.extend(main);
    package.extend(payload);
    Ok((format!("{name}.{}.rpm", target.machine), package))
}

/// Returns the entries that the rpm owns. It owns a directory only if the path contains a directory `quictun`.
fn nodes<'a>(files: &'a Files) -> Vec<Node<'a>> {
    let is_own = |path: &str| path.ends_with("/quictun") || path.contains("/quictun/");
    let node = |(path, entry): (&str, &'a Entry)| {
        let (mode, content, target) = match entry {
            Entry::File(mode, content) => (0o100_000 | mode, &content[..], ""),
            Entry::Link(target) => (0o120_777, target.as_bytes(), target.as_str()),
            Entry::Directory | Entry::Private(_) if is_own(path) => (0o040_755, &[][..], ""),
            Entry::Directory | Entry::Private(_) => return None,
        };
        Some(Node {
            path: format!("/{path}"),
            mode: u16::try_from(mode).unwrap_or(u16::MAX),
            content,
            target,
        })
    };
    files.iter().filter_map(node).collect()
}

/// Returns the lead of 96 bytes. The tool `file` recognises an rpm by it; no other program reads it.
fn lead(name: &str) -> Vec<u8> {
    let mut lead = vec![0xed, 0xab, 0xee, 0xdb, 3, 0, 0, 0, 0, 1];
    let name: Vec<u8> = name.bytes().take(65).collect();
    lead.extend(&name);
    lead.resize(76, 0);
    // Operating system 1 is Linux; signature type 5 is a header with digests.
    lead.extend([0, 1, 0, 5]);
    lead.resize(96, 0);
    lead
}
