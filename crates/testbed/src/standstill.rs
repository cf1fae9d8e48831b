//! Describes the processes of a test that does not end, and what their threads wait for.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Longest part of a command line that is shown, in characters.
const COMMAND_MAX: usize = 200;

/// Describes a process and its descendants, one line for each process and each thread. Parts that the kernel does not
/// show are left out.
pub(crate) fn describe(root: u32) -> String {
    let mut text =
        String::from("its processes, with the state of each thread and what it waits for:");
    let mut left = vec![root.to_string()];
    while let Some(pid) = left.pop() {
        let process = Path::new("/proc").join(&pid);
        let command = read(process.join("cmdline")).replace('\0', " ");
        let command: String = command.chars().take(COMMAND_MAX).collect();
        let mut lines = format!("\n{pid}: {command}");
        for thread in process
            .join("task")
            .read_dir()
            .into_iter()
            .flatten()
            .flatten()
        {
            let thread = thread.path();
            lines += &describe_thread(&thread);
            let children = read(thread.join("children"));
            left.extend(children.split_whitespace().map(str::to_owned));
        }
        text += &lines;
    }
    text
}

fn describe_thread(thread: &Path) -> String {
    // The name is in parentheses, and may contain some itself.
    let stat = read(thread.join("stat"));
    let Some((name, rest)) = stat.rsplit_once(") ") else {
        return String::new();
    };
    let (_, name) = name.split_once('(').unwrap_or_default();
    let state = rest.split(' ').next().unwrap_or_default();
    let mut line = format!("\n    {name}: {state}");
    for (file, what) in [("wchan", "in"), ("syscall", "system call"), ("stack", "at")] {
        let text = read(thread.join(file));
        let text: Vec<_> = text.split_whitespace().collect();
        if !text.is_empty() && write!(line, ", {what} {}", text.join(" ")).is_err() {}
    }
    line
}

/// Returns the text of a file in `/proc`. It is empty if the process has ended, or if this process may not read it.
fn read(file: PathBuf) -> String {
    let bytes = std::fs::read(file).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;
    use crate::deadline;
    use crate::program::Program;

    #[test]
    fn descendants_are_described_with_their_threads() -> anyhow::Result<()> {
        let mut command = Command::new("sh");
        command.args(["-c", "cat && true"]);
        let program = Program::start_with("sh", &mut command, Stdio::piped())?;
        let within = Duration::from_secs(20);
        deadline::until("both processes", within, || {
            let text = describe(program.pid());
            text.contains(": sh -c cat && true") && text.contains("\n    cat: S")
        })
    }
}
