//! Reads the TOML files of `quictun server` and `quictun client`: the options, and one table each that no flag
//! expresses.
//!
//! `docs/examples/` shows every key.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{flags, servers};
use crate::fault::Fault;
use crate::file::{File, FileLayer, Schema, Text, Texts};
use crate::inputs::Inputs;
use crate::options::Flag as _;
use crate::transport;

static SERVER: Schema = Schema {
    table: &flags::SERVER,
    other: &[&transport::CLIENT, &transport::CARRIERS_OF_CLIENT],
    extra: "client",
    extra_is_array: true,
    tables: None,
};

static CLIENT: Schema = Schema {
    table: &flags::CLIENT,
    other: &[&transport::SERVER, &transport::CARRIERS_OF_SERVER],
    extra: "forward",
    extra_is_array: true,
    tables: Some(("server", &servers::KEYS)),
};

/// `[[client]]` in the server's file: a client and the targets that it may reach.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientTable {
    pub(super) name: String,
    #[serde(default, alias = "keys")]
    pub(super) key: Texts,
    pub(super) psk_file: Option<PathBuf>,
    /// True if a certificate from `ca` that contains the client's name is a proof.
    #[serde(default)]
    pub(super) certificate: bool,
    #[serde(default)]
    pub(super) allow: Vec<String>,
    /// The addresses on which the client may ask the server to listen.
    #[serde(default)]
    pub(super) listen: Vec<String>,
    pub(super) max_flows: Option<Text>,
    /// The rate limit of each direction.
    pub(super) rate: Option<Text>,
    pub(super) rate_up: Option<Text>,
    pub(super) rate_down: Option<Text>,
    pub(super) quota: Option<Text>,
    pub(super) expires: Option<DateValue>,
    /// True if the PROXY headers of its flows contain the addresses that it reports for its applications.
    #[serde(default)]
    pub(super) proxy_protocol: bool,
}

/// A date or time, as text or as TOML's own type.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum DateValue {
    /// A text in quotes.
    Text(String),
    /// A TOML date or time, without quotes.
    Toml(toml::value::Datetime),
}

/// `[[forward]]` in the client's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ForwardTable {
    listen: Text,
    target: Option<String>,
    /// True if each connection names its destination by a proxy protocol. The key replaces `target`.
    #[serde(default)]
    proxy: bool,
}

pub(super) fn server(path: &Path, inputs: &Inputs<'_>) -> Result<File<Vec<ClientTable>>, Fault> {
    SERVER.read(path, inputs)
}

/// Reads a client's file. `[[forward]]` tables become the arguments of `-L` and `-D`.
pub(super) fn client(path: &Path, inputs: &Inputs<'_>) -> Result<FileLayer, Fault> {
    let file: File<Vec<ForwardTable>> = CLIENT.read(path, inputs)?;
    let mut layer = file.layer;
    let (mut forwards, mut proxies) = (Vec::new(), Vec::new());
    for table in file.extra.unwrap_or_default() {
        let Text(listen) = table.listen;
        let wrong = |key: &str, why: String| {
            let what = format!("{}: forward{key}", path.display());
            Err(Fault::usage(what, why))
        };
        if listen.contains('=') {
            let why = format!("{listen:?} holds '=': give the socket another path");
            return wrong(".listen", why);
        }
        match (table.target, table.proxy) {
            (Some(target), false) => forwards.push(format!("{listen}={target}")),
            (None, true) => proxies.push(listen),
            _ => {
                let why = format!("{listen:?} needs either a target or proxy = true");
                return wrong("", why);
            }
        }
    }
    for (flag, items) in [
        (flags::FORWARD.spec(), forwards),
        (flags::PROXY.spec(), proxies),
    ] {
        if !items.is_empty() {
            let value = ("forward".to_owned(), items);
            layer.values.insert(flag.name, value);
        }
    }
    Ok(layer)
}
