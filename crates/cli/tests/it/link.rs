//! `quictun link`: the results of its flags, variables and plans, and the input that it refuses.

use std::time::Duration;

use quictun_args::fault::{Exit, Fault};
use quictun_cli::link::Action as LinkAction;
use quictun_cli::native::Action;
use quictun_emu::Offload;
use quictun_lab_run::link::{
    CalibrationOptions, CheckCell, CheckOptions, Load, NearCommand, SessionOptions,
};
use quictun_link::{Change, LinkConfig, LossAt, NamedLink, Outage, Queue, Setting};

use crate::test_inputs::TestInputs;

const MS: Duration = Duration::from_millis(1);

fn asked(inputs: &TestInputs, line: &str) -> Result<LinkAction, Fault> {
    match inputs.native(line)? {
        Action::Link(action) => Ok(action),
        other => panic!("{line}: not a link: {other:?}"),
    }
}

fn session(inputs: &TestInputs, line: &str) -> SessionOptions {
    match asked(inputs, line) {
        Ok(LinkAction::Session(session)) => *session,
        other => panic!("{line}: not a session: {other:?}"),
    }
}

fn ways(line: &str) -> [LinkConfig; 2] {
    session(&TestInputs::default(), &format!("link shell {line}")).links
}

fn both(line: &str) -> LinkConfig {
    let [up, down] = ways(line);
    assert_eq!(up, down, "{line}");
    up
}

#[test]
fn without_flags_it_is_a_shell_behind_a_wire_without_limits() {
    let inputs = TestInputs::default().env("SHELL", "/bin/zsh");
    let session = session(&inputs, "link shell");
    assert_eq!(session.near, NearCommand::Shell("/bin/zsh".to_owned()));
    let [up, down] = &session.links;
    assert_eq!((up.rate, up.delay, up.loss), (None, Duration::ZERO, 0.0));
    assert_eq!(up.queue, Queue::default());
    assert_eq!((up.overhead, up.mtu), (38, 1500));
    assert_eq!(up, down);
    assert_eq!((session.seed, session.coalesce), (1, MS / 20));
    assert_eq!(session.offload, Offload::Full);
    assert_eq!((session.far, session.time_limit), (None, None));
}

#[test]
fn flags_for_both_directions_apply_to_each() {
    let config = both("--rate 600mbit --delay 10ms --loss 1% --jitter 2ms --duplicate 0.1%");
    assert_eq!(config.rate, Some(75_000_000));
    assert_eq!((config.delay, config.jitter), (10 * MS, 2 * MS));
    assert_eq!((config.loss, config.duplicate), (0.01, 0.001));
    assert_eq!(
        config.queue,
        Queue::Bytes(1_500_000),
        "a round trip's worth"
    );

    let config = both("--rate 1gbit --reorder 1%:5ms --loss-at entry --overhead 42 --queue 100p");
    assert_eq!((config.reorder.share, config.reorder.extra), (0.01, 5 * MS));
    assert_eq!(config.loss_at, LossAt::Entry);
    assert_eq!((config.overhead, config.queue), (42, Queue::Packets(100)));

    let config = both("--stall 20ms:100ms");
    let stall = config.stall.expect("stalls");
    assert_eq!((stall.lasts, stall.every), (20 * MS, 100 * MS));

    let config = both("--loss 2% --burst 4");
    let mean = config.bursts.expect("bursts").mean_loss();
    assert!((mean - 0.02).abs() < 1e-9, "{mean}");

    let config = both("--rate 10mbit --codel 5ms:100ms --ecn codel --policer 5mbit:64kB");
    let codel = config.codel.expect("CoDel");
    assert_eq!(
        (codel.target, codel.interval, codel.ecn),
        (5 * MS, 100 * MS, true)
    );
    let policer = config.policer.expect("a policer");
    assert_eq!((policer.rate, policer.burst), (625_000, 64_000));
    assert_eq!(both("--rate 1gbit --ecn 2ms").mark_above, Some(2 * MS));
}

#[test]
fn a_flag_for_one_direction_overrides_the_one_for_both() {
    let [up, down] = ways("--rate 80mbit --rate-down 8mbit --delay-up 30ms --loss 1% --loss-up 0");
    assert_eq!((up.rate, down.rate), (Some(10_000_000), Some(1_000_000)));
    assert_eq!((up.delay, down.delay), (30 * MS, Duration::ZERO));
    assert_eq!((up.loss, down.loss), (0.0, 0.01));
    // At 1 MB/s a round trip of 30 ms holds fewer bytes than the 64 packets that always fit.
    assert_eq!(down.queue, Queue::Bytes(64 * 1538));
}

