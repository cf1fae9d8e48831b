//! The licences of what is in the program, which ask to be handed on with it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::sbom::Package;

/// How files with licences begin, in capitals.
const BEGINNINGS: [&str; 6] = [
    "LICENSE",
    "LICENCE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
    "UNLICENSE",
];
/// Libraries in C that packages bring with them, and where their licences are.
const WITHIN: [(&str, &str); 1] = [("aws-lc-sys", "aws-lc/LICENSE")];

/// Every text once, after the packages that it is of.
pub(crate) fn text<'a>(packages: impl Iterator<Item = &'a Package>) -> Result<String> {
    let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages.filter(|package| !package.is_ours()) {
        let name = format!("{} {} ({})", package.name, package.version, package.licence);
        let dir = Path::new(&package.manifest).parent();
        let texts = texts(
            &package.name,
            dir.context("a manifest without a directory")?,
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

/// The texts of one package.
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
