//! A set of cells, their outcomes, and the rules that outcomes must satisfy.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use clap::ValueEnum;
use serde_json::{Value, json};

use super::cell::{FaultCell, Phase, Process, ProcessFault, Sockets};
use super::observation::{DataEnd, Observation};
use super::run::{FaultOptions, run};

/// The selected values of each dimension.
#[derive(Clone, Debug)]
pub struct MatrixFilter {
    /// The processes that faults hit.
    pub processes: Vec<Process>,
    /// The faults to apply.
    pub faults: Vec<ProcessFault>,
    /// The states of the connection.
    pub phases: Vec<Phase>,
    /// The kinds of sockets.
    pub sockets: Vec<Sockets>,
}

/// A cell and its outcomes.
#[derive(Debug)]
pub struct MatrixRow {
    /// The cell that was run.
    pub cell: FaultCell,
    /// The outcomes at the application and at the target, or the error that prevented the run.
    pub outcomes: Result<[Observation; 2], String>,
}

/// The rows of all cells.
#[derive(Debug)]
pub struct Matrix {
    rows: Vec<MatrixRow>,
}

impl MatrixFilter {
    /// Returns the cells of this choice without duplicates. Without a fault in a process the process does not matter, and
    /// the server is the same with and without a device.
    pub fn cells(&self) -> Vec<FaultCell> {
        let mut cells = Vec::new();
        for &sockets in &self.sockets {
            for &fault in &self.faults {
                for &process in &self.processes {
                    let makes_sense = match (fault, process, sockets) {
                        (ProcessFault::None, process, _) => process == self.processes[0],
                        (ProcessFault::Cut, process, sockets) => {
                            process == self.processes[0] && sockets == Sockets::Tls
                        }
                        (ProcessFault::Upgraded | ProcessFault::RolledBack, process, sockets) => {
                            // The other tunnels have no bonds, or are those of quic-tun's programs.
                            sockets == Sockets::Tls
                                && matches!(process, Process::Server | Process::Client)
                        }
                        (_, Process::Server, Sockets::Tun) => false,
                        // A keeper ignores SIGTERM, and does not see the sockets.
                        (fault, Process::ServerKeeper | Process::ClientKeeper, sockets) => {
                            matches!(sockets, Sockets::Tcp | Sockets::Tls)
                                && matches!(fault, ProcessFault::Kill | ProcessFault::Stop)
                        }
                        (_, Process::Netstackd | Process::Supervisor, sockets) => {
                            sockets == Sockets::Tun
                        }
                        _ => true,
                    };
                    if makes_sense {
                        cells.extend(self.phases.iter().map(|&phase| FaultCell {
                            process,
                            fault,
                            phase,
                            sockets,
                        }));
                    }
                }
            }
        }
        cells
    }
}

impl Matrix {
    /// Runs all cells, at most `parallel` at a time, and passes each finished row to `done`.
    pub fn run(
        cells: &[FaultCell],
        plan: &FaultOptions,
        parallel: usize,
        done: impl Fn(&MatrixRow) + Sync,
    ) -> Self {
        let next = AtomicUsize::new(0);
        let rows = Mutex::new(BTreeMap::new());
        std::thread::scope(|scope| {
            for _ in 0..parallel.clamp(1, cells.len().max(1)) {
                scope.spawn(|| {
                    while let Some(&cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let outcomes = run(cell, plan).map_err(|error| format!("{error:#}"));
                        let row = MatrixRow { cell, outcomes };
                        done(&row);
                        let mut rows = rows.lock().unwrap_or_else(PoisonError::into_inner);
                        rows.insert((cell.sockets, cell.process, cell.fault, cell.phase), row);
                    }
                });
            }
        });
        let rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
        Self {
            rows: rows.into_values().collect(),
        }
    }

    /// Returns the cells that break a rule, each with the reason.
    pub fn findings(&self) -> Vec<String> {
        let found = self.rows.iter().flat_map(|row| {
            let of = move |what| format!("{}: {what}", row.cell);
            row.findings().into_iter().map(of)
        });
        found.collect()
    }

    /// Returns the matrix as one JSON object.
    pub fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let seen = |end: usize| match &row.outcomes {
                Ok(outcomes) => json!(outcomes[end].to_string()),
                Err(_) => Value::Null,
            };
            json!({
                "process": name(&row.cell.process), "fault": name(&row.cell.fault),
                "phase": name(&row.cell.phase), "sockets": name(&row.cell.sockets),
                "application": seen(0), "target": seen(1),
                "error": row.outcomes.as_ref().err(), "findings": row.findings(),
            })
        });
        json!({ "kept": self.findings().is_empty(), "cells": rows.collect::<Vec<_>>() })
    }

    /// Returns the matrix as Markdown, with a table for each kind of sockets.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for sockets in Sockets::value_variants() {
            let rows = self.rows.iter().filter(|row| row.cell.sockets == *sockets);
            let mut rows = rows.map(MatrixRow::markdown).peekable();
            if rows.peek().is_some() {
                let head = [
                    "",
                    title(*sockets),
                    "",
                    "| process | fault | connection | application | target |",
                    "|---|---|---|---|---|",
                ];
                text.extend(head.map(|line| format!("{line}\n")));
                text.extend(rows);
            }
        }
        text
    }
}

