//! One definition per flag: command line, help, completion, man page, environment variable and file key
//! are all made from it, so that they cannot disagree.
//!
//! A program is a list of [`Section`]s. [`add_to`] makes them a clap command; [`given`] takes what the user
//! wrote back out as text. Text becomes values in one place only, [`crate::layers`], whichever layer it came from.

use std::collections::BTreeMap;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};

/// Flags under one heading of the help.
#[derive(Debug)]
pub struct Section {
    /// Heading.
    pub heading: &'static str,
    /// Flags in the order in which the help shows them.
    pub options: &'static [Opt],
}

/// One flag, and with it one environment variable and one key in configuration files.
#[derive(Debug)]
pub struct Opt {
    /// Long flag without dashes; key in the compatibility programs' files.
    pub name: &'static str,
    /// One-letter flag.
    pub short: Option<char>,
    /// What the help shows in the value's place.
    pub value: &'static str,
    /// How many values it takes.
    pub kind: Kind,
    /// Value where no layer gives one, as text; empty: none.
    pub default: &'static str,
    /// Help: a sentence without full stop.
    pub help: &'static str,
    /// Values to complete and to list; empty: any text.
    pub choices: &'static [&'static str],
    /// Dotted key in the native programs' files; empty: not a file's matter.
    pub key: &'static str,
    /// Taken, but not shown: it does nothing.
    pub hidden: bool,
}

/// How many values an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One; of several flags the last wins.
    One,
    /// `--flag`, `--flag=true`, `--flag=false`, never a separate word (Go's rule).
    Switch,
    /// Several: repeated flags, and commas in flags, variables and texts in files.
    List,
}

impl Opt {
    /// An option with one value.
    pub const fn one(
        name: &'static str,
        value: &'static str,
        default: &'static str,
        help: &'static str,
    ) -> Self {
        Self {
            name,
            short: None,
            value,
            kind: Kind::One,
            default,
            help,
            choices: &[],
            key: "",
            hidden: false,
        }
    }

    /// An option with any number of values.
    pub const fn list(
        name: &'static str,
        value: &'static str,
        default: &'static str,
        help: &'static str,
    ) -> Self {
        Self {
            kind: Kind::List,
            ..Self::one(name, value, default, help)
        }
    }

    /// An option that is on or off, and off by default.
    pub const fn switch(name: &'static str, help: &'static str) -> Self {
        Self {
            kind: Kind::Switch,
            ..Self::one(name, "BOOL", "false", help)
        }
    }

    /// Gives it a one-letter form.
    #[must_use]
    pub const fn short(self, short: char) -> Self {
        Self {
            short: Some(short),
            ..self
        }
    }

    /// Takes it out of the help.
    #[must_use]
    pub const fn hidden(self) -> Self {
        Self {
            hidden: true,
            ..self
        }
    }

    /// Lists its values.
    #[must_use]
    pub const fn choices(self, choices: &'static [&'static str]) -> Self {
        Self { choices, ..self }
    }

    /// Gives it a key in the native programs' files.
    #[must_use]
    pub const fn key(self, key: &'static str) -> Self {
        Self { key, ..self }
    }

    /// A text, as one layer has it, in values.
    pub fn items(&self, text: &str) -> Vec<String> {
        match self.kind {
            Kind::List => text
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty())
                .map(str::to_owned)
                .collect(),
            Kind::One | Kind::Switch => vec![text.to_owned()],
        }
    }

    fn arg(&self, heading: &'static str) -> Arg {
        let arg = Arg::new(self.name)
            .long(self.name)
            .short(self.short)
            .value_name(self.value)
            .value_hint(match self.value {
                "FILE" => ValueHint::FilePath,
                "DIR" => ValueHint::DirPath,
                _ => ValueHint::Other,
            })
            .value_parser(Suggest(self.choices))
            .hide_possible_values(true)
            .hide(self.hidden)
            .help_heading(heading)
            .help(self.help_text());
        match self.kind {
            Kind::One => arg.action(ArgAction::Set).overrides_with(self.name),
            Kind::List => arg.action(ArgAction::Append),
            Kind::Switch => arg
                .action(ArgAction::Set)
                .overrides_with(self.name)
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true"),
        }
    }

    fn help_text(&self) -> String {
        match (self.kind, self.default) {
            (Kind::Switch, _) | (_, "") => self.help.to_owned(),
            (_, default) => format!("{} [default: {default}]", self.help),
        }
    }
}

/// Adds the flags of `sections` to a command.
pub fn add_to(command: Command, sections: &[&'static Section]) -> Command {
    let options = sections.iter().flat_map(|section| {
        section
            .options
            .iter()
            .map(|option| option.arg(section.heading))
    });
    command.args(options)
}

/// What the user wrote on the command line, by flag name.
pub fn given(
    matches: &ArgMatches,
    sections: &[&'static Section],
) -> BTreeMap<&'static str, Vec<String>> {
    sections
        .iter()
        .flat_map(|section| section.options)
        .filter(|option| matches.value_source(option.name) == Some(ValueSource::CommandLine))
        .map(|option| {
            let values = matches
                .get_many::<String>(option.name)
                .into_iter()
                .flatten()
                .cloned()
                .collect();
            (option.name, values)
        })
        .collect()
}

/// The candidate closest to a misspelt `word`, where one is close at all.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = word.chars().count() / 3 + 1;
    candidates
        .map(|candidate| (edits(word, candidate), candidate))
        .filter(|(edits, _)| *edits <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance: insertions, deletions and substitutions from `a` to `b`.
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in b.chars().enumerate() {
            let substituted = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[row.len() - 1]
}

/// Takes any text, so that all layers share one check and one message; lists choices for completion.
#[derive(Clone)]
struct Suggest(&'static [&'static str]);

impl TypedValueParser for Suggest {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        if value.to_str().is_none() {
            return Err(clap::Error::raw(
                ErrorKind::InvalidUtf8,
                "an argument is not valid UTF-8",
            ));
        }
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        if self.0.is_empty() {
            return None;
        }
        Some(Box::new(self.0.iter().copied().map(PossibleValue::new)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_offered_and_a_far_one_is_not() {
        let names = ["listen-on", "log-level", "log-format", "token-source"];
        for (word, near) in [
            ("listen_on", Some("listen-on")),
            ("listen", Some("listen-on")),
            ("loglevel", Some("log-level")),
            ("log-fromat", Some("log-format")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, names.into_iter()), near, "{word:?}");
        }
        assert_eq!(edits("kitten", "sitting"), 3);
    }
}
