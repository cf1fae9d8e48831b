//! The definitions of flags. Command line, help, completion, man page, environment variable, file key and type derive
//! from one definition, so that they cannot disagree.
//!
//! A flag is a static [`Opt`], which is also the key for its value ([`Layers::get`]): code never looks a flag up by
//! name. [`options!`](crate::options!) writes such statics as the rows of a table. A [`Section`] groups them under a
//! heading of the help. A [`Table`] has all flags of one command.
//!
//! [`Layers::get`]: crate::layers::Layers::get

use std::fmt::{Debug, Display};
use std::marker::PhantomData;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};

/// All flags of one command.
#[derive(Debug)]
pub struct Table {
    /// Prefix of the command's environment variables.
    pub prefix: &'static str,
    /// The flags by heading, in the order of the help.
    pub sections: &'static [&'static Section],
}

/// Flags under one heading of the help.
#[derive(Debug)]
pub struct Section {
    /// The heading's text in the help.
    pub heading: &'static str,
    /// The flags in the order of the help.
    pub options: &'static [&'static dyn Flag],
}

/// One flag of any type.
pub trait Flag: Debug + Sync {
    /// Returns the flag's properties that do not depend on its type.
    fn spec(&self) -> &Spec;

    /// Returns the values to complete and to list. If empty, the flag takes any text.
    fn words(&self) -> Vec<&'static str>;

    /// Returns whether the texts of two layers mean the same values. Different texts are not the same if one of them is
    /// invalid.
    fn same(&self, these: &[String], those: &[String]) -> bool;
}

/// The properties of a flag that do not depend on its type.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// The long flag without dashes. Also the key in the compatibility programs' files.
    pub name: &'static str,
    /// The one-letter flag, if there is one.
    pub short: Option<char>,
    /// The placeholder for the value in the help.
    pub value: &'static str,
    /// Number of values that the flag takes.
    pub arity: Arity,
    /// The value if no layer has one, as text. Empty if there is no default.
    pub default: &'static str,
    /// The help text: a sentence without full stop.
    pub help: &'static str,
    /// The dotted key in the native programs' files. Empty if files cannot set the option.
    pub key: &'static str,
    /// A second name of that key. Empty if there is none.
    pub also: &'static str,
    /// The flag is accepted, but not shown in the help.
    pub hidden: bool,
    /// A running server applies a new value at a reload.
    pub reloads: bool,
}

/// Number of values that an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// One value. If the flag is repeated, the last one counts.
    One,
    /// A switch: `--flag`, `--flag=true` or `--flag=false`. The value is never a separate word (Go's rule).
    Switch,
    /// A list: from repeated flags, and from commas in flags, variables and texts in files.
    List,
}

/// A flag whose values have type `T`. `S` says how many values it takes.
pub struct Opt<T: 'static, S = shape::One> {
    spec: Spec,
    parse: Parse<T>,
    words: &'static [&'static str],
    shape: PhantomData<fn() -> S>,
}

/// A flag that always has a value.
pub type One<T> = Opt<T, shape::One>;
/// A flag that may have no value.
pub type Maybe<T> = Opt<T, shape::Maybe>;
/// A flag with any number of values.
pub type Many<T> = Opt<T, shape::Many>;
/// A flag that is on or off, and off by default.
pub type Switch = Opt<bool, shape::Switch>;

/// The conversion from text to value.
enum Parse<T: 'static> {
    By(fn(&str) -> Result<T, InvalidValue>),
    /// A fixed set of words, compared without regard to case.
    Choice(&'static [(&'static str, T)]),
}

/// The reason why a text is invalid, as a message. `?` converts any displayable error into it.
#[derive(Debug)]
pub struct InvalidValue(pub String);

impl<E: Display> From<E> for InvalidValue {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// Types that say how many values a flag takes.
pub mod shape {
    use super::{Arity, InvalidValue};

    /// Maps the type of a single value to the type of a flag's value.
    pub trait Shape: 'static {
        /// The [`Arity`] of a flag of this shape.
        const ARITY: Arity;
        /// The value if no layer has one, unless the flag defines another.
        const DEFAULT: &'static str = "";
        /// The type of the flag's value.
        type Output<T>;

        /// Converts the texts, each with `parse`.
        fn read<T>(
            texts: &[String],
            parse: impl Fn(&str) -> Result<T, InvalidValue>,
        ) -> Result<Self::Output<T>, InvalidValue>;
    }

    /// One value. A missing text is read as the empty text.
    #[derive(Debug)]
    pub struct One;
    /// One value, or none if the text is missing or empty.
    #[derive(Debug)]
    pub struct Maybe;
    /// Any number of values.
    #[derive(Debug)]
    pub struct Many;
    /// A switch, on or off.
    #[derive(Debug)]
    pub struct Switch;

    fn last(texts: &[String]) -> &str {
        texts.last().map_or("", String::as_str)
    }

    impl Shape for One {
        const ARITY: Arity = Arity::One;
        type Output<T> = T;

