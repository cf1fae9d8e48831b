//! Texts for people: help, manual pages, completion scripts.
//!
//! The help texts are files in `tests/help`; `UPDATE=1 cargo test -p quictun-cli help` rewrites them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use quictun_args::compat::flags;
use quictun_args::{completion, manual};
use quictun_cli::native;
use quictun_skip::skipped;

/// Returns every command with the name of its help file.
pub(crate) fn commands() -> Vec<(String, clap::Command)> {
    fn add(all: &mut Vec<(String, clap::Command)>, name: &str, command: &clap::Command) {
        all.push((name.to_owned(), command.clone()));
        for child in command.get_subcommands() {
            add(all, &format!("{name}_{}", child.get_name()), child);
        }
    }
    let mut all = Vec::new();
    let mut quictun = native::command();
    quictun.build();
    add(&mut all, "quictun", &quictun);
    for program in [&flags::CLIENT, &flags::SERVER] {
        all.push((program.name.to_owned(), program.command()));
    }
    all
}

#[test]
fn the_help_texts_are_the_committed_ones() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    let update = std::env::var_os("UPDATE").is_some();
    let mut expected = BTreeSet::new();
    for (name, command) in commands() {
        let text = command.term_width(100).render_help().to_string();
        let path = dir.join(format!("{name}.txt"));
        expected.insert(path.clone());
        if update {
            fs::write(&path, &text).expect("cannot write the file in tests/help");
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == text,
            "{name}: run with UPDATE=1, and review the changes.\n{text}"
        );
    }
    let files = fs::read_dir(&dir)
        .expect("tests/help")
        .map(|entry| entry.expect("an entry").path());
    assert_eq!(
        files.collect::<BTreeSet<_>>(),
        expected,
        "tests/help has files of removed commands"
    );
}

#[test]
fn help_teaches() {
    for (name, command) in commands() {
        let text = command.term_width(100).render_help().to_string();
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{name}: too wide\n{text}"
        );
        let is_program = matches!(
            name.as_str(),
            "quictun_server" | "quictun_client" | "quictun-server" | "quictun-client"
        );
        if is_program {
            for part in [
                "Tunnel:",
                "Trust:",
                "Logs:",
                "Data path:",
                "[default: ",
                "Examples:",
                "KiB",
                "environment variable",
            ] {
                assert!(text.contains(part), "{name}: {part}");
            }
        }
    }
}

#[test]
fn there_is_a_manual_page_for_everything_under_its_own_name() {
    let pages = manual::pages(native::command());
    let names: Vec<String> = pages.iter().map(|(name, _)| name.clone()).collect();
    let commands: Vec<String> = commands()
        .iter()
        .map(|(name, _)| format!("{name}.1"))
        .collect();
    assert_eq!(
        names.iter().collect::<BTreeSet<_>>(),
        commands.iter().collect::<BTreeSet<_>>()
    );
    assert_eq!(
        names.len(),
        commands.len(),
        "two pages have the same name: {names:?}"
    );
    for (name, text) in &pages {
        let page = name.trim_end_matches(".1");
        let title = format!(".TH {} 1 20", page.to_uppercase());
        assert!(
            text.lines().any(|line| line.starts_with(&title)),
            "{name}:\n{text}"
        );
        // man-db takes one word as the name.
        let one_word = page.replace('-', "\\-");
        let called = one_word.replace('_', " ");
        for (section, start) in [
            ("NAME", format!("{one_word} \\- ")),
            ("SYNOPSIS", format!("\\fB{called}\\fR")),
        ] {
            let heading = format!(".SH {section}\n");
            let section = text.split(&heading).nth(1).unwrap_or_default();
            assert!(section.starts_with(&start), "{name}:\n{text}");
        }
    }
}

