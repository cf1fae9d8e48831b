//! Passes the commit, target and profile of the build to the program, and keeps the launchers small.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=QUICTUN_COMMIT");
    let commit = std::env::var("QUICTUN_COMMIT").ok().or_else(commit);
    let commit = commit.as_deref().unwrap_or("commit unknown");
    println!("cargo::rustc-env=QUICTUN_COMMIT={commit}");
    for (name, variable) in [("TARGET", "TARGET"), ("PROFILE", "OUT_DIR")] {
        let value = std::env::var(variable).unwrap_or_default();
        let value = if name == "PROFILE" {
            profile(&value)
        } else {
            &value
        };
        println!("cargo::rustc-env=QUICTUN_{name}={value}");
    }
    // Without this flag, the standard library's line tables make up most of a launcher's size.
    for launcher in ["quictun-server", "quictun-client"] {
        println!("cargo::rustc-link-arg-bin={launcher}=-Wl,--strip-debug");
    }
}

/// Returns the commit that is checked out, or `None` if the sources are not in a git clone.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    // Git appends to the log of HEAD at every commit and every checkout.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["show", "--no-patch", "--format=%h of %cs", "HEAD"])
}

/// Returns the profile that cargo builds: the directory above `build/PACKAGE/out`.
fn profile(out: &str) -> &str {
    out.rsplit('/').nth(3).unwrap_or_default()
}
