//! The figure: cycles and notifications per call against calls in flight, and notifications against the server's load.
//! The published curves are dashed.

use std::collections::BTreeSet;

use quictun_ipc::WaitPolicy;
use quictun_lab::chart::{self, Panel, Series, Stroke, XDivision};

use super::published;
use super::results::{CallCell, CallRow, LOADED, Results};
use crate::kind::{Kind, Placement};

/// The range of an axis for shares of calls.
const SHARES: [f64; 2] = [0.0, 1.0];

pub(crate) fn draw(results: &Results) -> String {
    let noise = results.noise.as_ref();
    let noise = noise.map(|_| "NOT TO BE PUBLISHED: noisy machine");
    let panels = [cycles(results), notifications(results), loads(results)];
    chart::sheet(&results.machine.name(), noise, &panels)
}

fn cycles(results: &Results) -> Panel {
    let mut lines = Vec::new();
    let last = number(
        results
            .options
            .concurrency
            .iter()
            .copied()
            .max()
            .unwrap_or(1),
    );
    for (style, placement) in Placement::ALL.into_iter().enumerate() {
        let rows = curve(results, placement);
        let [ours, theirs] =
            ["async", "published"].map(|name| format!("{name}, {}", placement.word()));
        let cycles = rows.iter().map(|row| (calls(row), row.cycles[0]));
        lines.push(Series::new(ours, style, Stroke::Marked, cycles));
        let cycles = rows.iter().filter_map(|row| {
            let cycles = published::asynchronous(placement, row.cell.concurrency)?;
            Some((calls(row), f64::from(cycles)))
        });
        lines.push(Series::new(theirs, style, Stroke::Dashed, cycles));
    }
    let kinds = [(Kind::Futex, 2), (Kind::SeqPacket, 4)];
    for ((kind, style), at) in kinds.into_iter().flat_map(|kind| [(kind, 0), (kind, 1)]) {
        let is_wanted = |cell: &CallCell| {
            cell.kind == kind && cell.placement == Placement::ALL[at] && cell.concurrency == 1
        };
        let one = results.rows.iter().find(|row| is_wanted(&row.cell));
        lines.extend(one.map(|row| {
            let name = format!("{}, {}", kind.word(), Placement::ALL[at].word());
            let level = [(1.0, row.cycles[0]), (last, row.cycles[0])];
            Series::new(name, style + at, Stroke::Marked, level)
        }));
    }
    against_calls("Cycles per call", Vec::new(), lines)
}

fn notifications(results: &Results) -> Panel {
    let mut lines = Vec::new();
    for (style, placement) in Placement::ALL.into_iter().enumerate() {
        let rows = curve(results, placement);
        let [ours, theirs] =
            ["to the server", "published"].map(|name| format!("{name}, {}", placement.word()));
        let shares = rows.iter().map(|row| (calls(row), row.to_server));
        lines.push(Series::new(ours, style, Stroke::Marked, shares));
        let shares = rows.iter().filter_map(|row| {
            let (server, _) = published::notifications(placement, row.cell.concurrency)?;
            Some((calls(row), server))
        });
        lines.push(Series::new(theirs, style, Stroke::Dashed, shares));
    }
    against_calls("Notifications per call", SHARES.into(), lines)
}

fn against_calls(title: &str, room: Vec<f64>, lines: Vec<Series>) -> Panel {
    Panel {
        title: title.to_owned(),
        y_title: String::new(),
        x_title: "calls under way".to_owned(),
        x_division: XDivision::Doublings,
        room,
        lines,
    }
}

fn loads(results: &Results) -> Panel {
    let places: BTreeSet<u32> = results.rows.iter().map(|row| row.cell.load).collect();
    let place_of = |row: &CallRow| number(places.range(..row.cell.load).count());
    let mut lines = Vec::new();
    for (style, placement) in Placement::ALL.into_iter().enumerate() {
        // On two cores, neither side polls before it sleeps, as in the original. Otherwise there are hardly any
        // notifications.
        let policy = match placement {
            Placement::OneCore => results.options.policy,
            Placement::TwoCores => WaitPolicy::Interrupt,
        };
        let is_wanted = |cell: &CallCell| {
            cell.kind == Kind::Asynchronous
                && (cell.placement, cell.policy) == (placement, policy)
                && cell.concurrency == LOADED
        };
        let mut rows: Vec<&CallRow> = results
            .rows
            .iter()
            .filter(|row| is_wanted(&row.cell))
            .collect();
        rows.sort_by_key(|row| row.cell.load);
        if !rows.iter().any(|row| row.cell.load > 0) {
            continue;
        }
        let [server, client] =
            ["server", "client"].map(|end| format!("to the {end}, {}", placement.word()));
        let shares = rows.iter().map(|row| (place_of(row), row.to_server));
        lines.push(Series::new(server, style, Stroke::Marked, shares));
        let shares = rows.iter().map(|row| (place_of(row), row.to_client));
        lines.push(Series::new(client, style, Stroke::Dashed, shares));
    }
    Panel {
        title: "Notifications per call at 32 calls".to_owned(),
        y_title: String::new(),
        x_title: "the server's load".to_owned(),
        x_division: XDivision::Categories(places.iter().map(u32::to_string).collect()),
        room: SHARES.into(),
        lines,
    }
}

fn curve(results: &Results, placement: Placement) -> Vec<&CallRow> {
    let policy = results.options.policy;
    let is_wanted = |cell: &CallCell| {
        cell.kind == Kind::Asynchronous
            && (cell.placement, cell.policy, cell.load) == (placement, policy, 0)
    };
    let mut rows: Vec<&CallRow> = results
        .rows
        .iter()
        .filter(|row| is_wanted(&row.cell))
        .collect();
    rows.sort_by_key(|row| row.cell.concurrency);
    rows
}

fn calls(row: &CallRow) -> f64 {
    number(row.cell.concurrency)
}

fn number(calls: usize) -> f64 {
    u32::try_from(calls).map_or(f64::MAX, f64::from)
}
