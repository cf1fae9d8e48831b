//! The pages at two sizes, and text of others that must not control the terminal.

use serde_json::{Value, json};

use super::super::fake::{answer, changed, connection, tunnel, with};
use super::super::keys::Key;
use super::*;
use crate::status::answers::Answer;
use crate::status::cells::width;

const SMALL: ScreenSize = ScreenSize {
    columns: 80,
    rows: 24,
};
const LARGE: ScreenSize = ScreenSize {
    columns: 120,
    rows: 40,
};

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn text(lines: &[ScreenLine]) -> String {
    lines.iter().map(|line| line.text() + "\n").collect()
}

/// Returns an answer with two laptops, an address and flows, `second` seconds into the watch.
fn answer_at(second: u32) -> Answer {
    let at = u64::from(second);
    let age = 7000.0 + f64::from(second);
    let lossy = connection(1, "laptop", age, 40_000 * at * at, 3_000_000 * at);
    let lossy = with(lossy, "packets_lost", at);
    let remote = "[2001:db8:1234:5678:9abc:def0:1234:5678]:50000";
    let silent = connection(3, "backup.example.net", age, 80_000, 20_000);
    let silent = with(with(silent, "unresponsive", true), "remote", remote);
    let limited = connection(2, "laptop", age, 250_000 * at, 10_000);
    let limited = with(limited, "limited_by", "receive window");
    let connections = vec![
        lossy,
        limited,
        silent,
        connection(4, "", age, 4000, 120 * at),
    ];
    let mut tunnels = vec![
        tunnel(1, 1, 61.0 + f64::from(second), 20_000 * at, 2_900_000 * at),
        tunnel(2, 2, 3700.0 + f64::from(second), 240_000 * at, 0),
        with(tunnel(3, 3, f64::from(second), 0, 0), "established", false),
    ];
    tunnels.extend((4..24).map(|n| tunnel(n, 4, age, 100 * n, 1000)));
    answer(277_201.5 + f64::from(second), &connections, &tunnels)
}

fn watched(seconds: u32) -> StatusView {
    let mut view = StatusView::default();
    for second in 0..=seconds {
        view.learn(Ok(answer_at(second)), secs(second.into()));
    }
    view
}

#[test]
fn a_page_at_80_by_24() {
    let view = watched(30);
    let lines = screen(&view, &mut Controls::default(), SMALL, secs(30.0));
    let expected = include_str!("watch-80x24.txt");
    check("watch-80x24.txt", expected, &text(&lines));
}

#[test]
fn a_page_at_120_by_40() {
    let view = watched(90);
    let mut controls = Controls::default();
    for key in [Key::Next, Key::Next, Key::Sort, Key::Sort, Key::Down] {
        controls.press(key);
    }
    let lines = screen(&view, &mut controls, LARGE, secs(90.0));
    check(
        "watch-120x40.txt",
        include_str!("watch-120x40.txt"),
        &text(&lines),
    );
}

#[test]
fn a_page_for_a_file_has_no_escapes_and_no_keys() {
    let mut view = watched(3);
    view.learn(
        Err("nothing answers at 127.0.0.1:8086".to_owned()),
        secs(4.0),
    );
    let page = printed(&view, secs(7.0));
    check(
        "watch-printed.txt",
        include_str!("watch-printed.txt"),
        &page,
    );
    assert!(!page.contains('\u{1b}'), "{page}");
}

