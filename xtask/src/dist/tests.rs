//! Tests that the same files give the same bytes, and that each format contains the data that its readers need.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::contents::GeneratedFiles;
use super::files::{Entry, Files};
use super::release::{self, Release};
use super::target::Target;
use super::{Options, Package, PackageInputs, deb, digest, elf, oci, rpm, sbom, tarball};

mod install;

const DATE: u64 = 1_700_000_000;
/// The part of a program that packages read: the versions of glibc's symbols.
const PROGRAM: &[u8] = b"\x7fELF\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_PRIVATE\0GLIBC_2.17\0";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn target(triple: &str) -> Target {
    Target::named(triple).expect("a known target")
}

/// Returns the inputs of packages, with a stub for each text that the program or the licences provide.
fn sources(root: &Path) -> PackageInputs<'_> {
    let mut licences = Files::default();
    licences.text("LICENSE-MIT", "do what you like");
    PackageInputs {
        root,
        release: Release {
            version: "1.2.3".to_owned(),
            date: DATE,
            maintainer: "A. Packager <packages@example.net>".to_owned(),
        },
        written: GeneratedFiles {
            pages: vec![("quictun.1".to_owned(), b".TH QUICTUN 1\n".to_vec())],
            completions: vec![("quictun", "zsh", b"#compdef quictun\n".to_vec())],
        },
        licences,
        third_party: "others".to_owned(),
    }
}

/// Lists the entries of a tar archive: path, mode, owner, time and link target.
fn listed(tar: &[u8]) -> Vec<(String, u32, u64, u64, String)> {
    let mut archive = tar::Archive::new(tar);
    let entries = archive.entries().expect("an archive");
    let entry = |entry: Result<tar::Entry<'_, &[u8]>, _>| {
        let entry = entry.expect("an entry");
        let header = entry.header();
        let link = entry.link_name_bytes().unwrap_or_default();
        let (user, group) = (
            header.uid().expect("a user"),
            header.gid().expect("a group"),
        );
        assert_eq!(user, group);
        (
            String::from_utf8_lossy(&entry.path_bytes()).into_owned(),
            header.mode().expect("a mode"),
            user,
            header.mtime().expect("a time"),
            String::from_utf8_lossy(&link).into_owned(),
        )
    };
    entries.map(entry).collect()
}

fn unpacked(gzip: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut reader = flate2::read::GzDecoder::new(gzip);
    reader.read_to_end(&mut bytes).expect("compressed bytes");
    bytes
}

/// Returns the content of a file in a tar archive.
fn content(tar: &[u8], path: &str) -> Vec<u8> {
    let mut archive = tar::Archive::new(tar);
    for entry in archive.entries().expect("an archive") {
        let mut entry = entry.expect("an entry");
        if entry.path_bytes() == path.as_bytes() {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).expect("its content");
            return bytes;
        }
    }
    panic!("the archive has no {path}")
}

#[test]
fn an_archive_is_in_order_with_directories_first_and_belongs_to_root() {
    let mut files = Files::default();
    files.program("bin/b", "two");
    files.text("bin/a.txt", "one");
    files.link("bin/c", "b");
    files.insert("var/key", Entry::Private(7));
    let tar = tarball::tar(&files, DATE).expect("an archive");
    let expected = [
        ("bin/", 0o755, 0, ""),
        ("bin/a.txt", 0o644, 0, ""),
        ("bin/b", 0o755, 0, ""),
        ("bin/c", 0o777, 0, "b"),
        ("var/", 0o755, 0, ""),
        ("var/key/", 0o700, 7, ""),
    ];
    let expected = expected
        .map(|(path, mode, user, link)| (path.to_owned(), mode, user, DATE, link.to_owned()));
    assert_eq!(listed(&tar), expected);
    assert_eq!(content(&tar, "bin/a.txt"), b"one");
    assert_eq!(tar, tarball::tar(&files.clone(), DATE).expect("an archive"));
    let compressed = tarball::gzip(&tar).expect("compressed");
    // The gzip header has neither a name nor a time (RFC 1952).
    assert_eq!(compressed[3..8], [0; 5]);
    assert_eq!(unpacked(&compressed), tar);
}

