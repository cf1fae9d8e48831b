//! What makes and measures traffic: `quictun perf`, or iperf3. Command lines out, figures in.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use quictun_lab::{Amount, Arm, ArmKind, Load, Metric, Mode};
use quictun_link::units::Delay;
use serde::Deserialize;

/// Who makes the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generator {
    /// `quictun perf`, with this transport.
    Perf(&'static str),
    Iperf3,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) metrics: BTreeMap<Metric, f64>,
    /// Seconds and bit/s.
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

    /// Arguments of the server.
    pub(crate) fn server(self, arm: &Arm, at: SocketAddr) -> Vec<String> {
        let mut words = match self {
            Self::Perf(transport) => words(&[
                "perf",
                "server",
                "--listen",
                &at.to_string(),
                "--transport",
                transport,
            ]),
            Self::Iperf3 => words(&[
                "-s",
                "-B",
                &at.ip().to_string(),
                "-p",
                &at.port().to_string(),
            ]),
        };
        if !is_tunnel(arm) {
            words.extend(arm.server_flags.iter().cloned());
        }
        words
    }

    /// Arguments of the client. The congestion control is that of the connection itself; what the tunnel uses, it
    /// was told by its own flags.
    pub(crate) fn client(self, arm: &Arm, load: &Load, to: SocketAddr) -> Vec<String> {
        let mut words = match self {
            Self::Perf(transport) => perf_client(transport, load, to),
            Self::Iperf3 => iperf3_client(load, to),
        };
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

    /// What it said at its end.
    pub(crate) fn outcome(self, text: &str, load: &Load) -> Result<Outcome> {
        match self {
            Self::Perf(_) => perf_outcome(text, load),
            Self::Iperf3 => iperf3_outcome(text),
        }
    }
}

