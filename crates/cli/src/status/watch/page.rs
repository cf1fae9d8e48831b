//! The page: the contents of a view, laid out for a screen of some size.

use std::time::Duration;

use super::controls::{Controls, PageTable, Sort, SortableRow, sorted};
use super::line::{ScreenLine, TextStyle};
use super::minute::{Minute, TrafficDirection};
use super::view::{ClientRow, ConnectionRow, FlowRow, StatusView};
use crate::ask::plain;
use crate::status::answers::Status;
use crate::status::cells::{left, right};
use crate::status::quantities::{age, amount, bytes, count, milliseconds, percent};

/// The size of a screen, in columns and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScreenSize {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// Size of a printed page. Each table has at most this many rows.
const PRINTED: ScreenSize = ScreenSize {
    columns: 80,
    rows: 20,
};

/// Text of a cell whose value is unknown, or would mean nothing.
const UNKNOWN: &str = "-";

/// Minimum width of the first column of a table.
const FIRST_MIN: usize = 8;

/// Number of rows from which on a blank line separates the tables.
const AIRY: usize = 30;

/// Returns a page that fills a screen. Updates in `controls` the part of each table that it shows.
pub(super) fn screen(
    view: &StatusView,
    controls: &mut Controls,
    size: ScreenSize,
    now: Duration,
) -> Vec<ScreenLine> {
    let mut lines = head(view, size.columns, now);
    let air = usize::from(size.rows >= AIRY);
    let room = size.rows.saturating_sub(lines.len() + 1 + 3 * air);
    let frame = TableLayout::new(view, size.columns, now);
    let wants = [
        view.clients().count(),
        view.connections().count(),
        view.flows().count(),
    ];
    let heights = share(room, wants.map(|rows| rows + 1), controls.chosen() as usize);
    for table in PageTable::ALL {
        let height = heights[table as usize];
        if height == 0 {
            continue;
        }
        lines.extend(std::iter::repeat_n(ScreenLine::default(), air));
        let chosen = table == controls.chosen();
        let sort = controls.sort(table);
        let visible = controls.view(table);
        visible.rows = height - 1;
        visible.top = visible
            .top
            .min(wants[table as usize].saturating_sub(visible.rows));
        let part = VisibleRows {
            top: visible.top,
            rows: visible.rows,
            sort,
            look: if chosen {
                TextStyle::Chosen
            } else {
                TextStyle::Strong
            },
        };
        lines.extend(frame.table(view, table, &part));
    }
    lines.truncate(size.rows.saturating_sub(1));
    lines.resize_with(size.rows.saturating_sub(1), ScreenLine::default);
    let sort = controls.sort(controls.chosen()).name();
    let keys = format!(" q quit   Tab next table   j k PgUp PgDn scroll   s sort: {sort}");
    lines.push(ScreenLine::new(TextStyle::Faint, keys));
    lines
        .into_iter()
        .map(|line| line.cut(size.columns))
        .collect()
}

/// Returns a page for a file or another program, as long as it needs to be.
pub(super) fn printed(view: &StatusView, now: Duration) -> String {
    let mut lines = head(view, PRINTED.columns, now);
    let frame = TableLayout::new(view, PRINTED.columns, now);
    for table in PageTable::ALL {
        let part = VisibleRows {
            top: 0,
            rows: PRINTED.rows,
            sort: Sort::Rate,
            look: TextStyle::Plain,
        };
        lines.push(ScreenLine::default());
        lines.extend(frame.table(view, table, &part));
    }
    let lines = lines.into_iter().map(|line| line.cut(PRINTED.columns));
    lines.map(|line| line.text() + "\n").collect()
}

/// Returns the lines about the whole process.
fn head(view: &StatusView, columns: usize, now: Duration) -> Vec<ScreenLine> {
    let mut lines = Vec::new();
    if let Some(status) = &view.status {
        lines.push(ScreenLine::new(TextStyle::Strong, title(status)));
        lines.extend(alarms(status).map(|text| ScreenLine::new(TextStyle::Alarm, plain(&text))));
    }
    if let Some(no_answer) = &view.no_answer {
        let time = age(now.saturating_sub(no_answer.since).as_secs_f64());
        let text = format!("NOT REACHABLE for {time}, retrying: {}", no_answer.why);
        lines.push(ScreenLine::new(TextStyle::Alarm, plain(&text)));
    }
    if view.status.is_none() {
        return lines;
    }
    // The bars get the room between the rate and its peak.
    let bars = columns.saturating_sub(36).min(60);
    for (name, way, rate) in [
        ("sent", TrafficDirection::Sent, view.rate.to_tunnel),
        (
            "received",
            TrafficDirection::Received,
            view.rate.from_tunnel,
        ),
    ] {
        let mut line = ScreenLine::default();
        line.push(TextStyle::Plain, left(name, 9));
        let rate = rate.filter(|_| view.no_answer.is_none());
        let rate = rate.map_or_else(|| UNKNOWN.to_owned(), |rate| amount(rate) + "/s");
        line.push(TextStyle::Strong, right(&rate, 10));
        let graph = view.minute.bars(way, view.end(now), bars);
        line.push(TextStyle::Graph, format!(" {graph}"));
        if let Some(peak) = view.minute.peak(way) {
            line.push(TextStyle::Faint, format!(" peak {}/s", amount(peak)));
        }
        lines.push(line);
    }
    lines.extend(view.status.as_ref().and_then(bonds));
    lines
}

