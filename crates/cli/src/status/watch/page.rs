//! The page: the contents of a view, laid out for a screen of some size.

use std::time::Duration;

use super::controls::{Controls, Row, Sort, Table, sorted};
use super::line::{Line, Look};
use super::minute::{Minute, Way};
use super::view::{Client, Connection, Flow, View};
use crate::ask::plain;
use crate::status::answers::Status;
use crate::status::cells::{left, right};
use crate::status::quantities::{age, amount, bytes, count, milliseconds, percent};

/// The size of a screen, in columns and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// Size of a printed page. Each table has at most this many rows.
const PRINTED: Size = Size {
    columns: 80,
    rows: 20,
};

/// Text of a cell whose value is unknown, or would mean nothing.
const UNKNOWN: &str = "-";

/// Least width of the first column of a table.
const FIRST_MIN: usize = 8;

/// Number of rows from which on a blank line separates the tables.
const AIRY: usize = 30;

/// Returns a page that fills a screen. Updates in `controls` the part of each table that it shows.
pub(super) fn screen(view: &View, controls: &mut Controls, size: Size, now: Duration) -> Vec<Line> {
    let mut lines = head(view, size.columns, now);
    let air = usize::from(size.rows >= AIRY);
    let room = size.rows.saturating_sub(lines.len() + 1 + 3 * air);
    let frame = Frame::new(view, size.columns, now);
    let wants = [
        view.clients().count(),
        view.connections().count(),
        view.flows().count(),
    ];
    let heights = share(room, wants.map(|rows| rows + 1), controls.chosen() as usize);
    for table in Table::ALL {
        let height = heights[table as usize];
        if height == 0 {
            continue;
        }
        lines.extend(std::iter::repeat_n(Line::default(), air));
        let chosen = table == controls.chosen();
        let sort = controls.sort(table);
        let place = controls.place(table);
        place.rows = height - 1;
        place.top = place
            .top
            .min(wants[table as usize].saturating_sub(place.rows));
        let part = Part {
            top: place.top,
            rows: place.rows,
            sort,
            look: if chosen { Look::Chosen } else { Look::Strong },
        };
        lines.extend(frame.table(view, table, &part));
    }
    lines.truncate(size.rows.saturating_sub(1));
    lines.resize_with(size.rows.saturating_sub(1), Line::default);
    let sort = controls.sort(controls.chosen()).name();
    let keys = format!(" q quit   Tab next table   j k PgUp PgDn scroll   s sort: {sort}");
    lines.push(Line::new(Look::Faint, keys));
    lines
        .into_iter()
        .map(|line| line.cut(size.columns))
        .collect()
}

/// Returns a page for a file or another program, as long as it needs to be.
pub(super) fn printed(view: &View, now: Duration) -> String {
    let mut lines = head(view, PRINTED.columns, now);
    let frame = Frame::new(view, PRINTED.columns, now);
    for table in Table::ALL {
        let part = Part {
            top: 0,
            rows: PRINTED.rows,
            sort: Sort::Rate,
            look: Look::Plain,
        };
        lines.push(Line::default());
        lines.extend(frame.table(view, table, &part));
    }
    let lines = lines.into_iter().map(|line| line.cut(PRINTED.columns));
    lines.map(|line| line.text() + "\n").collect()
}

/// Returns the lines about the whole process.
fn head(view: &View, columns: usize, now: Duration) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(status) = &view.status {
        lines.push(Line::new(Look::Strong, title(status)));
        lines.extend(alarms(status).map(|text| Line::new(Look::Alarm, plain(&text))));
    }
    if let Some(trouble) = &view.trouble {
        let time = age(now.saturating_sub(trouble.since).as_secs_f64());
        let text = format!("NOT REACHABLE for {time}, retrying: {}", trouble.why);
        lines.push(Line::new(Look::Alarm, plain(&text)));
    }
    if view.status.is_none() {
        return lines;
    }
    // The bars get the room between the rate and its peak.
    let bars = columns.saturating_sub(36).min(60);
    for (name, way, rate) in [
        ("sent", Way::Sent, view.rate.to_tunnel),
        ("received", Way::Received, view.rate.from_tunnel),
    ] {
        let mut line = Line::default();
        line.push(Look::Plain, left(name, 9));
        let rate = rate.filter(|_| view.trouble.is_none());
        let rate = rate.map_or_else(|| UNKNOWN.to_owned(), |rate| amount(rate) + "/s");
        line.push(Look::Strong, right(&rate, 10));
        let graph = view.minute.bars(way, view.end(now), bars);
        line.push(Look::Graph, format!(" {graph}"));
        if let Some(peak) = view.minute.peak(way) {
            line.push(Look::Faint, format!(" peak {}/s", amount(peak)));
        }
        lines.push(line);
    }
    lines.extend(view.status.as_ref().and_then(bonds));
    lines
}

