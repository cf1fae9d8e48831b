//! The tables in the published shape, with the published figures below the measured ones; JSON; the panels of the
//! figure.

use quictun_lab::chart::{Panel, Series, Stroke, XDivision};
use quictun_lab::put;
use serde_json::{Value, json};

use super::published;
use super::row::{ConnectionRow, Latency};
use super::setup::{Grid, Mode, Polling, WireKind};
use crate::kind::{Kind, Placement};
use crate::spread;

struct FigureTable<'a> {
    grid: &'a Grid,
    rows: Vec<&'a ConnectionRow>,
    mode: Mode,
    group: (WireKind, Polling, usize),
}

pub(crate) fn tables(grid: &Grid, rows: &[ConnectionRow]) -> String {
    let mut text = String::new();
    for table in all(grid, rows) {
        text += &table.rates();
        if table.mode == Mode::Call {
            text += &table.latencies();
        }
        text += &table.processors();
    }
    text
}

pub(crate) fn panels(grid: &Grid, rows: &[ConnectionRow]) -> Vec<Panel> {
    all(grid, rows).iter().map(FigureTable::panel).collect()
}

pub(crate) fn to_json(rows: &[ConnectionRow]) -> Vec<Value> {
    let one = |row: &ConnectionRow| {
        let setup = &row.setup;
        let published = is_published(setup.polling, setup.bytes)
            .then(|| published::rate(setup.mode, setup.kind, setup.placement, setup.connections));
        json!({
            "mode": setup.mode.word(),
            "kind": setup.kind.word(),
            "placement": setup.placement.word(),
            "wire": setup.wire.word(),
            "poll": setup.polling.word(),
            "connections": setup.connections,
            "bytes": setup.bytes,
            "per_second": spread::json(row.rate),
            "latency": row.latency.map(Latency::to_json),
            "cpu_percent": {"stack": row.cpu[0], "application": row.cpu[1]},
            "published_per_second": published.flatten(),
        })
    };
    rows.iter().map(one).collect()
}

fn all<'a>(grid: &'a Grid, rows: &'a [ConnectionRow]) -> Vec<FigureTable<'a>> {
    let mut tables = Vec::new();
    for group in grid.groups() {
        for mode in grid.modes(group.1) {
            let belongs = |row: &&ConnectionRow| {
                let setup = &row.setup;
                (setup.wire, setup.polling, setup.bytes) == group && setup.mode == mode
            };
            tables.push(FigureTable {
                grid,
                rows: rows.iter().filter(belongs).collect(),
                mode,
                group,
            });
        }
    }
    tables
}

fn is_published(polling: Polling, bytes: usize) -> bool {
    polling == Polling::EachSend && bytes == 1
}

