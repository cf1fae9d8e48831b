//! The figure: cycles and notifications per call, against calls under way and against the server's load, the published
//! curves dashed.

use quictun_ipc::WaitPolicy;

use super::cell::{Cell, LOADED};
use super::published;
use super::results::{Results, Row};
use crate::kind::{Kind, Placement};
use crate::plot::{self, Panel, Scale, Series};

/// The figure as SVG.
pub(crate) fn draw(results: &Results) -> String {
    let noise = results.noise.as_ref();
    let noise = noise.map(|_| "NOT TO BE PUBLISHED: noisy machine");
    let machine = format!("{}, Linux {}", results.machine.cpu, results.machine.kernel);
    let panels = [cycles(results), notifications(results), loads(results)];
    plot::draw(&machine, noise, &panels)
}

fn cycles(results: &Results) -> Panel {
    let mut series = Vec::new();
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
        let place = placement.word();
        let ours = rows.iter().map(|row| (calls(row), row.cycles[0]));
        series.push(Series::new(format!("async, {place}"), style, false, ours));
        let theirs = rows.iter().filter_map(|row| {
            let cycles = published::asynchronous(placement, row.cell.concurrency)?;
            Some((calls(row), f64::from(cycles)))
        });
        series.push(Series::new(
            format!("published, {place}"),
            style,
            true,
            theirs,
        ));
    }
    let kinds = [(Kind::Futex, 2), (Kind::SeqPacket, 4)];
    for ((kind, style), at) in kinds.into_iter().flat_map(|kind| [(kind, 0), (kind, 1)]) {
        let is_wanted = |cell: &Cell| {
            cell.kind == kind && cell.placement == Placement::ALL[at] && cell.concurrency == 1
        };
        let one = results.rows.iter().find(|row| is_wanted(&row.cell));
        series.extend(one.map(|row| {
            let name = format!("{}, {}", kind.word(), Placement::ALL[at].word());
            let level = [(1.0, row.cycles[0]), (last, row.cycles[0])];
            Series::new(name, style + at, false, level.into_iter())
        }));
    }
    Panel {
        title: "Cycles per call, by calls under way".to_owned(),
        x: Scale::Doublings,
        y: Scale::Powers,
        series,
    }
}

fn notifications(results: &Results) -> Panel {
    let mut series = Vec::new();
    for (style, placement) in Placement::ALL.into_iter().enumerate() {
        let rows = curve(results, placement);
        let place = placement.word();
        let ours = rows.iter().map(|row| (calls(row), row.to_server));
        series.push(Series::new(
            format!("to the server, {place}"),
            style,
            false,
            ours,
        ));
        let theirs = rows.iter().filter_map(|row| {
            let (server, _) = published::notifications(placement, row.cell.concurrency)?;
            Some((calls(row), server))
        });
        series.push(Series::new(
            format!("published, {place}"),
            style,
            true,
            theirs,
        ));
    }
    Panel {
        title: "Notifications per call, by calls under way".to_owned(),
        x: Scale::Doublings,
        y: Scale::Even,
        series,
    }
}

fn loads(results: &Results) -> Panel {
    let mut series = Vec::new();
    for (style, placement) in Placement::ALL.into_iter().enumerate() {
        // Two cores where nobody looks before it sleeps, as in the original: otherwise hardly anybody is notified at all.
        let policy = match placement {
            Placement::OneCore => results.options.policy,
            Placement::TwoCores => WaitPolicy::Interrupt,
        };
        let is_wanted = |cell: &Cell| {
            cell.kind == Kind::Asynchronous
                && (cell.placement, cell.policy) == (placement, policy)
                && cell.concurrency == LOADED
        };
        let mut rows: Vec<&Row> = results
            .rows
            .iter()
            .filter(|row| is_wanted(&row.cell))
            .collect();
        rows.sort_by_key(|row| row.cell.load);
        if !rows.iter().any(|row| row.cell.load > 0) {
            continue;
        }
        let place = placement.word();
        let to_server = rows
            .iter()
            .map(|row| (f64::from(row.cell.load), row.to_server));
        series.push(Series::new(
            format!("to the server, {place}"),
            style,
            false,
            to_server,
        ));
        let to_client = rows
            .iter()
            .map(|row| (f64::from(row.cell.load), row.to_client));
        series.push(Series::new(
            format!("to the client, {place}"),
            style,
            true,
            to_client,
        ));
    }
    Panel {
        title: "Notifications per call at 32 calls, by the server's load".to_owned(),
        x: Scale::Places,
        y: Scale::Even,
        series,
    }
}

/// What was measured without load, by calls under way.
fn curve(results: &Results, placement: Placement) -> Vec<&Row> {
    let policy = results.options.policy;
    let is_wanted = |cell: &Cell| {
        cell.kind == Kind::Asynchronous
            && (cell.placement, cell.policy, cell.load) == (placement, policy, 0)
    };
    let mut rows: Vec<&Row> = results
        .rows
        .iter()
        .filter(|row| is_wanted(&row.cell))
        .collect();
    rows.sort_by_key(|row| row.cell.concurrency);
    rows
}

fn calls(row: &Row) -> f64 {
    number(row.cell.concurrency)
}

fn number(calls: usize) -> f64 {
    u32::try_from(calls).map_or(f64::MAX, f64::from)
}
