//! The traffic generators, `quictun perf` and iperf3: builds their command lines and parses their figures.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail, ensure};
use quictun_lab::{Amount, Arm, ArmKind, Load, Metric, Mode, put};
use quictun_link::units::Delay;
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generator {
    /// `quictun perf` with this transport.
    Perf(&'static str),
    Iperf3,
}

#[derive(Debug, Default)]
pub(crate) struct GeneratorResult {
    pub(crate) metrics: BTreeMap<Metric, f64>,
    /// The receiver's rate over time: seconds and bit/s.
    pub(crate) series: Vec<(f64, f64)>,
}

impl Generator {
    pub(crate) fn of(arm: &Arm) -> Self {
        match arm.kind {
            ArmKind::Tls => Self::Perf("tls"),
            ArmKind::Quic => Self::Perf("quic"),
            ArmKind::Udp => Self::Perf("udp"),
            ArmKind::Tcp | ArmKind::Tunnel | ArmKind::Command => Self::Perf("tcp"),
            ArmKind::Iperf3 => Self::Iperf3,
        }
    }

    /// Returns the generator of the streams beside this one's traffic. Those beside datagrams are of TCP.
    pub(crate) fn of_streams(self) -> Self {
        match self {
            Self::Perf("udp") => Self::Perf("tcp"),
            other => other,
        }
    }

    pub(crate) fn server(self, arm: &Arm, at: SocketAddr) -> Vec<String> {
        let (address, port) = (at.ip(), at.port());
        let mut words = words(&match self {
            Self::Perf(transport) => format!("perf server --listen {at} --transport {transport}"),
            Self::Iperf3 => format!("-s -B {address} -p {port}"),
        });
        if !is_tunnel(arm) {
            words.extend(arm.server_flags.iter().cloned());
        }
        words
    }

    /// Returns the arguments of the client. The congestion control is that of the generator's own connection. The
    /// tunnel gets its congestion control by its own flags.
    pub(crate) fn client(self, arm: &Arm, load: &Load, to: SocketAddr) -> Vec<String> {
        let mut words = words(&match self {
            Self::Perf(transport) => perf_client(transport, load, to),
            Self::Iperf3 => iperf3_client(load, to),
        });
        if !arm.through_tunnel {
            let flag = match self {
                Self::Perf(_) => "--congestion",
                Self::Iperf3 => "-C",
            };
            words.extend(
                arm.congestion
                    .iter()
                    .flat_map(|name| [flag.to_owned(), name.clone()]),
            );
        }
        if !is_tunnel(arm) {
            words.extend(arm.client_flags.iter().cloned());
        }
        words
    }

    pub(crate) fn outcome(self, text: &str, load: &Load) -> Result<GeneratorResult> {
        match self {
            Self::Perf(_) => perf_outcome(text, load),
            Self::Iperf3 => iperf3_outcome(text),
        }
    }
}

pub(crate) fn is_tunnel(arm: &Arm) -> bool {
    arm.kind == ArmKind::Tunnel
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn perf_client(transport: &str, load: &Load, to: SocketAddr) -> String {
    let mode = load.mode.word();
    let mut line = format!("perf client --connect {to} --transport {transport} --mode {mode}");
    match load.amount {
        Amount::Time(time) => {
            let (time, warm_up) = (Delay(time), Delay(load.warm_up));
            put!(line, " --duration {time} --warm-up {warm_up}");
        }
        Amount::Bytes(bytes) => put!(line, " --bytes {bytes}"),
        Amount::Count(count) => put!(line, " --count {count}"),
    }
    if load.mode != Mode::Stream {
        put!(line, " --rr {},{}", load.request, load.response);
    }
    if let Some(rate) = load.rate_per_s {
        put!(line, " --rate {rate}/s");
    }
    if load.flows > 1 {
        put!(line, " --flows {}", load.flows);
    }
    if load.connections > 1 {
        put!(line, " --connections {}", load.connections);
    }
    line + " --json -" + if load.reverse { " --reverse" } else { "" }
}

fn iperf3_client(load: &Load, to: SocketAddr) -> String {
    let mut line = format!("-J -c {} -p {}", to.ip(), to.port());
    match load.amount {
        Amount::Time(time) => {
            put!(line, " -t {}", whole_seconds(time));
            if !load.warm_up.is_zero() {
                put!(line, " -O {}", whole_seconds(load.warm_up));
            }
        }
        Amount::Bytes(bytes) => put!(line, " -n {bytes}"),
        Amount::Count(_) => {}
    }
    if load.flows > 1 {
        put!(line, " -P {}", load.flows);
    }
    line + if load.reverse { " -R" } else { "" }
}

/// Rounds up to whole seconds, because iperf3 has no smaller unit.
fn whole_seconds(time: std::time::Duration) -> String {
    time.as_secs_f64().ceil().max(1.0).to_string()
}

/// A metric, the JSON pointer to its value, and the divisor of that value.
type JsonMetric = (Metric, &'static str, f64);

const OF_STREAMS: &[JsonMetric] = &[
    (Metric::ReceiverMbitPerS, "/receiver/bit_per_s", 1e6),
    (Metric::ReceiverMbPerS, "/receiver/bit_per_s", 8e6),
    (Metric::SenderMbitPerS, "/sender/bit_per_s", 1e6),
];

const OF_REQUESTS: &[JsonMetric] = &[
    (Metric::TransactionsPerS, "/transactions_per_s", 1.0),
    (Metric::FirstMs, "/first_us", 1e3),
];

const OF_BOTH: &[JsonMetric] = &[
    (Metric::LatencyMinUs, "/latency_us/min", 1.0),
    (Metric::LatencyMeanUs, "/latency_us/mean", 1.0),
    (Metric::LatencyP50Us, "/latency_us/p50", 1.0),
    (Metric::LatencyP90Us, "/latency_us/p90", 1.0),
    (Metric::LatencyP99Us, "/latency_us/p99", 1.0),
    (Metric::LatencyP999Us, "/latency_us/p99_9", 1.0),
    (Metric::LatencyMaxUs, "/latency_us/max", 1.0),
    (Metric::LatencyVarianceUs2, "/latency_us/variance", 1.0),
    (Metric::Unanswered, "/unanswered/count", 1.0),
    (Metric::RttUs, "/path/rtt_us", 1.0),
    (Metric::MtuBytes, "/path/mtu", 1.0),
    (Metric::SegmentsPerSend, "/path/gso_segments_per_send", 1.0),
];

const OF_IPERF3: &[JsonMetric] = &[
    (
        Metric::ReceiverMbitPerS,
        "/end/sum_received/bits_per_second",
        1e6,
    ),
    (
        Metric::ReceiverMbPerS,
        "/end/sum_received/bits_per_second",
        8e6,
    ),
    (Metric::SenderMbitPerS, "/end/sum_sent/bits_per_second", 1e6),
    (Metric::TransferS, "/end/sum_received/seconds", 1.0),
];

/// The supported version of the JSON.
const PERF_VERSION: u64 = 1;

fn perf_outcome(text: &str, load: &Load) -> Result<GeneratorResult> {
    let perf: Value = serde_json::from_str(text).context("quictun perf printed invalid JSON")?;
    let version = &perf["version"];
    ensure!(
        *version == PERF_VERSION,
        "quictun perf reports version {version}, not {PERF_VERSION}"
    );
    ensure!(
        perf["verified"] != false,
        "the received data is not what was sent"
    );
    let of_mode = match load.mode {
        Mode::Stream => OF_STREAMS,
        Mode::Rr | Mode::Crr => OF_REQUESTS,
    };
    let mut metrics = found(&perf, of_mode.iter().chain(OF_BOTH));
    let total_us = number(&perf, "/total_us");
    let whole = match load.amount {
        Amount::Time(_) => None,
        Amount::Count(_) => total_us.map(|us| (Metric::TotalMs, us / 1e3)),
        Amount::Bytes(_) => total_us
            .map(|us| us / 1e6)
            .or_else(|| number(&perf, "/receiver/seconds"))
            .map(|seconds| (Metric::TransferS, seconds)),
    };
    metrics.extend(whole);
    let sent = number(&perf, "/path/sent_packets").filter(|sent| *sent > 0.0);
    let lost = number(&perf, "/path/lost_packets").zip(sent);
    metrics.extend(lost.map(|(lost, sent)| (Metric::LostShare, lost / sent)));
    ensure!(!metrics.is_empty(), "quictun perf measured nothing");
    let moved = number(&perf, "/receiver/bytes").is_none_or(|bytes| bytes > 0.0);
    ensure!(moved, "nothing arrived");
    let intervals = perf["intervals"].as_array().into_iter().flatten();
    let series =
        intervals.filter_map(|one| Some((number(one, "/at_s")?, number(one, "/bit_per_s")?)));
    Ok(GeneratorResult {
        metrics,
        series: series.collect(),
    })
}

fn iperf3_outcome(text: &str) -> Result<GeneratorResult> {
    let iperf3: Value = serde_json::from_str(text).context("iperf3 printed invalid JSON")?;
    if let Some(error) = iperf3["error"].as_str() {
        bail!("iperf3: {error}");
    }
    let metrics = found(&iperf3, OF_IPERF3.iter());
    ensure!(
        metrics.contains_key(&Metric::ReceiverMbitPerS),
        "iperf3 reports no received rate"
    );
    let intervals = iperf3["intervals"].as_array().into_iter().flatten();
    let sums = intervals
        .map(|one| &one["sum"])
        .filter(|sum| sum["omitted"] != true);
    let series =
        sums.filter_map(|sum| Some((number(sum, "/end")?, number(sum, "/bits_per_second")?)));
    Ok(GeneratorResult {
        metrics,
        series: series.collect(),
    })
}

fn found<'a>(json: &Value, figures: impl Iterator<Item = &'a JsonMetric>) -> BTreeMap<Metric, f64> {
    figures
        .filter_map(|(metric, place, unit)| Some((*metric, number(json, place)? / unit)))
        .collect()
}

fn number(json: &Value, place: &str) -> Option<f64> {
    json.pointer(place)?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quictun_lab::Scenario;

    fn small(workload: &str, arm: &str) -> Scenario {
        let text = format!(
            "name = \"small\"\ntitle = \"t\"\n[workload]\n{workload}\n[[arm]]\nid = \"a\"\n{arm}"
        );
        Scenario::parse(&text).expect("a scenario")
    }

    fn line(workload: &str, arm: &str) -> String {
        let scenario = small(workload, arm);
        let (arm, load) = (&scenario.arms[0], &scenario.setup(0, 0, false).load);
        let to = "10.0.0.1:5201".parse().expect("an address");
        Generator::of(arm).client(arm, load, to).join(" ")
    }

    #[test]
    fn a_load_becomes_a_command_line() {
        for (workload, arm, expected) in [
            (
                "duration = \"1.5s\"\nwarm_up = \"600ms\"",
                "kind = \"tcp\"\ncongestion = \"cubic\"",
                "perf client --connect 10.0.0.1:5201 --transport tcp --mode stream --duration 1.5s \
                 --warm-up 600ms --json - --congestion cubic",
            ),
            (
                "mode = \"rr\"\ncount = 1000\nrequest = 1000\nresponse = 2000",
                "kind = \"quic\"\nclient_flags = [\"--gso\", \"off\"]",
                "perf client --connect 10.0.0.1:5201 --transport quic --mode rr --count 1000 --rr 1000,2000 \
                 --json - --gso off",
            ),
            (
                "bytes = 1000\nflows = 2\nreverse = true",
                "kind = \"tunnel\"\ncongestion = \"cubic\"\nclient_flags = [\"--gso\", \"off\"]",
                "perf client --connect 10.0.0.1:5201 --transport tcp --mode stream --bytes 1000 --flows 2 \
                 --json - --reverse",
            ),
            (
                "duration = \"1s\"\nwarm_up = \"600ms\"",
                "kind = \"iperf3\"\ncongestion = \"bbr\"",
                "-J -c 10.0.0.1 -p 5201 -t 1 -O 1 -C bbr",
            ),
        ] {
            assert_eq!(line(workload, arm), expected);
        }
    }

    #[test]
    fn figures_of_perf_become_metrics_and_invalid_ones_become_none() {
        let scenario = small("mode = \"rr\"\ncount = 10", "kind = \"tcp\"");
        let load = &scenario.setup(0, 0, false).load;
        let text = r#"{"version":1,"verified":true,"receiver":{"bytes":10,"seconds":1.0,"bit_per_s":80},
            "sender":null,"intervals":[{"at_s":0.1,"bit_per_s":5}],"transactions":10,"transactions_per_s":10.5,
            "first_us":1500,"total_us":20000,"latency_us":{"count":10,"min":1.0,"p50":2.0,"p99_9":null},
            "path":{"rtt_us":900,"lost_packets":1,"sent_packets":4,"mtu":1452,"gso_segments_per_send":null}}"#;
        let outcome = Generator::Perf("tcp").outcome(text, load).expect("figures");
        let expected = [
            (Metric::FirstMs, 1.5),
            (Metric::LatencyMinUs, 1.0),
            (Metric::LatencyP50Us, 2.0),
            (Metric::LostShare, 0.25),
            (Metric::MtuBytes, 1452.0),
            (Metric::RttUs, 900.0),
            (Metric::TotalMs, 20.0),
            (Metric::TransactionsPerS, 10.5),
        ];
        assert_eq!(outcome.metrics, expected.into());
        assert_eq!(outcome.series, [(0.1, 5.0)]);
        for (from, to, why) in [
            (
                "\"verified\":true",
                "\"verified\":false",
                "not what was sent",
            ),
            ("\"version\":1", "\"version\":2", "version 2"),
            ("\"bytes\":10", "\"bytes\":0", "nothing arrived"),
            ("{\"version\"", "\"version\"", "JSON"),
        ] {
            let error = Generator::Perf("tcp").outcome(&text.replace(from, to), load);
            let said = format!("{:#}", error.expect_err(why));
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn figures_of_iperf3_leave_the_warm_up_out() {
        let scenario = small("duration = \"1s\"", "kind = \"iperf3\"");
        let load = &scenario.setup(0, 0, false).load;
        let text = r#"{"intervals":[{"sum":{"end":1.0,"seconds":1.0,"bits_per_second":1e6,"omitted":true}},
            {"sum":{"end":1.0,"seconds":1.0,"bits_per_second":3e6,"omitted":false}}],
            "end":{"sum_sent":{"end":1.0,"seconds":1.0,"bits_per_second":4e6},
            "sum_received":{"end":1.0,"seconds":1.0,"bits_per_second":2e6}}}"#;
        let outcome = Generator::Iperf3.outcome(text, load).expect("figures");
        assert!((outcome.metrics[&Metric::ReceiverMbitPerS] - 2.0).abs() < 1e-9);
        assert_eq!(outcome.series, [(1.0, 3e6)]);
        let error = Generator::Iperf3.outcome(r#"{"error":"no route","end":{}}"#, load);
        assert!(
            error
                .expect_err("an error")
                .to_string()
                .contains("no route")
        );
    }
}