impl MatrixRow {
    /// Returns what is wrong with the row; empty if nothing is.
    pub fn findings(&self) -> Vec<String> {
        let outcomes = match &self.outcomes {
            Ok(outcomes) => outcomes,
            Err(error) => return vec![format!("it could not be shown: {error}")],
        };
        let ends = ["the application", "the target"].into_iter().zip(outcomes);
        let wrong = ends.filter(|(_, outcome)| self.is_wrong(outcome));
        wrong
            .map(|(end, saw)| format!("{end} saw: {saw}"))
            .collect()
    }

    /// Returns true if the outcome breaks a rule. A cut must not look like a clean end, unless the sockets cannot
    /// distinguish them. Nothing may be lost if the process had time to drain, if there was no fault, or if flows outlive
    /// it. A process has time to drain if its keeper dies.
    fn is_wrong(&self, outcome: &Observation) -> bool {
        match &outcome.seen {
            DataEnd::Wrong(_) => true,
            DataEnd::Ended { .. } if self.cell.sockets != Sockets::Unix => true,
            _ => {
                let lossless = match self.cell.fault {
                    ProcessFault::None | ProcessFault::Term => true,
                    // A client cannot know whether the target of a flow that is being opened has its bytes.
                    ProcessFault::Cut | ProcessFault::Upgraded | ProcessFault::RolledBack => {
                        self.cell.phase != Phase::Opening
                    }
                    _ => false,
                };
                (lossless || self.cell.process.is_keeper()) && !outcome.is_whole()
            }
        }
    }

    /// Returns the row as a line of the table.
    fn markdown(&self) -> String {
        let [application, target] = self.shown();
        let process = match self.cell.fault {
            ProcessFault::None | ProcessFault::Cut => "none".to_owned(),
            _ => name(&self.cell.process),
        };
        let (fault, phase) = (name(&self.cell.fault), name(&self.cell.phase));
        format!("| {process} | {fault} | {phase} | {application} | {target} |\n")
    }

    fn shown(&self) -> [String; 2] {
        let outcomes = match &self.outcomes {
            Ok(outcomes) => outcomes,
            Err(error) => return [format!("**not shown**: {error}"), String::new()],
        };
        outcomes.each_ref().map(|outcome| match &outcome.seen {
            _ if self.is_wrong(outcome) => format!("**FORBIDDEN**: {outcome}"),
            DataEnd::Ended { bytes } => format!(
                "cut after {bytes} of {} bytes: a Unix socket cannot tell",
                outcome.expected
            ),
            _ => outcome.to_string(),
        })
    }
}

impl fmt::Display for FaultCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (process, fault) = (name(&self.process), name(&self.fault));
        let (phase, sockets) = (name(&self.phase), name(&self.sockets));
        write!(f, "{process}, {fault}, {phase}, {sockets}")
    }
}

pub(crate) fn name(of: &impl ValueEnum) -> String {
    let value = of.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

fn title(sockets: Sockets) -> &'static str {
    match sockets {
        Sockets::Tcp => "## TCP at both ends",
        Sockets::Unix => "## Unix sockets at both ends",
        Sockets::Tun => "## TCP through a device (`quictun client --tun`)",
        Sockets::Tls => "## TCP at both ends, over TLS (`quictun client --carrier tls`)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(fault: ProcessFault, sockets: Sockets, seen: DataEnd) -> usize {
        let outcome = |seen| Observation {
            seen,
            expected: 10,
            sending_failed: false,
        };
        let row = MatrixRow {
            cell: FaultCell {
                process: Process::Client,
                fault,
                phase: Phase::Up,
                sockets,
            },
            outcomes: Ok([outcome(DataEnd::Whole), outcome(seen)]),
        };
        row.findings().len()
    }

    #[test]
    fn a_truncation_that_looks_like_an_end_is_detected() {
        let cut = DataEnd::Ended { bytes: 9 };
        for (sockets, found) in [(Sockets::Tcp, 1), (Sockets::Tun, 1), (Sockets::Unix, 0)] {
            assert_eq!(findings(ProcessFault::Kill, sockets, cut.clone()), found);
        }
        assert_eq!(
            findings(
                ProcessFault::Kill,
                Sockets::Tcp,
                DataEnd::Reset { bytes: 9 }
            ),
            0
        );
    }

    #[test]
    fn a_drain_may_lose_no_byte() {
        for fault in [ProcessFault::Term, ProcessFault::None, ProcessFault::Cut] {
            for seen in [
                DataEnd::Ended { bytes: 9 },
                DataEnd::Reset { bytes: 10 },
                DataEnd::Refused,
            ] {
                assert_eq!(findings(fault, Sockets::Unix, seen), 1);
            }
            assert_eq!(findings(fault, Sockets::Unix, DataEnd::Whole), 0);
        }
    }

    #[test]
    fn no_cell_occurs_twice() {
        let choice = MatrixFilter {
            processes: Process::value_variants().to_vec(),
            faults: ProcessFault::value_variants().to_vec(),
            phases: Phase::value_variants().to_vec(),
            sockets: Sockets::value_variants().to_vec(),
        };
        // One row without a fault per kind of sockets, and four faults for each process: two, two, the three of a device,
        // or two; two faults for each of two keepers, twice; a cut; two take-overs of two processes; in six phases.
        let cells = choice.cells();
        assert_eq!(
            cells.len(),
            (4 + 4 * (2 + 2 + 3 + 2) + 2 * 2 * 2 + 1 + 2 * 2) * 6
        );
        let mut sorted = cells.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), cells.len());
    }
}
