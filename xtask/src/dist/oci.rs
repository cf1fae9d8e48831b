//! Writes the container image of an architecture: an OCI image layout in an archive, which old versions of Docker also
//! load.
//!
//! The program is the only executable in the image. The container runtime provides `/etc/resolv.conf` and `/etc/hosts`.

use anyhow::Result;
use serde_json::{Value, json};

use super::contents::NAMES;
use super::digest::sha256;
use super::files::{Entry, Files};
use super::release::{LICENCE, Release, SUMMARY};
use super::tarball::{gzip, tar};
use super::target::Target;
use super::{Package, PackageInputs};

/// The number of the user and group, which nothing else on a host uses. Other images without root use the same number.
const USER: u32 = 65532;
/// The image's name before its version. It names no registry, so Docker, podman and containerd read it the same way.
const NAME: &str = "localhost/quictun";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Builds the image archive of a target.
pub(crate) fn build(
    sources: &PackageInputs<'_>,
    target: Target,
    program: &[u8],
) -> Result<Package> {
    let PackageInputs {
        release, licences, ..
    } = sources;
    let mut layout = Files::default();
    let files = root(program, licences);
    let plain = tar(&files, release.date)?;
    let layer = blob(&mut layout, LAYER, &gzip(&plain)?);
    let platform = json!({"architecture": target.debian, "os": "linux"});
    let created = release.date_as("%Y-%m-%dT%H:%M:%SZ")?;
    let config = json!({
        "created": created,
        "architecture": target.debian,
        "os": "linux",
        "config": config(release),
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", sha256(&plain))]},
        "history": [{"created": created, "comment": "cargo xtask dist"}],
    });
    let config = add(&mut layout, CONFIG, &config);
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": [layer],
    });
    let mut image = add(&mut layout, MANIFEST, &manifest);
    let version = &release.version;
    let name = format!("{NAME}:{version}");
    image["platform"] = platform;
    image["annotations"] = json!({
        "org.opencontainers.image.ref.name": version,
        "io.containerd.image.name": name,
    });
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [image]});
    layout.text("index.json", index.to_string());
    // Docker before version 29 finds the image through this file, unless it stores images in containerd.
    let docker = json!([{"Config": path(&config), "RepoTags": [name], "Layers": [path(&layer)]}]);
    layout.text("manifest.json", docker.to_string());
    let version = json!({"imageLayoutVersion": "1.0.0"});
    layout.text("oci-layout", version.to_string());
    let name = format!("quictun-{}-oci-{}.tar", release.version, target.debian);
    Ok((name, tar(&layout, release.date)?))
}

fn root(program: &[u8], licences: &Files) -> Files {
    let mut files = Files::default();
    files.program("usr/bin/quictun", program);
    for name in NAMES {
        files.link(&format!("usr/bin/{name}"), "quictun");
    }
    files.extend("usr/share/licenses/quictun", licences);
    files.insert("etc/quictun", Entry::Directory);
    files.insert("var/lib/quictun", Entry::Private(USER));
    let user = format!("quictun:x:{USER}:{USER}::/var/lib/quictun:/nonexistent\n");
    files.text("etc/passwd", user);
    files.text("etc/group", format!("quictun:x:{USER}:\n"));
    files
}

/// Returns the default configuration of the image's containers.
fn config(release: &Release) -> Value {
    const SECOND_NS: u64 = 1_000_000_000;
    json!({
        "User": format!("{USER}:{USER}"),
        "Env": ["PATH=/usr/bin", "STATE_DIRECTORY=/var/lib/quictun"],
        "Entrypoint": ["/usr/bin/quictun"],
        "Cmd": ["server", "--config", "/etc/quictun/server.toml"],
        "ExposedPorts": {"7500/udp": {}, "7500/tcp": {}},
        "Volumes": {"/var/lib/quictun": {}},
        "WorkingDir": "/",
        // An extension of Docker, which the OCI specification does not have.
        "Healthcheck": {
            "Test": ["CMD", "/usr/bin/quictun", "status"],
            "Interval": 30 * SECOND_NS,
            "Timeout": 5 * SECOND_NS,
            "StartPeriod": 5 * SECOND_NS,
        },
        "Labels": {
            "org.opencontainers.image.title": "quictun",
            "org.opencontainers.image.description": SUMMARY,
            "org.opencontainers.image.version": release.version,
            "org.opencontainers.image.licenses": LICENCE,
        },
    })
}

fn add(layout: &mut Files, kind: &str, value: &Value) -> Value {
    blob(layout, kind, value.to_string().as_bytes())
}

/// Adds a blob to the layout under its digest, and returns its descriptor.
fn blob(layout: &mut Files, kind: &str, bytes: &[u8]) -> Value {
    let hash = sha256(bytes);
    let descriptor =
        json!({"mediaType": kind, "digest": format!("sha256:{hash}"), "size": bytes.len()});
    layout.text(&path(&descriptor), bytes);
    descriptor
}

/// Returns the path of a blob in the archive.
fn path(descriptor: &Value) -> String {
    let digest = descriptor["digest"].as_str().unwrap_or_default();
    format!("blobs/{}", digest.replace(':', "/"))
}
