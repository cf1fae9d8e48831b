use std::time::Duration;

use quictun_link::{LinkConfig, NamedLink, Queue, Setting};

use super::*;

const SMALL: &str = r#"
name = "small"
title = "t"
[workload]
duration = "1s"
[[arm]]
id = "a"
kind = "tcp"
"#;

fn refused(text: &str) -> String {
    Scenario::parse(text).expect_err("refused").to_string()
}

fn emulated(scenario: &Scenario, case: usize, arm: usize) -> EmulatedLink {
    match &scenario.setup(case, arm, false).link {
        Link::Emulated(link) => (**link).clone(),
        Link::Loopback | Link::Cable(_) => panic!("not emulated"),
    }
}

/// Returns the configuration of both directions of an unnamed link, which is the same for every seed.
fn link_config(link: &EmulatedLink) -> LinkConfig {
    let [up, down] = link.directions(1);
    assert_eq!(up, down);
    assert_eq!(up, link.directions(2)[0], "equal for every seed");
    up
}

#[test]
fn a_minimal_scenario_has_defaults() {
    let scenario = Scenario::parse(SMALL).expect("a scenario");
    assert_eq!((scenario.cases.len(), scenario.arms.len()), (1, 1));
    assert_eq!(scenario.cases[0].id, "all");
    assert_eq!(scenario.reps, [7, 6]);
    let load = &scenario.setup(0, 0, false).load;
    assert_eq!(
        (load.mode, load.amount),
        (Mode::Stream, Amount::Time(Duration::from_secs(1)))
    );
    assert_eq!((load.flows, load.connections, load.reverse), (1, 1, false));
    let link = emulated(&scenario, 0, 0);
    assert_eq!((link.mtu, link.offload), (1500, Offload::Full));
    assert_eq!(link_config(&link).rate, None);
}

#[test]
fn cases_and_sweeps_combine_and_arms_override_them() {
    let text = r#"
name = "all"
title = "t"
[link]
rate = "100mbit"
[workload]
mode = "rr"
count = 10
[quick]
count = 3
[sweep]
loss = ["0%", "1%"]
[[case]]
id = "near"
link.delay = "1ms"
[[case]]
id = "far"
link.delay = "25ms"
workload = { mode = "stream", bytes = 1000 }
[[case]]
id = "further"
workload = { duration = "10s" }
quick = { duration = "2s", warm_up = "1s" }
[[arm]]
id = "a"
kind = "tcp"
[[arm]]
id = "b"
kind = "quic"
link = { rate = "95mbit", burst = 4.0 }
"#;
    let scenario = Scenario::parse(text).expect("a scenario");
    let ids: Vec<_> = scenario
        .cases
        .iter()
        .map(|case| (&*case.id, &*case.label))
        .collect();
    assert_eq!(
        ids,
        [
            ("near/loss=0%", "near 0%"),
            ("near/loss=1%", "near 1%"),
            ("far/loss=0%", "far 0%"),
            ("far/loss=1%", "far 1%"),
            ("further/loss=0%", "further 0%"),
            ("further/loss=1%", "further 1%"),
        ]
    );
    let near = link_config(&emulated(&scenario, 1, 0));
    assert_eq!((near.rate, near.loss), (Some(12_500_000), 0.01));
    assert_eq!(near.queue, Queue::Bytes(250_000), "20 ms worth");
    let far = link_config(&emulated(&scenario, 3, 1));
    assert_eq!(far.rate, Some(11_875_000));
    assert!((far.bursts.expect("bursts").mean_loss() - 0.01).abs() < 1e-9);
    assert_eq!(far.delay, Duration::from_millis(25));
    let load = |case, quick| scenario.setup(case, 0, quick).load.amount;
    assert_eq!(
        (load(0, false), load(0, true)),
        (Amount::Count(10), Amount::Count(3))
    );
    assert_eq!(load(2, true), Amount::Bytes(1000), "quick sets no bytes");
    let further = [false, true].map(|quick| scenario.setup(4, 0, quick).load.least_time());
    assert_eq!(further, [10, 3].map(Duration::from_secs));
}