#[test]
fn a_client_whose_flows_wait_is_seen_without_a_connection() {
    let mut answer = changed(10.0, &[], &[], |status| {
        status["bonds"] = 1.into();
        status["detached_tunnels"] = 2.into();
        status["kept_bytes"] = 70_000.into();
        status["moves"] = 1.into();
        status["move_seconds_p50"] = 0.75.into();
    });
    let bond = json!({
        "id": "b04d0002", "client": "sensor", "detached_flows": 2, "kept_bytes": 70_000,
        "alone_seconds": 61.0,
    });
    answer.bonds = serde_json::from_value(json!({"bonds": [bond]})).expect("bonds");
    let mut view = StatusView::default();
    view.learn(Ok(answer), secs(0.0));
    let lines = screen(&view, &mut Controls::default(), LARGE, secs(1.0));
    let page = text(&lines);
    let all =
        "bonds             1 2 flows waiting 70.0 kB kept; 1 move of a flow, half within 750 ms";
    assert!(page.contains(all), "{page}");
    let mut rows = page.lines().filter(|line| line.starts_with("sensor "));
    let cells: Vec<_> = rows.next().expect("a row").split_whitespace().collect();
    assert_eq!(
        cells[..6],
        ["sensor", "0", "2", "2", "70.0", "kB"],
        "{page}"
    );
}

/// Compares with a golden file. With `UPDATE=1` in the environment, writes the file instead.
#[track_caller]
fn check(name: &str, expected: &str, got: &str) {
    if std::env::var_os("UPDATE").is_some() {
        let path = format!(
            "{}/src/status/watch/page/{name}",
            env!("CARGO_MANIFEST_DIR")
        );
        std::fs::write(path, got).expect("the golden file beside this one can be written");
        return;
    }
    assert_eq!(
        got, expected,
        "{name} is stale; UPDATE=1 rewrites it. Got:\n{got}"
    );
}

#[test]
fn a_page_fits_every_screen() {
    let view = watched(3);
    for columns in (1..200).step_by(7) {
        for rows in [1, 2, 3, 5, 8, 24, 50] {
            let mut controls = Controls::default();
            controls.press(Key::Last);
            let size = ScreenSize { columns, rows };
            let lines = screen(&view, &mut controls, size, secs(3.0));
            assert_eq!(lines.len(), rows, "{size:?}");
            for line in &lines {
                assert!(width(&line.text()) <= columns, "{size:?}: {line:?}");
            }
        }
    }
}

#[test]
fn scrolling_ends_at_the_last_row_and_the_selected_table_gets_the_room() {
    let view = watched(3);
    let mut controls = Controls::default();
    controls.press(Key::Previous);
    let heads = |controls: &mut Controls| {
        let lines = text(&screen(&view, controls, SMALL, secs(3.0)));
        let heads = lines
            .lines()
            .filter(|line| line.contains("/s ") || line.ends_with("/s"));
        let heads = heads.filter_map(|line| line.split("  ").next().map(str::to_owned));
        heads
            .filter(|head| head.starts_with(char::is_uppercase))
            .collect::<Vec<_>>()
    };
    let first = heads(&mut controls);
    assert_eq!(first, ["CLIENTS 3", "CONNECTIONS 1-3/4", "FLOWS 1-11/23"]);
    controls.press(Key::Last);
    assert_eq!(heads(&mut controls)[2], "FLOWS 13-23/23");
    controls.press(Key::Up);
    assert_eq!(heads(&mut controls)[2], "FLOWS 12-22/23");
    controls.press(Key::Next);
    assert_eq!(
        heads(&mut controls),
        ["CLIENTS 3", "CONNECTIONS 4", "FLOWS 12-21/23"]
    );
}

#[test]
fn rows_follow_the_selected_order() {
    let view = watched(3);
    let first = |sort| {
        let rows = sorted(view.connections(), sort);
        rows.iter()
            .map(|row| row.address.as_str())
            .collect::<Vec<_>>()[0]
            .to_owned()
    };
    assert_eq!(first(Sort::Rate), "192.0.2.1:50001");
    assert!(
        first(Sort::Rtt).starts_with("[2001:"),
        "a silent peer counts as the longest round trip"
    );
    assert_eq!(first(Sort::Loss), "192.0.2.1:50001");
    assert_eq!(first(Sort::Flows), "192.0.2.2:50002");
    assert_eq!(
        first(Sort::Name),
        "192.0.2.4:50004",
        "a peer without a name sorts by its address"
    );
    let flows = sorted(view.flows(), Sort::Bytes);
    assert_eq!(flows[0].target, "tcp:db1.internal:5432");
}

