//! Configuration files of the compatibility programs: one flat table of flag names in YAML, TOML or JSON.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::Value;

use super::flags::Program;
use crate::fault::Fault;
use crate::file::{FileLayer, unreadable};
use crate::inputs::Inputs;
use crate::options::{Flag, InvalidValue, nearest};

/// File extensions to search for, in the original's order.
const EXTENSIONS: [&str; 4] = ["json", "toml", "yaml", "yml"];

/// File extensions that only the original reads.
const UNSUPPORTED: [&str; 7] = ["properties", "props", "prop", "hcl", "tfvars", "env", "ini"];

const NOT_A_TABLE: &str = "not a table of KEY: VALUE lines";

/// Keys and values of a file. `None` is a key without a value, which has no effect.
type KeyValues = BTreeMap<String, Option<Entry>>;

/// A value whose option is not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    One(String),
    Many(Vec<String>),
}

/// Finds and parses the configuration file. `wanted` is the value of `--config`.
pub(super) fn find(
    program: &Program,
    wanted: Option<PathBuf>,
    inputs: &Inputs<'_>,
    warnings: &mut Vec<String>,
) -> Result<Option<FileLayer>, Fault> {
    let (path, text) = match wanted {
        Some(path) => {
            let text = inputs
                .files
                .read(&path)
                .map_err(|error| unreadable(&path, &error))?;
            (path, text)
        }
        None => match search(program, inputs, warnings)? {
            Some(found) => found,
            None => return Ok(None),
        },
    };
    let table = parse(&path, &text)?;
    Ok(Some(layer(program, path, table, warnings)))
}

fn search(
    program: &Program,
    inputs: &Inputs<'_>,
    warnings: &mut Vec<String>,
) -> Result<Option<(PathBuf, String)>, Fault> {
    let home = inputs
        .variable("HOME")
        .map(|home| Path::new(home).join(".quictun"));
    let dirs = [
        Some(PathBuf::from(".")),
        home,
        Some(PathBuf::from("/etc/quictun")),
    ];
    for dir in dirs.iter().flatten() {
        for extension in EXTENSIONS {
            let path = dir.join(format!("{}.{extension}", program.name));
            match inputs.files.read(&path) {
                Ok(text) => return Ok(Some((path, text))),
                Err(error)
                    if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                Err(error) => return Err(unreadable(&path, &error)),
            }
        }
        for extension in UNSUPPORTED {
            let path = dir.join(format!("{}.{extension}", program.name));
            if inputs.files.check_readable(&path).is_ok() {
                warnings.push(format!(
                    "{} is not read: write it as YAML, TOML or JSON",
                    path.display()
                ));
            }
        }
    }
    Ok(None)
}

fn parse(path: &Path, text: &str) -> Result<KeyValues, Fault> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let extension = path
        .extension()
        .and_then(|extension| extension.to_str())
        .unwrap_or_default();
    let table = match extension.to_ascii_lowercase().as_str() {
        "yaml" | "yml" => parse_yaml(text),
        "toml" => parse_toml(text),
        "json" => parse_json(text),
        _ => {
            let why = "the extension names no known format: call it .yaml, .toml or .json";
            return Err(Fault::usage(path.display().to_string(), why));
        }
    };
    table.map_err(|InvalidValue(why)| Fault::usage(path.display().to_string(), why.trim_end()))
}

fn parse_toml(text: &str) -> Result<KeyValues, InvalidValue> {
    let table: toml::Table = text.parse()?;
    let value = serde_json::to_value(table)?;
    from_json(value)
}

fn parse_json(text: &str) -> Result<KeyValues, InvalidValue> {
    from_json(serde_json::from_str(text)?)
}