#[test]
fn changes_over_time_are_sorted() {
    let config = both("--outage 10s+2s --outage 1s+500ms --change 5s:loss=2%,2s:rate=1mbit");
    let outage = |from, until| Outage { from, until };
    assert_eq!(
        config.outages,
        [
            outage(10_000 * MS, 12_000 * MS),
            outage(1000 * MS, 1500 * MS)
        ]
    );
    let change = |at, to| Change { at, to };
    assert_eq!(
        config.changes,
        [
            change(2000 * MS, Setting::Rate(Some(125_000))),
            change(5000 * MS, Setting::Loss(0.02)),
        ]
    );
}

#[test]
fn a_trace_is_read_for_its_direction() {
    let inputs = TestInputs::default().file("t", "10\n20\n");
    let [up, down] = session(&inputs, "link shell --trace-up t").links;
    assert_eq!(up.trace.expect("a trace").mean_rate(), 150_000);
    assert_eq!(down.trace, None);
}

#[test]
fn a_named_link_is_drawn_from_the_seed() {
    for (name, named) in NamedLink::ALL {
        let drawn = |seed| {
            let ways = named.directions(seed);
            ways.map(|way| LinkConfig { mtu: 1500, ..way })
        };
        assert_eq!(ways(&format!("--like {name}")), drawn(1), "{name}");
        assert_eq!(ways(&format!("--like {name} --seed 9")), drawn(9), "{name}");
    }
    let plan = "seed = 9\n[near]\ncommand = 'x'\n[link]\nlike = 'wifi'\nloss = '2%'";
    let inputs = TestInputs::default().file("p", plan);
    let [up, down] = session(&inputs, "link run p").links;
    let [_, wifi] = NamedLink::Wifi.directions(9);
    assert_eq!((up.loss, down.loss), (0.02, 0.02));
    assert_eq!((down.trace, down.delay), (wifi.trace, wifi.delay));
}

#[test]
fn flags_override_the_named_link() {
    let [up, down] = ways("--like satellite --loss 1% --delay-down 7ms --overhead vlan");
    let [named, _] = NamedLink::Satellite.directions(1);
    assert_eq!((up.loss, down.loss), (0.01, 0.01));
    assert_eq!((up.delay, down.delay), (named.delay, 7 * MS));
    assert_eq!((up.stall, up.jitter), (named.stall, named.jitter));
    assert_eq!((up.queue, up.overhead), (named.queue, 42));
    let is_delay = |change: &&Change| matches!(change.to, Setting::Delay(_));
    let [delays_up, delays_down] =
        [&up, &down].map(|way| way.changes.iter().filter(is_delay).count());
    assert_eq!((delays_up, delays_down), (1919, 0));

    let [up, down] = ways("--like lte --rate-down 8mbit --burst 3 --loss 0.5%");
    assert_eq!((down.rate, &down.trace), (Some(1_000_000), &None));
    assert_eq!(down.queue, Queue::Bytes(500_000), "lte queues for 500 ms");
    assert!(up.trace.is_some() && up.rate.is_none());
    let mean = up.bursts.expect("bursts").mean_loss();
    assert!((mean - 0.005).abs() < 1e-9 && up.loss == 0.0, "{mean}");

    let [_, down] = ways("--like lte --queue 64kB");
    assert_eq!(down.queue, Queue::Bytes(64_000));
    let [_, down] = ways("--like lte --rate 80mbit --queue auto");
    assert_eq!(down.queue, Queue::Bytes(445_000), "a round trip's worth");

    let [up, _] = ways("--like wifi --change 5s:loss=1%,3s:delay=1ms");
    assert_eq!(up.changes.len(), 2);
    let [up, _] = ways("--like wifi --rate 1mbit --change 5s:rate=2mbit");
    assert_eq!((up.rate, up.changes.len()), (Some(125_000), 1));
}

