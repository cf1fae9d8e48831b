//! Manual pages and completion scripts of all programs, made from the flags' definitions.

use std::path::Path;

use anyhow::Context as _;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::compat::flags;
use crate::{exit, native};

/// The page of `quictun` itself.
pub fn main_page() -> String {
    page(native::args::command())
}

/// All pages by file name.
///
/// The page of the command `quictun server` is `quictun_server.1`, because `quictun-server` is a program.
pub fn pages() -> Vec<(String, String)> {
    let mut pages = Vec::new();
    let mut quictun = native::args::command();
    quictun.build();
    add_pages(&mut pages, quictun, "quictun");
    for program in [&flags::CLIENT, &flags::SERVER] {
        pages.push((format!("{}.1", program.name), page(program.command())));
    }
    pages
}

/// Writes all pages into a directory, which is made where it is missing.
pub fn write_pages(dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir)
        .with_context(|| format!("making the directory {}", dir.display()))?;
    for (name, text) in pages() {
        let path = dir.join(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        exit::print(&format!("{}\n", path.display()))?;
    }
    Ok(())
}

/// A completion script. `shell` and `program` have been checked against what there is.
pub fn completion(shell: &str, program: &str) -> String {
    let mut command = match program {
        "quictun-client" => flags::CLIENT.command(),
        "quictun-server" => flags::SERVER.command(),
        _ => native::args::command(),
    };
    let shell = match shell {
        "zsh" => Shell::Zsh,
        "fish" => Shell::Fish,
        _ => Shell::Bash,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, program, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

fn add_pages(pages: &mut Vec<(String, String)>, command: Command, name: &str) {
    for child in command.get_subcommands() {
        add_pages(
            pages,
            child.clone(),
            &format!("{name}_{}", child.get_name()),
        );
    }
    pages.push((
        format!("{name}.1"),
        page(command.name(name.to_owned()).display_name(name.to_owned())),
    ));
}

fn page(command: Command) -> String {
    let mut text = Vec::new();
    let version = format!("quictun {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command).source(version).manual("quictun");
    man.render(&mut text)
        .expect("invariant: a Vec takes whatever is written to it");
    String::from_utf8_lossy(&text).into_owned()
}
