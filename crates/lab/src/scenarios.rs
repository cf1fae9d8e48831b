//! The scenarios that come with the program, and the document that shows them.

use crate::Scenario;
use crate::scenario::ArmKind;
use crate::writing::put;

macro_rules! scenario {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../scenarios/", $name, ".toml")),
        )
    };
}

/// Name and text of each.
pub static ALL: &[(&str, &str)] = &[
    scenario!("published-bandwidth"),
    scenario!("published-latency"),
    scenario!("published-quiclab"),
    scenario!("published-eventloop"),
    scenario!("published-bigtcp"),
    scenario!("published-batching"),
    scenario!("wan-matrix"),
    scenario!("latency-under-load"),
    scenario!("handshake"),
    scenario!("head-of-line"),
    scenario!("outage"),
    scenario!("null"),
    scenario!("capacity"),
    scenario!("crosscheck"),
];

/// The text of the one with this name.
pub fn find(name: &str) -> Option<&'static str> {
    ALL.iter()
        .find(|(known, _)| *known == name)
        .map(|(_, text)| *text)
}

/// What `crosscheck` has besides, where another emulator is at hand: TOML to go behind its own.
pub fn other_emulator(command: &str) -> String {
    OTHER_EMULATOR.replace("COMMAND", &toml::Value::from(command).to_string())
}

const OTHER_EMULATOR: &str = r#"
# The same across a link that another program emulates.
[[arm]]
id = "other-emulator"
kind = "tcp"
congestion = "bbr"
link = { emulator = COMMAND }

[[compare]]
a = "perf"
b = "other-emulator"
metric = "receiver_mbit_per_s"

[[assert]]
arm = "perf"
over = "other-emulator"
metric = "receiver_mbit_per_s"
at_least = 0.9
at_most = 1.1
"#;

/// `docs/scenarios.md`.
///
/// # Panics
///
/// Where one of them is no scenario, which a test would have seen.
pub fn document() -> String {
    let mut text = String::from(HEAD);
    let parsed = |text| Scenario::parse(text).expect("invariant: a test parses all of them");
    for (_, source) in ALL {
        let scenario = parsed(source);
        put(
            &mut text,
            format_args!("| [`{0}`](#{0}) | {1} |\n", scenario.name, scenario.title),
        );
    }
    text += FORMAT;
    for (_, source) in ALL {
        let scenario = parsed(source);
        put(
            &mut text,
            format_args!("\n## {}\n\n{}.\n", scenario.name, scenario.title),
        );
        if let Some(source) = &scenario.source {
            put(&mut text, format_args!("\nReproduces: {source}.\n"));
        }
        put(
            &mut text,
            format_args!("\n{}\n\n{}\n", scenario.about, size(&scenario)),
        );
        put(
            &mut text,
            format_args!("\n```toml\n{}\n```\n", body(source)),
        );
    }
    text
}

/// How much there is to measure.
fn size(scenario: &Scenario) -> String {
    let optional = scenario.arms.iter().filter(|arm| arm.optional).count();
    let commands = scenario
        .arms
        .iter()
        .filter(|arm| arm.kind == ArmKind::Command)
        .count();
    let [reps, quick] = scenario.reps;
    let mut text = format!(
        "{} cases, {} arms, {reps} repetitions ({quick} with `--quick`)",
        scenario.cases.len(),
        scenario.arms.len(),
    );
    if optional + commands > 0 {
        put(
            &mut text,
            format_args!("; {optional} arms are left out where their program is missing"),
        );
    }
    text + "."
}

/// The text without what is shown above it.
fn body(source: &str) -> &str {
    let after = source.split_once("\n\"\"\"\n\n").map(|(_, rest)| rest);
    after.unwrap_or(source).trim_end()
}

const HEAD: &str = "# Scenarios of the lab

<!-- Written by `UPDATE=1 cargo test -p quictun-lab document`; the files are in crates/lab/scenarios. -->

`quictun lab list` lists these, `quictun lab show NAME` prints one, `quictun lab run NAME` measures it; `quictun lab run
FILE.toml` measures one of your own.

| name | measures |
|---|---|
";

const FORMAT: &str = "
## Format

A scenario is a TOML file. Unknown keys and values that make no sense are refused, with their line.

