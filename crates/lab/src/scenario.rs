//! A scenario: links, what crosses them, in which ways, and what was published about it.
//!
//! [`Scenario::parse`] reads TOML, checks every combination of case and arm, and refuses what makes no sense with its
//! line. `docs/scenarios.md` shows those that come with the program.

mod difference;
mod headers;
mod link;
mod load;
mod raw;
mod refused;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub(crate) use headers::Room;
pub use link::{Cable, Emulated, Link};
pub(crate) use load::BACKGROUND_TAIL;
pub use load::{Amount, Load};
pub(crate) use raw::{Allowance, Published, Shape};
pub use raw::{ArmKind, Background, LossUnit, Mode, Offload};
pub use refused::Refused;
pub(crate) use refused::refused_reps;

use crate::metric::Metric;
use raw::{
    RawAssert, RawCase, RawCompare, RawHurry, RawLink, RawLoad, RawProfile, RawPublished,
    RawScenario, RawTable, Word,
};
use refused::MAX_CELLS;

/// Repetitions where a scenario does not say: the fewest of which the exact interval is surer than 95 % with room to
/// spare (98.4 %).
const REPS: u32 = 7;

/// The same in a hurry: the fewest that permit a verdict at all.
const QUICK_REPS: u32 = 6;

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Short name, for files and the command line.
    pub name: String,
    /// What it is about, in one line.
    pub title: String,
    /// The document whose table it reproduces.
    pub(crate) source: Option<String>,
    /// What it measures and what to keep in mind, in Markdown.
    pub(crate) about: String,
    /// The text it was read from.
    pub text: String,
    /// Conditions.
    pub cases: Vec<Case>,
    /// What is measured under each of them.
    pub arms: Vec<Arm>,
    /// Repetitions, and those of a quick run.
    pub reps: [u32; 2],
    pub(crate) tables: Vec<Shown>,
    /// Arms a and b, and the metric.
    pub(crate) compares: Vec<(String, String, Metric)>,
    pub(crate) asserts: Vec<Assertion>,
    /// Whose processor time to look into.
    pub profile: Option<Profiled>,
    /// By case and arm.
    pub(crate) published: BTreeMap<(String, String), BTreeMap<Metric, Published>>,
    /// By case, arm, and whether in a hurry.
    setups: Vec<Setup>,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Name: `loss=1%`.
    pub id: String,
    /// As tables show it: `1%`.
    pub label: String,
}

/// One thing that is measured.
#[derive(Clone, Debug)]
pub struct Arm {
    /// Name.
    pub id: String,
    /// Where the scenario's text has it, from 1.
    pub line: usize,
    /// What it is.
    pub kind: ArmKind,
    /// Whether it goes through the tunnel.
    pub through_tunnel: bool,
    /// Over IPv6 instead of IPv4.
    pub ipv6: bool,
    /// TCP's or QUIC's congestion control.
    pub congestion: Option<String>,
    /// Further words for the client's command line.
    pub client_flags: Vec<String>,
    /// The same for the server's.
    pub server_flags: Vec<String>,
    /// The user's own commands, for `sh -c`: client's and server's.
    pub commands: Option<[String; 2]>,
    /// Not measured, and no fault, where its program is missing.
    pub optional: bool,
}

/// What one cell needs.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The link.
    pub link: Link,
    /// What crosses it.
    pub load: Load,
}

#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) title: String,
    pub(crate) shape: Shape,
    /// Heading of the first column.
    pub(crate) row: String,
    pub(crate) arms: Vec<String>,
    pub(crate) cases: Vec<String>,
    pub(crate) columns: Vec<Metric>,
}

