//! Everything that was measured of the stack, as text, JSON and a figure.

use std::fmt::Write as _;

use quictun_lab::chart;
use serde_json::json;

use super::calls::{self, Grid};
use super::{bulk, crowd};
use crate::machine::Machine;

/// Everything that came of it.
pub(crate) struct Results<'a> {
    pub(crate) machine: Machine,
    /// Why it should not be believed.
    pub(crate) noise: Option<String>,
    pub(crate) grid: Grid<'a>,
    pub(crate) rows: Vec<bulk::Row>,
    pub(crate) crowds: Vec<crowd::Row>,
    pub(crate) answers: Vec<calls::Row>,
}

impl Results<'_> {
    fn name(&self) -> String {
        format!("{}, Linux {}", self.machine.cpu, self.machine.kernel)
    }

    pub(crate) fn svg(&self) -> String {
        let warning = "NOT TO BE PUBLISHED: noisy machine";
        let warning = self.noise.as_ref().map(|_| warning);
        let panels = calls::report::panels(&self.grid, &self.answers);
        chart::sheet(&self.name(), warning, &panels)
    }

    pub(crate) fn json(&self) -> String {
        let all = json!({
            "cpu": self.machine.cpu,
            "kernel": self.machine.kernel,
            "load": self.machine.load,
            "steal": self.machine.steal,
            "noise": self.noise,
            "rows": bulk::to_json(&self.rows),
            "crowds": crowd::to_json(&self.crowds),
            "calls": calls::report::to_json(&self.answers),
        });
        format!("{all}\n")
    }

    pub(crate) fn text(&self) -> String {
        let mut text = self.name() + "\n";
        if let Some(noise) = &self.noise {
            let _infallible = writeln!(text, "Not to be believed: {noise}.");
        }
        text + &bulk::table(&self.rows)
            + &crowd::table(&self.crowds)
            + &calls::report::tables(&self.grid, &self.answers)
    }
}
