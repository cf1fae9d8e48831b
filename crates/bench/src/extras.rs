//! Results of what is no call of an empty item: payloads, system calls, idleness; as text, CSV and JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::run::Results;

/// Tables, for people.
pub(crate) fn table(results: &Results) -> String {
    let mut text = String::new();
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    if !results.payloads.is_empty() {
        line("\nCalls that carry something on two cores: both sides touch every byte, nobody copies it".to_owned());
        line(format!(
            "{:>8} {:>10} {:>19} {:>9} {:>13} {:>9} {:>16} {:>9}",
            "bytes",
            "cycles",
            "least..most",
            "Gbyte/s",
            "plain copy",
            "ratio",
            "write and copy",
            "ratio"
        ));
    }
    for row in &results.payloads {
        let [median, least, most] = row.cycles;
        let or_none = |value: Option<f64>, digits| {
            value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let shares = row.shares();
        line(format!(
            "{:>8} {median:>10.0} {:>19} {:>9.3} {:>13} {:>9} {:>16} {:>9}",
            row.bytes,
            format!("{least:.0}..{most:.0}"),
            row.rate(results.machine.cycles_per_ns),
            or_none(row.plain.map(|plain| plain.copy), 0),
            or_none(shares.map(|shares| shares[0]), 2),
            or_none(row.plain.map(|plain| plain.both), 0),
            or_none(shares.map(|shares| shares[1]), 2),
        ));
    }
    match &results.syscalls {
        Ok(rows) if rows.is_empty() => {}
        Err(why) => line(format!("\nNo system calls in batches (B9): {why}")),
        Ok(rows) => {
            line("\nSystem calls, one by one and in batches (B9)".to_owned());
            line(format!(
                "{:<34} {:<15} {:>5} {:>8} {:>17} {:>10} {:>9} {:>13}",
                "way",
                "what",
                "batch",
                "cycles",
                "least..most",
                "enters/op",
                "published",
                "their enters"
            ));
            for row in rows {
                let [median, least, most] = row.cycles;
                let (published, theirs) = match row.published() {
                    Some((cycles, enters)) => (
                        cycles.to_string(),
                        enters.map_or("-".to_owned(), |enters| enters.to_string()),
                    ),
                    None => ("-".to_owned(), "-".to_owned()),
                };
                line(format!(
                    "{:<34} {:<15} {:>5} {median:>8.0} {:>17} {:>10.4} {published:>9} {theirs:>13}",
                    row.way.word(),
                    what(row.maps),
                    row.concurrency,
                    format!("{least:.0}..{most:.0}"),
                    row.enters,
                ));
            }
        }
    }
    if let Some(idle) = &results.idle {
        line(format!(
            "\nNothing to do for {:.1} s: the client used {:.3} ms of processor time, the server {:.3} ms; the client slept {} times",
            idle.elapsed.as_secs_f64(),
            idle.client_cpu.as_secs_f64() * 1000.0,
            idle.server_cpu.as_secs_f64() * 1000.0,
            idle.sleeps,
        ));
    }
    text
}

/// Tables with a heading of their own, each after an empty line.
pub(crate) fn csv(results: &Results) -> String {
    let mut text = String::new();
    let mut line = |arguments: std::fmt::Arguments<'_>| {
        let written = writeln!(text, "{arguments}");
        debug_assert!(written.is_ok(), "a String takes everything");
    };
    if !results.payloads.is_empty() {
        line(format_args!(
            "\npayload_bytes,cycles_median,cycles_min,cycles_max,gbyte_per_s,copy_cycles,share_of_copy,\
             write_and_copy_cycles,share_of_write_and_copy"
        ));
    }
    for row in &results.payloads {
        let [median, least, most] = row.cycles;
        let or_empty = |value: Option<f64>, digits| {
            value.map_or(String::new(), |value| format!("{value:.digits$}"))
        };
        let copy = or_empty(row.plain.map(|plain| plain.copy), 1);
        let both = or_empty(row.plain.map(|plain| plain.both), 1);
        let [of_copy, of_both] =
            [0, 1].map(|at| or_empty(row.shares().map(|shares| shares[at]), 3));
        let rate = row.rate(results.machine.cycles_per_ns);
        line(format_args!(
            "{},{median:.1},{least:.1},{most:.1},{rate:.4},{copy},{of_copy},{both},{of_both}",
            row.bytes
        ));
    }
    let rows = results.syscalls.as_deref().unwrap_or_default();
    if !rows.is_empty() {
        line(format_args!(
            "\nsyscall_way,what,batch,cycles_median,cycles_min,cycles_max,enters_per_operation"
        ));
    }
    for row in rows {
        let [median, least, most] = row.cycles;
        line(format_args!(
            "\"{}\",{},{},{median:.1},{least:.1},{most:.1},{:.6}",
            row.way.word(),
            what(row.maps),
            row.concurrency,
            row.enters
        ));
    }
    if let Some(idle) = &results.idle {
        line(format_args!(
            "\nidle_s,client_cpu_ms,server_cpu_ms,client_sleeps"
        ));
        line(format_args!(
            "{:.3},{:.4},{:.4},{}",
            idle.elapsed.as_secs_f64(),
            idle.client_cpu.as_secs_f64() * 1000.0,
            idle.server_cpu.as_secs_f64() * 1000.0,
            idle.sleeps
        ));
    }
    text
}

/// `payloads`, `syscalls` and `idle` of the object.
pub(crate) fn json(results: &Results) -> [Value; 3] {
    let cycles =
        |[median, least, most]: [f64; 3]| json!({"median": median, "min": least, "max": most});
    let payloads: Vec<Value> = results
        .payloads
        .iter()
        .map(|row| {
            json!({
                "bytes": row.bytes,
                "cycles": cycles(row.cycles),
                "gbyte_per_s": row.rate(results.machine.cycles_per_ns),
                "copy_cycles": row.plain.map(|plain| plain.copy),
                "share_of_copy": row.shares().map(|shares| shares[0]),
                "write_and_copy_cycles": row.plain.map(|plain| plain.both),
                "share_of_write_and_copy": row.shares().map(|shares| shares[1]),
            })
        })
        .collect();
    let syscalls = match &results.syscalls {
        Err(why) => json!({"unavailable": why}),
        Ok(rows) => rows
            .iter()
            .map(|row| {
                json!({
                    "way": row.way.word(),
                    "what": what(row.maps),
                    "batch": row.concurrency,
                    "cycles": cycles(row.cycles),
                    "enters_per_operation": row.enters,
                    "published_cycles": row.published().map(|(cycles, _)| cycles),
                })
            })
            .collect(),
    };
    let idle = results.idle.map(|idle| {
        json!({
            "seconds": idle.elapsed.as_secs_f64(),
            "client_cpu_ms": idle.client_cpu.as_secs_f64() * 1000.0,
            "server_cpu_ms": idle.server_cpu.as_secs_f64() * 1000.0,
            "client_sleeps": idle.sleeps,
        })
    });
    [Value::from(payloads), syscalls, json!(idle)]
}

fn what(maps: bool) -> &'static str {
    if maps { "map and unmap" } else { "nothing" }
}
