//! Manual pages and completion scripts of all programs, made from the flags' definitions.

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::compat::flags;

/// All pages by file name; `quictun` is its whole command line.
///
/// The page of the command `quictun server` is `quictun_server.1`, because `quictun-server` is a program.
pub fn pages(mut quictun: Command) -> Vec<(String, String)> {
    let mut pages = Vec::new();
    quictun.build();
    add_pages(&mut pages, quictun, "quictun");
    for program in [&flags::CLIENT, &flags::SERVER] {
        pages.push((format!("{}.1", program.name), page(program.command())));
    }
    pages
}

/// A completion script. `shell` and `program` have been checked against what there is.
pub fn completion(shell: &str, program: &str, quictun: Command) -> String {
    let mut command = match program {
        "quictun-client" => flags::CLIENT.command(),
        "quictun-server" => flags::SERVER.command(),
        _ => quictun,
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

/// The page of one command.
pub fn page(command: Command) -> String {
    let mut text = Vec::new();
    let version = format!("quictun {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command).source(version).manual("quictun");
    man.render(&mut text)
        .expect("invariant: a Vec takes whatever is written to it");
    String::from_utf8_lossy(&text).into_owned()
}