        fn read<T>(
            texts: &[String],
            parse: impl Fn(&str) -> Result<T, InvalidValue>,
        ) -> Result<T, InvalidValue> {
            parse(last(texts))
        }
    }

    impl Shape for Switch {
        const ARITY: Arity = Arity::Switch;
        const DEFAULT: &'static str = "false";
        type Output<T> = T;

        fn read<T>(
            texts: &[String],
            parse: impl Fn(&str) -> Result<T, InvalidValue>,
        ) -> Result<T, InvalidValue> {
            parse(last(texts))
        }
    }

    impl Shape for Maybe {
        const ARITY: Arity = Arity::One;
        type Output<T> = Option<T>;

        fn read<T>(
            texts: &[String],
            parse: impl Fn(&str) -> Result<T, InvalidValue>,
        ) -> Result<Option<T>, InvalidValue> {
            match last(texts) {
                "" => Ok(None),
                text => parse(text).map(Some),
            }
        }
    }

    impl Shape for Many {
        const ARITY: Arity = Arity::List;
        type Output<T> = Vec<T>;

        fn read<T>(
            texts: &[String],
            parse: impl Fn(&str) -> Result<T, InvalidValue>,
        ) -> Result<Vec<T>, InvalidValue> {
            texts.iter().map(|text| parse(text)).collect()
        }
    }
}

/// Writes flags as the rows of a table:
///
/// ```
/// use quictun_args::options;
/// use quictun_args::options::{Maybe, One};
/// use quictun_args::values::{number, text};
///
/// options! {
///     pub SEED: One<u64> = "seed" "N", by |text| number(text, 0..=u64::MAX), default "1";
///         "The same seed loses the same packets"
///     pub GSO: One<bool> = "gso" "on|off", choice &[("on", true), ("off", false)], default "on", key "transport.gso";
///         "UDP segmentation offload"
///     pub FAR: Maybe<String> = "far" "COMMAND", by text, short 'f';
///         "Run this at the far side"
/// }
/// ```
///
/// Each row begins with name, type, long flag and the placeholder for the value in the help. The conversion from text
/// follows (`by` a function, or `choice` of words), then any of [`Opt`]'s other properties with their arguments, then
/// the help.
#[macro_export]
macro_rules! options {
    ($($vis:vis $NAME:ident: $Type:ty = $flag:literal $value:literal, $how:ident $parse:expr $(, $more:ident $what:expr)*; $help:tt)*) => {
        $(
            #[doc = concat!("`--", $flag, "`")]
            $vis static $NAME: $Type = $crate::options::Opt::$how($flag, $value, $help, $parse)$(.$more($what))*;
        )*
    };
}

impl<T: 'static, S: shape::Shape> Opt<T, S> {
    const fn new(
        name: &'static str,
        value: &'static str,
        help: &'static str,
        parse: Parse<T>,
    ) -> Self {
        let spec = Spec {
            name,
            short: None,
            value,
            arity: S::ARITY,
            default: S::DEFAULT,
            help,
            key: "",
            also: "",
            hidden: false,
            reloads: false,
        };
        Self {
            spec,
            parse,
            words: &[],
            shape: PhantomData,
        }
    }

    /// Defines an option whose texts are converted by `parse`.
    pub const fn by(
        name: &'static str,
        value: &'static str,
        help: &'static str,
        parse: fn(&str) -> Result<T, InvalidValue>,
    ) -> Self {
        Self::new(name, value, help, Parse::By(parse))
    }

    /// Defines an option that takes one of a few words, compared without regard to case.
    pub const fn choice(
        name: &'static str,
        value: &'static str,
        help: &'static str,
        words: &'static [(&'static str, T)],
    ) -> Self {
        Self::new(name, value, help, Parse::Choice(words))
    }

    /// Sets the value for the case that no layer has one.
    #[must_use]
    pub const fn default(mut self, default: &'static str) -> Self {
        self.spec.default = default;
        self
    }

    /// Adds a one-letter flag.
    #[must_use]
    pub const fn short(mut self, short: char) -> Self {
        self.spec.short = Some(short);
        self
    }

    /// Hides the flag from the help.
    #[must_use]
    pub const fn hidden(mut self, hidden: bool) -> Self {
        self.spec.hidden = hidden;
        self
    }

    /// Makes a running server apply a new value at a reload.
    #[must_use]
    pub const fn reloads(mut self, reloads: bool) -> Self {
        self.spec.reloads = reloads;
        self
    }

    /// Adds words to complete. Other values stay valid.
    #[must_use]
    pub const fn words(mut self, words: &'static [&'static str]) -> Self {
        self.words = words;
        self
    }

    /// Sets the key in the native programs' files.
    #[must_use]
    pub const fn key(mut self, key: &'static str) -> Self {
        self.spec.key = key;
        self
    }

    /// Adds a second name of the key.
    #[must_use]
    pub const fn also(mut self, also: &'static str) -> Self {
        self.spec.also = also;
        self
    }

    /// Converts the texts of a layer.
    pub fn read(&self, texts: &[String]) -> Result<S::Output<T>, InvalidValue>
    where
        T: Clone,
    {
        S::read(texts, |text| self.parse(text))
    }
}