/// Returns the line about bonds, or `None` if the process has none and no flow has moved.
fn bonds(status: &Status) -> Option<Line> {
    if status.bonds == 0 && status.moves == 0 {
        return None;
    }
    let mut line = Line::default();
    line.push(Look::Plain, left("bonds", 9));
    line.push(Look::Strong, right(&status.bonds.to_string(), 10));
    let waiting = status.detached_tunnels;
    if waiting > 0 {
        line.push(Look::Alarm, format!(" {} waiting", count(waiting, "flow")));
    }
    line.push(Look::Plain, format!(" {} kept", bytes(status.kept_bytes)));
    if let Some(moves) = status.moves_told() {
        line.push(Look::Faint, format!("; {moves}"));
    }
    Some(line)
}

fn title(status: &Status) -> String {
    let state = if status.ready { "ready" } else { "NOT READY" };
    plain(&format!(
        "quictun {} {}, process {}, up {}: {state}",
        status.side,
        status.version,
        status.pid,
        age(status.uptime_seconds)
    ))
}

/// Returns the warnings about the process.
fn alarms(status: &Status) -> impl Iterator<Item = String> {
    let reason = status.reason.clone().filter(|_| !status.ready);
    let silent = (!status.workers_silent.is_empty()).then(|| {
        let of = status.workers;
        format!(
            "workers that do NOT answer: {:?} of {of}",
            status.workers_silent
        )
    });
    let reload = status.reload.as_ref();
    let error = reload.and_then(|reload| reload.reload_error.as_ref());
    let restart = reload.filter(|reload| !reload.restart.is_empty());
    [
        reason.map(|reason| format!("not ready: {reason}")),
        silent,
        error.map(|error| format!("the latest reload FAILED: {error}")),
        restart.map(|reload| format!("needs a restart: {}", reload.restart.join(", "))),
    ]
    .into_iter()
    .flatten()
}

/// Shares the lines among three tables that want so many. The selected table gets the rest first, but no table takes
/// all.
fn share(room: usize, wants: [usize; 3], chosen: usize) -> [usize; 3] {
    let least = (room / 5).max(1);
    let mut given = wants.map(|want| want.min(least));
    let Some(mut rest) = room.checked_sub(given.iter().sum()) else {
        let mut given = [0; 3];
        given[chosen] = room;
        return given;
    };
    for table in [chosen, 0, 1, 2] {
        let more = (wants[table] - given[table]).min(rest);
        given[table] += more;
        rest -= more;
    }
    given
}

/// The visible part of a table.
struct Part {
    top: usize,
    rows: usize,
    sort: Sort,
    look: Look,
}

/// Settings that all tables of a page share.
struct Frame {
    columns: usize,
    bars: usize,
    end: Duration,
    stale: bool,
}

/// One column of a table with rows `R`. The first column of a table is not one of these: it takes the remaining width.
struct Column<R> {
    head: &'static str,
    width: usize,
    /// Least width of a screen that shows the column.
    from: usize,
    cell: fn(&R, &Frame) -> (Look, String),
}

impl<R> Column<R> {
    const fn new(
        head: &'static str,
        width: usize,
        from: usize,
        cell: fn(&R, &Frame) -> (Look, String),
    ) -> Self {
        Self {
            head,
            width,
            from,
            cell,
        }
    }
}

impl Frame {
    fn new(view: &View, columns: usize, now: Duration) -> Self {
        Self {
            columns,
            bars: match columns {
                ..100 => 12,
                100..140 => 20,
                _ => 30,
            },
            end: view.end(now),
            stale: view.trouble.is_some(),
        }
    }

    fn table(&self, view: &View, table: Table, part: &Part) -> Vec<Line> {
        match table {
            Table::Clients => {
                let status = view.status.as_ref();
                let of_client = status.is_some_and(|status| status.side == "client");
                let name = if of_client { "SERVERS" } else { "CLIENTS" };
                let first = |client: &Client| client.name.clone();
                self.lines(name, view.clients(), first, &self.clients(), part)
            }
            Table::Connections => {
                // A connection without a named peer is shown by its address.
                let first = |it: &Connection| {
                    if it.named {
                        format!("{} {}", it.client, it.address)
                    } else {
                        it.address.clone()
                    }
                };
                let columns = self.connections();
                self.lines("CONNECTIONS", view.connections(), first, &columns, part)
            }
            Table::Flows => {
                let first = |flow: &Flow| flow.target.clone();
                self.lines("FLOWS", view.flows(), first, &Self::flows(), part)
            }
        }
    }

    fn clients(&self) -> Vec<Column<Client>> {
        vec![
            Column::new("CONNS", 5, 76, |it, _| number(it.connections)),
            Column::new("FLOWS", 5, 60, |it, _| number(it.flows)),
            Column::new("WAITING", 7, 100, |it, _| waiting(it.waiting)),
            Column::new("KEPT", 8, 110, |it, _| (Look::Plain, bytes(it.kept))),
            Column::new("RTT", 7, 0, |it, _| match it.connections {
                0 => (Look::Plain, UNKNOWN.to_owned()),
                _ => rtt(it.rtt),
            }),
            Column::new("LOSS", 7, 56, |it, _| loss(it.loss())),
            Column::new("SENT/s", 8, 0, |it, frame| frame.rate(it.rate.to_tunnel)),
            Column::new("RECEIVED/s", 10, 0, |it, frame| {
                frame.rate(it.rate.from_tunnel)
            }),
            Column::new("LAST MINUTE", self.bars, 72, |it, frame| {
                frame.bars(&it.minute)
            }),
        ]
    }

