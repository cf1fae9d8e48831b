//! Implements `cargo xtask dist`: builds every package of a release.
//!
//! `build` compiles the programs, unless `--program` names finished ones. Then this module writes every package from
//! [`Files`] and a single timestamp, that of the commit. It uses no packaging tool of the machine, so the same commit
//! gives the same bytes everywhere.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use contents::{GeneratedFiles, Installer};
use files::Files;
use release::Release;
use target::Target;

mod build;
mod contents;
mod deb;
mod digest;
mod elf;
mod files;
mod notices;
mod oci;
mod release;
mod rpm;
mod sbom;
mod tarball;
mod target;
#[cfg(test)]
mod tests;

/// The command line of `cargo xtask dist`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// The directory that receives the packages.
    out: PathBuf,
    /// The systems to build packages for.
    targets: Vec<Target>,
    /// Programs that are already built, with their targets.
    programs: Vec<(Target, PathBuf)>,
    /// If set, only the unpacked files of the single target's archive are written into `out`.
    is_tree: bool,
}

/// A package's file name and bytes.
type Package = (String, Vec<u8>);

impl Options {
    /// Reads `--out DIR`, `--target TRIPLE`, `--program TRIPLE=FILE` and `--tree`.
    pub(crate) fn read(given: &[&str]) -> Result<Self> {
        let mut options = Self {
            out: PathBuf::from("target/packages"),
            targets: Vec::new(),
            programs: Vec::new(),
            is_tree: false,
        };
        let mut rest = given.iter();
        while let Some(&flag) = rest.next() {
            if flag == "--tree" {
                options.is_tree = true;
                continue;
            }
            let value = rest
                .next()
                .with_context(|| format!("{flag}: a value is missing"))?;
            match flag {
                "--out" => options.out = PathBuf::from(value),
                "--target" => options.targets.push(Target::named(value)?),
                "--program" => {
                    let pair = value.split_once('=');
                    let (triple, path) = pair.context("--program: write TRIPLE=FILE")?;
                    let program = (Target::named(triple)?, PathBuf::from(path));
                    options.programs.push(program);
                }
                _ => bail!("unknown flag {flag}: use --out, --target, --program or --tree"),
            }
        }
        if options.targets.is_empty() {
            let given = options.programs.iter().map(|(target, _)| *target);
            options.targets = given.collect();
        }
        if options.targets.is_empty() {
            options.targets = Target::of_release();
        }
        ensure!(
            !options.is_tree || options.targets.len() == 1,
            "--tree: name one --target"
        );
        Ok(options)
    }
}

/// Builds and writes all packages. Returns a list of the files and their sizes.
pub(crate) fn run(root: &Path, options: &Options) -> Result<String> {
    let release = Release::read(root)?;
    let mut programs = Vec::new();
    for &target in &options.targets {
        let given = options.programs.iter().find(|(of, _)| *of == target);
        let path = match given {
            Some((_, path)) => path.clone(),
            None => build::program(root, &release, target)?,
        };
        let bytes = std::fs::read(&path);
        let bytes = bytes.with_context(|| format!("reading {}", path.display()))?;
        programs.push((target, path, bytes));
    }
    let ours = programs.iter().find(|(target, ..)| target.runs_here());
    let (_, ours, _) = ours.context(
        "manual pages and completions come from the program itself: name a target that this machine can run as well",
    )?;
    let written = GeneratedFiles::by(ours)?;
    let packages = sbom::packages(root, &Target::ALL)?;
    let mut licences = Files::default();
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        licences.text(name, contents::read(root, name)?);
    }
    let third_party = notices::text(packages.values())?;
    licences.text("THIRD-PARTY", &third_party);
    let sources = PackageInputs {
        root,
        release,
        written,
        licences,
        third_party,
    };
    if let ([(_, _, program)], true) = (&programs[..], options.is_tree) {
        return sources.tree(program, &options.out);
    }
    let mut made = Vec::new();
    for (target, _, program) in &programs {
        made.push(sources.archive(*target, program)?);
        if target.is_static() {
            made.push(oci::build(&sources, *target, program)?);
        } else {
            made.push(deb::build(&sources, *target, program)?);
            made.push(rpm::build(&sources, *target, program)?);
        }
    }
    let lock = String::from_utf8(contents::read(root, "Cargo.lock")?)?;
    let list = sbom::document(&sources.release, &packages, &lock)?;
    let name = format!("quictun-{}.cdx.json", sources.release.version);
    made.push((name, list.into_bytes()));
    write(&options.out, made)
}

/// The inputs of all packages, apart from the programs.
#[derive(Debug)]
struct PackageInputs<'a> {
    root: &'a Path,
    release: Release,
    written: GeneratedFiles,
    /// The licence files of the program and of the libraries that it contains.
    licences: Files,
    third_party: String,
}

impl PackageInputs<'_> {
    /// Builds a compressed tar archive that contains an installer.
    fn archive(&self, target: Target, program: &[u8]) -> Result<Package> {
        let name = format!("quictun-{}-{}", self.release.version, target.triple());
        let mut files = Files::default();
        files.extend(&name, &self.unpacked(program)?);
        let archive = tarball::gzip(&tarball::tar(&files, self.release.date)?)?;
        Ok((format!("{name}.tar.gz"), archive))
    }

    /// Returns the files of such an archive.
    fn unpacked(&self, program: &[u8]) -> Result<Files> {
        let mut files = contents::files(self.root, program, &self.written, Installer::Upstream)?;
        files.extend("share/licenses/quictun", &self.licences);
        files.program(
            "install.sh",
            contents::read(self.root, "packaging/install.sh")?,
        );
        files.text("README.md", contents::read(self.root, "README.md")?);
        Ok(files)
    }

    /// Writes the files of the archive into a directory.
    fn tree(&self, program: &[u8], out: &Path) -> Result<String> {
        let files = self.unpacked(program)?;
        files.write(out)?;
        Ok(format!("{}\n", out.display()))
    }
}

/// Writes the packages and the file `SHA256SUMS` into `out`. Returns a list of the files and their sizes.
fn write(out: &Path, mut packages: Vec<Package>) -> Result<String> {
    packages.sort();
    let sums = packages.iter().map(|(name, bytes)| {
        let sum = digest::sha256(bytes);
        format!("{sum}  {name}\n")
    });
    let sums: String = sums.collect();
    packages.push(("SHA256SUMS".to_owned(), sums.into_bytes()));
    std::fs::create_dir_all(out).with_context(|| format!("making {}", out.display()))?;
    let mut said = String::new();
    for (name, bytes) in &packages {
        let path = out.join(name);
        std::fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))?;
        writeln!(said, "{:>10}  {}", bytes.len(), path.display())?;
    }
    Ok(said)
}
