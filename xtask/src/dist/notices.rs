//! Collects the licences of the linked libraries. They require that the program is distributed with their texts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::sbom::Package;

/// The prefixes of the names of licence files, in capitals.
const BEGINNINGS: [&str; 6] = [
    "LICENSE",
    "LICENCE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
    "UNLICENSE",
];
/// Packages that contain a C library, with the path of its licence.
const WITHIN: [(&str, &str); 1] = [("aws-lc-sys", "aws-lc/LICENSE")];

/// Returns a document with each licence text once, below the names of its packages.
pub(crate) fn text<'a>(packages: impl Iterator<Item = &'a Package>) -> Result<String> {
    let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages.filter(|package| !package.is_ours()) {
        let name = format!("{} {} ({})", package.name, package.version, package.licence);
        let dir = Path::new(&package.manifest).parent();
        let texts = texts(
            &package.name,
            dir.context("the path of the manifest has no directory")?,
        )?;
        for text in texts {
            let names = by_text.entry(text).or_default();
            if !names.contains(&name) {
                names.push(name.clone());
            }
        }
    }
    let mut all: Vec<(Vec<String>, String)> = by_text
        .into_iter()
        .map(|(text, names)| (names, text))
        .collect();
    all.sort();
    let mut document = "quictun contains these libraries, under these licences.\n".to_owned();
    for (names, text) in all {
        let rule = "=".repeat(80);
        write!(
            document,
            "\n{rule}\n{}\n{rule}\n\n{text}\n",
            names.join("\n")
        )?;
    }
    Ok(document)
}

/// Reads the licence texts of one package from its directory.
fn texts(name: &str, dir: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let entry = entry.with_context(|| format!("reading {}", dir.display()))?;
        let file = entry.file_name().to_string_lossy().to_uppercase();
        if entry.path().is_file() && BEGINNINGS.iter().any(|start| file.starts_with(start)) {
            paths.push(entry.path());
        }
    }
    let within = WITHIN.iter().filter(|(package, _)| *package == name);
    paths.extend(within.map(|(_, path)| dir.join(path)));
    paths.sort();
    let read = |path: std::path::PathBuf| {
        let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(String::from_utf8_lossy(&bytes).trim().replace('\r', ""))
    };
    paths.into_iter().map(read).collect()
}
