//! Precedence, in one place: flag > environment > file > default.
//!
//! Every layer is text. [`Layers::get`] picks the layer, has the option read its text and, where that fails, names
//! the layer as the user knows it: `--idle-timeout`, `QUICTUN_IDLE_TIMEOUT`, or `server.toml: transport.idle_timeout`.

use std::path::{Path, PathBuf};

use clap::ArgMatches;
use quictun_trust::settings::CertificateFiles;

use crate::fault::Fault;
use crate::file::Fields;
use crate::inputs::{Files, Inputs};
use crate::options::shape::Shape;
use crate::options::{Flag, Maybe, Opt, Spec, Table, Values, Why};

/// The values that the user gave, layer by layer.
#[derive(Debug)]
pub struct Layers<'a> {
    table: &'static Table,
    flags: Values,
    inputs: &'a Inputs<'a>,
    file: Option<FileLayer>,
}

/// The values of a configuration file.
#[derive(Clone, Debug, Default)]
pub struct FileLayer {
    /// The file.
    pub path: PathBuf,
    /// The key of each option as it stands in the file, and its values.
    pub values: Values,
    /// The tables that the schema allows one of the options.
    pub tables: Vec<Fields>,
}

/// The value of one option, and the layer that it comes from.
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
    /// No layer says anything.
    Default,
}

/// The settings that a running server does not change, as they were when they were read.
#[derive(Clone, Debug)]
pub struct Kept(Vec<(&'static dyn Flag, Vec<String>)>);

impl Kept {
    /// The keys whose values are others `now`.
    pub fn changed(&self, now: &Self) -> Vec<&'static str> {
        let pairs = self.0.iter().zip(&now.0);
        let changed = pairs.filter(|((option, old), (_, new))| !option.same(old, new));
        changed.map(|((option, _), _)| option.spec().key).collect()
    }
}

impl<'a> Layers<'a> {
    /// Puts the layers of a command together; the file comes later, because its name is an option itself.
    pub fn new(table: &'static Table, matches: &ArgMatches, inputs: &'a Inputs<'a>) -> Self {
        Self {
            table,
            flags: table.given(matches),
            inputs,
            file: None,
        }
    }

    /// Adds the configuration file.
    #[must_use]
    pub fn with_file(self, file: Option<FileLayer>) -> Self {
        Self { file, ..self }
    }

    /// All options, in the order of the help.
    pub fn options(&self) -> impl Iterator<Item = &'static dyn Flag> + use<> {
        self.table.flags()
    }

    /// Whether the command has this option; one that it does not have has no value but its default.
    pub fn has(&self, option: &dyn Flag) -> bool {
        self.options()
            .any(|of| std::ptr::eq(of.spec(), option.spec()))
    }

    /// The value of an option, as text.
    pub fn setting(&self, option: &dyn Flag) -> Setting {
        let spec = option.spec();
        let layer = if self.has(option) {
            self.layer(spec)
        } else {
            None
        };
        let (items, origin) = layer.unwrap_or_else(|| (spec.items(spec.default), Origin::Default));
        Setting { items, origin }
    }

    fn layer(&self, spec: &Spec) -> Option<(Vec<String>, Origin)> {
        if let Some((_, items)) = self.flags.get(spec.name) {
            return Some((items.clone(), Origin::Flag));
        }
        let variable =
            self.table.prefix.to_owned() + &spec.name.replace('-', "_").to_ascii_uppercase();
        if let Some(text) = self.inputs.variable(&variable) {
            return Some((spec.items(text), Origin::Environment(variable)));
        }
        let file = self.file.as_ref()?;
        let (key, items) = file.values.get(spec.name)?;
        Some((items.clone(), Origin::File(file.path.clone(), key.clone())))
    }

    /// The settings that a running server does not change: those with a key that no reload takes over.
    pub(crate) fn kept(&self) -> Kept {
        let kept = |option: &&dyn Flag| !option.spec().key.is_empty() && !option.spec().reloads;
        let kept = self.options().filter(kept);
        Kept(
            kept.map(|option| (option, self.setting(option).items))
                .collect(),
        )
    }

    /// The tables that are the value of an option, where the schema allows that, and the file that they stand in.
    pub(crate) fn tables(&self, option: &dyn Flag) -> Option<(&Path, &[Fields])> {
        let file = self.file.as_ref().filter(|file| !file.tables.is_empty())?;
        let from_file = matches!(self.setting(option).origin, Origin::File(..));
        from_file.then_some((&*file.path, &*file.tables))
    }

    /// Whether any layer says anything about an option.
    pub fn is_given(&self, option: &dyn Flag) -> bool {
        self.setting(option).origin != Origin::Default
    }

    /// A fault in the value of an option.
    pub fn fault(&self, option: &dyn Flag, why: impl ToString) -> Fault {
        Fault::usage(self.what(option), why)
    }

    /// The option as the layer calls it that its value comes from.
    pub fn what(&self, option: &dyn Flag) -> String {
        match self.setting(option).origin {
            Origin::Flag | Origin::Default => format!("--{}", option.spec().name),
            Origin::Environment(variable) => variable,
            Origin::File(path, key) => format!("{}: {key}", path.display()),
        }
    }

    /// The value of an option.
    pub fn get<T: Clone + PartialEq + Sync, S: Shape>(
        &self,
        option: &Opt<T, S>,
    ) -> Result<S::Of<T>, Fault> {
        let read = option.read(&self.setting(option).items);
        read.map_err(|Why(why)| self.fault(option, why))
    }

    /// The value of an option that a layer says something about.
    pub fn given<T: Clone + PartialEq + Sync, S: Shape>(
        &self,
        option: &Opt<T, S>,
    ) -> Result<Option<S::Of<T>>, Fault> {
        let given = self.is_given(option);
        given.then(|| self.get(option)).transpose()
    }

    /// A file that must be readable, if one is given.
    pub fn readable(&self, option: &Maybe<PathBuf>) -> Result<Option<PathBuf>, Fault> {
        let path = self.get(option)?;
        if let Some(path) = &path {
            check_readable(self.inputs.files, &self.what(option), path)?;
        }
        Ok(path)
    }

    /// A certificate and its private key, with the names that messages have for them: there are both or none.
    pub(crate) fn certificate(
        &self,
        (cert, cert_name): (&Maybe<PathBuf>, &str),
        (key, key_name): (&Maybe<PathBuf>, &str),
    ) -> Result<Option<CertificateFiles>, Fault> {
        match (self.readable(cert)?, self.readable(key)?) {
            (Some(cert), Some(key)) => Ok(Some(CertificateFiles { cert, key })),
            (None, None) => Ok(None),
            (Some(_), None) => {
                Err(self.fault(cert, format!("needs its private key: add {key_name}")))
            }
            (None, Some(_)) => {
                Err(self.fault(key, format!("needs its certificate: add {cert_name}")))
            }
        }
    }

    /// The configuration file, if there is one.
    pub fn file_path(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| file.path.as_path())
    }

    /// The inputs that the program was started with.
    pub fn inputs(&self) -> &'a Inputs<'a> {
        self.inputs
    }
}

/// Says which file, named where, cannot be read and why (exit code 1).
pub fn check_readable(files: &dyn Files, what: &str, path: &Path) -> Result<(), Fault> {
    let unreadable =
        |error| Fault::failure(what, format!("cannot read {}: {error}", path.display()));
    files.check_readable(path).map_err(unreadable)
}
