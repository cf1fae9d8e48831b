//! Environment variables that show users and programs that they are behind a link: `QUICTUN_LINK`, and a mark in the
//! prompt.

use std::path::Path;

use quictun_link::LinkConfig;

/// The environment variable that describes the link.
pub(super) const LINK: &str = "QUICTUN_LINK";

/// The mark in front of a prompt.
const MARK: &str = "(link) ";

/// Describes the link in one line.
pub(super) fn described([up, down]: &[LinkConfig; 2]) -> String {
    if up == down {
        format!("each way {up}")
    } else {
        format!("up {up}; down {down}")
    }
}

/// Returns the environment variables that put a mark in front of a shell's prompt. `given` returns the variables that
/// the shell already has.
///
/// The start-up files of bash set its prompt, so bash adds the mark afterwards, and again whenever it is missing. Other
/// shells take their prompt from the environment, unless a start-up file sets one.
pub(super) fn variables(
    shell: &Path,
    given: impl Fn(&str) -> Option<String>,
) -> Vec<(&'static str, String)> {
    if shell.file_name().is_some_and(|name| name == "bash") {
        let mark = format!("case $PS1 in '{MARK}'*) ;; *) PS1='{MARK}'$PS1 ;; esac");
        let all = given("PROMPT_COMMAND").map_or(mark.clone(), |other| format!("{other}\n{mark}"));
        return vec![("PROMPT_COMMAND", all)];
    }
    vec![("PS1", format!("{MARK}$ "))]
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;

    /// Returns the standard error of an interactive shell that reads two empty lines. It contains the prompts.
    fn said(shell: &str, options: &[&str], given: Option<&str>) -> String {
        let mut command = Command::new(shell);
        command
            .args(options)
            .env_remove("ENV")
            .env("PS1", "usual> ");
        command.envs(variables(Path::new(shell), |_| given.map(str::to_owned)));
        let streams = [Stdio::piped(), Stdio::null(), Stdio::piped()];
        let [input, output, errors] = streams;
        command.stdin(input).stdout(output).stderr(errors);
        let mut child = command.spawn().expect("a shell");
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(b"\n\n").expect("written");
        drop(input);
        let ended = child.wait_with_output().expect("output");
        String::from_utf8_lossy(&ended.stderr).into_owned()
    }

    #[test]
    fn a_shell_behind_a_link_shows_it_in_each_prompt_once() {
        for given in [None, Some("true"), Some("PS1='other> '")] {
            let bash = said("bash", &["--norc", "-i"], given);
            let own = if given == Some("PS1='other> '") {
                "other> "
            } else {
                "usual> "
            };
            assert!(
                bash.matches(&format!("{MARK}{own}")).count() >= 2,
                "{given:?}: {bash}"
            );
            assert!(
                !bash.contains(&format!("{MARK}{MARK}")),
                "{given:?}: {bash}"
            );
        }
        let sh = said("sh", &["-i"], None);
        assert!(sh.matches(MARK).count() >= 2, "{sh}");
    }

    #[test]
    fn a_symmetric_link_is_described_once() {
        let slow = LinkConfig {
            delay: Duration::from_millis(20),
            ..LinkConfig::default()
        };
        let both = [slow.clone(), slow.clone()];
        assert_eq!(described(&both), format!("each way {slow}"));
        let up = LinkConfig::default();
        assert_eq!(
            described(&[up.clone(), slow.clone()]),
            format!("up {up}; down {slow}")
        );
    }
}