impl<T: Clone, S> Opt<T, S> {
    fn parse(&self, text: &str) -> Result<T, InvalidValue> {
        match &self.parse {
            Parse::By(parse) => parse(text),
            Parse::Choice(words) => words
                .iter()
                .find(|(word, _)| word.eq_ignore_ascii_case(text))
                .map(|(_, value)| value.clone())
                .ok_or_else(|| format!("unknown value {text:?}: choose {}", one_of(words)).into()),
        }
    }
}

impl<T, S> Debug for Opt<T, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Debug::fmt(&self.spec, f)
    }
}

impl<T: Clone + PartialEq + Sync, S> Flag for Opt<T, S> {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn words(&self) -> Vec<&'static str> {
        match &self.parse {
            Parse::By(_) => self.words.to_vec(),
            // An empty word cannot be completed.
            Parse::Choice(words) => words
                .iter()
                .map(|(word, _)| *word)
                .filter(|word| !word.is_empty())
                .collect(),
        }
    }

    fn same(&self, these: &[String], those: &[String]) -> bool {
        let equal = |(this, that): (&String, &String)| {
            let values = (self.parse(this), self.parse(that));
            this == that || matches!(values, (Ok(this), Ok(that)) if this == that)
        };
        these.len() == those.len() && these.iter().zip(those).all(equal)
    }
}

/// Formats "a, b or c". The empty word is shown as "nothing".
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

impl Spec {
    /// Splits one layer's text into values.
    pub fn items(&self, text: &str) -> Vec<String> {
        match self.arity {
            Arity::List => text
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty())
                .map(str::to_owned)
                .collect(),
            Arity::One | Arity::Switch => vec![text.to_owned()],
        }
    }

    fn arg(&self, heading: &'static str, words: Vec<&'static str>) -> Arg {
        let arg = Arg::new(self.name)
            .long(self.name)
            .short(self.short)
            .value_name(self.value)
            .value_hint(match self.value {
                "FILE" | "FILE|system" | "FILE|-" | "PATHS" => ValueHint::FilePath,
                "DIR" => ValueHint::DirPath,
                _ => ValueHint::Other,
            })
            .value_parser(Suggest(words))
            .hide_possible_values(true)
            .hide(self.hidden)
            .help_heading(heading)
            .help(self.help_text());
        match self.arity {
            Arity::One => arg.action(ArgAction::Set).overrides_with(self.name),
            Arity::List => arg.action(ArgAction::Append),
            Arity::Switch => arg
                .action(ArgAction::Set)
                .overrides_with(self.name)
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true"),
        }
    }

    fn help_text(&self) -> String {
        match (self.arity, self.default) {
            (Arity::Switch, _) | (_, "") => self.help.to_owned(),
            (_, default) => format!("{} [default: {default}]", self.help),
        }
    }
}

impl Table {
    /// Returns all flags, in the order of the help.
    pub fn flags(&self) -> impl Iterator<Item = &'static dyn Flag> + use<> {
        let sections = self.sections.iter();
        sections.flat_map(|section| section.options.iter().copied())
    }

    /// Returns the name of an option's environment variable.
    pub fn variable(&self, spec: &Spec) -> String {
        self.prefix.to_owned() + &spec.name.replace('-', "_").to_ascii_uppercase()
    }

    /// Adds the flags to a command.
    pub fn add_to(&self, command: Command) -> Command {
        command.args(self.sections.iter().flat_map(|section| {
            let flags = section.options.iter();
            flags.map(|flag| flag.spec().arg(section.heading, flag.words()))
        }))
    }

    /// Returns the values from the command line.
    pub(crate) fn given(&self, matches: &ArgMatches) -> Values {
        let specs = self.flags().map(Flag::spec);
        specs
            .filter(|spec| matches.value_source(spec.name) == Some(ValueSource::CommandLine))
            .map(|spec| {
                let values = matches.get_many::<String>(spec.name);
                let items = values.into_iter().flatten();
                let items = items.flat_map(|text| spec.items(text)).collect();
                (spec.name, (format!("--{}", spec.name), items))
            })
            .collect()
    }
}

/// The values of one layer: for each flag the option's name in this layer, and the texts.
pub type Values = std::collections::BTreeMap<&'static str, (String, Vec<String>)>;

/// Returns the candidate closest to a misspelt `word`, if one is close enough.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    nearest_within(word.chars().count() / 3 + 1, word, candidates)
}

/// Returns the candidate closest to `word` that differs by at most `limit` letters.
pub(crate) fn nearest_within<'a>(
    limit: usize,
    word: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    candidates
        .map(|candidate| (edits(word, candidate), candidate))
        .filter(|(edits, _)| *edits <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Returns the Levenshtein distance: the number of insertions, deletions and substitutions from `a` to `b`.
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

/// Accepts any text, so that all layers share one check and one message. Lists words for completion.
#[derive(Clone, Debug)]
pub struct Suggest(pub Vec<&'static str>);
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
    fn the_nearest_name_is_suggested_and_a_distant_one_is_not() {
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
