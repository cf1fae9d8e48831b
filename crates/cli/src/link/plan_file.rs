//! The TOML file of `quictun link run`.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::flags;
use quictun_args::fault::Fault;
use quictun_args::inputs::Inputs;
use quictun_args::layers::FileLayer;
use quictun_args::native::file::{self, Text, Texts};

/// The file. What it does not name is refused.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanFile {
    #[serde(default)]
    link: LinkTable,
    #[serde(default)]
    far: FarTable,
    /// `[near]`: what runs behind the link.
    #[serde(skip_serializing)]
    pub(super) near: NearTable,
    backend: Option<Text>,
    seed: Option<Text>,
    mtu: Option<Text>,
    offload: Option<Text>,
    coalesce: Option<Text>,
    time_limit: Option<Text>,
}

/// `[near]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NearTable {
    /// For `sh -c`.
    pub(super) command: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct FarTable {
    command: Option<Text>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct LinkTable {
    rate: Option<Text>,
    delay: Option<Text>,
    loss: Option<Text>,
    burst: Option<Text>,
    loss_at: Option<Text>,
    queue: Option<Text>,
    jitter: Option<Text>,
    reorder: Option<Text>,
    duplicate: Option<Text>,
    codel: Option<Text>,
    ecn: Option<Text>,
    policer: Option<Text>,
    outage: Option<Texts>,
    change: Option<Texts>,
    overhead: Option<Text>,
    up: WayTable,
    down: WayTable,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct WayTable {
    rate: Option<Text>,
    delay: Option<Text>,
    loss: Option<Text>,
    queue: Option<Text>,
    trace: Option<Text>,
}

impl PlanFile {
    /// Reads the file.
    pub(super) fn read(path: &Path, inputs: &Inputs<'_>) -> Result<Self, Fault> {
        file::read(path, inputs)
    }

    /// The values that flags have too.
    pub(super) fn layer(&self, path: &Path) -> Result<FileLayer, Fault> {
        file::layer(path, self, flags::SESSION)
    }
}