#[test]
fn manual_pages_name_each_other_and_nothing_else() {
    let pages = manual::pages(native::command());
    for (name, text) in &pages {
        let plain = text.replace("\\-", "-").replace(" (1)", "(1)");
        let named: BTreeSet<String> = plain
            .split("(1)")
            .filter_map(|before| before.split_whitespace().last())
            .filter(|word| word.starts_with("quictun"))
            .map(|word| format!("{word}.1"))
            .collect();
        let known = |named: &&String| pages.iter().any(|(name, _)| name == *named);
        assert_eq!(
            named.iter().find(|named| !known(named)),
            None,
            "{name}:\n{text}"
        );
        let see_also = plain.split(".SH SEE ALSO\n").nth(1).unwrap_or_default();
        let own = see_also
            .lines()
            .filter(|line| line.starts_with(".BR quictun"));
        assert!(own.count() > 0, "{name}:\n{text}");
        assert!(
            !named.contains(name) && !named.contains("quictun_forbidden.1"),
            "{name}:\n{text}"
        );
    }
    let of = |name: &str| {
        let page = pages.iter().find(|(of, _)| of == name);
        let (_, text) = page.unwrap_or_else(|| panic!("{name} is missing"));
        text.split(".SH SEE ALSO\n").nth(1).unwrap_or_default()
    };
    assert_eq!(of("quictun_status.1"), ".BR quictun (1)\n");
    assert_eq!(
        of("quictun-client.1"),
        ".BR quictun (1) ,\n.BR quictun_client (1) ,\n.BR quictun_server (1) ,\n.BR quictun\\-server (1)\n"
    );
    assert_eq!(
        of("quictun_config_check.1"),
        ".BR quictun (1) ,\n.BR quictun_config (1) ,\n.BR quictun_config_print (1)\n"
    );
}

#[test]
fn mandoc_accepts_the_pages() {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, text) in manual::pages(native::command()) {
        let path = dir.path().join(&name);
        fs::write(&path, text).expect("a file");
        let mut mandoc = Command::new("mandoc");
        let output = match mandoc
            .args(["-T", "lint", "-W", "style"])
            .arg(&path)
            .output()
        {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return skipped(
                    "help::mandoc_accepts_the_pages",
                    "mandoc is missing: apt-get install -y mandoc",
                );
            }
            output => output.expect("mandoc starts"),
        };
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.is_empty(),
            "{name}:\n{said}"
        );
    }
}

#[test]
fn completion_scripts_know_the_flags_and_the_choices() {
    for shell in ["bash", "zsh", "fish"] {
        for (program, flag) in [
            ("quictun", "psk-file"),
            ("quictun-client", "token-source"),
            ("quictun-server", "verify-client"),
        ] {
            let script = completion::script(shell, program, &native::command());
            assert!(
                script.contains(flag) && script.contains("newreno") && script.contains("stderr"),
                "{shell} {program}"
            );
            let knows_scenarios = script.contains("published-bandwidth");
            assert_eq!(knows_scenarios, program == "quictun", "{shell} {program}");
        }
    }
}

#[test]
fn completion_scripts_do_not_offer_what_the_help_hides() {
    for shell in ["bash", "zsh", "fish"] {
        for (program, hidden) in [
            ("quictun", "forbidden"),
            ("quictun", "for-command"),
            ("quictun-server", "log-disable-caller"),
        ] {
            let script = completion::script(shell, program, &native::command());
            assert!(!script.contains(hidden), "{shell} {program}: {hidden}");
        }
    }
}

