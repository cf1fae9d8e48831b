//! Precedence, in one place: flag > environment > file > default.
//!
//! Every layer is text by option name. [`Layers::setting`] picks the layer; the typed getters read its text
//! and, where that fails, name the layer as the user knows it: `--idle-timeout`, `QUICTUN_IDLE_TIMEOUT`,
//! or `server.toml: transport.idle_timeout`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::fault::Fault;
use crate::inputs::{Files, Inputs};
use crate::options::{Opt, Section};

/// What the user said, layer by layer.
#[derive(Debug)]
pub struct Layers<'a> {
    sections: &'a [&'static Section],
    flags: BTreeMap<&'static str, Vec<String>>,
    inputs: &'a Inputs<'a>,
    prefix: &'static str,
    file: Option<FileLayer>,
}

/// What a configuration file said.
#[derive(Clone, Debug, Default)]
pub struct FileLayer {
    /// The file.
    pub path: PathBuf,
    /// By option name: the key as it stands in the file, and its values.
    pub values: BTreeMap<&'static str, (String, Vec<String>)>,
}

/// What holds for one option, and who said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Values; empty where there is none.
    pub items: Vec<String>,
    /// The layer they come from.
    pub origin: Origin,
}

/// The layer a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command line.
    Flag,
    /// This environment variable.
    Environment(String),
    /// This key of this file.
    File(PathBuf, String),
    /// Nobody said anything.
    Default,
}

/// An integer type.
pub trait Number: FromStr + Display + PartialOrd {}

impl<T: FromStr + Display + PartialOrd> Number for T {}