#[test]
fn only_our_own_sequences_act_on_the_terminal() {
    let evil = "\u{1b}]0;title\u{7}\u{9b}31m\u{202e}x\r\n\u{61c}";
    let mut one = connection(1, evil, 5.0, 10, 10);
    for field in ["remote", "limited_by", "opened_at"] {
        one = with(one, field, evil);
    }
    let mut flow = tunnel(1, 1, 1.0, 1, 1);
    for field in ["target", "server_app", "id"] {
        flow = with(flow, field, evil);
    }
    let change = |status: &mut Value| {
        for field in ["version", "side", "reason"] {
            status[field] = json!(evil);
        }
        status["ready"] = json!(false);
        status["reload"] = json!({
            "reloaded_at": null, "reload_error": evil, "changes": [], "restart": [evil],
        });
    };
    let mut view = StatusView::default();
    view.learn(Ok(changed(1.0, &[one], &[flow], change)), secs(1.0));
    view.learn(Err(evil.to_owned()), secs(2.0));
    let lines = screen(&view, &mut Controls::default(), LARGE, secs(2.0));
    let printed = printed(&view, secs(2.0));
    let all = text(&lines) + &printed;
    let acts = |c: char| c != '\n' && plain(&c.to_string()) != c.to_string();
    assert!(!all.contains(acts), "{all:?}");
    assert!(all.contains("]0;title"), "harmless text is shown");
    let ansi: String = lines.iter().map(|line| line.ansi(true)).collect();
    let sequences = ansi.split('\u{1b}').skip(1);
    for sequence in sequences {
        let (parameters, _) = sequence.split_once('m').expect("a complete SGR sequence");
        assert!(
            parameters.starts_with('[') && parameters.len() <= 5,
            "{sequence:?}"
        );
    }
}

#[test]
fn alarms_are_shown_and_colours_can_be_left_out() {
    let change = |status: &mut Value| {
        status["ready"] = json!(false);
        status["reason"] = json!("draining: open flows are being finished");
        status["workers_silent"] = json!([1]);
    };
    let mut view = StatusView::default();
    view.learn(Ok(changed(1.0, &[], &[], change)), secs(0.0));
    let lines = screen(&view, &mut Controls::default(), SMALL, secs(0.0));
    let expected = "\
quictun server 0.1.0, process 4711, up 1s: NOT READY
not ready: draining: open flows are being finished
workers that do NOT answer: [1] of 2
";
    assert!(text(&lines).starts_with(expected), "{}", text(&lines));
    let ansi = |colour| {
        lines
            .iter()
            .map(|line| line.ansi(colour))
            .collect::<String>()
    };
    assert!(
        ansi(true).contains("\u{1b}[1;31mnot ready"),
        "{}",
        ansi(true)
    );
    let parameters = ansi(false);
    let parameters = parameters
        .split("\u{1b}[")
        .skip(1)
        .filter_map(|rest| rest.split('m').next());
    for parameter in parameters.flat_map(|all| all.split(';')) {
        assert!(["0", "1", "2", "7"].contains(&parameter), "{parameter}");
    }
}

#[test]
fn many_connections_take_no_more_lines_than_there_are_rows() {
    let connections = |second: u32| {
        let age = 100.0 + f64::from(second);
        let one = |id| {
            connection(
                id,
                &format!("client-{}", id % 300),
                age,
                id * u64::from(second),
                0,
            )
        };
        (0..1000).map(one).collect::<Vec<_>>()
    };
    let mut view = StatusView::default();
    for second in 0..3 {
        view.learn(
            Ok(answer(1.0, &connections(second), &[])),
            secs(second.into()),
        );
    }
    let mut controls = Controls::default();
    controls.press(Key::Next);
    let text = text(&screen(&view, &mut controls, SMALL, secs(2.0)));
    assert!(text.contains("CLIENTS 1-3/300"), "{text}");
    assert!(text.contains("CONNECTIONS 1-14/1000"), "{text}");
    assert!(text.contains("client-99 192.0.2.249:50…"), "{text}");
}