#[test]
fn scripts_for_zsh_and_fish_offer_files_where_a_value_is_a_word_or_a_file() {
    let script = |shell| completion::script(shell, "quictun", &native::command());
    let zsh = script("zsh");
    assert!(zsh.contains("\n_quictun_words_or_files() {\n"));
    for value in [
        ":FILE|system: _quictun_words_or_files system' \\\n",
        ":PATHS: _quictun_words_or_files stdout stderr' \\\n",
        ": _quictun_words_or_files published-bandwidth ",
        "'*::command:_cmdambivalent' \\\n",
    ] {
        assert!(zsh.contains(value), "{value}");
    }
    assert_eq!(
        zsh.matches("'-c+[Configuration file, TOML]:FILE:_files'")
            .count(),
        4
    );
    let fish = script("fish");
    let of = |command: &str, flag: &str| {
        let (about, flag) = (
            format!("_using_subcommand {command}\""),
            format!(" -l {flag} "),
        );
        let mut lines = fish.lines();
        let line = lines.find(|line| line.contains(&about) && line.contains(&flag));
        line.unwrap_or_else(|| panic!("{command} {flag}"))
    };
    for (command, flag, end) in [
        ("client", "ca", " -r -F -a \"system\\t''\""),
        ("run", "ca", " -r -F -a \"system\\t''\""),
        ("run", "config", " -r -F"),
        ("server", "log-output", " -r -F -a \"stdout\\t''"),
        ("server", "log-format", " -r -f -a \"text\\t''"),
    ] {
        let line = of(command, flag);
        assert!(line.ends_with(end), "{line}");
    }
}

/// Returns the completions that bash computes for the last word of a command line. In the working directory are the
/// file `client.toml` and the directory `state`.
fn completed_by_bash(line: &[&str]) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a directory");
    let (program, script) = (line[0], dir.path().join("script"));
    let text = completion::script("bash", program, &native::command());
    fs::write(&script, text).expect("a file");
    fs::write(dir.path().join("client.toml"), "").expect("a file");
    fs::create_dir(dir.path().join("state")).expect("a directory");
    // `compopt` fails outside of a completion, and changes how words are shown only.
    let run = r#"
        source ./script
        compopt() { :; }
        COMP_WORDS=("$@")
        COMP_CWORD=$(( $# - 1 ))
        "_${1//-/__}" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let output = Command::new("bash")
        .args(["--norc", "--noprofile", "-c", run, "bash"])
        .args(line)
        .current_dir(dir.path())
        .output()
        .expect("bash starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.is_empty(),
        "{line:?}: {said}"
    );
    let words = String::from_utf8_lossy(&output.stdout);
    words.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_words_and_files() {
    if Command::new("bash").arg("--version").output().is_err() {
        return skipped(
            "help::bash_completes_commands_words_and_files",
            "bash is missing",
        );
    }
    for (line, expected) in [
        (&["quictun", "fo"][..], &[""][..]),
        (&["quictun", "conf"], &["confirm", "config"]),
        (&["quictun", "client", "-c", "cl"], &["client.toml"]),
        (&["quictun", "run", "-c", "cl"], &["client.toml"]),
        (&["quictun", "run", "--config", "cl"], &["client.toml"]),
        (&["quictun", "run", "--psk"], &["--psk-file"]),
        (&["quictun", "run", "--for-c"], &[""]),
        (
            &["quictun", "run", "--ca", "s"],
            &["system", "script", "state"],
        ),
        (&["quictun", "client", "--ca", "cl"], &["client.toml"]),
        (
            &["quictun", "server", "--log-output", "st"],
            &["stdout", "stderr", "state"],
        ),
        (&["quictun", "server", "--log-format", "c"], &["console"]),
        (&["quictun", "completion", "z"], &["zsh"]),
        (
            &["quictun-server", "--log-output-paths", "cl"],
            &["client.toml"],
        ),
        (&["quictun-server", "--log-d"], &[""]),
    ] {
        let mut found = completed_by_bash(line);
        found.sort();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(found, expected, "{line:?}");
    }
    // Behind `--` is the command line of another program.
    let run = ["quictun", "run", "-c", "client.toml", "--"];
    let commands = completed_by_bash(&[&run[..], &["bas"]].concat());
    assert!(commands.iter().any(|word| word == "bash"), "{commands:?}");
    assert_eq!(
        completed_by_bash(&[&run[..], &["bash", "--ps"]].concat()),
        [""]
    );
    let shell = ["quictun", "link", "shell", "--", "bas"];
    assert!(completed_by_bash(&shell).iter().any(|word| word == "bash"));
}
