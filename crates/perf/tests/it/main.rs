//! Tests measurements between a client and a server in this process.

use std::sync::mpsc::channel;
use std::thread::scope;
use std::time::Duration;

use quictun_perf::client::ProgressUpdate;
use quictun_perf::plan::DURATION_MAX;
use quictun_perf::server::ServerOptions;
use quictun_perf::{
    Amount, EventLoop, Mode, PerfError, Plan, Report, Stop, Transport, client, server,
};

/// Measures one plan after the other with one server. Each measurement stops once `enough` returns true.
fn measure(plans: &[Plan], enough: fn(ProgressUpdate) -> bool) -> Vec<Result<Report, PerfError>> {
    let options = ServerOptions {
        listen: ([127, 0, 0, 1], 0).into(),
        only: None,
        event_loop: None,
    };
    let end = Stop::new().expect("new stop");
    scope(|scope| {
        let (ready, address) = channel();
        let server = scope.spawn(|| {
            let mut ready = move |address| ready.send(address).expect("send address");
            server::run(&options, &end, &mut ready, &mut |_| {})
        });
        let address = address.recv().expect("server address");
        let measure = |plan| {
            let stop = Stop::new().expect("new stop");
            client::run(address, plan, &stop, &mut |moment| {
                if enough(moment) {
                    stop.raise();
                }
            })
        };
        let reports = plans.iter().map(measure).collect();
        end.raise();
        server.join().expect("no panic").expect("a server");
        reports
    })
}

fn for_a_time(transport: Transport, mode: Mode, time: Duration) -> Plan {
    Plan {
        amount: Amount::Time(time),
        warm_up: Duration::ZERO,
        rate: (transport == Transport::Udp && mode == Mode::Stream).then_some(50_000_000),
        ..Plan::new(transport, mode)
    }
}

#[test]
fn an_interrupted_measurement_reports_its_result_so_far() {
    let mut plans = Vec::new();
    for transport in [
        Transport::Tcp,
        Transport::Tls,
        Transport::Quic,
        Transport::Udp,
    ] {
        for mode in [Mode::Stream, Mode::Rr, Mode::Crr] {
            let plan = for_a_time(transport, mode, DURATION_MAX);
            if mode == Mode::Stream {
                let reverse = true;
                plans.push(Plan {
                    reverse,
                    ..plan.clone()
                });
                plans.push(Plan {
                    amount: Amount::Bytes(1 << 50),
                    ..plan.clone()
                });
            }
            if plan.check().is_ok() {
                plans.push(plan);
            }
        }
    }
    let reports = measure(&plans, |moment| moment.moved > 0);
    for (plan, report) in plans.iter().zip(reports) {
        let report = report.unwrap_or_else(|error| panic!("{plan:?}: {error}"));
        assert!(report.interrupted && report.verified, "{plan:?}");
        // The report contains the counts of the client up to the interruption.
        let counted = match (plan.mode, plan.reverse) {
            (Mode::Stream, true) => report.receiver.map(|tally| tally.bytes),
            (Mode::Stream, false) => report.sender.map(|tally| tally.bytes),
            (Mode::Rr | Mode::Crr, _) => report.transactions,
        };
        assert!(counted > Some(0), "{plan:?}: {report:?}");
        let times = report.latency_us.as_ref().map(|times| times.count);
        assert_eq!(times, report.transactions, "{plan:?}");
    }
}

#[test]
fn the_sleeping_event_loop_is_slow_but_ends() {
    let time = Duration::from_millis(300);
    let plans = [EventLoop::SleepTimeout, EventLoop::Event].map(|event_loop| Plan {
        event_loop,
        ..for_a_time(Transport::Quic, Mode::Stream, time)
    });
    let bytes = measure(&plans, |_| false).into_iter().map(|report| {
        let report = report.expect("measured");
        assert!(!report.interrupted, "{report:?}");
        report.receiver.expect("receiver tally").bytes
    });
    let bytes: Vec<u64> = bytes.collect();
    assert!(bytes[0] * 10 < bytes[1], "{bytes:?}");
}
