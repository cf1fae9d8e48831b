//! The names of each option of `quictun server` and `quictun client` on the command line, in the environment and in
//! files, with its default, as `quictun config print` shows them.

use std::fmt::Write as _;

use super::golden;
use crate::help::commands;
use crate::test_inputs::{PIN, TestInputs};

/// Flags that have no key in configuration files, or have one only together with others.
const WITHOUT_KEY: [&str; 13] = [
    "help",
    "config",
    "confirm",
    "tun-fd",
    "netstack-fd",
    "one-process",
    "for-command",
    "server-address",
    "no-confine",
    "take-over",
    "reload",
    "verbose",
    "quiet",
];

/// The flags without which the others about an authority are refused.
const ACME: &str = "--acme web.example.org --acme-accept-terms --https-proxy";

/// The smallest configuration of a client.
const CLIENT: &str = "server = 'h:1'\nca = 'system'\n[[forward]]\nlisten = 1\ntarget = 'h:1'\n";
/// A server with one named client.
const SERVER: &str =
    "[[client]]\nname = 'x'\nkey = 'PIN'\npsk_file = 'f'\ncertificate = true\nallow = ['h:1']\n";

fn inputs() -> TestInputs {
    let with_ca = format!("ca = 'f'\n{}", SERVER.replace("PIN", PIN));
    TestInputs::default()
        .file("f", "a secret of some length")
        .file("g", "another")
        .file("/var/lib/quictun/client.psk", "a secret of some length")
        .file("server.toml", &with_ca)
        .file("client.toml", CLIENT)
}

/// Returns a value that is not the default, and the flags that the option needs beside it.
fn sample(side: &str, flag: &str) -> (&'static str, &'static str) {
    match flag {
        "listen" | "http" => ("127.0.0.1:1", ""),
        "allow" => ("127.0.0.1:22", ""),
        "listen-tls" => ("127.0.0.1:2", ""),
        "tls-port" => ("443", ""),
        "via" => ("socks5h://proxy.example", ""),
        "via-credentials" => ("f", "--via proxy.example:3128"),
        "carrier" => ("tls", ""),
        "listen-for" => ("127.0.0.1:8000-8010", ""),
        "state-dir" | "qlog-dir" => ("/d", ""),
        "cert" => ("f", "--key f"),
        "key" => ("f", "--cert f"),
        "https-cert" => ("f", "--https-key f --https-proxy"),
        "https-key" => ("f", "--https-cert f --https-proxy"),
        "acme" => ("web.example.org", "--acme-accept-terms --https-proxy"),
        "acme-directory" => ("https://authority.example/dir", ""),
        "acme-contact" => ("ops@example.org", ACME),
        "acme-http" => ("80", ACME),
        "ca" if side == "server" => ("g", ""),
        "ca" | "psk-file" | "key-log" | "proxy-users" => ("f", ""),
        "server" => ("other:2", ""),
        "forward" => ("5=x:5", ""),
        "proxy" => ("6", ""),
        "reverse" => ("8000=x:5", ""),
        "proxy-protocol" => ("127.0.0.1:8080", ""),
        "redirect" | "tproxy" => ("7501", ""),
        "tun" | "compat-json" | "send-app-addresses" | "https-proxy" | "acme-accept-terms" => {
            ("true", "")
        }
        "fail-open" => ("true", "--tun"),
        "route" | "exclude" => ("10.0.0.0/8", "--tun"),
        "dns" => ("10.0.0.1", "--tun"),
        "offer" => ("both", ""),
        "pin" => (PIN, ""),
        "http-mode" => ("0660", "--http unix:/s"),
        "http-name" => ("name", ""),
        "log-level" => ("debug", ""),
        "log-format" => ("json", ""),
        "log-output" => ("stderr,/l", ""),
        "connections" | "max-connections" | "workers" | "max-flows" => ("3", ""),
        "dial-timeout" | "idle-timeout" | "drain" | "bond-ttl" | "reverse-grace"
        | "datagram-idle" => ("7s", ""),
        "keep-alive" => ("500ms", ""),
        "congestion" | "tcp-congestion" => ("cubic", ""),
        "ip" => ("4", ""),
        "memory-budget" => ("512MiB", ""),
        "udp-buffer" => ("1MiB", ""),
        "max-udp-payload" => ("1400", ""),
        "gso" => ("off", ""),
        "aead" => ("ring", ""),
        _ => panic!("{side} --{flag}: add a sample"),
    }
}

/// Returns the lines of `text` that are not in `base`, the text without one option.
fn added<'a>(text: &'a str, base: &str) -> Vec<&'a str> {
    let base: Vec<_> = base.lines().collect();
    let new = text.lines().filter(|line| !base.contains(line));
    new.filter(|line| !line.is_empty()).collect()
}

/// Returns the output of `quictun config print` with these flags.
fn printed(inputs: &TestInputs, side: &str, flags: &str) -> String {
    let printed = inputs.printed(&format!("config print --{side} {side}.toml -- {flags}"));
    // The number of cores of this machine does not belong to the interface.
    let without_cores = |line: &str| line.split(", here ").next().unwrap_or_default().to_owned();
    let lines = printed.lines().map(without_cores);
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn golden_options() {
    for side in ["server", "client"] {
        let inputs = inputs();
        let mut text = printed(&inputs, side, "");
        let (_, command) = commands()
            .into_iter()
            .find(|(name, _)| *name == format!("quictun_{side}"))
            .expect("the command");
        for arg in command.get_arguments() {
            let flag = arg.get_long().expect("a flag");
            if WITHOUT_KEY.contains(&flag) {
                continue;
            }
            let (value, with) = sample(side, flag);
            let variable = format!("QUICTUN_{}", flag.replace('-', "_").to_uppercase());
            writeln!(text, "\n--{flag} {value} {with}").expect("a line");
            // A pin and authorities exclude each other.
            let by_authority = inputs.clone();
            let inputs = match flag {
                "pin" => inputs
                    .clone()
                    .file("client.toml", &CLIENT.replace("ca = 'system'\n", "")),
                _ => inputs.clone(),
            };
            let base = printed(&by_authority, side, if with == "--tun" { with } else { "" });
            let by_flag = printed(&inputs, side, &format!("{with} --{flag}={value}"));
            let by_variable = printed(&inputs.clone().env(&variable, value), side, with);
            for line in [added(&by_flag, &base), added(&by_variable, &base)].concat() {
                writeln!(text, "  {line}").expect("a line");
            }
            // The printed text is a configuration file with the same values.
            let file = format!("{side}.toml");
            let again = printed(&inputs.clone().file(&file, &by_flag), side, "");
            let values = |text: &str| -> Vec<String> {
                let lines = text.lines().skip(1);
                lines
                    .map(|line| {
                        line.split(" # ")
                            .next()
                            .unwrap_or_default()
                            .trim()
                            .to_owned()
                    })
                    .collect()
            };
            assert_eq!(values(&again), values(&by_flag), "{side} --{flag}");
        }
        golden(&format!("options-{side}"), &text);
    }
}