impl<'a> Layers<'a> {
    /// Puts the layers of a program together; the file comes later, because its name is an option itself.
    pub fn new(
        sections: &'a [&'static Section],
        flags: BTreeMap<&'static str, Vec<String>>,
        inputs: &'a Inputs<'a>,
        prefix: &'static str,
    ) -> Self {
        Self {
            sections,
            flags,
            inputs,
            prefix,
            file: None,
        }
    }

    /// Adds the configuration file.
    #[must_use]
    pub fn with_file(self, file: Option<FileLayer>) -> Self {
        Self { file, ..self }
    }

    /// All options, in the order of the help.
    pub fn options(&self) -> impl Iterator<Item = &'static Opt> + '_ {
        self.sections.iter().flat_map(|section| section.options)
    }

    /// The variable of an option: prefix and name in capitals, `-` as `_`.
    pub fn variable(&self, name: &str) -> String {
        format!(
            "{}{}",
            self.prefix,
            name.replace('-', "_").to_ascii_uppercase()
        )
    }

    /// What holds for `name`, which must be an option of the program.
    pub fn setting(&self, name: &str) -> Setting {
        let option = self.option(name);
        if let Some(values) = self.flags.get(name) {
            let items = values.iter().flat_map(|text| option.items(text)).collect();
            return Setting {
                items,
                origin: Origin::Flag,
            };
        }
        let variable = self.variable(name);
        if let Some(text) = self.inputs.variable(&variable) {
            return Setting {
                items: option.items(text),
                origin: Origin::Environment(variable),
            };
        }
        if let Some((path, (key, values))) = self
            .file
            .as_ref()
            .and_then(|f| Some((&f.path, f.values.get(name)?)))
        {
            return Setting {
                items: values.clone(),
                origin: Origin::File(path.clone(), key.clone()),
            };
        }
        Setting {
            items: option.items(option.default),
            origin: Origin::Default,
        }
    }

    /// Whether anybody said anything about `name`.
    pub fn is_given(&self, name: &str) -> bool {
        self.setting(name).origin != Origin::Default
    }

    /// A fault in the value of `name`.
    pub fn fault(&self, name: &str, why: impl Display) -> Fault {
        let what = match self.setting(name).origin {
            Origin::Flag | Origin::Default => format!("--{name}"),
            Origin::Environment(variable) => variable,
            Origin::File(path, key) => format!("{}: {key}", path.display()),
        };
        Fault::usage(what, why)
    }

    /// The text of `name`, if there is any.
    pub fn text(&self, name: &str) -> Option<String> {
        self.setting(name)
            .items
            .pop()
            .filter(|text| !text.is_empty())
    }

    /// The value of `name`, read by `parse`, if there is any.
    pub fn optional<T, E: Display>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Fault> {
        self.text(name)
            .map(|text| parse(&text).map_err(|why| self.fault(name, why)))
            .transpose()
    }

    /// The value of `name`, read by `parse`; the empty text is read like any other.
    pub fn value<T, E: Display>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<T, Fault> {
        parse(&self.text(name).unwrap_or_default()).map_err(|why| self.fault(name, why))
    }

    /// All values of `name`, each read by `parse`.
    pub fn all<T, E: Display>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Vec<T>, Fault> {
        self.setting(name)
            .items
            .iter()
            .map(|text| parse(text).map_err(|why| self.fault(name, why)))
            .collect()
    }

    /// Whether `name` is on; every spelling that Go's `ParseBool` takes.
    pub fn switch(&self, name: &str) -> Result<bool, Fault> {
        self.value(name, |text| {
            parse_bool(text).ok_or_else(|| format!("{text:?} is neither true nor false"))
        })
    }

    /// One of a few words, whatever their case.
    pub fn choice<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> Result<T, Fault> {
        self.value(name, |text| {
            let found = words
                .iter()
                .find(|(word, _)| word.eq_ignore_ascii_case(text));
            found
                .map(|(_, value)| *value)
                .ok_or_else(|| format!("unknown value {text:?}: choose {}", one_of(words)))
        })
    }

    /// A whole number within limits.
    pub fn number<T: Number>(&self, name: &str, limits: RangeInclusive<T>) -> Result<T, Fault> {
        self.value(name, |text| parse_number(text, &limits))
    }

    /// A whole number within limits, or `None` for the word `auto`.
    pub fn number_or_auto<T: Number>(
        &self,
        name: &str,
        limits: RangeInclusive<T>,
    ) -> Result<Option<T>, Fault> {
        self.value(name, |text| match text {
            "auto" => Ok(None),
            _ => parse_number(text, &limits)
                .map(Some)
                .map_err(|why| format!("{why}, or auto")),
        })
    }

    /// A file that must be readable, if one is given.
    pub fn readable_file(&self, name: &str) -> Result<Option<PathBuf>, Fault> {
        let Some(path) = self.text(name).map(PathBuf::from) else {
            return Ok(None);
        };
        check_readable(self.inputs.files, &self.fault(name, "").what, &path)?;
        Ok(Some(path))
    }

    /// The configuration file, if there is one.
    pub fn file_path(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| file.path.as_path())
    }

    /// What the program was started with.
    pub fn inputs(&self) -> &'a Inputs<'a> {
        self.inputs
    }

    fn option(&self, name: &str) -> &'static Opt {
        self.options()
            .find(|option| option.name == name)
            .expect("invariant: settings ask for options in the table")
    }
}

/// Says which file, named where, cannot be read and why (exit code 1).
pub fn check_readable(files: &dyn Files, what: &str, path: &Path) -> Result<(), Fault> {
    let unreadable =
        |error| Fault::failure(what, format!("cannot read {}: {error}", path.display()));
    files.check_readable(path).map_err(unreadable)
}

/// The spellings that Go's `strconv.ParseBool` takes.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// "a, b or c", with a word for the empty one.
fn one_of<T>(words: &[(&str, T)]) -> String {
    let words: Vec<&str> = words
        .iter()
        .map(|(word, _)| if word.is_empty() { "nothing" } else { word })
        .collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => words.concat(),
    }
}

fn parse_number<T: Number>(text: &str, limits: &RangeInclusive<T>) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| limits.contains(number));
    number.ok_or_else(|| {
        format!(
            "{text:?} is not a whole number from {} to {}",
            limits.start(),
            limits.end()
        )
    })
}
