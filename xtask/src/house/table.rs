//! Formats text tables with a column of names and columns of numbers.

use std::fmt;

/// A table, displayed with a blank line before it.
#[derive(Debug)]
pub(crate) struct Table {
    heads: Vec<String>,
    rows: Vec<(String, Vec<usize>)>,
}

impl Table {
    /// Creates an empty table. The first head is above the names, the others are above the numbers.
    pub(crate) fn new(heads: &[&str]) -> Self {
        Self {
            heads: heads.iter().map(|&head| head.to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, name: &str, numbers: &[usize]) {
        self.rows.push((name.to_owned(), numbers.to_vec()));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.rows.iter().map(|(name, _)| name);
        let names = names.chain(self.heads.first());
        let width = names.map(String::len).max().unwrap_or(0);
        writeln!(f)?;
        for (column, head) in self.heads.iter().enumerate() {
            match column {
                0 => write!(f, "{head:width$}")?,
                _ => write!(f, " {head:>8}")?,
            }
        }
        writeln!(f)?;
        for (name, numbers) in &self.rows {
            write!(f, "{name:width$}")?;
            for (number, head) in numbers.iter().zip(&self.heads[1..]) {
                write!(f, " {number:>0$}", head.len().max(8))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