#[test]
fn the_newest_version_of_the_c_library_counts_as_numbers_do() {
    assert_eq!(elf::libc(PROGRAM).as_deref(), Some("2.34"));
    assert_eq!(elf::libc(b"\x7fELF\0GLIBC_PRIVATE\0"), None);
}

#[test]
fn options_name_programs_and_targets() {
    let options = Options::read(&["--program", "x86_64-unknown-linux-musl=/p", "--out", "o"]);
    let options = options.expect("options");
    let musl = target("x86_64-unknown-linux-musl");
    assert_eq!(options.targets, [musl]);
    assert_eq!(options.programs, [(musl, PathBuf::from("/p"))]);
    let all = Options::read(&[]).expect("options").targets;
    assert_eq!(all.iter().filter(|target| target.is_static()).count(), 2);
    for wrong in [
        &["--target", "mips"][..],
        &["--out"],
        &["--what", "x"],
        &["--tree"],
    ] {
        assert!(Options::read(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn a_maintainer_has_a_name_and_an_address_and_the_default_address_belongs_to_no_person() {
    let given = "Jane Doe <jane@example.net>";
    assert_eq!(release::maintainer(Some(given)).expect("one"), given);
    let unset = release::maintainer(None).expect("one");
    assert!(unset.ends_with(".invalid>"), "{unset}");
    for wrong in [
        "",
        "jane@example.net",
        "Jane Doe",
        " <jane@example.net>",
        "Jane <>",
        "Jane <jane>",
        "Jane <@example.net>",
        "Jane <jane@>",
        "Jane <a b@c>",
        "Jane <a@b> <c@d>",
        "Jane\nEssential: yes <a@b>",
    ] {
        assert!(release::maintainer(Some(wrong)).is_err(), "{wrong:?}");
    }
}

/// Returns the members of an `ar` archive.
fn members(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut rest = archive.strip_prefix(b"!<arch>\n").expect("an archive");
    let mut members = Vec::new();
    while !rest.is_empty() {
        let (head, after) = rest.split_at(60);
        let head = std::str::from_utf8(head).expect("text");
        let size: usize = head[48..58].trim().parse().expect("a size");
        assert_eq!(&head[28..34], "0     ");
        members.push((head[..16].trim().to_owned(), after[..size].to_vec()));
        rest = &after[size.next_multiple_of(2)..];
    }
    members
}

#[test]
fn a_deb_has_its_parts_in_order_and_scripts_that_run() {
    let root = root();
    let sources = sources(&root);
    let build =
        || deb::build(&sources, target("x86_64-unknown-linux-gnu"), PROGRAM).expect("a deb");
    let (name, bytes) = build();
    assert_eq!(name, "quictun_1.2.3-1_amd64.deb");
    assert_eq!((name, &bytes), (build().0, &build().1));
    let members = members(&bytes);
    let names: Vec<_> = members.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar.gz"]);
    let (control, data) = (unpacked(&members[1].1), unpacked(&members[2].1));
    let modes: Vec<_> = listed(&control)
        .into_iter()
        .map(|(path, mode, ..)| (path, mode))
        .collect();
    let expected = [
        ("control", 0o644),
        ("md5sums", 0o644),
        ("postinst", 0o755),
        ("postrm", 0o755),
        ("prerm", 0o755),
    ];
    assert_eq!(modes, expected.map(|(path, mode)| (path.to_owned(), mode)));
    let fields = String::from_utf8(content(&control, "control")).expect("text");
    assert!(fields.contains("\nDepends: libc6 (>= 2.34), "), "{fields}");
    let maintainer = "\nMaintainer: A. Packager <packages@example.net>\n";
    assert!(fields.contains(maintainer), "{fields}");
    let sums = String::from_utf8(content(&control, "md5sums")).expect("text");
    let line = format!("{}  usr/bin/quictun\n", digest::md5(PROGRAM));
    assert!(sums.contains(&line), "{sums}");
    let unit = content(&data, "usr/lib/systemd/system/quictun-server.service");
    let unit = String::from_utf8(unit).expect("text");
    assert!(
        unit.contains("\nExecStart=/usr/bin/quictun server "),
        "{unit}"
    );
    let page = content(&data, "usr/share/man/man1/quictun.1.gz");
    assert_eq!(unpacked(&page), b".TH QUICTUN 1\n");
    let paths: Vec<_> = listed(&data).into_iter().map(|(path, ..)| path).collect();
    assert!(
        paths.iter().all(|path| path.starts_with("usr/")),
        "{paths:?}"
    );
}

/// Returns the values of an rpm header as bytes, by tag, and the bytes after the header.
fn header(bytes: &[u8]) -> (BTreeMap<u32, Vec<u8>>, &[u8]) {
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    assert_eq!(bytes[..4], [0x8e, 0xad, 0xe8, 1]);
    let (entries, size) = (number(8) as usize, number(12) as usize);
    let store = &bytes[16 + 16 * entries..][..size];
    let offset = |entry: usize| number(16 + 16 * entry + 8) as usize;
    // The first entry is that of the region, whose trailer holds the offset back to the beginning of the index.
    assert_eq!(offset(0), size - 16);
    let back = i32::from_be_bytes(store[size - 8..size - 4].try_into().expect("four bytes"));
    assert_eq!(usize::try_from(-back), Ok(16 * entries));
    let values = (1..entries).map(|entry| {
        let end = (entry + 1..entries).map(offset).next().unwrap_or(size - 16);
        (number(16 + 16 * entry), store[offset(entry)..end].to_vec())
    });
    (values.collect(), &bytes[16 + 16 * entries + size..])
}

#[test]
fn an_rpm_has_the_digests_of_what_it_holds() {
    let root = root();
    let sources = sources(&root);
    let build = || rpm::build(&sources, target("x86_64-unknown-linux-gnu"), PROGRAM).expect("rpm");
    let (name, bytes) = build();
    assert_eq!(name, "quictun-1.2.3-1.x86_64.rpm");
    assert!(bytes == build().1, "two builds of the same files differ");
    let (signature, _) = header(&bytes[96..]);
    let start = (bytes.len() - header(&bytes[96..]).1.len()).next_multiple_of(8);
    let (main, payload) = header(&bytes[start..]);
    let text = |value: &[u8]| {
        String::from_utf8_lossy(value)
            .trim_end_matches('\0')
            .to_owned()
    };
    let main_bytes = &bytes[start..bytes.len() - payload.len()];
    assert_eq!(text(&signature[&273]), digest::sha256(main_bytes));
    assert_eq!(text(&main[&1000]), "quictun");
    assert_eq!(text(&main[&1015]), "A. Packager <packages@example.net>");
    assert_eq!(text(&main[&5092]), digest::sha256(payload));
    let plain = unpacked(payload);
    assert_eq!(text(&main[&5097]), digest::sha256(&plain));
    assert!(plain.starts_with(b"070701") && plain.len().is_multiple_of(4));
    let names = text(&main[&1117]);
    assert!(
        names
            .split('\0')
            .any(|name| name == "quictun-server.service"),
        "{names}"
    );
    // The package does not own the system's directories.
    assert!(
        !names
            .split('\0')
            .any(|name| name == "usr" || name == "man1"),
        "{names}"
    );
    assert!(text(&main[&1049]).contains("libc.so.6(GLIBC_2.34)(64bit)"));
}

#[test]
fn an_image_is_found_from_its_index_blob_by_blob() {
    let root = root();
    let sources = sources(&root);
    let arm = target("aarch64-unknown-linux-musl");
    let (name, bytes) = oci::build(&sources, arm, PROGRAM).expect("an image");
    assert_eq!(name, "quictun-1.2.3-oci-arm64.tar");
    let blob = |descriptor: &Value| {
        let named = descriptor["digest"].as_str().expect("a digest");
        let hash = named.strip_prefix("sha256:").expect("SHA-256");
        let blob = content(&bytes, &format!("blobs/sha256/{hash}"));
        assert_eq!(digest::sha256(&blob), hash);
        assert_eq!(descriptor["size"], json!(blob.len()));
        blob
    };
    let read = |blob: Vec<u8>| serde_json::from_slice::<Value>(&blob).expect("JSON");
    let index = read(content(&bytes, "index.json"));
    let images = index["manifests"].as_array().expect("images");
    assert_eq!(images.len(), 1);
    assert_eq!(images[0]["platform"]["architecture"], "arm64");
    let named = &images[0]["annotations"]["io.containerd.image.name"];
    assert_eq!(named, "localhost/quictun:1.2.3");
    let manifest = read(blob(&images[0]));
    let config = read(blob(&manifest["config"]));
    assert_eq!(config["architecture"], "arm64");
    let layer = unpacked(&blob(&manifest["layers"][0]));
    let hash = format!("sha256:{}", digest::sha256(&layer));
    assert_eq!(config["rootfs"]["diff_ids"], json!([hash]));
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Healthcheck"]["Test"][0], "CMD");
    let state = listed(&layer)
        .into_iter()
        .find(|(path, ..)| path == "var/lib/quictun/");
    let (_, mode, user, ..) = state.expect("a place for state");
    assert_eq!((mode, user), (0o700, 65532));
    // The archive describes the same image in the format of Docker's own archives.
    let path = |descriptor: &Value| {
        let named = descriptor["digest"].as_str().expect("a digest");
        format!("blobs/{}", named.replace(':', "/"))
    };
    let docker = json!([{
        "Config": path(&manifest["config"]),
        "RepoTags": ["localhost/quictun:1.2.3"],
        "Layers": [path(&manifest["layers"][0])],
    }]);
    assert_eq!(read(content(&bytes, "manifest.json")), docker);
}

#[test]
fn the_bill_of_materials_has_what_the_program_links_and_nothing_else() {
    let package = |id: &str, name: &str, kind: &str, source: Value| {
        json!({"id": id, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0", "source": source,
            "manifest_path": "/m/Cargo.toml", "targets": [{"kind": [kind]}]})
    };
    let need = |id: &str, kind: Value| json!({"pkg": id, "dep_kinds": [{"kind": kind}]});
    let node = |id: &str, deps: Value| json!({"id": id, "deps": deps});
    let crates = json!("registry+x");
    let metadata = json!({
        "packages": [
            package("p", "quictun-cli", "bin", Value::Null),
            package("l", "linked", "lib", crates.clone()),
            package("m", "macros", "proc-macro", crates.clone()),
            package("b", "build", "lib", crates.clone()),
            package("t", "test", "lib", crates),
        ],
        "resolve": {"nodes": [
            node("p", json!([
                need("l", Value::Null), need("m", Value::Null), need("b", json!("build")), need("t", json!("dev")),
            ])),
            node("l", json!([])), node("m", json!([])), node("b", json!([])), node("t", json!([])),
        ]},
    });
    let packages = sbom::of_program(&metadata).expect("packages");
    let names: Vec<_> = packages
        .values()
        .map(|package| package.name.as_str())
        .collect();
    assert_eq!(names, ["linked", "quictun-cli"]);
    let lock = "[[package]]\nname = \"linked\"\nversion = \"1.0.0\"\nchecksum = \"abc\"\n";
    let release = Release {
        version: "1.2.3".to_owned(),
        date: DATE,
        maintainer: String::new(),
    };
    let document = sbom::document(&release, &packages, lock).expect("a document");
    let document: Value = serde_json::from_str(&document).expect("JSON");
    let component = json!({
        "type": "library", "bom-ref": "pkg:cargo/linked@1.0.0", "name": "linked", "version": "1.0.0",
        "purl": "pkg:cargo/linked@1.0.0", "licenses": [{"expression": "MIT OR Apache-2.0"}],
        "hashes": [{"alg": "SHA-256", "content": "abc"}],
    });
    assert_eq!(document["components"], json!([component]));
    assert_eq!(document["metadata"]["timestamp"], "2023-11-14T22:13:20Z");
}

/// Builds an archive for the tests in [`install`].
fn archive(sources: &PackageInputs<'_>, program: &[u8]) -> Package {
    let musl = target("x86_64-unknown-linux-musl");
    sources.archive(musl, program).expect("an archive")
}