/// Whose processor time to look into, in a run of its own after all others.
#[derive(Clone, Debug)]
pub struct Profiled {
    /// Under these cases.
    pub cases: Vec<String>,
    /// These arms.
    pub arms: Vec<String>,
    pub(crate) functions: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Assertion {
    pub(crate) arm: String,
    /// The arm it is measured against; `None`: absolute.
    pub(crate) over: Option<String>,
    pub(crate) metric: Metric,
    pub(crate) cases: Vec<String>,
    pub(crate) at_least: Option<f64>,
    pub(crate) at_most: Option<f64>,
    /// By which `at_least` is less than it says.
    pub(crate) allow: Option<Allowance>,
}

impl Scenario {
    /// Reads and checks a scenario.
    ///
    /// # Errors
    ///
    /// [`Refused`]: the line, what is wrong there, and what to write.
    pub fn parse(text: &str) -> Result<Self, Refused> {
        let raw: RawScenario =
            toml::from_str(text).map_err(|error| Refused::syntax(text, &error))?;
        let refuse = |why: &str| Refused::new(text, raw.name.span().start, why);
        let variants = variants(&raw);
        if variants.is_empty() || raw.arm.is_empty() {
            return Err(refuse("there is nothing to measure: add an [[arm]]"));
        }
        let cells = variants.len() * raw.arm.len();
        if cells > MAX_CELLS {
            return Err(refuse(&format!(
                "{cells} cells in each block are more than {MAX_CELLS}: measure fewer cases, or make two scenarios of it"
            )));
        }
        let reps = [
            raw.design.reps.unwrap_or(REPS),
            raw.quick.reps.unwrap_or(QUICK_REPS),
        ];
        let scenario = Self {
            setups: setups(&raw, &variants, text)?,
            cases: variants.into_iter().map(|variant| variant.case).collect(),
            arms: arms(&raw, text)?,
            reps,
            name: raw.name.get_ref().clone(),
            title: raw.title,
            source: raw.source,
            about: raw.about.trim().to_owned(),
            text: text.to_owned(),
            tables: Vec::new(),
            compares: Vec::new(),
            asserts: Vec::new(),
            profile: None,
            published: BTreeMap::new(),
        };
        if let Some(why) = scenario.reps.into_iter().find_map(refused_reps) {
            return Err(Refused::new(text, raw.name.span().start, why));
        }
        scenario.check_names(text, &raw.name)?;
        let names = Names {
            scenario: &scenario,
            text,
        };
        let tables = names.all(raw.table, Names::table)?;
        let compares = names.all(raw.compare, |names, raw| names.compare(&raw))?;
        let asserts = names.all(raw.assert, Names::assert)?;
        let published = names.all(raw.published, Names::published)?;
        let profile = raw.profile.map(|raw| names.profile(raw)).transpose()?;
        Ok(Self {
            profile,
            tables,
            compares,
            asserts,
            published: published.into_iter().collect(),
            ..scenario
        })
    }

    /// What the cell of a case and an arm needs, both by their position.
    pub fn setup(&self, case: usize, arm: usize, quick: bool) -> &Setup {
        &self.setups[(case * self.arms.len() + arm) * 2 + usize::from(quick)]
    }

    /// What headers leave of packets, where an assertion allows for them and both arms cross links alike.
    pub(crate) fn room(&self, assertion: &Assertion, case: &str) -> Option<Room> {
        assertion.allow.zip(assertion.at_least)?;
        let case = self.cases.iter().position(|known| known.id == case)?;
        let arm = |id: &str| self.arms.iter().position(|arm| arm.id == id);
        let (ours, theirs) = (arm(&assertion.arm)?, arm(assertion.over.as_ref()?)?);
        let is_quic = matches!(self.arms[ours].kind, ArmKind::Tunnel | ArmKind::Quic);
        let theirs_is_tcp = matches!(self.arms[theirs].kind, ArmKind::Tcp | ArmKind::Iperf3)
            && !self.arms[theirs].through_tunnel;
        let [mtu, their_mtu] = [ours, theirs].map(|arm| {
            let link = self.setup(case, arm, false).link.emulated();
            link.map(|link| (link.mtu, self.arms[arm].ipv6))
        });
        let (mtu, ipv6) = mtu.filter(|mtu| their_mtu == Some(*mtu))?;
        (is_quic && theirs_is_tcp).then(|| Room::new(mtu, ipv6))
    }

    /// As it is measured over a real path, where that is so: cases are not what their links make them.
    #[must_use]
    pub fn over_a_path(&self, real: bool) -> Self {
        let mut scenario = self.clone();
        for (number, case) in scenario.cases.iter_mut().enumerate().filter(|_| real) {
            "the path as it is".clone_into(&mut case.label);
            if number > 0 {
                case.label = format!("{}, as in {}", case.label, case.id);
            }
        }
        scenario
    }

    pub(crate) fn case_label<'a>(&'a self, id: &'a str) -> &'a str {
        let case = self.cases.iter().find(|case| case.id == id);
        case.map_or(id, |case| &case.label)
    }

