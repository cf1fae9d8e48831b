//! Rule: documents teach only commands and flags that exist, and the README contains its two promised commands.

use crate::source::words;
use crate::tidy::{Finding, Tree, finding};

// The documents whose commands are checked, and the commands that the first document must contain.
const TEACHING: &[&str] = &[
    "README.md",
    "docs/OPERATIONS.md",
    "docs/MEASURING.md",
    "docs/TUTORIAL.md",
    "CONTRIBUTING.md",
];
const PROMISED: &[&str] = &["cargo run --release -- demo", "tests/run"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut all = Vec::new();
    for path in TEACHING {
        all.extend(commands(tree, path));
    }
    for promised in PROMISED {
        if !fenced(tree.text("README.md"))
            .iter()
            .any(|(_, line)| line == promised)
        {
            all.push(finding(
                "command",
                "README.md",
                0,
                format!("lacks the command `{promised}`"),
            ));
        }
    }
    if !tree
        .text("crates/cli/Cargo.toml")
        .contains("default-run = \"quictun\"")
    {
        all.push(finding(
            "command",
            "crates/cli/Cargo.toml",
            0,
            "`cargo run -- demo` needs `default-run = \"quictun\"`",
        ));
    }
    all
}

/// Returns the commands in fenced `console` and `sh` blocks with their line numbers.
///
/// Prompts are removed and continued lines are joined.
fn fenced(text: &str) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, String)> = Vec::new();
    let (mut fence, mut continued) = ("", false);
    for (number, line) in text.lines().enumerate() {
        if let Some(language) = line.trim().strip_prefix("```") {
            (fence, continued) = (if fence.is_empty() { language } else { "" }, false);
            continue;
        }
        let command = match fence {
            _ if continued => Some(line.trim()),
            "sh" => Some(line.trim()),
            "console" => line.split_once("$ ").map(|(_, command)| command.trim()),
            _ => None,
        };
        let Some(command) = command else { continue };
        let (part, more) = command
            .strip_suffix('\\')
            .map_or((command, false), |part| (part.trim_end(), true));
        match all.last_mut().filter(|_| continued) {
            Some((_, before)) => *before = format!("{before} {part}"),
            None => all.push((number + 1, part.to_owned())),
        }
        continued = more;
    }
    all
}

/// Finds commands and flags in a document that the committed help texts do not have.
fn commands(tree: &Tree, path: &str) -> Vec<Finding> {
    let mut all = Vec::new();
    for (line, command) in fenced(tree.text(path)) {
        let mut parts = command
            .split_whitespace()
            .skip_while(|word| *word == "sudo");
        let program = parts.next().unwrap_or_default().trim_start_matches("./");
        let program = program.strip_prefix("target/release/").unwrap_or(program);
        if !program.starts_with("quictun") {
            continue;
        }
        // Another program follows these.
        let ends = |part: &&str| matches!(*part, "--" | "|" | "||" | "&&");
        let parts: Vec<&str> = parts.take_while(|part| !ends(part)).collect();
        let subcommands = parts
            .iter()
            .take_while(|part| part.chars().all(|c| c.is_ascii_lowercase()));
        let subcommands: Vec<&str> = if program == "quictun" {
            subcommands.copied().take(2).collect()
        } else {
            Vec::new()
        };
        let name = |words: &[&str]| [&[program], words].concat().join("_");
        let mut candidates = (0..=subcommands.len())
            .rev()
            .map(|count| name(&subcommands[..count]));
        let help = candidates.find_map(|name| {
            let help = tree.text(&format!("crates/cli/tests/help/{name}.txt"));
            (!help.is_empty() && (name != "quictun" || subcommands.is_empty())).then_some(help)
        });
        let Some(help) = help else {
            all.push(finding(
                "command",
                path,
                line,
                format!("there is no `{program} {}`", subcommands.join(" ")),
            ));
            continue;
        };
        for part in parts
            .iter()
            .filter(|part| part.starts_with('-') && part.len() > 1)
        {
            let flag = part.split('=').next().unwrap_or_default();
            if words(help, flag)
                .next()
                .is_none_or(|at| help[at + flag.len()..].starts_with('-'))
            {
                all.push(finding(
                    "command",
                    path,
                    line,
                    format!("`{program}` has no flag `{flag}`"),
                ));
            }
        }
    }
    all
}