#[test]
fn a_command_is_taken_as_it_is() {
    let line = "link shell --loss 1% -- iperf3 -c 100.127.0.1 --loss";
    let words = ["iperf3", "-c", "100.127.0.1", "--loss"].map(str::to_owned);
    assert_eq!(
        session(&TestInputs::default(), line).near,
        NearCommand::Command(words.to_vec())
    );
}

const PLAN: &str = r#"
    seed = 7
    mtu = 1400
    offload = "none"
    time_limit = "60s"
    [link]
    rate = "600mbit"
    loss = "1%"
    outage = ["1s+1s", "3s+1s"]
    [link.down]
    loss = "5%"
    [far]
    command = "iperf3 -s"
    [near]
    command = "iperf3 -c $QUICTUN_FAR"
"#;

#[test]
fn a_plan_file_sets_every_flag_and_flags_override_it() {
    let inputs = TestInputs::default().file("plan.toml", PLAN);
    let session_ = session(&inputs, "link run plan.toml");
    let [up, down] = &session_.links;
    assert_eq!((up.rate, down.rate), (Some(75_000_000), Some(75_000_000)));
    assert_eq!((up.loss, down.loss), (0.01, 0.05));
    assert_eq!((up.outages.len(), up.mtu), (2, 1400));
    assert_eq!((session_.seed, session_.mtu), (7, 1400));
    assert_eq!(session_.offload, Offload::None);
    assert_eq!(session_.time_limit, Some(Duration::from_mins(1)));
    assert_eq!(session_.far.as_deref(), Some("iperf3 -s"));
    let near = NearCommand::Line("iperf3 -c $QUICTUN_FAR".to_owned());
    assert_eq!(session_.near, near);

    let inputs = inputs.env("QUICTUN_LINK_SEED", "8");
    let session_ = session(&inputs, "link run plan.toml --loss-down 2% --delay 5ms");
    assert_eq!(
        (session_.links[1].loss, session_.links[0].loss),
        (0.02, 0.01)
    );
    assert_eq!(session_.links[0].delay, 5 * MS);
    assert_eq!(session_.seed, 8, "a variable overrides a file");
}

#[test]
fn calibration_has_rates_to_try() {
    let action = asked(
        &TestInputs::default(),
        "link calibrate --rates 8mbit,16mbit",
    );
    let Ok(LinkAction::Calibrate(CalibrationOptions { rates, delay, .. })) = action else {
        panic!("{action:?}");
    };
    assert_eq!((rates, delay), (vec![1_000_000, 2_000_000], 10 * MS));
}

#[test]
fn impossible_settings_are_refused_with_the_reason() {
    for (flags, message) in [
        (
            "--rate 600",
            "--rate: `600` is not a rate; write it like 600mbit",
        ),
        ("--rate 0mbit", "--rate: `0mbit` lets no packet through"),
        (
            "--delay 10",
            "--delay: `10` is not a time; write it like 1.5ms",
        ),
        ("--delay 61s", "the link up: a delay of 61s is too long"),
        ("--loss 101%", "--loss: `101%` is not a share"),
        (
            "--loss 1",
            "--loss: `1` means all packets: write 1% for one in a hundred",
        ),
        ("--burst 3", "--burst: bursts need a loss"),
        ("--like wifi --burst 3", "--burst: bursts need a loss"),
        (
            "--like cable",
            "--like: unknown value \"cable\": choose lte, 5g, satellite or wifi",
        ),
        (
            "--like lte --change 5s:rate=1mbit",
            "--change: the rate of a named link changes by itself: give --rate too",
        ),
        ("--like lte --backend kernel", "--backend: "),
        (
            "--loss 1% --burst 0.5",
            "--burst: \"0.5\" is not a number of packets",
        ),
        (
            "--rate 1mbit --queue 100B",
            "the link up: a queue of 100B does not hold one packet",
        ),
        (
            "--reorder 1%",
            "--reorder: \"1%\" has no ':': write it like 1%:5ms",
        ),
        ("--reorder 1%:0", "the link up: reordering needs a time"),
        ("--codel 100ms:5ms", "the link up: "),
        ("--ecn codel", "--ecn: no CoDel is configured"),
        (
            "--policer 1mbit:10p",
            "--policer: \"10p\": a policer counts bytes",
        ),
        ("--policer 1mbit:10B", "the link up: "),
        ("--outage 5s", "--outage: \"5s\" has no '+'"),
        (
            "--outage 5s+0s",
            "--outage: \"5s+0s\" is an outage without length",
        ),
        (
            "--change 5s:colour=red",
            "--change: \"colour\" cannot change",
        ),
        (
            "--mtu 1000",
            "--mtu: \"1000\" is not a whole number from 1280 to 65535",
        ),
        ("--coalesce 1s", "--coalesce: 1s is more than 10ms"),
        (
            "--overhead big",
            "--overhead: \"big\" is neither ip, ethernet",
        ),
        (
            "--trace-up t --rate 1mbit",
            "the link up: a trace already sets when bytes are sent",
        ),
        (
            "--trace-up plan.toml",
            "--trace-up: plan.toml: line 2 of the trace",
        ),
    ] {
        let inputs = TestInputs::default()
            .file("t", "1\n")
            .file("plan.toml", PLAN);
        let line = format!("link shell {flags}");
        let fault = asked(&inputs, &line).expect_err(flags);
        let said = fault.to_string();
        assert!(said.starts_with(message), "{flags}: {said}");
        assert_eq!(fault.exit, Exit::Usage, "{flags}");
    }
}

