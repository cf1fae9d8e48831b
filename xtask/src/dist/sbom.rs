//! Writes a software bill of materials in the format `CycloneDX` 1.5: the list of packages in the program.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::digest::sha256;
use super::release::Release;
use super::target::Target;

/// The crate that builds the program.
const PROGRAM: &str = "quictun-cli";

/// A package in cargo's dependency graph.
#[derive(Debug, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The licence, as an SPDX expression.
    pub(crate) licence: String,
    /// The path of the manifest; the licence files are in the same directory.
    pub(crate) manifest: String,
    is_ours: bool,
    /// True if the package is a procedural macro, which runs in the compiler and is not part of the program.
    is_macro: bool,
    needs: Vec<String>,
}

/// Returns the packages that are in the program on any of the targets, by cargo's identifier.
pub(crate) fn packages(root: &Path, targets: &[Target]) -> Result<BTreeMap<String, Package>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version", "1", "--locked", "--offline"]);
    for target in targets {
        cargo.args(["--filter-platform", target.triple()]);
    }
    let output = cargo.current_dir(root).output();
    let output = output.context("starting cargo metadata")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata: {errors}");
    let metadata = serde_json::from_slice(&output.stdout).context("reading cargo's metadata")?;
    of_program(&metadata)
}

/// Returns the packages in the program, from the output of `cargo metadata`.
pub(crate) fn of_program(metadata: &Value) -> Result<BTreeMap<String, Package>> {
    reached(graph(metadata)?)
}

/// Returns the bill of materials as a JSON document.
pub(crate) fn document(
    release: &Release,
    packages: &BTreeMap<String, Package>,
    lock: &str,
) -> Result<String> {
    let lock: toml::Table = lock.parse().context("Cargo.lock")?;
    let checksums = checksums(&lock);
    let mut components = Vec::new();
    let mut dependencies = Vec::new();
    let mut program = Value::Null;
    for package in packages.values() {
        let component = package.component(&checksums);
        if package.name == PROGRAM {
            program = component;
        } else {
            components.push(component);
        }
        let needs = package.needs.iter().filter_map(|id| packages.get(id));
        let needs: BTreeSet<String> = needs.map(Package::reference).collect();
        dependencies.push(json!({"ref": package.reference(), "dependsOn": needs}));
    }
    program["type"] = json!("application");
    let mut document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": release.date_as("%Y-%m-%dT%H:%M:%SZ")?,
            "tools": {"components": [{"type": "application", "name": "cargo xtask dist", "version": release.version}]},
            "component": program,
        },
        "components": components,
        "dependencies": dependencies,
    });
    // Derive the serial number from the contents, so that the same list has the same number.
    let hash = sha256(document.to_string().as_bytes());
    let serial = format!(
        "urn:uuid:{}-{}-5{}-8{}-{}",
        &hash[..8],
        &hash[8..12],
        &hash[12..15],
        &hash[15..18],
        &hash[18..30]
    );
    document["serialNumber"] = json!(serial);
    Ok(format!("{document:#}\n"))
}

/// Returns every package in cargo's metadata, by its identifier.
fn graph(metadata: &Value) -> Result<BTreeMap<String, Package>> {
    let mut packages: BTreeMap<String, Package> = BTreeMap::new();
    for of in list(metadata, "packages") {
        let text = |key: &str| of[key].as_str().unwrap_or_default().to_owned();
        let is_macro = list(of, "targets").iter().any(|target| {
            let mut kinds = list(target, "kind").iter();
            kinds.any(|kind| kind == "proc-macro")
        });
        let package = Package {
            name: text("name"),
            version: text("version"),
            licence: text("license").replace('/', " OR "),
            manifest: text("manifest_path"),
            is_ours: of["source"].is_null(),
            is_macro,
            needs: Vec::new(),
        };
        packages.insert(text("id"), package);
    }
    for node in list(&metadata["resolve"], "nodes") {
        let of = node["id"].as_str().unwrap_or_default();
        let package = packages.get_mut(of);
        let package = package.with_context(|| format!("cargo metadata has no package {of}"))?;
        for need in list(node, "deps") {
            let mut kinds = list(need, "dep_kinds").iter();
            if kinds.any(|kind| kind["kind"].is_null()) {
                package
                    .needs
                    .extend(need["pkg"].as_str().map(str::to_owned));
            }
        }
    }
    Ok(packages)
}

/// Returns the program and its transitive dependencies, without procedural macros and the packages that
/// only these need.
fn reached(mut all: BTreeMap<String, Package>) -> Result<BTreeMap<String, Package>> {
    let program = all.iter().find(|(_, package)| package.name == PROGRAM);
    let (program, _) =
        program.with_context(|| format!("cargo metadata has no package {PROGRAM}"))?;
    let mut next = vec![program.clone()];
    let mut reached = BTreeMap::new();
    while let Some(id) = next.pop() {
        match all.remove(&id) {
            Some(package) if !package.is_macro => {
                next.extend(package.needs.iter().cloned());
                reached.insert(id, package);
            }
            _ => {}
        }
    }
    Ok(reached)
}

/// Returns the checksums of the registry's packages in the lockfile, by name and version.
fn checksums(lock: &toml::Table) -> BTreeMap<(&str, &str), &str> {
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let packages = packages.into_iter().flatten();
    let checksum = packages.filter_map(|package| {
        let text = |key: &str| package.get(key).and_then(toml::Value::as_str);
        Some(((text("name")?, text("version")?), text("checksum")?))
    });
    checksum.collect()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

impl Package {
    /// Returns whether the package belongs to this repository.
    pub(crate) fn is_ours(&self) -> bool {
        self.is_ours
    }

    /// Returns the package URL, which the document uses as the identifier of the package.
    fn reference(&self) -> String {
        let Self { name, version, .. } = self;
        let kind = if self.is_ours { "generic" } else { "cargo" };
        format!("pkg:{kind}/{name}@{version}")
    }

    fn component(&self, checksums: &BTreeMap<(&str, &str), &str>) -> Value {
        let reference = self.reference();
        let mut component = json!({
            "type": "library",
            "bom-ref": reference,
            "name": self.name,
            "version": self.version,
            "purl": reference,
            "licenses": [{"expression": self.licence}],
        });
        if let Some(hash) = checksums.get(&(&self.name, &self.version)) {
            component["hashes"] = json!([{"alg": "SHA-256", "content": hash}]);
        }
        component
    }
}