#[test]
fn a_named_link_is_drawn_from_the_seed_and_settings_override_it() {
    let with = |more: &str| {
        let link = format!("[link]\nlike = \"satellite\"\n{more}\n[workload]");
        let scenario = Scenario::parse(&SMALL.replace("[workload]", &link)).expect("a scenario");
        emulated(&scenario, 0, 0)
    };
    for seed in [1, 2] {
        let named = NamedLink::Satellite.directions(seed);
        let named = named.map(|link_config| LinkConfig {
            mtu: 1500,
            ..link_config
        });
        assert_eq!(with("").directions(seed), named);
    }
    let more = "rate = \"80mbit\"\nloss = \"1%\"\nstall = { length = \"5ms\", every = \"25ms\" }";
    let [up, down] = with(more).directions(1);
    assert_eq!((up.rate, down.rate), (Some(10_000_000), Some(10_000_000)));
    assert_eq!(up.queue, Queue::Bytes(1_000_000), "100 ms worth");
    let stall = up.stall.expect("stalls");
    assert_eq!(
        [stall.lasts, stall.every],
        [5, 25].map(Duration::from_millis)
    );
    let is_delay = |setting: Setting| matches!(setting, Setting::Delay(_));
    assert!(up.changes.iter().all(|change| is_delay(change.to)));
    let [up, down] = with("queue = \"64kB\"").directions(1);
    assert_eq!(
        (up.queue, down.queue),
        (Queue::Bytes(64_000), Queue::Bytes(64_000))
    );
}

#[test]
fn a_rival_has_the_direction_of_the_stream() {
    let with = |more: &str| {
        let load = format!("[workload]\nrival = \"bbr\"\n{more}");
        let scenario = Scenario::parse(&SMALL.replace("[workload]", &load)).expect("a scenario");
        let load = &scenario.setup(0, 0, false).load;
        let stream = load.rival_stream().expect("a rival");
        assert_eq!((stream.mode, &stream.rival), (Mode::Stream, &None));
        assert!(stream.least_time() > Duration::from_secs(1), "outlasts it");
        stream.reverse
    };
    let ways = ["", "reverse = true", "mode = \"rr\"\nbackground = \"down\""].map(with);
    assert_eq!(ways, [false, true, true]);
    let none = Scenario::parse(SMALL).expect("a scenario");
    assert_eq!(none.setup(0, 0, false).load.rival_stream(), None);
}

#[test]
fn only_a_link_has_limits() {
    let with = |medium: &str, more: &str| {
        SMALL.replace(
            "[workload]",
            &format!("[link]\nmedium = \"{medium}\"\n{more}\n[workload]"),
        )
    };
    let link = |medium: &str, more: &str| {
        let scenario = Scenario::parse(&with(medium, more)).expect("a scenario");
        scenario.setup(0, 0, false).link.clone()
    };
    assert_eq!(link("loopback", ""), Link::Loopback);
    for (medium, routed) in [("cable", false), ("router", true)] {
        let expected = Cable {
            routed,
            mtu: 9000,
            offload: Offload::Full,
            segment_limit: Some(185_000),
        };
        let more = "mtu = 9000\nsegment_limit = 185000";
        assert_eq!(link(medium, more), Link::Cable(expected));
    }
    for medium in ["loopback", "cable", "router"] {
        for more in [
            "like = \"lte\"",
            "stall = { length = \"1ms\", every = \"2ms\" }",
            "delay = \"1ms\"",
            "loss_unit = \"packet\"",
            "coalesce = \"1ms\"",
        ] {
            let said = refused(&with(medium, more));
            assert!(
                said.contains("only medium = \"link\" supports like, "),
                "{said}"
            );
        }
    }
}

#[test]
fn settings_that_an_external_emulator_lacks_are_refused() {
    let with = |more: &str| {
        let link = format!("[link]\nemulator = \"netemu\"\n{more}[workload]");
        SMALL.replace("[workload]", &link)
    };
    let says = "an emulator by command needs a rate, and gets only ra";
    assert!(refused(&with("")).starts_with(&format!("line 9: {says}")));
    let rate = "rate = \"1mbit\"\n";
    for special in [
        "like = \"lte\"\n",
        "jitter = \"1ms\"\n",
        "segment_limit = 65536\n",
    ] {
        let said = refused(&with(&format!("{rate}{special}")));
        assert!(said.starts_with(&format!("line 11: {says}")), "{said}");
    }
    Scenario::parse(&with(rate)).expect("a scenario");
}

