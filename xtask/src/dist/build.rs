//! Builds the programs for packages reproducibly: the same source gives the same bytes in any directory.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use super::release::Release;
use super::target::Target;

/// The build profile of `Cargo.toml` that packages use.
const PROFILE: &str = "dist";
/// The command that installs the C compiler for statically linked programs. zig ships musl's headers for every
/// architecture.
const ZIG: &str = "python3 -m venv ~/zig && . ~/zig/bin/activate && pip install ziglang==0.17.1 cargo-zigbuild==0.24.1";

/// Builds the program for a target and returns its path. Needs no network.
pub(crate) fn program(root: &Path, release: &Release, target: Target) -> Result<PathBuf> {
    check(root, target)?;
    let output = target_directory(root)?;
    let mut cargo = Command::new(env!("CARGO"));
    cargo.arg(if target.is_static() {
        "zigbuild"
    } else {
        "build"
    });
    cargo.args(["--locked", "--offline", "--profile", PROFILE]);
    cargo.args(["--package", "quictun-cli", "--bin", "quictun"]);
    cargo.args(["--target", target.triple()]);
    let places = places(root, &output)?;
    let for_rust = places
        .iter()
        .map(|(from, to)| format!("--remap-path-prefix={from}={to}"));
    let for_rust: Vec<String> = for_rust.collect();
    let for_c = places
        .iter()
        .map(|(from, to)| format!("-ffile-prefix-map={from}={to}"));
    let for_c: Vec<String> = for_c.collect();
    cargo.env("CARGO_ENCODED_RUSTFLAGS", for_rust.join("\u{1f}"));
    cargo.env_remove("RUSTFLAGS");
    let triple = target.triple().replace('-', "_");
    cargo.env(format!("CFLAGS_{triple}"), for_c.join(" "));
    if target.is_static() {
        // Rust ships musl and this linker. zig's linker would produce a program that loads at a fixed address.
        let linker = format!("CARGO_TARGET_{}_LINKER", triple.to_uppercase());
        cargo.env(linker, "rust-lld");
    }
    cargo.env("SOURCE_DATE_EPOCH", release.date.to_string());
    let status = cargo.current_dir(root).status();
    let status = status.with_context(|| format!("building for {}", target.triple()))?;
    ensure!(
        status.success(),
        "building for {} failed; if packages are missing, run `cargo fetch --locked`",
        target.triple()
    );
    Ok(output.join(target.triple()).join(PROFILE).join("quictun"))
}

/// Checks that the toolchain for `target` is installed. The error names the command that installs the missing part.
fn check(root: &Path, target: Target) -> Result<()> {
    let triple = target.triple();
    let library = said(
        root,
        "rustc",
        &["--print", "target-libdir", "--target", triple],
    )?;
    ensure!(
        Path::new(library.trim()).exists(),
        "Rust's standard library for {triple} is not installed: run `rustup target add {triple}`"
    );
    if target.is_static() && said(root, "cargo-zigbuild", &["--version"]).is_err() {
        bail!("a program for {triple} needs zig as its C compiler: run `{ZIG}`");
    }
    Ok(())
}

/// Returns the directories of this machine that must not appear in programs, each with its replacement.
fn places(root: &Path, output: &Path) -> Result<Vec<(String, &'static str)>> {
    let home = match std::env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => std::env::home_dir()
            .context("the home directory is unknown: set CARGO_HOME")?
            .join(".cargo"),
    };
    let sysroot = said(root, "rustc", &["--print", "sysroot"])?;
    let root = root.canonicalize().context("the repository's directory")?;
    let text = |path: &Path| path.display().to_string();
    // If several prefixes match a path, the compilers apply the last one.
    Ok(vec![
        (sysroot.trim().to_owned(), "/rust"),
        (text(&home), "/cargo"),
        (text(&root), "/quictun"),
        (text(output), "/quictun/target"),
    ])
}

fn target_directory(root: &Path) -> Result<PathBuf> {
    let arguments = [
        "metadata",
        "--format-version",
        "1",
        "--no-deps",
        "--offline",
    ];
    let metadata = said(root, env!("CARGO"), &arguments)?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)?;
    let directory = metadata["target_directory"].as_str();
    Ok(PathBuf::from(
        directory.context("cargo metadata has no target_directory")?,
    ))
}

fn said(root: &Path, program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    let output = command.args(arguments).current_dir(root).output();
    let output = output.with_context(|| format!("starting {program}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {error}");
    String::from_utf8(output.stdout)
        .with_context(|| format!("the output of {program} is not UTF-8"))
}
