//! The tags and values of an rpm's headers. Tag numbers are those of rpm's `rpmtag.h`.

use anyhow::{Context as _, Result};

use super::super::digest;
use super::super::release::{DESCRIPTION, LICENCE, Release, SUMMARY};
use super::Node;
use super::header::Value;

/// The tag of the region that holds digests and signatures.
pub(crate) const SIGNATURES: u32 = 62;
/// The tag of the region that the digests and signatures cover.
pub(crate) const IMMUTABLE: u32 = 63;

/// The algorithm number of SHA-256 (RFC 4880 section 9.4).
const SHA256: u32 = 8;
// Dependency flags that compare versions: at least, at most, or exactly the given version.
const AT_LEAST: u32 = 0x8 | 0x4;
const AT_MOST: u32 = 0x8 | 0x2;
const EXACTLY: u32 = 0x8;
// Dependency flags: needed by scripts (as interpreter, after installation, before and after removal), and needed of rpm
// itself.
const FOR_SCRIPTS: u32 = 1 << 8 | 1 << 10 | 1 << 11 | 1 << 12;
const OF_RPM: u32 = 1 << 24;
/// The flags of all properties that `rpm --verify` can compare.
const VERIFY_ALL: u32 = u32::MAX;

type TagValues = Vec<(u32, Value)>;

fn text(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}

fn texts<T: Into<String>>(all: impl IntoIterator<Item = T>) -> Value {
    Value::Texts(all.into_iter().map(Into::into).collect())
}

/// Returns the tags for the package's name, version, description and other properties.
pub(crate) fn package(release: &Release, revision: u32, machine: &str, date: u32) -> TagValues {
    let version = format!("{}-{revision}", release.version);
    let own = [
        "quictun".to_owned(),
        format!("quictun({})", machine.replace('_', "-")),
    ];
    vec![
        (100, texts(["C"])),
        (1000, text("quictun")),
        (1001, text(&release.version)),
        (1002, text(revision.to_string())),
        (1004, Value::Translated(SUMMARY.to_owned())),
        (1005, Value::Translated(DESCRIPTION.to_owned())),
        (1006, Value::Int32(vec![date])),
        (1007, text("reproducible")),
        (1014, text(LICENCE)),
        (1015, text(&release.maintainer)),
        (1016, Value::Translated("Unspecified".to_owned())),
        (1021, text("linux")),
        (1022, text(machine)),
        (1044, text(format!("quictun-{version}.src.rpm"))),
        (1047, texts(own)),
        (1112, Value::Int32(vec![EXACTLY; 2])),
        (1113, texts([&version, &version].map(String::as_str))),
        (5062, text("utf-8")),
    ]
}

/// Returns the tags that describe the files: one array for each property, with one element for each file.
pub(crate) fn files(nodes: &[Node<'_>], date: u32) -> Result<TagValues> {
    let numbers = |of: &dyn Fn(&Node<'_>) -> u32| Value::Int32(nodes.iter().map(of).collect());
    let same = |value: &str| texts(nodes.iter().map(|_| value));
    let split = |node: &Node<'_>| {
        let (directory, name) = node
            .path
            .rsplit_once('/')
            .expect("invariant: the paths of nodes are absolute");
        (format!("{directory}/"), name.to_owned())
    };
    let mut directories: Vec<String> = nodes.iter().map(|node| split(node).0).collect();
    directories.sort();
    directories.dedup();
    let directory = |node: &Node<'_>| {
        let at = directories.binary_search(&split(node).0);
        u32::try_from(at.unwrap_or_default()).unwrap_or_default()
    };
    let hash = |node: &Node<'_>| match node.mode & 0o170_000 {
        0o100_000 => digest::sha256(node.content),
        _ => String::new(),
    };
    let document = |node: &Node<'_>| {
        u32::from(node.path.contains("/share/doc/")) << 1
            | u32::from(node.path.contains("/share/man/")) << 1
            | u32::from(node.path.contains("/share/licenses/")) << 7
    };
    let mut sizes = Vec::new();
    for node in nodes {
        sizes.push(u32::try_from(node.content.len()).context("a file of 4 GiB or more")?);
    }
    let inodes = (1..).zip(nodes).map(|(at, _)| at).collect();
    let modes = nodes.iter().map(|node| node.mode).collect();
    Ok(vec![
        (1028, Value::Int32(sizes)),
        (1030, Value::Int16(modes)),
        (1033, Value::Int16(vec![0; nodes.len()])),
        (1034, numbers(&|_| date)),
        (1035, texts(nodes.iter().map(hash))),
        (1036, texts(nodes.iter().map(|node| node.target))),
        (1037, numbers(&document)),
        (1039, same("root")),
        (1040, same("root")),
        (1045, numbers(&|_| VERIFY_ALL)),
        (1095, numbers(&|_| 1)),
        (1096, Value::Int32(inodes)),
        (1097, same("")),
        (1116, numbers(&directory)),
        (1117, texts(nodes.iter().map(|node| split(node).1))),
        (1118, texts(directories.iter().map(String::as_str))),
        (5011, Value::Int32(vec![SHA256])),
    ])
}

