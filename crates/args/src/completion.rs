//! Completion scripts of all programs, generated from the definitions of the flags.
//!
//! `clap_complete` writes the scripts. This module chooses what it sees, and adds what it leaves out.

use clap::{Arg, ArgAction, Command, ValueHint};
use clap_complete::Shell;

use crate::compat::flags;
use crate::native;
use crate::programs::{QUICTUN_CLIENT, QUICTUN_SERVER};

/// Generates a completion script. `quictun` is the whole command line of that program. The caller has checked that
/// `shell` and `program` are known.
pub fn script(shell: &str, program: &str, quictun: &Command) -> String {
    let mut command = match program {
        QUICTUN_CLIENT => without_hidden(&flags::CLIENT.command()),
        QUICTUN_SERVER => without_hidden(&flags::SERVER.command()),
        _ => {
            let children = quictun.get_subcommands();
            let children = children.map(|child| match child.get_name() {
                "run" => of_run(child),
                _ => child.clone(),
            });
            shown(quictun, &children.collect::<Vec<_>>())
        }
    };
    let shell = match shell {
        "zsh" => Shell::Zsh,
        "fish" => Shell::Fish,
        _ => Shell::Bash,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, program, &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    let files_too = words_or_files(&command);
    match shell {
        Shell::Fish => in_fish(script, &files_too) + &words_for_fish(&command, program),
        Shell::Zsh => in_zsh(&script, &files_too, program),
        _ => in_bash(script, &files_too, &command, program),
    }
}

/// Builds `quictun run` with the flags that it passes on to its client. Its own definition takes all words as they are.
fn of_run(run: &Command) -> Command {
    let command = Arg::new("command")
        .value_name("COMMAND")
        .value_hint(ValueHint::CommandWithArguments)
        .num_args(1..)
        .action(ArgAction::Append)
        .last(true);
    let about = run.get_about().cloned().unwrap_or_default();
    let run = Command::new("run").about(about);
    native::flags::CLIENT.add_to(run).arg(command)
}

/// Copies a command without hidden flags and commands, which `clap_complete` would offer.
fn without_hidden(command: &Command) -> Command {
    let children: Vec<Command> = command.get_subcommands().cloned().collect();
    shown(command, &children)
}

/// Copies a command with these subcommands, without those that are hidden.
fn shown(command: &Command, children: &[Command]) -> Command {
    let arguments = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let children = children.iter().filter(|child| !child.is_hide_set());
    let about = command.get_about().cloned().unwrap_or_default();
    let shown = Command::new(command.get_name().to_owned())
        .about(about)
        .args(arguments.cloned())
        .subcommands(children.map(without_hidden))
        .disable_help_subcommand(true);
    match command.get_version() {
        Some(version) => shown.version(version.to_owned()),
        None => shown,
    }
}

/// Returns the words of each argument whose value is one of these words or the name of a file. `clap_complete` offers
/// the words only.
fn words_or_files(command: &Command) -> Vec<Vec<String>> {
    let takes_file = |arg: &&Arg| arg.get_value_hint() == ValueHint::FilePath;
    let own = command.get_arguments().filter(takes_file).map(|arg| {
        let words = arg.get_possible_values();
        let words = words.iter().map(|word| word.get_name().to_owned());
        words.collect::<Vec<_>>()
    });
    let mut all: Vec<_> = own.filter(|words| !words.is_empty()).collect();
    all.extend(command.get_subcommands().flat_map(words_or_files));
    all.sort();
    all.dedup();
    all
}

fn in_bash(mut script: String, files_too: &[Vec<String>], command: &Command, name: &str) -> String {
    for words in files_too {
        // For names of files, the script separates words by line feeds.
        let (words, lines) = (words.join(" "), words.join("\\n"));
        script = script.replace(
            &format!(r#"$(compgen -W "{words}" -- "${{cur}}")"#),
            &format!(r#"$(compgen -W $'{lines}' -- "${{cur}}"; compgen -f -- "${{cur}}")"#),
        );
    }
    for command in with_command_line(command, &name.replace('-', "__")) {
        let case = format!("        {command})\n");
        script = script.replace(&case, &format!("{case}{BASH_COMMAND_LINE}"));
    }
    script
}

/// The beginning of a case in the script for bash. Behind `--` is the command line of another program: the name of a
/// command, then the words that bash completes without this script.
const BASH_COMMAND_LINE: &str = r#"            local at
            for (( at = 1; at < COMP_CWORD; at++ )); do
                if [[ "${COMP_WORDS[at]}" == "--" ]]; then
                    if (( at + 1 == COMP_CWORD )); then
                        COMPREPLY=( $(compgen -c -- "${cur}") )
                    fi
                    return 0
                fi
            done
"#;

/// Returns the commands that run another program's command line behind `--`, as the script for bash spells them.
fn with_command_line(command: &Command, spelling: &str) -> Vec<String> {
    let runs = |arg: &Arg| arg.get_value_hint() == ValueHint::CommandWithArguments;
    let own = command.get_positionals().any(runs);
    let mut all: Vec<String> = own.then(|| spelling.to_owned()).into_iter().collect();
    for child in command.get_subcommands() {
        let name = child.get_name().replace('-', "__");
        all.extend(with_command_line(
            child,
            &format!("{spelling}__subcmd__{name}"),
        ));
    }
    all
}

fn in_fish(mut script: String, files_too: &[Vec<String>]) -> String {
    for words in files_too {
        let words: Vec<String> = words.iter().map(|word| format!("{word}\\t''")).collect();
        let words = words.join("\n");
        script = script.replace(
            &format!(" -r -f -a \"{words}\""),
            &format!(" -r -F -a \"{words}\""),
        );
    }
    script
}

/// Returns completions for the positional words of nested commands, which `clap_complete` omits in scripts for fish.
fn words_for_fish(command: &Command, program: &str) -> String {
    let function = format!("__fish_{}_using_subcommand", program.replace('-', "_"));
    let pairs = command.get_subcommands().flat_map(|outer| {
        let inner = outer.get_subcommands();
        inner.map(move |inner| (outer.get_name(), inner))
    });
    let line = |(outer, inner): (&str, &Command)| {
        let values = inner.get_positionals().flat_map(Arg::get_possible_values);
        let words: Vec<String> = values.map(|value| value.get_name().to_owned()).collect();
        let (inner, words) = (inner.get_name(), words.join(" "));
        (!words.is_empty()).then(|| {
            format!(
                "complete -c {program} -n \"{function} {outer}; and __fish_seen_subcommand_from {inner}\" -a \"{words}\"\n"
            )
        })
    };
    pairs.filter_map(line).collect()
}

fn in_zsh(script: &str, files_too: &[Vec<String>], program: &str) -> String {
    let function = format!("_{program}_words_or_files");
    let mut used = false;
    let mut out = script.to_owned();
    for words in files_too {
        let words = words.join(" ");
        let (from, to) = (format!(":({words})'"), format!(": {function} {words}'"));
        used |= out.contains(&from);
        out = out.replace(&from, &to);
    }
    let Some((head, rest)) = out.split_once("\n\n").filter(|_| used) else {
        return out;
    };
    format!(
        "{head}\n\n{function}() {{\n    local ret=1\n    compadd -- \"$@\" && ret=0\n    _files && ret=0\n    return ret\n}}\n\n{rest}"
    )
}