| key | what it says |
|---|---|
| `name`, `title`, `source`, `about` | what it is called, is about, and reproduces |
| `[link]` | `rate`, `delay` (one way), `jitter`, `loss`, `burst` (packets), `queue`, `mtu`, `offload` (full, receive, none), `outage = [{ at, length }]`, `coalesce`, `segment_limit`, `loss_unit` (packet, super-packet); both ways alike; `emulator`: a command line in place of our emulator (below). `medium`: link, or what has no limits: loopback, cable (from network to network), router (a kernel that forwards between them) |
| `[workload]` | `mode` (stream, rr, crr), how much (`duration`, `bytes` or `count`), `warm_up`, `request`, `response`, `rate_per_s`, `flows`, `connections`, `reverse`, `time_limit`; beside requests `background` (up, down, both): a stream on the same link or through the same tunnel |
| `[sweep]` | lists of `rate`, `delay`, `queue`, `loss`: every combination is a case, named like `loss=1%` |
| `[[case]]` | `id`, `label`, and what differs: `link`, `workload`, `quick` |
| `[[arm]]` | `id`; `kind`: tcp, tls, quic, udp, tunnel, iperf3, command; `congestion`, `client_flags`, `server_flags`, `through_tunnel`, `ipv6`, `optional`, `link`, `workload`; of a command `client_command`, `server_command` |
| `[design]`, `[quick]` | `reps`; with `--quick` also `duration`, `bytes`, `count`, `warm_up` |
| `[[table]]` | `title`, `shape`: metrics (a row for each case, a column for each metric), arms (a column for each arm), runs (a row for each run); `row`, `arms`, `cases`, `columns` |
| `[[compare]]` | arms `a` and `b`, and a `metric`: a verdict for each case |
| `[[assert]]` | `arm`, `over` (another arm: the ratio counts), `metric`, `cases`, `at_least`, `at_most`, `allow` (headers: `at_least` is less by what QUIC's headers take more than TCP's of a packet, which the report tells): what does not hold makes the exit code 1 |
| `[profile]` | `cases`, `arms`, and `functions` whose share is of interest: after all others one run of each is looked into |
| `[[published]]` | `case`, `arm`, `values`: figures to be shown beside ours |

Commands are lines for `sh -c`, and find what they need in variables. A tunnel (`server_command`, `client_command`):
`QUICTUN_FAR` (the far side's address), `QUICTUN_TUNNEL` (where its server may listen), `QUICTUN_TARGET` (what it has to
reach) and `QUICTUN_ENTRY` (where its client has to listen). An emulator (`link.emulator`, `quictun lab crosscheck
--emulator`) joins two networks that have nothing but their loopback devices: `QUICTUN_NEAR_NET` and `QUICTUN_FAR_NET`
are their files, for setns(2); it gives them the addresses `QUICTUN_NEAR_ADDRESS` and `QUICTUN_FAR_ADDRESS` (with
prefixes), carries IP packets of up to `QUICTUN_MTU` bytes at `QUICTUN_RATE_MBIT` (of IP packets: less what the headers of
a cable take), delays each by `QUICTUN_DELAY_US`, loses `QUICTUN_LOSS` of them (0 to 1), has a queue of
`QUICTUN_QUEUE_BYTES` in front, both ways, draws from `QUICTUN_SEED`, and ends with SIGTERM.
";

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_scenario_is_one_under_its_own_name() {
        for (name, text) in ALL {
            let scenario = Scenario::parse(text).unwrap_or_else(|why| panic!("{name}: {why}"));
            assert_eq!(scenario.name, *name);
            assert!(!scenario.tables.is_empty(), "{name} shows nothing");
            assert!(
                text.lines().all(|line| line.len() <= 120),
                "{name}: long lines"
            );
        }
    }

    #[test]
    fn another_emulator_joins_the_crosscheck_whatever_its_command_looks_like() {
        let own = find("crosscheck").expect("it is there");
        for command in ["linkemu --loss $QUICTUN_LOSS", "a \"b\" 'c' \\ \n d"] {
            let text = own.to_owned() + &other_emulator(command);
            let scenario = Scenario::parse(&text).expect("a scenario");
            let arm = scenario.arms.len() - 1;
            assert_eq!(scenario.arms[arm].id, "other-emulator");
            for case in 0..scenario.cases.len() {
                let link = scenario.setup(case, arm, false).link.emulated();
                let link = link.expect("an emulated link");
                assert_eq!(link.emulator.as_deref(), Some(command));
                assert!(link.way.rate.is_some() && !link.way.delay.is_zero());
            }
        }
    }

    #[test]
    fn the_document_is_the_committed_one() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenarios.md");
        let text = document();
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &text).expect("docs/scenarios.md");
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == text,
            "run with UPDATE=1, and look at what changes"
        );
    }
}