    fn check_names(&self, text: &str, at: &Word) -> Result<(), Refused> {
        let arms = self.arms.iter().map(|arm| &arm.id);
        let cases = self.cases.iter().map(|case| &case.id);
        for ids in [arms.collect::<Vec<_>>(), cases.collect()] {
            for (index, id) in ids.iter().enumerate() {
                if ids[..index].contains(id) {
                    let why = format!("there are two called {id:?}: give each a name of its own");
                    return Err(Refused::new(text, at.span().start, why));
                }
            }
        }
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.is_empty() || !self.name.chars().all(plain) {
            let name = &self.name;
            let why = format!("{name:?} is no name: write it in small letters, digits and '-'");
            return Err(Refused::new(text, at.span().start, why));
        }
        Ok(())
    }
}

struct Names<'a> {
    scenario: &'a Scenario,
    text: &'a str,
}

impl Names<'_> {
    fn all<T, U>(
        &self,
        raw: Vec<T>,
        one: impl Fn(&Self, T) -> Result<U, Refused>,
    ) -> Result<Vec<U>, Refused> {
        raw.into_iter().map(|raw| one(self, raw)).collect()
    }

    fn refuse(&self, word: &Word, why: &str) -> Refused {
        Refused::new(self.text, word.span().start, why)
    }

    fn arm(&self, word: &Word) -> Result<String, Refused> {
        let known: Vec<&str> = self.scenario.arms.iter().map(|arm| &*arm.id).collect();
        self.one_of("arm", &known, word)
    }

    fn case(&self, word: &Word) -> Result<String, Refused> {
        let known: Vec<&str> = self.scenario.cases.iter().map(|case| &*case.id).collect();
        self.one_of("case", &known, word)
    }

    fn one_of(&self, what: &str, known: &[&str], word: &Word) -> Result<String, Refused> {
        if known.contains(&word.get_ref().as_str()) {
            return Ok(word.get_ref().clone());
        }
        Err(self.unknown(word, what, word.get_ref(), known))
    }

    fn unknown(&self, at: &Word, what: &str, name: &str, known: &[&str]) -> Refused {
        let known = known.join(", ");
        self.refuse(
            at,
            &format!("there is no {what} {name:?}; there are {known}"),
        )
    }

    fn metric(&self, word: &Word) -> Result<Metric, Refused> {
        self.metric_called(word.get_ref(), word)
    }

    fn metric_called(&self, id: &str, at: &Word) -> Result<Metric, Refused> {
        Metric::find(id).ok_or_else(|| {
            let known: Vec<&str> = Metric::ALL.iter().map(|metric| metric.id()).collect();
            self.unknown(at, "metric", id, &known)
        })
    }

    /// Those named, or all.
    fn cases(&self, words: Option<Vec<Word>>) -> Result<Vec<String>, Refused> {
        let Some(words) = words else {
            let cases = self.scenario.cases.iter();
            return Ok(cases.map(|case| case.id.clone()).collect());
        };
        words.iter().map(|word| self.case(word)).collect()
    }

    fn arms(&self, words: Option<Vec<Word>>) -> Result<Vec<String>, Refused> {
        let Some(words) = words else {
            let arms = self.scenario.arms.iter();
            return Ok(arms.map(|arm| arm.id.clone()).collect());
        };
        words.iter().map(|word| self.arm(word)).collect()
    }

    fn profile(&self, raw: RawProfile) -> Result<Profiled, Refused> {
        Ok(Profiled {
            cases: self.cases(raw.cases)?,
            arms: self.arms(raw.arms)?,
            functions: raw.functions,
        })
    }

    fn table(&self, raw: RawTable) -> Result<Shown, Refused> {
        let columns = raw.columns.iter().map(|word| self.metric(word));
        Ok(Shown {
            title: raw.title,
            shape: raw.shape,
            row: raw.row.unwrap_or_default(),
            arms: self.arms(raw.arms)?,
            cases: self.cases(raw.cases)?,
            columns: columns.collect::<Result<_, _>>()?,
        })
    }

    fn compare(&self, raw: &RawCompare) -> Result<(String, String, Metric), Refused> {
        Ok((
            self.arm(&raw.a)?,
            self.arm(&raw.b)?,
            self.metric(&raw.metric)?,
        ))
    }

    fn assert(&self, raw: RawAssert) -> Result<Assertion, Refused> {
        if raw.at_least.is_none() && raw.at_most.is_none() {
            let why = "nothing could break this assertion: give it at_least or at_most";
            return Err(self.refuse(&raw.arm, why));
        }
        let (at, allow) = (raw.arm.clone(), raw.allow);
        let assertion = Assertion {
            arm: self.arm(&raw.arm)?,
            over: raw.over.as_ref().map(|word| self.arm(word)).transpose()?,
            metric: self.metric(&raw.metric)?,
            cases: self.cases(raw.cases)?,
            at_least: raw.at_least,
            at_most: raw.at_most,
            allow,
        };
        let mut cases = assertion.cases.iter();
        if allow.is_some() && !cases.all(|case| self.scenario.room(&assertion, case).is_some()) {
            let why = "allow = \"headers\" goes with at_least, an arm of kind tunnel or quic over one of kind tcp or \
                       iperf3, both on an emulated link: take it out";
            return Err(self.refuse(&at, why));
        }
        Ok(assertion)
    }

    #[expect(clippy::type_complexity, reason = "an entry of the map")]
    fn published(
        &self,
        raw: RawPublished,
    ) -> Result<((String, String), BTreeMap<Metric, Published>), Refused> {
        let key = (self.case(&raw.case)?, self.arm(&raw.arm)?);
        let values = raw.values.into_iter();
        let values = values.map(|(id, figure)| Ok((self.metric_called(&id, &raw.case)?, figure)));
        Ok((key, values.collect::<Result<_, Refused>>()?))
    }
}

