//! The TOML file of `quictun link run`.

use std::path::Path;

use quictun_args::fault::Fault;
use quictun_args::file::{File, Schema};
use quictun_args::inputs::Inputs;
use quictun_args::layers::FileLayer;
use serde::Deserialize;

use super::flags;

static PLAN: Schema = Schema {
    table: &flags::SESSION,
    other: &[],
    extra: "near",
};

/// `[near]`: what runs behind the link.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NearTable {
    /// For `sh -c`.
    command: String,
}

/// Reads the file: the values that flags have too, and the line for `sh -c`.
pub(super) fn read(path: &Path, inputs: &Inputs<'_>) -> Result<(FileLayer, String), Fault> {
    let file: File<NearTable> = PLAN.read(path, inputs)?;
    let missing = || Fault::usage(path.display().to_string(), "missing field `near`");
    let near = file.extra.ok_or_else(missing)?;
    Ok((file.layer, near.command))
}
