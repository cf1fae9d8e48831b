//! Parses arrays of tables: one that belongs to no option, and an option whose values may be tables, because each value
//! may need more than one text.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::text::{Fields, Texts};

/// Expects the array of tables of this key.
pub(super) struct ArrayOfTables<E>(pub(super) &'static str, pub(super) PhantomData<E>);

impl<'de, E: Deserialize<'de>> DeserializeSeed<'de> for ArrayOfTables<E> {
    type Value = E;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<E, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, E: Deserialize<'de>> Visitor<'de> for ArrayOfTables<E> {
    type Value = E;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array of tables, [[{}]]", self.0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<E, A::Error> {
        E::deserialize(SeqAccessDeserializer::new(seq))
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<E, A::Error> {
        Err(single_table(self.0))
    }
}

/// Returns the error for a table `[key]` where the file needs `[[key]]`. Both spellings look alike to a reader who does
/// not know TOML well.
fn single_table<E: de::Error>(key: &str) -> E {
    E::custom(format!(
        "{key} is an array of tables: write [[{key}]] in double brackets above each table, even above a single one"
    ))
}

/// Expects texts, or tables with these keys, as the value of the first field's key. The first of the tables' keys holds
/// the text.
pub(super) struct TextsOrTablesVisitor(pub(super) &'static str, pub(super) &'static [&'static str]);

pub(super) struct TextsOrTables(pub(super) Vec<String>, pub(super) Vec<Fields>);

impl<'de> DeserializeSeed<'de> for TextsOrTablesVisitor {
    type Value = TextsOrTables;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TextsOrTablesVisitor {
    type Value = TextsOrTables;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a list of texts, or tables")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(TextsOrTables(vec![text.to_owned()], Vec::new()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let (mut texts, mut tables) = (Vec::new(), Vec::new());
        while let Some(item) = seq.next_element_seed(TextOrTableVisitor(self.1))? {
            match item {
                TextOrTable::Text(text) => texts.push(text),
                TextOrTable::Table(table) => tables.push(table),
            }
        }
        if !texts.is_empty() && !tables.is_empty() {
            return Err(de::Error::custom("either texts or tables, not both"));
        }
        let of_tables = tables
            .iter()
            .filter_map(|table: &Fields| table.get(self.1[0]));
        texts.extend(of_tables.flatten().cloned());
        Ok(TextsOrTables(texts, tables))
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<Self::Value, A::Error> {
        Err(single_table(self.0))
    }
}

struct TextOrTableVisitor(&'static [&'static str]);

enum TextOrTable {
    Text(String),
    Table(Fields),
}

impl<'de> DeserializeSeed<'de> for TextOrTableVisitor {
    type Value = TextOrTable;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TextOrTableVisitor {
    type Value = TextOrTable;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a table")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(TextOrTable::Text(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut table = Fields::new();
        while let Some(key) = map.next_key::<String>()? {
            if !self.0.contains(&key.as_str()) {
                let known: Vec<String> = self.0.iter().map(|key| format!("`{key}`")).collect();
                let expected = known.join(", ");
                return Err(de::Error::custom(format!(
                    "unknown field `{key}`, expected one of {expected}"
                )));
            }
            let Texts(items) = map.next_value()?;
            if table.insert(key.clone(), items).is_some() {
                return Err(de::Error::custom(format!("duplicate field `{key}`")));
            }
        }
        let first = self.0[0];
        if table.get(first).is_none_or(|items| items.len() != 1) {
            return Err(de::Error::custom(format!(
                "each of these tables needs one `{first}`"
            )));
        }
        Ok(TextOrTable::Table(table))
    }
}