/// Whether the arm's flags are the tunnel's.
pub(crate) fn is_tunnel(arm: &Arm) -> bool {
    arm.kind == ArmKind::Tunnel
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn perf_client(transport: &str, load: &Load, to: SocketAddr) -> Vec<String> {
    let mut all = words(&[
        "perf",
        "client",
        "--connect",
        &to.to_string(),
        "--transport",
        transport,
    ]);
    let mut add = |flag: &str, value: String| all.extend([flag.to_owned(), value]);
    add("--mode", load.mode.word().to_owned());
    match load.amount {
        Amount::Time(time) => {
            add("--duration", Delay(time).to_string());
            add("--warm-up", Delay(load.warm_up).to_string());
        }
        Amount::Bytes(bytes) => add("--bytes", bytes.to_string()),
        Amount::Count(count) => add("--count", count.to_string()),
    }
    if load.mode != Mode::Stream {
        add("--rr", format!("{},{}", load.request, load.response));
    }
    if let Some(rate) = load.rate_per_s {
        add("--rate", format!("{rate}/s"));
    }
    if load.flows > 1 {
        add("--flows", load.flows.to_string());
    }
    if load.connections > 1 {
        add("--connections", load.connections.to_string());
    }
    add("--json", "-".to_owned());
    if load.reverse {
        all.push("--reverse".to_owned());
    }
    all
}

fn iperf3_client(load: &Load, to: SocketAddr) -> Vec<String> {
    let mut all = words(&[
        "-J",
        "-c",
        &to.ip().to_string(),
        "-p",
        &to.port().to_string(),
    ]);
    match load.amount {
        Amount::Time(time) => {
            all.extend(["-t".to_owned(), whole_seconds(time)]);
            if !load.warm_up.is_zero() {
                all.extend(["-O".to_owned(), whole_seconds(load.warm_up)]);
            }
        }
        Amount::Bytes(bytes) => all.extend(["-n".to_owned(), bytes.to_string()]),
        Amount::Count(_) => {}
    }
    if load.flows > 1 {
        all.extend(["-P".to_owned(), load.flows.to_string()]);
    }
    if load.reverse {
        all.push("-R".to_owned());
    }
    all
}

/// iperf3 counts in seconds.
fn whole_seconds(time: std::time::Duration) -> String {
    time.as_secs_f64().ceil().max(1.0).to_string()
}

/// The part of the JSON of `quictun perf client` that is of interest here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Perf {
    version: u32,
    verified: Option<bool>,
    receiver: Option<Side>,
    sender: Option<Side>,
    intervals: Option<Vec<Interval>>,
    transactions_per_s: Option<f64>,
    first_us: Option<f64>,
    total_us: Option<f64>,
    latency_us: Option<Latency>,
    unanswered: Option<Unanswered>,
    path: Option<PathFacts>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Side {
    bytes: f64,
    seconds: f64,
    bit_per_s: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Interval {
    at_s: f64,
    bit_per_s: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Latency {
    min: Option<f64>,
    mean: Option<f64>,
    p50: Option<f64>,
    p90: Option<f64>,
    p99: Option<f64>,
    p99_9: Option<f64>,
    max: Option<f64>,
    variance: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Unanswered {
    count: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PathFacts {
    rtt_us: Option<f64>,
    lost_packets: Option<f64>,
    sent_packets: Option<f64>,
    mtu: Option<f64>,
    gso_segments_per_send: Option<f64>,
}

/// The version of the JSON that is understood.
const PERF_VERSION: u32 = 1;

fn perf_outcome(text: &str, load: &Load) -> Result<Outcome> {
    let perf: Perf = serde_json::from_str(text).context("the JSON of quictun perf")?;
    let version = perf.version;
    ensure!(
        version == PERF_VERSION,
        "quictun perf says version {version}, not {PERF_VERSION}"
    );
    ensure!(
        perf.verified != Some(false),
        "what arrived is not what was sent"
    );
    let mut metrics = BTreeMap::new();
    let mut put = |metric: Metric, value: Option<f64>| {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            metrics.insert(metric, value);
        }
    };
    let rate = |side: &Option<Side>| side.as_ref().and_then(|side| side.bit_per_s);
    if load.mode == Mode::Stream {
        let received = rate(&perf.receiver);
        put(Metric::ReceiverMbitPerS, received.map(|rate| rate / 1e6));
        put(Metric::ReceiverMbPerS, received.map(|rate| rate / 8e6));
        put(
            Metric::SenderMbitPerS,
            rate(&perf.sender).map(|rate| rate / 1e6),
        );
        let whole = matches!(load.amount, Amount::Bytes(_)).then(|| {
            let total = perf.total_us.map(|us| us / 1e6);
            total.or(perf.receiver.as_ref().map(|side| side.seconds))
        });
        put(Metric::TransferS, whole.flatten());
    } else {
        put(Metric::TransactionsPerS, perf.transactions_per_s);
        put(Metric::FirstMs, perf.first_us.map(|us| us / 1e3));
        let counted = matches!(load.amount, Amount::Count(_));
        put(
            Metric::TotalMs,
            perf.total_us.filter(|_| counted).map(|us| us / 1e3),
        );
    }
    let latency = perf.latency_us.unwrap_or_default();
    for (metric, value) in [
        (Metric::LatencyMinUs, latency.min),
        (Metric::LatencyMeanUs, latency.mean),
        (Metric::LatencyP50Us, latency.p50),
        (Metric::LatencyP90Us, latency.p90),
        (Metric::LatencyP99Us, latency.p99),
        (Metric::LatencyP999Us, latency.p99_9),
        (Metric::LatencyMaxUs, latency.max),
        (Metric::LatencyVarianceUs2, latency.variance),
    ] {
        put(metric, value);
    }
    put(Metric::Unanswered, perf.unanswered.map(|left| left.count));
    let path = perf.path.unwrap_or_default();
    put(Metric::RttUs, path.rtt_us);
    put(Metric::MtuBytes, path.mtu);
    put(Metric::SegmentsPerSend, path.gso_segments_per_send);
    let lost = path
        .lost_packets
        .zip(path.sent_packets.filter(|sent| *sent > 0.0));
    put(Metric::LostShare, lost.map(|(lost, sent)| lost / sent));
    ensure!(!metrics.is_empty(), "quictun perf measured nothing");
    let moved = perf.receiver.as_ref().is_none_or(|side| side.bytes > 0.0);
    ensure!(moved, "nothing arrived");
    let intervals = perf.intervals.unwrap_or_default();
    Ok(Outcome {
        metrics,
        series: intervals
            .iter()
            .map(|one| (one.at_s, one.bit_per_s))
            .collect(),
    })
}

#[derive(Debug, Deserialize)]
struct Iperf3 {
    error: Option<String>,
    #[serde(default)]
    intervals: Vec<Iperf3Interval>,
    end: Option<Iperf3End>,
}

#[derive(Debug, Deserialize)]
struct Iperf3Interval {
    sum: Iperf3Sum,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Iperf3End {
    sum_sent: Option<Iperf3Sum>,
    sum_received: Option<Iperf3Sum>,
}

#[derive(Debug, Deserialize)]
struct Iperf3Sum {
    end: f64,
    seconds: f64,
    bits_per_second: f64,
    #[serde(default)]
    omitted: bool,
}

fn iperf3_outcome(text: &str) -> Result<Outcome> {
    let Iperf3 {
        error,
        intervals,
        end,
    } = serde_json::from_str(text).context("the JSON of iperf3")?;
    ensure!(error.is_none(), "iperf3: {}", error.unwrap_or_default());
    let end = end.unwrap_or_default();
    let received = end
        .sum_received
        .context("iperf3 says nothing of what was received")?;
    let mut metrics: BTreeMap<Metric, f64> = [
        (Metric::ReceiverMbitPerS, received.bits_per_second / 1e6),
        (Metric::ReceiverMbPerS, received.bits_per_second / 8e6),
        (Metric::TransferS, received.seconds),
    ]
    .into();
    metrics.extend(
        end.sum_sent
            .map(|sent| (Metric::SenderMbitPerS, sent.bits_per_second / 1e6)),
    );
    let counted = intervals.iter().filter(|one| !one.sum.omitted);
    Ok(Outcome {
        metrics,
        series: counted
            .map(|one| (one.sum.end, one.sum.bits_per_second))
            .collect(),
    })
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
    fn figures_of_perf_become_metrics_and_what_is_wrong_becomes_none() {
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
