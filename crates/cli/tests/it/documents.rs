//! The programs accept every command of README.md and OPERATIONS.md, word for word.
//!
//! The modules `tutorial` and `first_minutes` of `quictun-e2e` also run the commands of the tutorial and of README's
//! first minutes.

use crate::test_inputs::{PIN, TestInputs};

const DOCUMENTS: [(&str, &str); 2] = [
    ("README.md", include_str!("../../../../README.md")),
    (
        "docs/OPERATIONS.md",
        include_str!("../../../../docs/OPERATIONS.md"),
    ),
];

/// The start of each command of another program, with the reason why this test does not run it.
const OTHERS: &[(&str, &str)] = &[
    (
        "cargo run --release -- demo",
        "`demo` runs in the tests of this crate",
    ),
    ("tests/run", "runs this test"),
    ("chgrp quictun ", "needs the user that the package makes"),
    ("chmod 640 ", "needs the user that the package makes"),
    (
        "chromium --user-data-dir=",
        "needs a browser and a user's server",
    ),
    (
        "curl -s http://127.0.0.1:8086/",
        "the tests of REST.md and METRICS.md ask the same",
    ),
    (
        "curl --proxy",
        "`proxy` of quictun-e2e runs curl in each of these ways",
    ),
    ("docker ", "needs a service that the tests lack"),
    (
        "install -m 640 -g quictun ",
        "needs the user that the package makes",
    ),
    (
        "iperf3 -c 127.0.0.1 -p 6500",
        "runs in `published` of quictun-e2e",
    ),
    (
        "git -c http.proxy=",
        "speaks SOCKS as curl does, whose library it uses",
    ),
    ("jq -c ", "reads the log of a user's server"),
    (
        "ssh -o ProxyCommand='nc -X 5",
        "`bonds` of quictun-e2e runs ssh in this way",
    ),
    ("ssh -p 8022 ", "a port of `first_minutes` of quictun-e2e"),
    ("sysctl -w ", "changes the machine"),
    (
        "systemctl ",
        "needs a service manager; `unit_files` and `service` test the units",
    ),
    ("touch /etc/quictun/", "changes the machine's configuration"),
];

/// Returns each command without its prompt, with its line number.
fn commands(text: &str) -> Vec<(usize, &str)> {
    let mut block = "";
    let lines = text.lines().enumerate().filter_map(|(number, line)| {
        if let Some(language) = line.strip_prefix("```") {
            block = language;
            return None;
        }
        let command = match block {
            "sh" => line,
            // A prompt is `$ ` or `# `, perhaps after the name of a machine. A line without a prompt is output.
            "console" => {
                let (machine, command) = line.split_once(['$', '#'])?;
                let is_prompt = machine.chars().all(|c| c.is_ascii_lowercase());
                command.strip_prefix(' ').filter(|_| is_prompt)?
            }
            _ => return None,
        };
        (!command.is_empty()).then_some((number + 1, command))
    });
    lines.collect()
}

/// Returns the arguments as a shell, and a reader with a real pin, would make them.
fn arguments(written: &str) -> String {
    let own = written.split(['>', '|', '&']).next().unwrap_or_default();
    own.trim()
        .replace("sha256:...", PIN)
        .replace("~/", "/home/me/")
}

/// A machine with the files that the commands name.
fn inputs() -> TestInputs {
    let client =
        format!("server = 'h:1'\npin = '{PIN}'\n[[forward]]\nlisten = 1\ntarget = 'h:1'\n");
    TestInputs::default()
        .env("HOME", "/home/me")
        .file("/etc/quictun/server.toml", "")
        .file("/home/me/.config/quictun/client.toml", &client)
        .file("client.toml", &client)
        .file("client.psk", "")
        .file("proxy-login", "ann:wonder")
        .file("/etc/letsencrypt/live/web.example.org/fullchain.pem", "")
        .file("/etc/letsencrypt/live/web.example.org/privkey.pem", "")
}

#[test]
fn every_command_in_the_documents_is_one_that_the_programs_take() {
    let inputs = inputs();
    let mut used = vec![false; OTHERS.len()];
    let mut own = 0;
    for (document, text) in DOCUMENTS {
        for (line, command) in commands(text) {
            let command = command.strip_prefix("sudo ").unwrap_or(command);
            let (program, rest) = command.split_once(' ').unwrap_or((command, ""));
            let rest = arguments(rest);
            let fault = match program.trim_start_matches("./") {
                "quictun" => inputs.native(&rest).err(),
                "quictun-server" => inputs.compat_server(&rest).err(),
                "quictun-client" => inputs.compat_client(&rest).err(),
                _ => {
                    let known = OTHERS
                        .iter()
                        .position(|(begin, _)| command.starts_with(begin));
                    let known = known.unwrap_or_else(|| {
                        panic!("{document}:{line}: OTHERS does not say why no test runs: {command}")
                    });
                    used[known] = true;
                    continue;
                }
            };
            own += 1;
            assert!(fault.is_none(), "{document}:{line}: {command}: {fault:?}");
        }
    }
    assert!(own >= 15, "only {own} commands were found");
    for ((begin, why), used) in OTHERS.iter().zip(used) {
        assert!(
            used,
            "no document has such a command any more, remove it from OTHERS: {begin} ({why})"
        );
    }
}
