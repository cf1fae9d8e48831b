//! The results as text, CSV and JSON.

use quictun_lab::{BUILD_PROFILE, put};
use serde_json::{Value, json};

use super::idle::IdleResult;
use super::results::{CallCell, CallRow, LOADED, Results};
use super::{payload, published, syscalls};
use crate::kind::{Kind, Placement};
use crate::spread;

pub(crate) fn table(results: &Results) -> String {
    let machine = &results.machine;
    let mut text = String::new();
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    line(machine.heading());
    line(format!(
        "{:.3} cycles per ns; cores {} and {}; load average {}; host took {:.1} % of the time",
        machine.cycles_per_ns, machine.cores[0], machine.cores[1], machine.load, machine.steal
    ));
    line(format!(
        "a cache line there and back: {:.0} cycles; a wake-up, and the time that hybrid looks before it sleeps: {} cycles",
        machine.line, results.wake_cost
    ));
    if let Some(noise) = &results.noise {
        line(format!("NOT TO BE PUBLISHED: {noise}"));
    }
    for (title, rows) in groups(results) {
        if rows.is_empty() {
            continue;
        }
        line(format!("\n{title}"));
        line(HEADING.to_owned());
        for row in rows {
            line(table_row(row, machine.cycles_per_ns));
        }
    }
    let ratios = ratios(results);
    if !ratios.is_empty() {
        line(String::new());
    }
    for ratio in ratios {
        line(ratio);
    }
    text + &payload::table(&results.payloads, machine.cycles_per_ns)
        + &syscalls::table(&results.syscalls)
        + &results
            .idle
            .as_ref()
            .map(IdleResult::sentence)
            .unwrap_or_default()
}

const HEADING: &str = concat!(
    "kind            where     policy    calls  load   cycles       least..most ",
    "      ns   to srv   to clt cpu clt srv published  their ntfn     floor",
);

fn table_row(row: &CallRow, cycles_per_ns: f64) -> String {
    let CallCell {
        concurrency, load, ..
    } = row.cell;
    let [median, least, most] = row.cycles;
    let (spread, ns) = (format!("{least:.0}..{most:.0}"), median / cycles_per_ns);
    let cpu = row.cpu.map_or("-".to_owned(), |[client, server]| {
        format!("{client:.0} {server:.0} %")
    });
    let published = published(row).map_or("-".to_owned(), |cycles| cycles.to_string());
    let theirs = their_notifications(row).map_or("-".to_owned(), |(server, client)| {
        format!("{server} {client}")
    });
    let floor = match row.floor {
        0.0 => "-".to_owned(),
        floor if is_below(row) => format!("!! {floor:.0}"),
        floor => format!("{floor:.0}"),
    };
    let [to_server, to_client] = match row.cell.kind {
        Kind::Asynchronous => [row.to_server, row.to_client].map(|ratio| format!("{ratio:.4}")),
        Kind::Futex | Kind::SeqPacket => ["-".to_owned(), "-".to_owned()],
    };
    let [kind, place, policy] = words(row);
    format!(
        "{kind:<15} {place:<9} {policy:<9} {concurrency:>5} {load:>5} {median:>8.0} {spread:>17} {ns:>8.1} \
         {to_server:>8} {to_client:>8} {cpu:>11} {published:>9} {theirs:>11} {floor:>9}"
    )
}

fn words(row: &CallRow) -> [&'static str; 3] {
    let cell = &row.cell;
    [cell.kind.word(), cell.placement.word(), cell.policy.word()]
}

