//! The state that keys control: the selected table, its sort order, and its first visible row.

use std::cmp::Ordering;

use super::keys::Key;
use super::view::{ClientRow, ConnectionRow, FlowRow};

/// The tables of the page, from the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageTable {
    Clients,
    Connections,
    Flows,
}

/// The sort key of a table: largest values first, but names in alphabetical order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Rate,
    Rtt,
    Loss,
    Flows,
    Bytes,
    Age,
    Name,
}

impl PageTable {
    pub(super) const ALL: [Self; 3] = [Self::Clients, Self::Connections, Self::Flows];

    fn sorts(self) -> &'static [Sort] {
        match self {
            Self::Clients => &[Sort::Rate, Sort::Rtt, Sort::Loss, Sort::Flows, Sort::Name],
            Self::Connections => &[
                Sort::Rate,
                Sort::Rtt,
                Sort::Loss,
                Sort::Flows,
                Sort::Age,
                Sort::Name,
            ],
            Self::Flows => &[Sort::Rate, Sort::Bytes, Sort::Age, Sort::Name],
        }
    }
}

impl Sort {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Rtt => "RTT",
            Self::Loss => "loss",
            Self::Flows => "flows",
            Self::Bytes => "bytes",
            Self::Age => "age",
            Self::Name => "name",
        }
    }
}

/// The sort order and the visible part of one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TableView {
    /// Index of the sort order in [`PageTable::sorts`].
    sort: usize,
    /// Index of the first visible row.
    pub(super) top: usize,
    /// Number of visible rows on the latest page.
    pub(super) rows: usize,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Controls {
    chosen: usize,
    views: [TableView; 3],
}

impl Controls {
    pub(super) fn chosen(&self) -> PageTable {
        PageTable::ALL[self.chosen]
    }

    pub(super) fn view(&mut self, table: PageTable) -> &mut TableView {
        &mut self.views[table as usize]
    }

    pub(super) fn sort(&self, table: PageTable) -> Sort {
        table.sorts()[self.views[table as usize].sort]
    }

    /// Applies a key. The page later limits the first row to the rows that exist.
    pub(super) fn press(&mut self, key: Key) {
        let tables = PageTable::ALL.len();
        let sorts = self.chosen().sorts().len();
        let view = &mut self.views[self.chosen];
        let page = view.rows.saturating_sub(1).max(1);
        match key {
            Key::Up => view.top = view.top.saturating_sub(1),
            Key::Down => view.top = view.top.saturating_add(1),
            Key::PageUp => view.top = view.top.saturating_sub(page),
            Key::PageDown => view.top = view.top.saturating_add(page),
            Key::First => view.top = 0,
            Key::Last => view.top = usize::MAX,
            Key::Next => self.chosen = (self.chosen + 1) % tables,
            Key::Previous => self.chosen = (self.chosen + tables - 1) % tables,
            Key::Sort => {
                view.sort = (view.sort + 1) % sorts;
                view.top = 0;
            }
            Key::Quit | Key::Redraw => {}
        }
    }
}

/// A row that can be sorted. Names break ties, so that rows do not jump about.
pub(super) trait SortableRow {
    fn key(&self, sort: Sort) -> f64;
    fn name(&self) -> [&str; 2];
}

impl SortableRow for ClientRow {
    fn key(&self, sort: Sort) -> f64 {
        match sort {
            Sort::Rate => self.rate.sum(),
            Sort::Rtt => self.rtt.unwrap_or(f64::INFINITY),
            Sort::Loss => self.minute.loss().unwrap_or(0.0),
            Sort::Flows => float(self.flows),
            Sort::Bytes | Sort::Age | Sort::Name => 0.0,
        }
    }

    fn name(&self) -> [&str; 2] {
        [&self.name, ""]
    }
}

impl SortableRow for ConnectionRow {
    fn key(&self, sort: Sort) -> f64 {
        match sort {
            Sort::Rate => self.rate.sum(),
            Sort::Rtt => self.rtt.unwrap_or(f64::INFINITY),
            Sort::Loss => self.minute.loss().unwrap_or(0.0),
            Sort::Flows => float(self.flows),
            Sort::Age => self.age,
            Sort::Bytes | Sort::Name => 0.0,
        }
    }

    fn name(&self) -> [&str; 2] {
        [&self.client, &self.address]
    }
}

impl SortableRow for FlowRow {
    fn key(&self, sort: Sort) -> f64 {
        match sort {
            Sort::Rate => self.rate.sum(),
            Sort::Bytes => self.bytes,
            Sort::Age => self.age,
            Sort::Rtt | Sort::Loss | Sort::Flows | Sort::Name => 0.0,
        }
    }

    fn name(&self) -> [&str; 2] {
        [&self.target, &self.address]
    }
}

/// Returns the rows in sorted order.
pub(super) fn sorted<'a, R: SortableRow>(
    rows: impl Iterator<Item = &'a R>,
    sort: Sort,
) -> Vec<&'a R> {
    let mut rows: Vec<(f64, &R)> = rows.map(|row| (row.key(sort), row)).collect();
    rows.sort_by(|(one, row), (other, next)| match other.total_cmp(one) {
        Ordering::Equal => row.name().cmp(&next.name()),
        order => order,
    });
    rows.into_iter().map(|(_, row)| row).collect()
}

#[expect(clippy::cast_precision_loss, reason = "the number is only compared")]
fn float(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_select_a_table_its_order_and_its_rows() {
        let mut controls = Controls::default();
        controls.view(PageTable::Clients).rows = 10;
        for (key, top) in [
            (Key::Up, 0),
            (Key::Down, 1),
            (Key::PageDown, 10),
            (Key::PageUp, 1),
            (Key::Last, usize::MAX),
            (Key::Down, usize::MAX),
            (Key::First, 0),
        ] {
            controls.press(key);
            assert_eq!(controls.view(PageTable::Clients).top, top, "{key:?}");
        }
        controls.press(Key::Next);
        controls.press(Key::Next);
        assert_eq!(controls.chosen(), PageTable::Flows);
        controls.press(Key::Sort);
        assert_eq!(controls.sort(PageTable::Flows), Sort::Bytes);
        assert_eq!(controls.sort(PageTable::Clients), Sort::Rate);
        controls.press(Key::Next);
        controls.press(Key::Previous);
        controls.press(Key::Previous);
        assert_eq!(controls.chosen(), PageTable::Connections);
    }
}