impl FigureTable<'_> {
    fn words(&self) -> String {
        let (wire, polling, bytes) = self.group;
        format!("{}, {}, {bytes} B", wire.word(), polling.word())
    }

    fn title(&self, what: &str) -> String {
        let (wire, polling, bytes) = self.group;
        let wire = match wire {
            WireKind::Memory => "programs in memory",
            WireKind::Tun => "programs behind a TUN device",
        };
        let polling = match polling {
            Polling::EachSend => "packets with each send",
            Polling::Batch => "packets in batches",
        };
        format!("{what}: {wire}, {polling}, {bytes} B")
    }

    /// Returns true if the table has published counterparts: the original sends one-byte messages, and a packet with
    /// each.
    fn is_published(&self) -> bool {
        let (_, polling, bytes) = self.group;
        is_published(polling, bytes)
    }

    fn find(&self, kind: Kind, placement: Placement, connections: usize) -> Option<&ConnectionRow> {
        self.rows.iter().copied().find(|row| {
            let setup = &row.setup;
            (setup.kind, setup.placement, setup.connections) == (kind, placement, connections)
        })
    }

    fn synchronous(&self, placement: Placement, connections: usize) -> Option<&ConnectionRow> {
        [Kind::Futex, Kind::SeqPacket]
            .into_iter()
            .filter_map(|kind| self.find(kind, placement, connections))
            .max_by(|a, b| a.rate[0].total_cmp(&b.rate[0]))
    }

    fn head(&self, what: &str) -> String {
        let mut text = format!("\n{}\n{:<34}", self.title(what), "connections");
        for connections in &self.grid.connections {
            put!(text, "{connections:>22}");
        }
        text + "\n"
    }

    fn line(&self, name: &str, cell: impl Fn(usize) -> Option<String>) -> String {
        let mut text = format!("{name:<34}");
        for connections in &self.grid.connections {
            let found = cell(*connections).unwrap_or_else(|| "-".to_owned());
            put!(text, "{found:>22}");
        }
        text + "\n"
    }

    fn lines(
        &self,
        ours: impl Fn(&ConnectionRow) -> Option<String>,
        theirs: impl Fn(Kind, Placement, usize) -> Option<String>,
    ) -> String {
        let mut text = self.ours(ours);
        if !self.is_published() {
            return text;
        }
        for kind in [Kind::Futex, Kind::Asynchronous] {
            for placement in Placement::ALL {
                let word = if kind == Kind::Futex { "sync" } else { "async" };
                let name = format!("published {word}, {}", placement.word());
                text += &self.line(&name, |connections| theirs(kind, placement, connections));
            }
        }
        text
    }

    fn ours(&self, ours: impl Fn(&ConnectionRow) -> Option<String>) -> String {
        let mut text = String::new();
        for kind in Kind::ALL {
            for placement in Placement::ALL {
                let name = format!("{}, {}", kind.word(), placement.word());
                text += &self.line(&name, |connections| {
                    self.find(kind, placement, connections).and_then(&ours)
                });
            }
        }
        text
    }

    fn rates(&self) -> String {
        let what = match self.mode {
            Mode::Read => "Reads per second (B4)",
            Mode::Write => "Writes per second (B5)",
            Mode::Call => "Calls per second (B6)",
        };
        let ours = |row: &ConnectionRow| Some(format!("{:.0}", row.rate[0]));
        let theirs = |kind, placement, connections| {
            let rate = published::rate(self.mode, kind, placement, connections)?;
            Some(format!("{rate:.0}"))
        };
        let mut text = self.head(what) + &self.lines(ours, theirs);
        for placement in Placement::ALL {
            let name = format!("async over sync, {}", placement.word());
            text += &self.line(&name, |connections| self.gain(placement, connections));
            if !self.is_published() {
                continue;
            }
            let name = format!("published, {}", placement.word());
            text += &self.line(&name, |connections| {
                let rate = |kind| published::rate(self.mode, kind, placement, connections);
                let gain = rate(Kind::Asynchronous)? / rate(Kind::Futex)?;
                Some(format!("{gain:.2}"))
            });
        }
        text
    }

    /// Returns the ratio of the asynchronous rate to the faster synchronous rate: the ratio of the medians, and the
    /// minimum and maximum over any two runs.
    fn gain(&self, placement: Placement, connections: usize) -> Option<String> {
        let [median, least, most] = self.find(Kind::Asynchronous, placement, connections)?.rate;
        let [sync, sync_least, sync_most] = self.synchronous(placement, connections)?.rate;
        let (low, high) = (least / sync_most, most / sync_least);
        Some(format!("{:.2} ({low:.2}..{high:.2})", median / sync))
    }

    fn latencies(&self) -> String {
        let micros = |value: f64| Some(format!("{value:.1}"));
        let of =
            |at: usize| move |row: &ConnectionRow| micros(row.latency.as_ref()?.percentiles_us[at]);
        let mean = self.lines(
            |row| micros(row.latency.as_ref()?.mean_us),
            |kind, placement, connections| {
                micros(1000.0 * published::latency(kind, placement, connections)?[0])
            },
        );
        let variance = self.lines(
            |row| micros(row.latency.as_ref()?.variance),
            |kind, placement, connections| {
                micros(1e6 * published::latency(kind, placement, connections)?[1])
            },
        );
        self.head("Mean of a call in microseconds (B7)")
            + &mean
            + &self.head("Variance of a call in square microseconds (B7)")
            + &variance
            + &self.head("Half of the calls take at most, in microseconds (B7)")
            + &self.ours(of(0))
            + &self.head("99 % of the calls take at most, in microseconds (B7)")
            + &self.ours(of(1))
            + &self.head("99.9 % of the calls take at most, in microseconds (B7)")
            + &self.ours(of(2))
    }

    fn processors(&self) -> String {
        let ours = |row: &ConnectionRow| Some(format!("{:.0} + {:.0}", row.cpu[0], row.cpu[1]));
        self.head("Per cent of a core: the stack's process + the application's threads")
            + &self.ours(ours)
    }

    fn panel(&self) -> Panel {
        let mut lines = Vec::new();
        let number = |connections: usize| u32::try_from(connections).map_or(f64::MAX, f64::from);
        for (style, placement) in Placement::ALL.into_iter().enumerate() {
            for (kind, style) in [(Kind::Asynchronous, style), (Kind::Futex, style + 4)] {
                let word = if kind == Kind::Futex { "sync" } else { "async" };
                let name = format!("{word}, {}", placement.word());
                let points = self.grid.connections.iter().filter_map(|connections| {
                    let row = match kind {
                        Kind::Asynchronous => self.find(kind, placement, *connections),
                        _ => self.synchronous(placement, *connections),
                    };
                    Some((number(*connections), row?.rate[0]))
                });
                let theirs = self.grid.connections.iter().filter_map(|connections| {
                    let rate = published::rate(self.mode, kind, placement, *connections)?;
                    Some((number(*connections), rate))
                });
                let published = format!("published {name}");
                lines.push(Series::new(name, style, Stroke::Marked, points));
                lines.push(Series::new(published, style, Stroke::Dashed, theirs));
            }
        }
        Panel {
            title: format!("{}s per second, {}", self.mode.word(), self.words()),
            y_title: String::new(),
            x_title: "connections".to_owned(),
            x_division: XDivision::Doublings,
            room: Vec::new(),
            lines,
        }
    }
}
