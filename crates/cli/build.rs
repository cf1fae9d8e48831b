//! Keeps the launchers small.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The standard library's line tables are most of what a launcher would weigh.
    for launcher in ["quictun-server", "quictun-client"] {
        println!("cargo::rustc-link-arg-bin={launcher}=-Wl,--strip-debug");
    }
}
