//! TOML files whose schema is a table of options.
//!
//! A key is the [`Spec::key`] of an option, or the one [`Schema::extra`] table that has no flag. Any other key is
//! refused, with its position in the file. Values stay text until their option parses them like any flag: numbers and
//! booleans need no quotes.

mod tables;
mod text;

pub use text::{Fields, Text, Texts};

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, Visitor};

use crate::fault::Fault;
use crate::inputs::Inputs;
use crate::options::{self, Arity, Flag, Section, Spec, Table, Values};
use tables::{ArrayOfTables, TextsOrTables, TextsOrTablesVisitor};

/// The keys that a configuration file may have.
#[derive(Clone, Copy, Debug)]
pub struct Schema {
    /// The options whose keys the file may have.
    pub table: &'static Table,
    /// Options whose keys belong to the other side's configuration file.
    pub other: &'static [&'static Section],
    /// The key that does not belong to an option.
    pub extra: &'static str,
    /// True if that key is an array of tables.
    pub extra_is_array: bool,
    /// An option whose value may also be tables, and the keys of these tables. The first key holds the option's own
    /// value.
    pub tables: Option<(&'static str, &'static [&'static str])>,
}

/// The values of a configuration file.
#[derive(Clone, Debug, Default)]
pub struct FileLayer {
    /// Path of the file.
    pub path: PathBuf,
    /// For each option its key as the file spells it, and its values.
    pub values: Values,
    /// The tables that the schema allows for one of the options.
    pub tables: Vec<Fields>,
}

/// The values from a file.
#[derive(Debug)]
pub struct File<E> {
    /// The values of the file's options.
    pub layer: FileLayer,
    /// The value of [`Schema::extra`], if the file has it.
    pub extra: Option<E>,
}

/// Parses a file into any deserialisable type.
pub fn parse<T: DeserializeOwned>(path: &Path, inputs: &Inputs<'_>) -> Result<T, Fault> {
    let text = text_of(path, inputs)?;
    parse_by(path, &text, |text| toml::from_str(text))
}

/// Parses the file of a client into any deserialisable type. Returns `None` if the file does not exist, or if
/// `left_alone` returns true for its text.
pub(crate) fn parse_client_unless<T: DeserializeOwned>(
    path: &Path,
    inputs: &Inputs<'_>,
    left_alone: impl FnOnce(&str) -> bool,
) -> Result<Option<T>, Fault> {
    let text = match inputs.files.read_client(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|error| unreadable(path, &error))?,
    };
    if left_alone(&text) {
        return Ok(None);
    }
    parse_by(path, &text, |text| toml::from_str(text).map(Some))
}

impl Schema {
    /// Reads and parses a file.
    pub fn read<E: DeserializeOwned>(
        &self,
        path: &Path,
        inputs: &Inputs<'_>,
    ) -> Result<File<E>, Fault> {
        let mut found = ParseState {
            file: File {
                layer: FileLayer {
                    path: path.to_owned(),
                    ..FileLayer::default()
                },
                extra: None,
            },
            misplaced: None,
        };
        let level = TableVisitor {
            schema: self,
            prefix: String::new(),
            found: &mut found,
        };
        let text = text_of(path, inputs)?;
        parse_by(path, &text, |text| {
            level.deserialize(toml::Deserializer::parse(text)?)
        })?;
        match found.misplaced {
            Some(key) => Err(Fault::usage(
                format!("{}: {key}", path.display()),
                "belongs in the file of the other side",
            )),
            None => Ok(found.file),
        }
    }

    fn own(&self) -> impl Iterator<Item = &'static Spec> + use<> {
        self.table.flags().map(Flag::spec)
    }

    fn others(&self) -> impl Iterator<Item = &'static Spec> + use<'_> {
        let flags = self.other.iter().flat_map(|section| section.options);
        flags.map(|flag| flag.spec())
    }

    fn find(&self, key: &str) -> Option<KnownKey> {
        let has = |spec: &&Spec| spec.key == key || (spec.also == key && !key.is_empty());
        let within = |spec: &Spec| {
            let rest = spec.key.strip_prefix(key);
            rest.is_some_and(|rest| rest.starts_with('.'))
        };
        if key == self.extra {
            return Some(KnownKey::Extra);
        }
        if let Some(spec) = self.own().find(has) {
            return Some(KnownKey::Own(spec));
        }
        if let Some(spec) = self.others().find(has) {
            return Some(KnownKey::Misplaced(spec));
        }
        let mut all = self.own().chain(self.others());
        all.any(within).then(|| KnownKey::Table(format!("{key}.")))
    }

    /// Describes the expected keys of a table, in the form of serde's messages.
    fn expected(&self, prefix: &str) -> String {
        let mut names: Vec<&str> = Vec::new();
        let extra = prefix.is_empty().then_some(self.extra);
        let keys = self.own().chain(self.others()).map(|spec| spec.key);
        for key in keys.chain(extra) {
            let name = key
                .strip_prefix(prefix)
                .and_then(|key| key.split('.').next());
            names.extend(name.filter(|name| !name.is_empty() && !names.contains(name)));
        }
        let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        match quoted.len() {
            1 => quoted.concat(),
            2 => quoted.join(" or "),
            _ => format!("one of {}", quoted.join(", ")),
        }
    }
}