#[test]
fn a_wrong_plan_is_refused_at_the_faulty_key() {
    for (plan, message) in [
        (
            "[near]\ncommand = 'x'\n[link]\ncolour = 'red'",
            "unknown field `colour`",
        ),
        ("[link]\nrate = '1mbit'", "missing field `near`"),
        (
            "[near]\ncommand = 'x'\n[link.up]\nloss = '1'",
            "p: link.up.loss: `1` means all packets",
        ),
        (
            "[near]\ncommand = 'x'\n[link.up]\njitter = '1ms'",
            "unknown field `jitter`",
        ),
    ] {
        let fault = asked(&TestInputs::default().file("p", plan), "link run p").expect_err(plan);
        assert!(fault.to_string().contains(message), "{plan}: {fault}");
        assert_eq!(fault.exit, Exit::Usage, "{plan}");
    }
    let fault = asked(&TestInputs::default(), "link run nowhere.toml").expect_err("no file");
    assert_eq!(fault.exit, Exit::Failure, "{fault}");
}

fn checking(line: &str) -> CheckOptions {
    match asked(&TestInputs::default(), line) {
        Ok(LinkAction::Check(plan) | LinkAction::Artefact(plan)) => plan,
        other => panic!("{line}: not a comparison: {other:?}"),
    }
}

#[test]
fn comparisons_have_ten_links_and_the_tunnel_or_two_links_and_both_loads() {
    let check = checking("link check");
    assert_eq!((check.cells.len(), check.runs), (10, 3));
    assert_eq!(check.loads, [Load::Tunnel]);
    let artefact = checking("link artefact");
    assert_eq!((artefact.cells.len(), artefact.runs), (2, 3));
    assert_eq!(artefact.loads, [Load::Cubic, Load::Tunnel]);
    let one =
        checking("link check --cells 600mbit:20ms:1% --loads tunnel,cubic --runs 7 --duration 2s");
    assert_eq!((one.cells.len(), one.loads.len(), one.runs), (1, 2, 7));
    let cell = CheckCell {
        rate: 75_000_000,
        round_trip: Duration::from_millis(20),
        loss: 0.01,
    };
    assert_eq!(one.cells, [cell]);
    assert_eq!(one.duration, Duration::from_secs(2));
}

#[test]
fn an_invalid_comparison_link_is_refused_with_an_example() {
    for (line, why) in [
        (
            "--cells 600mbit",
            "`600mbit` is not RATE:RTT:LOSS, such as 600mbit:20ms:1%",
        ),
        ("--cells 600mbit:20ms:1%:5", "is not RATE:RTT:LOSS"),
        ("--cells 0mbit:20ms:1%", "lets no packet through"),
        ("--cells 1mbit:20:1%", "20"),
        ("--cells 1mbit:20ms:101%", "101%"),
        ("--cells 1mbit:5h:0", "5h"),
        ("--loads bbr", "`bbr` is neither tunnel nor cubic"),
        ("--runs 0", "0"),
        ("--duration 1ms", "not between"),
    ] {
        let fault = asked(&TestInputs::default(), &format!("link check {line}")).expect_err(line);
        assert_eq!(fault.exit, Exit::Usage, "{line}");
        assert!(fault.to_string().contains(why), "{line}: {fault}");
    }
}