#[test]
fn invalid_settings_are_refused_with_their_line_and_the_remedy() {
    for (from, to, says) in [
        (
            "kind = \"tcp\"",
            "kind = \"tpc\"",
            "line 8: unknown variant `tpc`, expected one of `tcp`",
        ),
        (
            "title",
            "titel",
            "line 3: unknown field `titel`, expected one of `name`, `title`",
        ),
        (
            "[[arm]]",
            "[arm]",
            "line 6: expected an array; write the name of a table in double brackets, as in [[arm]]",
        ),
        (
            "\"1s\"",
            "\"1 fortnight\"",
            "line 5: `1 fortnight` is not a time; write it like 1.5ms",
        ),
        (
            "\"1s\"",
            "\"2000000s\"",
            "line 7: duration is longer than 3600 s",
        ),
        (
            "duration = \"1s\"",
            "",
            "line 7: a workload with mode = \"stream\" needs either duration or bytes",
        ),
        (
            "duration = \"1s\"",
            "mode = \"rr\"\nbytes = 7",
            "line 8: a workload with mode = \"rr\" needs either duration or count",
        ),
        (
            "duration = \"1s\"",
            "duration = \"1s\"\nflows = 0",
            "line 8: flows = 0: from 1 to 1000",
        ),
        (
            "[workload]",
            "[link]\nmtu = 600\n[workload]",
            "line 9: an MTU of 600 bytes: from 1280",
        ),
        (
            "[workload]",
            "[link]\nloss = \"120%\"\n[workload]",
            "line 5: `120%` is not a share",
        ),
        (
            "[workload]",
            "[design]\nreps = 0\n[workload]",
            "line 2: 0 repetitions: from 1 to 1000",
        ),
        ("\"small\"", "\"Big One\"", "line 2: \"Big One\" is not a "),
        (
            "duration = \"1s\"",
            "duration = \"1s\"\nbackground = \"up\"",
            "line 8: background goes with mode = \"rr\"",
        ),
        (
            "kind = \"tcp\"",
            "kind = \"command\"",
            "line 7: kind = \"command\", and no other kind",
        ),
        (
            "[[arm]]\nid = \"a\"\nkind = \"tcp\"",
            "",
            "line 2: there is nothing to measure",
        ),
        (
            "kind = \"tcp\"",
            "kind = \"tcp\"\n[[arm]]\nid = \"a\"\nkind = \"tls\"",
            "the id \"a\" is used twice",
        ),
        (
            "kind = \"tcp\"",
            "kind = \"tcp\"\n[[assert]]\narm = \"a\"\nmetric = \"first_ms\"",
            "line 10: this assertion has",
        ),
        (
            "kind = \"tcp\"",
            "kind = \"tcp\"\n[[assert]]\narm = \"a\"\nmetric = \"first_ms\"\nat_least = 1\nallow = \"headers\"",
            "line 10: allow = \"headers\" goes with at_least, an arm of kind tunnel or quic over one",
        ),
        (
            "kind = \"tcp\"",
            "kind = \"tcp\"\n[[compare]]\na = \"a\"\nb = \"c\"\nmetric = \"first_ms\"",
            "line 11: there is no arm \"c\"; there are a",
        ),
        (
            "kind = \"tcp\"",
            "kind = \"tcp\"\n[[table]]\ntitle = \"x\"\ncolumns = [\"speed\"]",
            "line 11: there is no metric \"speed\"; there are receiver_mbit_per_s,",
        ),
        (
            "kind = \"tcp\"",
            "kind = \"tcp\"\n[profile]\narms = [\"b\"]",
            "line 10: there is no arm \"b\"; there are a",
        ),
        (
            "kind = \"tcp\"",
            "kind = \"tcp\"\n[[published]]\ncase = \"loss=1%\"\narm = \"a\"\nvalues = {}",
            "line 10: there is no case \"loss=1%\"; there are all",
        ),
    ] {
        let text = SMALL.replace(from, to);
        assert_ne!(text, SMALL, "{from}");
        let said = refused(&text);
        assert!(said.contains(says), "{to:?}: {said}");
    }
    assert!(refused("name = ").starts_with("line 1: "));
}

#[test]
fn invalid_links_and_rivals_are_refused_with_their_line() {
    for (from, to, says) in [
        (
            "duration = \"1s\"",
            "bytes = 7\nrival = \"bbr\"",
            "line 8: a rival goes with a duration and one stream",
        ),
        (
            "duration = \"1s\"",
            "duration = \"1s\"\nmode = \"rr\"\nbackground = \"both\"\nrival = \"bbr\"",
            "line 10: a rival goes with a duration and one stream",
        ),
        (
            "[workload]",
            "[link]\nlike = \"cable\"\n[workload]",
            "line 5: there is no link like \"cable\"; there are lte, 5g, satellite, wifi",
        ),
        (
            "[workload]",
            "[link]\nstall = { length = \"9ms\", every = \"2ms\" }\n[workload]",
            "line 9: pauses of 9ms every 2ms make no sense",
        ),
    ] {
        let said = refused(&SMALL.replace(from, to));
        assert!(said.contains(says), "{to:?}: {said}");
    }
}

#[test]
fn a_block_has_a_limit() {
    let sweep = |losses: usize| {
        let list: Vec<String> = (0..losses).map(|at| format!("\"0.{at:04}\"")).collect();
        SMALL.replace(
            "[workload]",
            &format!("[sweep]\nloss = [{}]\n[workload]", list.join(", ")),
        )
    };
    assert_eq!(
        Scenario::parse(&sweep(400))
            .expect("at the limit")
            .cases
            .len(),
        400
    );
    assert!(refused(&sweep(401)).contains("401 cells in each block are more than 400"));
}