struct Variant {
    case: Case,
    link: RawLink,
    load: RawLoad,
    hurry: RawHurry,
}

fn variants(raw: &RawScenario) -> Vec<Variant> {
    let whole = RawCase::default();
    let cases = if raw.case.is_empty() {
        std::slice::from_ref(&whole)
    } else {
        &raw.case
    };
    let mut variants: Vec<Variant> = cases
        .iter()
        .map(|case| Variant {
            case: Case {
                id: case.id.clone(),
                label: case.label.clone().unwrap_or_else(|| case.id.clone()),
            },
            link: case.link.clone(),
            load: case.workload.clone(),
            hurry: case.quick.clone(),
        })
        .collect();
    for (key, values) in raw.sweep.factors() {
        let combined = variants.iter().flat_map(|variant| {
            values.iter().map(move |value| {
                let name = format!("{key}={}", value.get_ref());
                Variant {
                    case: Case {
                        id: joined(&variant.case.id, '/', &name),
                        label: joined(&variant.case.label, ' ', value.get_ref()),
                    },
                    link: RawLink::one(key, value).over(&variant.link),
                    load: variant.load.clone(),
                    hurry: variant.hurry.clone(),
                }
            })
        });
        variants = combined.collect();
    }
    if let [only] = &mut variants[..]
        && only.case.id.is_empty()
    {
        only.case = Case {
            id: "all".to_owned(),
            label: "all".to_owned(),
        };
    }
    variants
}

fn joined(before: &str, between: char, name: &str) -> String {
    if before.is_empty() {
        name.to_owned()
    } else {
        format!("{before}{between}{name}")
    }
}

fn setups(raw: &RawScenario, variants: &[Variant], text: &str) -> Result<Vec<Setup>, Refused> {
    let mut setups = Vec::new();
    for variant in variants {
        for arm in &raw.arm {
            let link = arm.link.over(&variant.link.over(&raw.link));
            let load = arm.workload.over(&variant.load.over(&raw.workload));
            let link = link.link(text, arm.id.span().start)?;
            for quick in [false, true] {
                let load = if quick {
                    let quick = raw.quick.hurry().load_of(&load).over(&load);
                    variant.hurry.load_of(&load).over(&quick)
                } else {
                    load.clone()
                };
                setups.push(Setup {
                    link: link.clone(),
                    load: load.load(text, arm.id.span().start)?,
                });
            }
        }
    }
    Ok(setups)
}

fn arms(raw: &RawScenario, text: &str) -> Result<Vec<Arm>, Refused> {
    let one = |arm: &raw::RawArm| {
        let is_command = arm.kind == ArmKind::Command;
        let commands = match (&arm.client_command, &arm.server_command) {
            (Some(client), Some(server)) if is_command => Some([client.clone(), server.clone()]),
            (None, None) if !is_command => None,
            _ => {
                let why = "kind = \"command\", and no other kind, takes client_command and server_command";
                return Err(Refused::new(text, arm.id.span().start, why));
            }
        };
        Ok(Arm {
            id: arm.id.get_ref().clone(),
            line: refused::line(text, arm.id.span().start),
            kind: arm.kind,
            through_tunnel: arm.kind == ArmKind::Tunnel || arm.through_tunnel,
            ipv6: arm.ipv6,
            congestion: arm.congestion.clone(),
            client_flags: arm.client_flags.clone(),
            server_flags: arm.server_flags.clone(),
            commands,
            optional: arm.optional,
        })
    };
    raw.arm.iter().map(one).collect()
}