/// Returns the line about bonds, or `None` if the process has none and no flow has moved.
fn bonds(status: &Status) -> Option<ScreenLine> {
    if status.bonds == 0 && status.moves == 0 {
        return None;
    }
    let mut line = ScreenLine::default();
    line.push(TextStyle::Plain, left("bonds", 9));
    line.push(TextStyle::Strong, right(&status.bonds.to_string(), 10));
    let waiting = status.detached_tunnels;
    if waiting > 0 {
        line.push(
            TextStyle::Alarm,
            format!(" {} waiting", count(waiting, "flow")),
        );
    }
    line.push(
        TextStyle::Plain,
        format!(" {} kept", bytes(status.kept_bytes)),
    );
    if let Some(moves) = status.moves_told() {
        line.push(TextStyle::Faint, format!("; {moves}"));
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
struct VisibleRows {
    top: usize,
    rows: usize,
    sort: Sort,
    look: TextStyle,
}

/// Settings that all tables of a page share.
struct TableLayout {
    columns: usize,
    bars: usize,
    end: Duration,
    stale: bool,
}

/// One column of a table with rows `R`. The first column of a table is not one of these: it takes the remaining width.
struct TableColumn<R> {
    head: &'static str,
    width: usize,
    /// Minimum width of a screen that shows the column.
    from: usize,
    cell: fn(&R, &TableLayout) -> (TextStyle, String),
}

impl<R> TableColumn<R> {
    const fn new(
        head: &'static str,
        width: usize,
        from: usize,
        cell: fn(&R, &TableLayout) -> (TextStyle, String),
    ) -> Self {
        Self {
            head,
            width,
            from,
            cell,
        }
    }
}

impl TableLayout {
    fn new(view: &StatusView, columns: usize, now: Duration) -> Self {
        Self {
            columns,
            bars: match columns {
                ..100 => 12,
                100..140 => 20,
                _ => 30,
            },
            end: view.end(now),
            stale: view.no_answer.is_some(),
        }
    }

    fn table(&self, view: &StatusView, table: PageTable, part: &VisibleRows) -> Vec<ScreenLine> {
        match table {
            PageTable::Clients => {
                let status = view.status.as_ref();
                let of_client = status.is_some_and(|status| status.side == "client");
                let name = if of_client { "SERVERS" } else { "CLIENTS" };
                let first = |client: &ClientRow| client.name.clone();
                self.lines(name, view.clients(), first, &self.clients(), part)
            }
            PageTable::Connections => {
                // A connection without a named peer is shown by its address.
                let first = |it: &ConnectionRow| {
                    if it.named {
                        format!("{} {}", it.client, it.address)
                    } else {
                        it.address.clone()
                    }
                };
                let columns = self.connections();
                self.lines("CONNECTIONS", view.connections(), first, &columns, part)
            }
            PageTable::Flows => {
                let first = |flow: &FlowRow| flow.target.clone();
                let heading = view.status.as_ref().map(Status::address_heading);
                let columns = Self::flows(heading.unwrap_or_default());
                self.lines("FLOWS", view.flows(), first, &columns, part)
            }
        }
    }

    fn clients(&self) -> Vec<TableColumn<ClientRow>> {
        vec![
            TableColumn::new("CONNS", 5, 76, |it, _| number(it.connections)),
            TableColumn::new("FLOWS", 5, 60, |it, _| number(it.flows)),
            TableColumn::new("WAITING", 7, 100, |it, _| waiting(it.waiting)),
            TableColumn::new("KEPT", 8, 110, |it, _| (TextStyle::Plain, bytes(it.kept))),
            TableColumn::new("RTT", 7, 0, |it, _| match it.connections {
                0 => (TextStyle::Plain, UNKNOWN.to_owned()),
                _ => rtt(it.rtt),
            }),
            TableColumn::new("LOSS", 7, 56, |it, _| loss(it.minute.loss())),
            TableColumn::new("SENT/s", 8, 0, |it, frame| frame.rate(it.rate.to_tunnel)),
            TableColumn::new("RECEIVED/s", 10, 0, |it, frame| {
                frame.rate(it.rate.from_tunnel)
            }),
            TableColumn::new("LAST MINUTE", self.bars, 72, |it, frame| {
                frame.bars(&it.minute)
            }),
        ]
    }

    fn connections(&self) -> Vec<TableColumn<ConnectionRow>> {
        vec![
            TableColumn::new("LIMITED BY", 14, 110, |it, _| text(&it.limited_by)),
            TableColumn::new("UP", 6, 100, |it, _| (TextStyle::Plain, age(it.age))),
            TableColumn::new("FLOWS", 5, 60, |it, _| number(it.flows)),
            TableColumn::new("RTT", 7, 0, |it, _| rtt(it.rtt)),
            TableColumn::new("LOSS", 7, 56, |it, _| loss(it.minute.loss())),
            TableColumn::new("SENT/s", 8, 0, |it, frame| frame.rate(it.rate.to_tunnel)),
            TableColumn::new("RECEIVED/s", 10, 0, |it, frame| {
                frame.rate(it.rate.from_tunnel)
            }),
            TableColumn::new("LAST MINUTE", self.bars, 72, |it, frame| {
                frame.bars(&it.minute)
            }),
        ]
    }

    fn flows(address_heading: &'static str) -> Vec<TableColumn<FlowRow>> {
        vec![
            TableColumn::new(address_heading, 21, 76, |it, _| text(&it.address)),
            TableColumn::new("PEER", 16, 110, |it, _| text(&it.client)),
            TableColumn::new("UP", 6, 50, |it, _| (TextStyle::Plain, age(it.age))),
            TableColumn::new("BYTES", 8, 100, |it, _| {
                (TextStyle::Plain, amount(it.bytes))
            }),
            TableColumn::new("TO TUNNEL/s", 11, 0, |it, frame| {
                frame.rate(it.rate.to_tunnel)
            }),
            TableColumn::new("TO APP/s", 8, 0, |it, frame| {
                frame.rate(it.rate.from_tunnel)
            }),
        ]
    }

    fn lines<'a, R: SortableRow + 'a>(
        &self,
        name: &str,
        rows: impl Iterator<Item = &'a R>,
        first: impl Fn(&R) -> String,
        columns: &[TableColumn<R>],
        part: &VisibleRows,
    ) -> Vec<ScreenLine> {
        let fit = |column: &&TableColumn<R>| column.from <= self.columns;
        let columns: Vec<&TableColumn<R>> = columns.iter().filter(fit).collect();
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
        let mut lines = vec![ScreenLine::new(part.look, head)];
        for row in rows.iter().take(last).skip(part.top) {
            let mut line = ScreenLine::new(TextStyle::Plain, left(&first(row), room));
            for column in &columns {
                let (look, text) = (column.cell)(row, self);
                line.push(TextStyle::Plain, " ");
                line.push(look, aligned(column, &text));
            }
            lines.push(if self.stale {
                line.all(TextStyle::Faint)
            } else {
                line
            });
        }
        lines
    }

    fn rate(&self, rate: Option<f64>) -> (TextStyle, String) {
        let rate = rate.filter(|_| !self.stale);
        let text = rate.map_or_else(|| UNKNOWN.to_owned(), amount);
        (TextStyle::Plain, text)
    }

    fn bars(&self, minute: &Minute) -> (TextStyle, String) {
        (
            TextStyle::Graph,
            minute.bars(TrafficDirection::Both, self.end, self.bars),
        )
    }
}

/// Aligns texts and bars left, and numbers right.
fn aligned<R>(column: &TableColumn<R>, text: &str) -> String {
    let texts = [
        "ADDRESS",
        "APPLICATION",
        "PEER",
        "LIMITED BY",
        "LAST MINUTE",
    ];
    if texts.contains(&column.head) {
        left(text, column.width)
    } else {
        right(text, column.width)
    }
}

fn number(number: usize) -> (TextStyle, String) {
    (TextStyle::Plain, number.to_string())
}

/// Returns the cell with the number of flows that wait for a connection.
fn waiting(flows: usize) -> (TextStyle, String) {
    let look = if flows > 0 {
        TextStyle::Alarm
    } else {
        TextStyle::Plain
    };
    (look, flows.to_string())
}

fn text(text: &str) -> (TextStyle, String) {
    (TextStyle::Plain, text.to_owned())
}

fn rtt(rtt: Option<f64>) -> (TextStyle, String) {
    rtt.map_or_else(
        || (TextStyle::Alarm, "SILENT".to_owned()),
        |rtt| (TextStyle::Plain, milliseconds(rtt)),
    )
}

fn loss(loss: Option<f64>) -> (TextStyle, String) {
    (
        TextStyle::Plain,
        loss.map_or_else(|| UNKNOWN.to_owned(), percent),
    )
}

#[cfg(test)]
mod tests;
