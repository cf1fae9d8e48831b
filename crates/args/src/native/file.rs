//! The TOML files of `quictun server` and `quictun client`.
//!
//! The structs are the schema: what they do not name is refused. [`ServerFile::layer`] and
//! [`ClientFile::layer`] turn the values that flags have too into a layer; clients are the file's alone.
//! `docs/examples/` shows every key.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::inputs::Inputs;
use crate::layers::FileLayer;
use crate::options::Section;

/// The file of `quictun server`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerFile {
    listen: Option<Text>,
    ca: Option<Text>,
    identity: IdentityTable,
    /// `[[client]]`: who may reach what.
    #[serde(skip_serializing)]
    pub client: Vec<ClientTable>,
    transport: TransportTable,
    control: ControlTable,
    log: LogTable,
}

/// The file of `quictun client`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientFile {
    server: Option<Text>,
    offer: Option<Text>,
    tun: Option<Text>,
    route: Option<Texts>,
    exclude: Option<Texts>,
    fail_open: Option<Text>,
    dns: Option<Text>,
    #[serde(alias = "pins")]
    pin: Option<Texts>,
    ca: Option<Text>,
    cert: Option<Text>,
    key: Option<Text>,
    psk_file: Option<Text>,
    #[serde(skip_serializing)]
    forward: Vec<ForwardTable>,
    transport: TransportTable,
    control: ControlTable,
    log: LogTable,
}

/// `[[client]]` in the server's file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientTable {
    /// Its name in logs, metrics and REST.
    pub name: String,
    /// Pins of its public keys.
    #[serde(default, alias = "keys")]
    pub key: Texts,
    /// File with a secret shared with it.
    pub psk_file: Option<PathBuf>,
    /// Whether a certificate from `ca` that carries its name is proof.
    #[serde(default)]
    pub certificate: bool,
    /// Targets it may reach.
    #[serde(default)]
    pub allow: Vec<String>,
}

/// `[[forward]]` in the client's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ForwardTable {
    listen: Text,
    target: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct IdentityTable {
    state_dir: Option<Text>,
    cert: Option<Text>,
    key: Option<Text>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct TransportTable {
    workers: Option<Text>,
    connections: Option<Text>,
    max_connections: Option<Text>,
    dial_timeout: Option<Text>,
    congestion: Option<Text>,
    idle_timeout: Option<Text>,
    keep_alive: Option<Text>,
    memory_budget: Option<Text>,
    max_flows: Option<Text>,
    udp_buffer: Option<Text>,
    max_udp_payload: Option<Text>,
    gso: Option<Text>,
    drain: Option<Text>,
    key_log: Option<Text>,
    qlog_dir: Option<Text>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct ControlTable {
    http: Option<Text>,
    http_mode: Option<Text>,
    http_names: Option<Texts>,
    compat_json: Option<Text>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct LogTable {
    level: Option<Text>,
    format: Option<Text>,
    output: Option<Texts>,
}

/// One value, kept as text until its option is read like any flag: numbers and booleans need no quotes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Text(String);

/// One value or a list of them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Texts(pub Vec<String>);

impl ServerFile {
    /// Reads the file.
    pub fn read(path: &Path, inputs: &Inputs<'_>) -> Result<Self, Fault> {
        read(path, inputs)
    }

    /// The values that flags have too.
    pub fn layer(&self, path: &Path, sections: &[&'static Section]) -> Result<FileLayer, Fault> {
        layer(path, self, sections)
    }
}

impl ClientFile {
    /// Reads the file.
    pub fn read(path: &Path, inputs: &Inputs<'_>) -> Result<Self, Fault> {
        read(path, inputs)
    }

    /// The values that flags have too; `[[forward]]` as `-L` has it.
    pub fn layer(&self, path: &Path, sections: &[&'static Section]) -> Result<FileLayer, Fault> {
        let mut layer = layer(path, self, sections)?;
        let mut items = Vec::new();
        for forward in &self.forward {
            let listen = &forward.listen.0;
            if listen.contains('=') {
                let what = format!("{}: forward.listen", path.display());
                return Err(Fault::usage(
                    what,
                    format!("{listen:?} holds '=': give the socket another path"),
                ));
            }
            items.push(format!("{listen}={}", forward.target));
        }
        if !items.is_empty() {
            layer
                .values
                .insert("forward", ("forward".to_owned(), items));
        }
        Ok(layer)
    }
}

/// Reads a file of any schema.
pub fn read<T: for<'de> Deserialize<'de>>(path: &Path, inputs: &Inputs<'_>) -> Result<T, Fault> {
    let what = path.display().to_string();
    let unreadable = |error| {
        Fault::failure(
            &what,
            format!("cannot read the configuration file: {error}"),
        )
    };
    let text = inputs.files.read(path).map_err(unreadable)?;
    toml::from_str(&text).map_err(|error| Fault::usage(&what, error.to_string().trim_end()))
}

/// The values of a file that flags of `sections` have too.
pub fn layer(
    path: &Path,
    file: &impl Serialize,
    sections: &[&'static Section],
) -> Result<FileLayer, Fault> {
    let table =
        toml::Table::try_from(file).expect("invariant: the schema holds texts and tables of them");
    let mut leaves = Vec::new();
    flatten("", table, &mut leaves);
    let mut layer = FileLayer {
        path: path.to_owned(),
        ..FileLayer::default()
    };
    for (key, value) in leaves {
        let options = sections.iter().flat_map(|section| section.options);
        let Some(option) = options.into_iter().find(|option| option.key == key) else {
            let what = format!("{}: {key}", path.display());
            return Err(Fault::usage(
                what,
                "belongs into the file of the other side",
            ));
        };
        let items = match value {
            toml::Value::Array(items) => items
                .into_iter()
                .filter_map(|item| item.as_str().map(str::to_owned))
                .collect(),
            value => option.items(value.as_str().unwrap_or_default()),
        };
        layer.values.insert(option.name, (key, items));
    }
    Ok(layer)
}

fn flatten(prefix: &str, table: toml::Table, leaves: &mut Vec<(String, toml::Value)>) {
    for (key, value) in table {
        match value {
            toml::Value::Table(table) => flatten(&format!("{prefix}{key}."), table, leaves),
            value => leaves.push((format!("{prefix}{key}"), value)),
        }
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a whole number, true or false")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text(text.to_owned()))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Text, E> {
        Ok(Text(number.to_string()))
    }

    fn visit_bool<E: de::Error>(self, on: bool) -> Result<Text, E> {
        Ok(Text(on.to_string()))
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextsVisitor)
    }
}

struct TextsVisitor;

impl<'de> Visitor<'de> for TextsVisitor {
    type Value = Texts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of texts")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Texts, E> {
        Ok(Texts(vec![text.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Texts, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = seq.next_element()? {
            texts.push(text);
        }
        Ok(Texts(texts))
    }
}