fn text_of(path: &Path, inputs: &Inputs<'_>) -> Result<String, Fault> {
    let text = inputs.files.read(path);
    text.map_err(|error| unreadable(path, &error))
}

pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Fault {
    let why = format!("cannot read the configuration file: {error}");
    Fault::failure(path.display().to_string(), why)
}

fn parse_by<T>(
    path: &Path,
    text: &str,
    parse: impl FnOnce(&str) -> Result<T, toml::de::Error>,
) -> Result<T, Fault> {
    parse(text).map_err(|error| {
        let fault = Fault::usage(path.display().to_string(), error.to_string().trim_end());
        match suggestion(error.message()) {
            Some(key) => fault.next(format!("did you mean {key}?")),
            None => fault,
        }
    })
}

/// Returns the known key closest to an unknown one. Parses serde's message: "unknown field `a`, expected one of `b`,
/// `c`".
fn suggestion(message: &str) -> Option<&str> {
    let quoted = message.strip_prefix("unknown field `")?;
    let mut words = quoted.split('`').step_by(2);
    let unknown = words.next()?;
    options::nearest(unknown, words)
}

struct ParseState<E> {
    file: File<E>,
    /// The first key that belongs to the other side's file.
    misplaced: Option<&'static str>,
}

enum KnownKey {
    Own(&'static Spec),
    Misplaced(&'static Spec),
    /// A table; holds the prefix of its keys.
    Table(String),
    Extra,
}

/// The file, or a table in it.
struct TableVisitor<'a, E> {
    schema: &'a Schema,
    prefix: String,
    found: &'a mut ParseState<E>,
}

impl<'de, E: Deserialize<'de>> DeserializeSeed<'de> for TableVisitor<'_, E> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, E: Deserialize<'de>> Visitor<'de> for TableVisitor<'_, E> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self {
            schema,
            prefix,
            found,
        } = self;
        while let Some(known) = map.next_key_seed(KeyVisitor(schema, &prefix))? {
            let spec = match known {
                KnownKey::Extra => {
                    found.file.extra = Some(if schema.extra_is_array {
                        map.next_value_seed(ArrayOfTables(schema.extra, PhantomData))?
                    } else {
                        map.next_value()?
                    });
                    continue;
                }
                KnownKey::Table(prefix) => {
                    map.next_value_seed(TableVisitor {
                        schema,
                        prefix,
                        found: &mut *found,
                    })?;
                    continue;
                }
                KnownKey::Misplaced(spec) => {
                    found.misplaced.get_or_insert(spec.key);
                    spec
                }
                KnownKey::Own(spec) => spec,
            };
            let tables = schema.tables.filter(|(key, _)| *key == spec.key);
            let items = match (spec.arity, tables) {
                (_, Some((_, keys))) => {
                    let TextsOrTables(items, tables) =
                        map.next_value_seed(TextsOrTablesVisitor(spec.key, keys))?;
                    found.file.layer.tables = tables;
                    items
                }
                (Arity::List, None) => map.next_value::<Texts>()?.0,
                (Arity::One | Arity::Switch, None) => vec![map.next_value::<Text>()?.0],
            };
            let value = (spec.key.to_owned(), items);
            if found.file.layer.values.insert(spec.name, value).is_some() {
                let key = spec.key.rsplit('.').next().unwrap_or(spec.key);
                return Err(de::Error::custom(format!("duplicate field `{key}`")));
            }
        }
        Ok(())
    }
}

/// A key in a table; holds the prefix of the table's keys.
struct KeyVisitor<'a>(&'a Schema, &'a str);

impl<'de> DeserializeSeed<'de> for KeyVisitor<'_> {
    type Value = KnownKey;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<KnownKey, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyVisitor<'_> {
    type Value = KnownKey;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<KnownKey, E> {
        let Self(schema, prefix) = self;
        schema.find(&format!("{prefix}{key}")).ok_or_else(|| {
            let expected = schema.expected(prefix);
            E::custom(format!("unknown field `{key}`, expected {expected}"))
        })
    }
}
