//! Passes the name of the Cargo profile to the crate, so that reports can show it.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Cargo tells a build script only whether a profile inherits from `release`. The profile's name is in the path of
    // the output directory: `target/<profile>/build/<package>/out`.
    let out = std::env::var_os("OUT_DIR").unwrap_or_default();
    let profile = Path::new(&out).ancestors().nth(3).and_then(Path::file_name);
    let profile = profile.unwrap_or_default().to_string_lossy();
    println!("cargo::rustc-env=QUICTUN_PROFILE={profile}");
}