fn groups(results: &Results) -> [(&'static str, Vec<&CallRow>); 3] {
    let rows =
        |wanted: &dyn Fn(&CallRow) -> bool| results.rows.iter().filter(|row| wanted(row)).collect();
    let policy = results.options.policy;
    let is_curve = |row: &CallRow| {
        row.cell.load == 0 && (row.cell.policy == policy || row.cell.kind != Kind::Asynchronous)
    };
    // The rows with a load begin with one without load, even if that is not a point of the curve.
    let is_load =
        |row: &CallRow| row.cell.load > 0 || (!is_curve(row) && row.cell.concurrency == LOADED);
    [
        (
            "Calls, by how many are under way (B1, B2, B3)",
            rows(&is_curve),
        ),
        (
            "Calls that make the server work (B2): load is rows of its matrix",
            rows(&is_load),
        ),
        (
            "Other ways to wait (B8); the original's interrupt 10559, polling 6968, hybrid 8172 cycles on an FPGA",
            rows(&|row| !is_curve(row) && !is_load(row)),
        ),
    ]
}

fn published(row: &CallRow) -> Option<u32> {
    match row.cell.kind {
        Kind::Asynchronous if row.cell.load == 0 => {
            published::asynchronous(row.cell.placement, row.cell.concurrency)
        }
        Kind::Futex if row.cell.concurrency == 1 => {
            Some(published::synchronous(row.cell.placement))
        }
        Kind::Asynchronous | Kind::Futex | Kind::SeqPacket => None,
    }
}

fn their_notifications(row: &CallRow) -> Option<(f64, f64)> {
    (row.cell.kind == Kind::Asynchronous && row.cell.load == 0)
        .then(|| published::notifications(row.cell.placement, row.cell.concurrency))
        .flatten()
}

fn is_below(row: &CallRow) -> bool {
    row.cycles[1] < row.floor
}

/// Returns the faster baseline on the same cores, of both kinds and all numbers of callers.
fn baseline(results: &Results, placement: Placement) -> Option<&CallRow> {
    let rows = results.rows.iter();
    let sync =
        rows.filter(|row| row.cell.kind != Kind::Asynchronous && row.cell.placement == placement);
    sync.min_by(|a, b| a.cycles[0].total_cmp(&b.cycles[0]))
}

fn ratios(results: &Results) -> Vec<String> {
    let curve = results.rows.iter().filter(|row| {
        let cell = &row.cell;
        cell.kind == Kind::Asynchronous && cell.load == 0 && cell.policy == results.options.policy
    });
    curve
        .filter(|row| [1, 32, 128].contains(&row.cell.concurrency))
        .filter_map(|row| {
            let baseline = baseline(results, row.cell.placement)?;
            Some(format!(
                "async, {}, {} at a time: {:.1} x the faster baseline ({}, {} callers)",
                row.cell.placement.word(),
                row.cell.concurrency,
                baseline.cycles[0] / row.cycles[0],
                baseline.cell.kind.word(),
                baseline.cell.concurrency
            ))
        })
        .collect()
}

pub(crate) fn csv(results: &Results) -> String {
    let mut text = String::from(
        "kind,placement,policy,concurrency,load,calls,cycles_median,cycles_min,cycles_max,ns_median,\
         notifications_to_server,notifications_to_client,cpu_client_percent,cpu_server_percent,\
         published_cycles,floor_cycles,below_floor,noise\n",
    );
    let noise = results.noise.as_deref().unwrap_or_default();
    for row in &results.rows {
        let CallCell {
            concurrency, load, ..
        } = row.cell;
        let [kind, place, policy] = words(row);
        let [median, least, most] = row.cycles;
        let cpu = row.cpu.map_or(",".to_owned(), |[client, server]| {
            format!("{client:.1},{server:.1}")
        });
        let published = published(row).map_or(String::new(), |cycles| cycles.to_string());
        let (calls, ns) = (row.calls, median / results.machine.cycles_per_ns);
        let (to_server, to_client) = (row.to_server, row.to_client);
        let (floor, below) = (row.floor, is_below(row));
        put!(
            text,
            "{kind},{place},{policy},{concurrency},{load},{calls},{median:.1},{least:.1},{most:.1},{ns:.2},\
             {to_server:.6},{to_client:.6},{cpu},{published},{floor:.1},{below},\"{noise}\"\n"
        );
    }
    text + &payload::csv(&results.payloads, results.machine.cycles_per_ns)
        + &syscalls::csv(&results.syscalls)
        + &results
            .idle
            .as_ref()
            .map(IdleResult::csv)
            .unwrap_or_default()
}

pub(crate) fn json(results: &Results) -> String {
    let machine = &results.machine;
    let rows: Vec<Value> = results
        .rows
        .iter()
        .map(|row| {
            json!({
                "kind": row.cell.kind.word(),
                "placement": row.cell.placement.word(),
                "policy": row.cell.policy.word(),
                "concurrency": row.cell.concurrency,
                "load": row.cell.load,
                "calls": row.calls,
                "cycles": spread::json(row.cycles),
                "ns": row.cycles[0] / machine.cycles_per_ns,
                "notifications_per_call": {"to_server": row.to_server, "to_client": row.to_client},
                "cpu_percent": row.cpu.map(|[client, server]| json!({"client": client, "server": server})),
                "published_cycles": published(row),
                "floor_cycles": row.floor,
                "below_floor": is_below(row),
            })
        })
        .collect();
    let all = json!({
        "bench": "ipc",
        "version": env!("CARGO_PKG_VERSION"),
        "build": BUILD_PROFILE,
        "machine": {
            "cpu": machine.cpu,
            "kernel": machine.kernel,
            "cores": machine.cores,
            "cycles_per_ns": machine.cycles_per_ns,
            "load_average": machine.load,
            "steal_percent": machine.steal,
            "line_round_trip_cycles": machine.line,
            "wake_cycles": results.wake_cost,
        },
        "noise": results.noise,
        "repeats": results.options.repeats,
        "run_ms": results.options.run_ms,
        "results": rows,
        "payloads": payload::json(&results.payloads, machine.cycles_per_ns),
        "syscalls": syscalls::json(&results.syscalls),
        "idle": results.idle.as_ref().map(IdleResult::json),
    });
    format!("{all:#}\n")
}