    fn connections(&self) -> Vec<Column<Connection>> {
        vec![
            Column::new("LIMITED BY", 14, 110, |it, _| text(&it.limited_by)),
            Column::new("UP", 6, 100, |it, _| (Look::Plain, age(it.age))),
            Column::new("FLOWS", 5, 60, |it, _| number(it.flows)),
            Column::new("RTT", 7, 0, |it, _| rtt(it.rtt)),
            Column::new("LOSS", 7, 56, |it, _| loss(it.loss())),
            Column::new("SENT/s", 8, 0, |it, frame| frame.rate(it.rate.to_tunnel)),
            Column::new("RECEIVED/s", 10, 0, |it, frame| {
                frame.rate(it.rate.from_tunnel)
            }),
            Column::new("LAST MINUTE", self.bars, 72, |it, frame| {
                frame.bars(&it.minute)
            }),
        ]
    }

    fn flows() -> Vec<Column<Flow>> {
        vec![
            Column::new("APPLICATION", 21, 76, |it, _| text(&it.application)),
            Column::new("PEER", 16, 110, |it, _| text(&it.client)),
            Column::new("UP", 6, 50, |it, _| (Look::Plain, age(it.age))),
            Column::new("BYTES", 8, 100, |it, _| (Look::Plain, amount(it.bytes))),
            Column::new("TO TUNNEL/s", 11, 0, |it, frame| {
                frame.rate(it.rate.to_tunnel)
            }),
            Column::new("TO APP/s", 8, 0, |it, frame| {
                frame.rate(it.rate.from_tunnel)
            }),
        ]
    }

    fn lines<'a, R: Row + 'a>(
        &self,
        name: &str,
        rows: impl Iterator<Item = &'a R>,
        first: impl Fn(&R) -> String,
        columns: &[Column<R>],
        part: &Part,
    ) -> Vec<Line> {
        let fit = |column: &&Column<R>| column.from <= self.columns;
        let columns: Vec<&Column<R>> = columns.iter().filter(fit).collect();
        let taken: usize = columns.iter().map(|column| column.width + 1).sum();
        let room = self.columns.saturating_sub(taken).max(FIRST_MIN);
        let rows = sorted(rows, part.sort);
        let last = part.top.saturating_add(part.rows).min(rows.len());
        let mut title = format!("{name} {}", rows.len());
        if last.saturating_sub(part.top) < rows.len() && part.rows > 0 {
            title = format!("{name} {}-{last}/{}", part.top + 1, rows.len());
        }
        let mut head = left(&title, room);
        for column in &columns {
            head.push(' ');
            head += &aligned(column, column.head);
        }
        let mut lines = vec![Line::new(part.look, head)];
        for row in rows.iter().take(last).skip(part.top) {
            let mut line = Line::new(Look::Plain, left(&first(row), room));
            for column in &columns {
                let (look, text) = (column.cell)(row, self);
                line.push(Look::Plain, " ");
                line.push(look, aligned(column, &text));
            }
            lines.push(if self.stale {
                line.all(Look::Faint)
            } else {
                line
            });
        }
        lines
    }

    fn rate(&self, rate: Option<f64>) -> (Look, String) {
        let rate = rate.filter(|_| !self.stale);
        let text = rate.map_or_else(|| UNKNOWN.to_owned(), amount);
        (Look::Plain, text)
    }

    fn bars(&self, minute: &Minute) -> (Look, String) {
        (Look::Graph, minute.bars(Way::Both, self.end, self.bars))
    }
}

/// Aligns texts and bars left, and numbers right.
fn aligned<R>(column: &Column<R>, text: &str) -> String {
    let texts = ["APPLICATION", "PEER", "LIMITED BY", "LAST MINUTE"];
    if texts.contains(&column.head) {
        left(text, column.width)
    } else {
        right(text, column.width)
    }
}

fn number(number: usize) -> (Look, String) {
    (Look::Plain, number.to_string())
}

/// Returns the cell with the number of flows that wait for a connection.
fn waiting(flows: usize) -> (Look, String) {
    let look = if flows > 0 { Look::Alarm } else { Look::Plain };
    (look, flows.to_string())
}

fn text(text: &str) -> (Look, String) {
    (Look::Plain, text.to_owned())
}

fn rtt(rtt: Option<f64>) -> (Look, String) {
    rtt.map_or_else(
        || (Look::Alarm, "SILENT".to_owned()),
        |rtt| (Look::Plain, milliseconds(rtt)),
    )
}

fn loss(loss: Option<f64>) -> (Look, String) {
    (
        Look::Plain,
        loss.map_or_else(|| UNKNOWN.to_owned(), percent),
    )
}

#[cfg(test)]
mod tests;
