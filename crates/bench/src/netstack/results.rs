//! The results of all measurements of the stack, as text, JSON and a figure.

use quictun_lab::{BUILD_PROFILE, chart, put};
use serde_json::json;

use super::calls::{self, Grid};
use super::{bulk, crowd};
use crate::machine::Machine;

pub(crate) struct Results<'a> {
    pub(crate) machine: Machine,
    pub(crate) noise: Option<String>,
    pub(crate) grid: &'a Grid,
    pub(crate) rows: Vec<bulk::BulkRow>,
    pub(crate) crowds: Vec<crowd::CrowdRow>,
    pub(crate) answers: Vec<calls::ConnectionRow>,
}

impl Results<'_> {
    pub(crate) fn svg(&self) -> String {
        let warning = "NOT TO BE PUBLISHED: noisy machine";
        let warning = self.noise.as_ref().map(|_| warning);
        let panels = calls::report::panels(self.grid, &self.answers);
        chart::sheet(&self.machine.name(), warning, &panels)
    }

    pub(crate) fn json(&self) -> String {
        let all = json!({
            "cpu": self.machine.cpu,
            "kernel": self.machine.kernel,
            "build": BUILD_PROFILE,
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
        let mut text = self.machine.heading() + "\n";
        if let Some(noise) = &self.noise {
            put!(text, "Not to be believed: {noise}.\n");
        }
        text + &bulk::table(&self.rows)
            + &crowd::table(&self.crowds)
            + &calls::report::tables(self.grid, &self.answers)
    }
}
