//! The precedence of settings: flag > environment > file > default.
//!
//! Every layer is text. [`Layers::get`] picks the layer and lets the option parse its text. An error names the setting
//! as the user knows it: `--idle-timeout`, `QUICTUN_IDLE_TIMEOUT`, or `server.toml: transport.idle_timeout`.

use std::path::{Path, PathBuf};

use clap::ArgMatches;
use quictun_trust::settings::CertificateFiles;

use crate::fault::Fault;
use crate::file::Fields;
use crate::inputs::{Files, Inputs};
use crate::options::shape::Shape;
use crate::options::{Flag, InvalidValue, Maybe, Opt, Spec, Table, Values};

pub use crate::file::FileLayer;

/// The user's values, layer by layer.
#[derive(Debug)]
pub struct Layers<'a> {
    table: &'static Table,
    flags: Values,
    inputs: &'a Inputs<'a>,
    file: Option<FileLayer>,
}

/// The value of one option, and the layer that it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The values; empty if there is none.
    pub items: Vec<String>,
    /// The layer that the values come from.
    pub origin: Origin,
}

/// The layer that a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A flag on the command line.
    Flag,
    /// The environment variable of this name.
    Environment(String),
    /// The configuration file of this path, and the key in it.
    File(PathBuf, String),
    /// The default, because no layer has a value.
    Default,
}

/// A snapshot of the settings that need a restart, for comparison at a reload.
#[derive(Clone, Debug)]
pub struct RestartSettings(Vec<(&'static dyn Flag, Vec<String>)>);

impl RestartSettings {
    /// Returns the keys whose values differ in `now`.
    pub fn changed(&self, now: &Self) -> Vec<&'static str> {
        let pairs = self.0.iter().zip(&now.0);
        let changed = pairs.filter(|((option, old), (_, new))| !option.same(old, new));
        changed.map(|((option, _), _)| option.spec().key).collect()
    }
}

impl<'a> Layers<'a> {
    /// Collects the layers of a command. The file is added later, because an option names it.
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

    /// Returns all options, in the order of the help.
    pub fn options(&self) -> impl Iterator<Item = &'static dyn Flag> + use<> {
        self.table.flags()
    }

    /// Returns whether the command has this option. Other options have only their default value.
    pub fn has(&self, option: &dyn Flag) -> bool {
        self.options()
            .any(|of| std::ptr::eq(of.spec(), option.spec()))
    }

    /// Returns the value of an option, as text.
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
        let variable = self.table.variable(spec);
        if let Some(text) = self.inputs.variable(&variable) {
            return Some((spec.items(text), Origin::Environment(variable)));
        }
        let file = self.file.as_ref()?;
        let (key, items) = file.values.get(spec.name)?;
        Some((items.clone(), Origin::File(file.path.clone(), key.clone())))
    }

    /// Returns a snapshot of the settings that need a restart: those with a key that a reload does not apply.
    pub(crate) fn restart_settings(&self) -> RestartSettings {
        let kept = |option: &&dyn Flag| !option.spec().key.is_empty() && !option.spec().reloads;
        let kept = self.options().filter(kept);
        RestartSettings(
            kept.map(|option| (option, self.setting(option).items))
                .collect(),
        )
    }

    /// Returns the tables of an option, if the schema allows them, and the path of their file.
    pub(crate) fn tables(&self, option: &dyn Flag) -> Option<(&Path, &[Fields])> {
        let file = self.file.as_ref().filter(|file| !file.tables.is_empty())?;
        let from_file = matches!(self.setting(option).origin, Origin::File(..));
        from_file.then_some((&*file.path, &*file.tables))
    }

    /// Returns whether any layer has a value for the option.
    pub fn is_given(&self, option: &dyn Flag) -> bool {
        self.setting(option).origin != Origin::Default
    }

    /// Makes a fault for the value of an option.
    pub fn fault(&self, option: &dyn Flag, why: impl ToString) -> Fault {
        Fault::usage(self.what(option), why)
    }

    /// Returns the option's name in the layer that its value comes from.
    pub fn what(&self, option: &dyn Flag) -> String {
        match self.setting(option).origin {
            Origin::Flag | Origin::Default => format!("--{}", option.spec().name),
            Origin::Environment(variable) => variable,
            Origin::File(path, key) => format!("{}: {key}", path.display()),
        }
    }

    /// Returns the value of an option.
    pub fn get<T: Clone + PartialEq + Sync, S: Shape>(
        &self,
        option: &Opt<T, S>,
    ) -> Result<S::Output<T>, Fault> {
        let read = option.read(&self.setting(option).items);
        read.map_err(|InvalidValue(why)| self.fault(option, why))
    }

    /// Returns the value of an option, or `None` if no layer has one.
    pub fn given<T: Clone + PartialEq + Sync, S: Shape>(
        &self,
        option: &Opt<T, S>,
    ) -> Result<Option<S::Output<T>>, Fault> {
        let given = self.is_given(option);
        given.then(|| self.get(option)).transpose()
    }

    /// Returns the path of a file, if one is given, after checking that the file is readable.
    pub fn readable(&self, option: &Maybe<PathBuf>) -> Result<Option<PathBuf>, Fault> {
        let path = self.get(option)?;
        if let Some(path) = &path {
            check_readable(self.inputs.files, &self.what(option), path)?;
        }
        Ok(path)
    }

    /// Returns a certificate and its private key, of which both or neither must be given. The names are for messages.
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

    /// Returns the path of the configuration file, if there is one.
    pub fn file_path(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| file.path.as_path())
    }

    /// Returns the program's inputs.
    pub fn inputs(&self) -> &'a Inputs<'a> {
        self.inputs
    }
}

/// Checks that a file is readable. The fault names the setting `what`, the file and the reason (exit code 1).
pub fn check_readable(files: &dyn Files, what: &str, path: &Path) -> Result<(), Fault> {
    let unreadable =
        |error| Fault::failure(what, format!("cannot read {}: {error}", path.display()));
    files.check_readable(path).map_err(unreadable)
}