/// Returns the dependencies: the C library, a shell and systemd's programs for the scripts, and features of rpm.
pub(crate) fn needs(libc: &str) -> TagValues {
    let libc = format!("libc.so.6(GLIBC_{libc})(64bit)");
    let all = [
        ("/bin/sh", "", FOR_SCRIPTS),
        ("libc.so.6()(64bit)", "", 0),
        (libc.as_str(), "", 0),
        ("libgcc_s.so.1()(64bit)", "", 0),
        ("libm.so.6()(64bit)", "", 0),
        ("rpmlib(CompressedFileNames)", "3.0.4-1", OF_RPM | AT_MOST),
        ("rpmlib(FileDigests)", "4.6.0-1", OF_RPM | AT_MOST),
        ("rpmlib(PayloadFilesHavePrefix)", "4.0-1", OF_RPM | AT_MOST),
        // The first version that supports every setting of the units.
        ("systemd", "247", AT_LEAST),
    ];
    vec![
        (1048, Value::Int32(all.map(|(_, _, flags)| flags).to_vec())),
        (1049, texts(all.map(|(name, _, _)| name))),
        (1050, texts(all.map(|(_, version, _)| version))),
    ]
}

/// Returns the scripts that run after installation, before removal and after removal.
pub(crate) fn scripts(read: impl Fn(&str) -> Result<String>) -> Result<TagValues> {
    let mut facts = Vec::new();
    for (name, tag, shell) in [
        ("post", 1024, 1086),
        ("preun", 1025, 1087),
        ("postun", 1026, 1088),
    ] {
        facts.push((tag, Value::Text(read(name)?)));
        facts.push((shell, text("/bin/sh")));
    }
    Ok(facts)
}

/// Returns the format, the size and the digests of the payload, compressed and uncompressed.
pub(crate) fn payload(payload: &[u8], plain: &[u8], size: u64) -> Result<TagValues> {
    let size = u32::try_from(size).context("files of 4 GiB or more")?;
    Ok(vec![
        (1009, Value::Int32(vec![size])),
        (1124, text("cpio")),
        (1125, text("gzip")),
        (1126, text("9")),
        (5092, texts([digest::sha256(payload)])),
        (5093, Value::Int32(vec![SHA256])),
        (5097, texts([digest::sha256(plain)])),
    ])
}

/// Returns the values of the first header: the digest of the main header, and the sizes of what follows.
pub(crate) fn digests(main: &[u8], payload: &[u8], plain: &[u8]) -> Result<TagValues> {
    let size = |length: usize| {
        let size = u32::try_from(length).context("a package of 4 GiB or more");
        size.map(|size| Value::Int32(vec![size]))
    };
    Ok(vec![
        (273, text(digest::sha256(main))),
        (1000, size(main.len() + payload.len())?),
        (1007, size(plain.len())?),
    ])
}
