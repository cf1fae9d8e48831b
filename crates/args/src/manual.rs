//! Manual pages of all programs, generated from the definitions of the flags.

use clap::Command;
use clap_mangen::Man;

use crate::compat::flags;
use crate::programs::{QUICTUN, QUICTUN_CLIENT, QUICTUN_SERVER};

/// The date on the pages. It changes with a release, not with a build.
const DATE: &str = "2026-11-25";

/// The programs and commands that carry connections.
const ENDS: [&str; 4] = [
    "quictun client",
    "quictun server",
    QUICTUN_CLIENT,
    QUICTUN_SERVER,
];

/// Returns all pages by file name, that of `quictun` first. `quictun` is the program's whole command line.
///
/// The page of the command `quictun server` is `quictun_server.1`, because `quictun-server` is a program.
pub fn pages(mut quictun: Command) -> Vec<(String, String)> {
    quictun.build();
    let mut commands = Vec::new();
    add(&mut commands, QUICTUN, &quictun);
    for program in [&flags::CLIENT, &flags::SERVER] {
        commands.push((program.name.to_owned(), program.command()));
    }
    let page = |(name, command): &(String, Command)| {
        let shown = commands
            .iter()
            .filter(|(_, command)| !command.is_hide_set());
        let others = shown.map(|(other, _)| other.as_str());
        let related = others.filter(|other| is_related(name, other)).collect();
        (page_name(name) + ".1", page(name, command, related))
    };
    commands.iter().map(page).collect()
}

fn add(commands: &mut Vec<(String, Command)>, name: &str, command: &Command) {
    commands.push((name.to_owned(), command.clone()));
    for child in command.get_subcommands() {
        add(commands, &format!("{name} {}", child.get_name()), child);
    }
}

fn page_name(name: &str) -> String {
    name.replace(' ', "_")
}

/// Returns whether a page refers to another one: the parent, child and sibling commands, and commands of the same
/// purpose.
fn is_related(name: &str, other: &str) -> bool {
    let around = |name: &str| name.rsplit_once(' ').map(|(around, _)| around.to_owned());
    let (own, others) = (around(name), around(other));
    let beside = own == others && own.as_deref() != Some(QUICTUN);
    let within = own.as_deref() == Some(other) || others.as_deref() == Some(name);
    let same_purpose = ENDS.contains(&name) && ENDS.contains(&other);
    name != other && (other == QUICTUN || beside || within || same_purpose)
}

fn page(name: &str, command: &Command, mut related: Vec<&str>) -> String {
    let mut text = Vec::new();
    let man = Man::new(command.clone().display_name(name.to_owned()))
        .title(page_name(name).to_uppercase())
        .date(DATE)
        .source(format!("quictun {}", env!("CARGO_PKG_VERSION")))
        .manual(QUICTUN);
    man.render(&mut text)
        .expect("invariant: writing to a Vec never fails");
    let mut text = String::from_utf8_lossy(&text).replace(".br\n\n.br\n", ".br\n");
    // The name is one word: man-db's list of all pages, which `whatis` and `apropos` read, has names without spaces.
    let heading = |name: &str| format!(".SH NAME\n{} \\- ", name.replace('-', "\\-"));
    text = text.replace(&heading(name), &heading(&page_name(name)));
    for child in command.get_subcommands().map(Command::get_name) {
        let page = page_name(&format!("{name} {child}"));
        text = text.replace(&format!("{name}\\-{child}(1)"), &format!("{page}(1)"));
    }
    related.sort_unstable();
    let related = related
        .iter()
        .map(|name| page_name(name).replace('-', "\\-"));
    let related: Vec<String> = related.map(|name| format!(".BR {name} (1)")).collect();
    folded(&text) + ".SH SEE ALSO\n" + &related.join(" ,\n") + "\n"
}

/// Breaks the page's text lines at spaces. A formatter fills paragraphs anyway, and people read the source of pages.
fn folded(page: &str) -> String {
    let mut folded = String::new();
    for line in page.lines().map(str::trim_end) {
        let mut rest = line;
        while rest.len() > LONGEST_LINE && !is_request(line) {
            let spaces = rest.match_indices(' ').map(|(at, _)| at);
            let fits = |at: &usize| {
                let after = rest[*at..].trim_start();
                *at <= LONGEST_LINE && !rest[..*at].trim_start().is_empty() && !is_request(after)
            };
            let Some(at) = spaces.rev().find(fits) else {
                break;
            };
            folded += rest[..at].trim_end();
            folded.push('\n');
            rest = rest[at..].trim_start();
        }
        folded += rest;
        folded.push('\n');
    }
    folded
}

/// Returns whether a line is a request to the formatter.
fn is_request(line: &str) -> bool {
    line.starts_with(['.', '\''])
}

/// The longest line that mandoc accepts without a message.
const LONGEST_LINE: usize = 80;
