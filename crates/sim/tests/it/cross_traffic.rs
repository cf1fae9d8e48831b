//! The reference TCP behaves as its RFCs say, so that results of sharing a link with it are meaningful.

use std::time::Duration;

use quictun_sim::{CrossTraffic, HostId, LinkConfig, Network, Seed, Tcp, TrafficId};

use crate::tunnel_pair::{MS, SECOND, limited};

const MBIT: u64 = 1_000_000 / 8;

/// Share of payload in the bytes of a full packet.
const PAYLOAD: f64 = 1448.0 / 1500.0;

/// Senders on the left and receivers on the right of one bottleneck.
struct Bottleneck {
    network: Network,
    streams: Vec<TrafficId>,
}

impl Bottleneck {
    fn new(link: &LinkConfig, streams: &[CrossTraffic]) -> Self {
        Self::one_after_the_other(link, streams, Duration::ZERO)
    }

    /// Starts the streams one after the other, with `apart` between two of them.
    fn one_after_the_other(link: &LinkConfig, streams: &[CrossTraffic], apart: Duration) -> Self {
        let mut network = Network::new(Seed::fixed(1));
        let host = |network: &mut Network, side: &str, number: usize| {
            network.add_plain(&format!("{side} {number}"))
        };
        let number = 0..streams.len();
        let left: Vec<HostId> = number
            .clone()
            .map(|number| host(&mut network, "sender", number))
            .collect();
        let right: Vec<HostId> = number
            .map(|number| host(&mut network, "receiver", number))
            .collect();
        network.dumbbell(&left, &right, link.clone(), link.clone(), Duration::ZERO);
        let mut ids = Vec::new();
        for ((&from, &to), traffic) in left.iter().zip(&right).zip(streams) {
            network.run_for(apart * u32::from(!ids.is_empty()));
            ids.push(network.add_traffic(from, to, traffic));
        }
        Self {
            network,
            streams: ids,
        }
    }

    /// Returns the payload rate of each stream over the next `time`, in bytes per second.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    fn goodputs(&mut self, time: Duration) -> Vec<f64> {
        let received = |this: &Self| -> Vec<u64> {
            let reports = this.streams.iter().map(|&id| this.network.traffic(id));
            reports.map(|report| report.received).collect()
        };
        let before = received(self);
        self.network.run_for(time);
        let after = received(self);
        let bytes = after
            .iter()
            .zip(&before)
            .map(|(after, before)| after - before);
        bytes
            .map(|bytes| bytes as f64 / time.as_secs_f64())
            .collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn share(goodput: f64, mbit: u64) -> f64 {
    goodput / ((mbit * MBIT) as f64 * PAYLOAD)
}

fn lossy(mbit: u64, round_trip: Duration, loss: f64) -> LinkConfig {
    LinkConfig {
        loss,
        ..limited(mbit * MBIT, round_trip)
    }
}

fn bulk() -> CrossTraffic {
    CrossTraffic::Tcp(Tcp::default())
}

#[test]
fn tcp_alone_fills_a_link_with_a_queue_of_one_round_trip() {
    let link = limited(100 * MBIT, 20 * MS);
    let mut pair = Bottleneck::new(&link, &[bulk()]);
    pair.network.run_for(5 * SECOND);
    let used = share(pair.goodputs(10 * SECOND)[0], 100);
    assert!((0.95..=1.0).contains(&used), "{used}");
    let report = pair.network.traffic(pair.streams[0]);
    assert_eq!(report.timeouts, 0, "{report:?}");
}

/// Returns the mean window in segments at a loss rate of `p`: that of CUBIC (RFC 9438 section 5.1), or that of Reno
/// (Mathis et al. 1997) if it is larger.
fn response(p: f64, round_trip: Duration) -> f64 {
    let reno = (1.5 / p).sqrt();
    let cubic = 1.054 * (round_trip.as_secs_f64() / p).powf(0.75);
    reno.max(cubic)
}

#[test]
fn under_loss_tcp_gets_the_rate_of_the_response_functions() {
    for (round_trip, loss) in [(20 * MS, 0.01), (100 * MS, 0.01), (100 * MS, 0.0005)] {
        let link = lossy(1000, round_trip, loss);
        let mut pair = Bottleneck::new(&link, &[bulk()]);
        pair.network.run_for(20 * SECOND);
        let goodput = pair.goodputs(200 * SECOND)[0];
        let window = goodput * round_trip.as_secs_f64() / 1448.0;
        let expected = response(loss, round_trip);
        assert!(
            (0.75..1.25).contains(&(window / expected)),
            "{window:.1} segments instead of {expected:.1}: {loss} {round_trip:?}"
        );
    }
}

#[test]
fn two_tcp_flows_share_a_link_within_a_fifth() {
    let link = limited(20 * MBIT, 20 * MS);
    let mut pair = Bottleneck::one_after_the_other(&link, &[bulk(), bulk()], SECOND);
    pair.network.run_for(19 * SECOND);
    let goodputs = pair.goodputs(60 * SECOND);
    let ratio = goodputs[0] / goodputs[1];
    assert!((0.8..1.25).contains(&ratio), "{goodputs:?}");
    assert!(share(goodputs.iter().sum(), 20) > 0.95, "{goodputs:?}");
}

#[test]
fn a_constant_stream_takes_its_rate_and_tcp_the_rest() {
    let streams = [CrossTraffic::Constant(60 * MBIT), bulk()];
    let mut pair = Bottleneck::new(&limited(100 * MBIT, 20 * MS), &streams);
    pair.network.run_for(5 * SECOND);
    let goodputs = pair.goodputs(20 * SECOND);
    let constant = share(goodputs[0] * 1448.0 / 1472.0, 100);
    assert!((0.57..=0.601).contains(&constant), "{constant}");
    let tcp = share(goodputs[1], 100);
    assert!((0.35..0.42).contains(&tcp), "{tcp}");
}

#[test]
fn transfers_complete_regardless_of_loss() {
    let bytes = Some(1_000_000);
    let streams = [CrossTraffic::Tcp(Tcp { bytes })];
    let mut pair = Bottleneck::new(&lossy(100, 20 * MS, 0.02), &streams);
    pair.network.run_for(8 * SECOND);
    let report = pair.network.traffic(pair.streams[0]);
    assert_eq!(report.received, 1_000_000_u64.next_multiple_of(1448));
    assert!(report.finished.is_some() && report.retransmitted > 0);
}

#[test]
fn packets_find_their_way_over_several_routers() {
    let mut network = Network::new(Seed::fixed(1));
    let names = ["a", "b", "c"].map(|name| network.add_router(name));
    let (from, to) = (network.add_plain("from"), network.add_plain("to"));
    let hop = LinkConfig {
        delay: 5 * MS,
        ..LinkConfig::default()
    };
    let path = [from, names[0], names[1], names[2], to];
    for pair in path.windows(2) {
        network.link(pair[0], pair[1], hop.clone(), hop.clone());
    }
    let tcp = Tcp { bytes: Some(1448) };
    let id = network.add_traffic(from, to, &CrossTraffic::Tcp(tcp));
    let start = network.now();
    network.run_for(SECOND);
    let report = network.traffic(id);
    // Two round trips of four links each way, and the delay of the only acknowledgement.
    let finished = report.finished.map(|at| at - start);
    assert_eq!(finished, Some(2 * 8 * 5 * MS + 40 * MS), "{report:?}");
    assert_eq!(network.counters(names[1], names[2]).sent, 2);
    assert_eq!(network.packets(), 4 * 4);
}
