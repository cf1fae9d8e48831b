//! `quictun link artefact`: compares a link that drops single packets of the wire with the same link that drops
//! super-packets.

use quictun_emu::{DirectionAudit, LossUnit, Verdict};
use quictun_lab::stats::median_count;
use serde::Serialize;

use super::cell::{CheckCell, Load};
use super::options::CheckOptions;
use super::table::{self, RowKey};
use super::{real, report};

#[derive(Debug, Serialize)]
struct ArtefactRow {
    #[serde(flatten)]
    of: RowKey,
    per_segment: LossUnitResult,
    per_super_packet: LossUnitResult,
    /// The rate with loss of super-packets, divided by that with loss of packets: how much the wrong unit overstates
    /// it.
    flattery: f64,
}

#[derive(Debug, Serialize)]
struct LossUnitResult {
    bit_per_s: u64,
    runs_bit_per_s: Vec<u64>,
    /// Mean number of packets in a super-packet.
    packets_per_frame: f64,
    emulator_ok: bool,
}

#[derive(Debug, Serialize)]
struct ArtefactTable {
    rows: Vec<ArtefactRow>,
}

const HEADING: &str =
    "                                    loss per packet     loss per super-packet
      rate      RTT    loss  load    Mbit/s  packets     Mbit/s  packets   times
                                               /frame              /frame
";

/// Runs the comparison and prints a row for each load and link.
pub fn run(plan: &CheckOptions) -> anyhow::Result<()> {
    let rows = table::rows(plan, HEADING, line, |cell, load| row(plan, cell, load))?;
    if let Some(path) = &plan.json {
        report::write(path, &ArtefactTable { rows })?;
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "rates far below 2^53")]
fn line(row: &ArtefactRow) -> String {
    let mbit = |rate: u64| rate as f64 / 1e6;
    let (honest, wrong) = (&row.per_segment, &row.per_super_packet);
    let note = if honest.emulator_ok && wrong.emulator_ok {
        ""
    } else {
        "  emulator-limited"
    };
    format!(
        "{} {:>6.1} {:>8.1} {:>10.1} {:>8.1} {:>7.2}{note}\n",
        row.of,
        mbit(honest.bit_per_s),
        honest.packets_per_frame,
        mbit(wrong.bit_per_s),
        wrong.packets_per_frame,
        row.flattery,
    )
}

#[expect(clippy::cast_precision_loss, reason = "rates far below 2^53")]
fn row(plan: &CheckOptions, cell: CheckCell, load: Load) -> anyhow::Result<ArtefactRow> {
    let mut sides = [LossUnit::Segment, LossUnit::Frame].map(|unit| {
        let side = LossUnitResult {
            bit_per_s: 0,
            runs_bit_per_s: Vec::new(),
            packets_per_frame: 0.0,
            emulator_ok: true,
        };
        (unit, side)
    });
    // Alternate, so that a machine that becomes slower affects both alike.
    for seed in 1..=u64::from(plan.runs) {
        for (unit, side) in &mut sides {
            let (rate, audit) = real::real(plan, cell, load, seed, *unit)?;
            side.runs_bit_per_s.push(rate);
            side.packets_per_frame += packets_per_frame(&audit.up) / f64::from(plan.runs);
            side.emulator_ok &= audit.verdict() == Verdict::Ok;
        }
    }
    let [(_, mut per_segment), (_, mut per_super_packet)] = sides;
    for side in [&mut per_segment, &mut per_super_packet] {
        side.bit_per_s = median_count(&side.runs_bit_per_s).unwrap_or(0);
    }
    Ok(ArtefactRow {
        of: RowKey::new(cell, load),
        flattery: per_super_packet.bit_per_s as f64 / per_segment.bit_per_s.max(1) as f64,
        per_segment,
        per_super_packet,
    })
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn packets_per_frame(direction: &DirectionAudit) -> f64 {
    direction.counts.segments_in as f64 / direction.counts.frames_in.max(1) as f64
}