fn from_json(value: Value) -> Result<KeyValues, InvalidValue> {
    let Value::Object(object) = value else {
        return Err(NOT_A_TABLE.into());
    };
    object
        .into_iter()
        .map(|(key, value)| {
            let nested = || nested(&key);
            let entry = match value {
                Value::Null => None,
                Value::Array(items) => {
                    let items: Option<Vec<String>> = items.into_iter().map(scalar).collect();
                    Some(Entry::Many(items.ok_or_else(nested)?))
                }
                value => Some(Entry::One(scalar(value).ok_or_else(nested)?)),
            };
            Ok((key, entry))
        })
        .collect()
}

fn nested(key: &str) -> InvalidValue {
    format!("{key}: a table cannot be a value here: write flag names, as in log-level").into()
}

fn scalar(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(on) => Some(on.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Parses a YAML document that is one flat mapping. Scalars keep their text from the file, so that `off`, `0755` and
/// `1e3` are not converted to another type on the way.
fn parse_yaml(text: &str) -> Result<KeyValues, InvalidValue> {
    let mut table = KeyValues::new();
    let mut key: Option<String> = None;
    let mut list: Option<Vec<String>> = None;
    let mut inside = false;
    for event in Parser::new_from_str(text) {
        match (event?.0, &mut list, key.take()) {
            (Event::MappingStart(..), None, None) if !inside => inside = true,
            (Event::Scalar(text, ScalarStyle::Plain, ..), None, None)
                if !inside && text.is_empty() => {}
            (Event::Scalar(text, ..), None, None) if inside => key = Some(text.into_owned()),
            (Event::Scalar(text, style, ..), None, Some(key)) => {
                let is_null = style == ScalarStyle::Plain
                    && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let entry = (!is_null).then(|| Entry::One(text.into_owned()));
                insert(&mut table, key, entry)?;
            }
            (Event::SequenceStart(..), None, Some(of)) => {
                list = Some(Vec::new());
                key = Some(of);
            }
            (Event::Scalar(text, ..), Some(items), of) => {
                items.push(text.into_owned());
                key = of;
            }
            (Event::SequenceEnd, Some(items), Some(key)) => {
                let items = std::mem::take(items);
                list = None;
                insert(&mut table, key, Some(Entry::Many(items)))?;
            }
            (
                Event::MappingStart(..) | Event::SequenceStart(..) | Event::Alias(_),
                _,
                Some(key),
            ) => {
                return Err(nested(&key));
            }
            (
                Event::MappingStart(..)
                | Event::SequenceStart(..)
                | Event::Alias(_)
                | Event::Scalar(..),
                _,
                None,
            ) => {
                return Err(NOT_A_TABLE.into());
            }
            _ => {}
        }
    }
    Ok(table)
}

fn insert(table: &mut KeyValues, key: String, entry: Option<Entry>) -> Result<(), InvalidValue> {
    if table.contains_key(&key) {
        Err(format!("{key}: given twice"))?;
    }
    table.insert(key, entry);
    Ok(())
}

fn layer(
    program: &Program,
    path: PathBuf,
    table: KeyValues,
    warnings: &mut Vec<String>,
) -> FileLayer {
    let specs = || program.table.flags().map(Flag::spec);
    let mut layer = FileLayer {
        path,
        ..FileLayer::default()
    };
    for (key, entry) in table {
        // Keys are case-insensitive in the original.
        let name = key.to_ascii_lowercase();
        let Some(spec) = specs().find(|spec| spec.name == name) else {
            let near = nearest(&name, specs().map(|spec| spec.name));
            let near = near.map_or(String::new(), |near| format!("; did you mean {near}?"));
            warnings.push(format!(
                "{}: unknown key {key} is ignored{near}",
                layer.path.display()
            ));
            continue;
        };
        let items = match entry {
            None => continue,
            Some(Entry::One(text)) => spec.items(&text),
            Some(Entry::Many(items)) => items,
        };
        layer.values.insert(spec.name, (key, items));
    }
    layer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(key: &str, value: &str) -> (String, Option<Entry>) {
        (key.to_owned(), Some(Entry::One(value.to_owned())))
    }

    fn many(key: &str, values: &[&str]) -> (String, Option<Entry>) {
        (
            key.to_owned(),
            Some(Entry::Many(
                values.iter().map(|value| (*value).to_owned()).collect(),
            )),
        )
    }

    #[test]
    fn the_three_formats_give_the_same_values() {
        let expected = KeyValues::from([
            one("listen-on", "tcp:127.0.0.1:6500"),
            one("httpd-listen-on", "off"),
            one("verify-remote-endpoint", "true"),
            one("connections", "4"),
            many("log-output-paths", &["a", "stdout"]),
        ]);
        let yaml = "# comment\nlisten-on: tcp:127.0.0.1:6500\nhttpd-listen-on: off\nverify-remote-endpoint: true\n\
            connections: 4\nlog-output-paths:\n  - a\n  - stdout\n";
        let toml = "listen-on = 'tcp:127.0.0.1:6500'\nhttpd-listen-on = 'off'\nverify-remote-endpoint = true\n\
            connections = 4\nlog-output-paths = ['a', 'stdout']\n";
        let json = r#"{"listen-on": "tcp:127.0.0.1:6500", "httpd-listen-on": "off", "verify-remote-endpoint": true,
            "connections": 4, "log-output-paths": ["a", "stdout"]}"#;
        assert_eq!(parse_yaml(yaml).expect("YAML"), expected);
        assert_eq!(parse_toml(toml).expect("TOML"), expected);
        assert_eq!(parse_json(json).expect("JSON"), expected);
    }

    #[test]
    fn yaml_scalars_keep_their_text() {
        let yaml =
            "a: 0755\nb: no\nc: 12:30\nd: '~'\ne:\nf: ~\ng: [x, 1]\nh: \"two\\nlines\"\ni: :7500\n";
        let expected = KeyValues::from([
            one("a", "0755"),
            one("b", "no"),
            one("c", "12:30"),
            one("d", "~"),
            ("e".to_owned(), None),
            ("f".to_owned(), None),
            many("g", &["x", "1"]),
            one("h", "two\nlines"),
            one("i", ":7500"),
        ]);
        assert_eq!(parse_yaml(yaml).expect("YAML"), expected);
        assert_eq!(parse_yaml("").expect("nothing"), KeyValues::new());
        assert_eq!(parse_yaml("---\n").expect("nothing"), KeyValues::new());
        assert_eq!(
            parse_yaml("# nothing\n").expect("nothing"),
            KeyValues::new()
        );
    }

    #[test]
    fn a_file_that_is_not_a_flat_table_is_refused() {
        for (yaml, why) in [
            ("- a\n- b\n", "not a table of KEY: VALUE lines"),
            ("text\n", "not a table of KEY: VALUE lines"),
            ("a: 1\n---\nb: 2\n", "not a table of KEY: VALUE lines"),
            ("[a]: 1\n", "not a table of KEY: VALUE lines"),
            (
                "log:\n  level: info\n",
                "log: a table cannot be a value here: write flag names, as in log-level",
            ),
            (
                "a: [[b]]\n",
                "a: a table cannot be a value here: write flag names, as in log-level",
            ),
            (
                "a: &x 1\nb: *x\n",
                "b: a table cannot be a value here: write flag names, as in log-level",
            ),
            ("a: 1\na: 2\n", "a: given twice"),
        ] {
            let InvalidValue(refused) = parse_yaml(yaml).expect_err(yaml);
            assert_eq!(refused, why, "{yaml}");
        }
        let refused = |table: Result<KeyValues, InvalidValue>| table.expect_err("no table").0;
        assert_eq!(refused(parse_json("[]")), NOT_A_TABLE);
        assert!(refused(parse_json(r#"{"a": {}}"#)).starts_with("a: a table cannot be"));
        assert!(refused(parse_json("{")).contains("line 1 column 1"));
        assert!(refused(parse_yaml("a: 'open\n")).contains("line 1"));
        assert!(refused(parse_toml("a = ")).contains("line 1, column"));
    }
}
