//! A scenario: links, traffic, the systems under comparison, and published figures.
//!
//! [`Scenario::parse`] reads TOML and checks every combination of case and arm. It refuses an invalid scenario with the
//! number of the line. `docs/scenarios.md` shows the built-in scenarios.

mod difference;
mod error;
mod headers;
mod link;
mod load;
mod raw;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use error::RepsError;
pub use error::ScenarioError;
pub(crate) use error::check_reps;
pub(crate) use headers::PayloadRoom;
pub use link::{Cable, EmulatedLink, Link};
pub(crate) use load::BACKGROUND_TAIL;
pub use load::{Amount, Load};
pub(crate) use raw::{Allowance, Published, Shape};
pub use raw::{ArmKind, Background, LossUnit, Mode, Offload};

use crate::metric::Metric;
use error::MAX_CELLS;
use raw::{
    RawAssert, RawCase, RawCaseQuick, RawCompare, RawLink, RawLoad, RawProfile, RawPublished,
    RawScenario, RawTable, SpannedText,
};

/// Default number of repetitions. It is the smallest whose exact interval exceeds 95 % with a margin (98.4 %).
const REPS: u32 = 7;

/// Default number of repetitions of a quick run. It is the smallest that permits a verdict.
const QUICK_REPS: u32 = 6;

/// The description of a set of measurements.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Short name, for files and the command line.
    pub name: String,
    /// One line that says what the scenario is about.
    pub title: String,
    /// The document whose table the scenario reproduces.
    pub(crate) source: Option<String>,
    /// Purpose of the scenario and notes for its interpretation, in Markdown.
    pub(crate) about: String,
    /// The text that the scenario was parsed from.
    pub text: String,
    /// The conditions, in the order of the text.
    pub cases: Vec<Case>,
    /// The systems that are measured under each condition.
    pub arms: Vec<Arm>,
    /// Number of repetitions of a full run and of a quick run.
    pub reps: [u32; 2],
    pub(crate) tables: Vec<TableSpec>,
    /// Comparisons: the ids of arms a and b, and the metric.
    pub(crate) compares: Vec<(String, String, Metric)>,
    pub(crate) asserts: Vec<Assertion>,
    /// The cells whose processor time is profiled.
    pub profile: Option<ProfileSelection>,
    /// Published figures, by case and arm.
    pub(crate) published: BTreeMap<(String, String), BTreeMap<Metric, Published>>,
    /// Link and load, by case, arm, and full or quick run.
    setups: Vec<Setup>,
}

/// One condition under which every arm is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The case's id, for example `loss=1%`.
    pub id: String,
    /// The case's label in tables, for example `1%`.
    pub label: String,
}

/// One system under comparison.
#[derive(Clone, Debug)]
pub struct Arm {
    /// The id of the arm.
    pub id: String,
    /// The line of the arm in the scenario's text, starting at 1.
    pub line: usize,
    /// The kind of program that is measured.
    pub kind: ArmKind,
    /// True if the traffic goes through the tunnel.
    pub through_tunnel: bool,
    /// True to use IPv6 instead of IPv4.
    pub ipv6: bool,
    /// Congestion control of TCP or QUIC. `None` for the program's default.
    pub congestion: Option<String>,
    /// Additional arguments for the client's command line.
    pub client_flags: Vec<String>,
    /// Additional arguments for the server's command line.
    pub server_flags: Vec<String>,
    /// The user's own commands for the client and the server, which `sh -c` runs.
    pub commands: Option<[String; 2]>,
    /// True if the arm is skipped, without an error, when its program is missing.
    pub optional: bool,
}

/// The link and the load of one cell.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The link between both sides.
    pub link: Link,
    /// The traffic that crosses the link.
    pub load: Load,
}

#[derive(Clone, Debug)]
pub(crate) struct TableSpec {
    pub(crate) title: String,
    pub(crate) shape: Shape,
    /// The heading of the first column.
    pub(crate) row: String,
    pub(crate) arms: Vec<String>,
    pub(crate) cases: Vec<String>,
    pub(crate) columns: Vec<Metric>,
}

/// The cells whose processor time is profiled, each in an extra run after all others.
#[derive(Clone, Debug)]
pub struct ProfileSelection {
    /// Ids of the profiled cases.
    pub cases: Vec<String>,
    /// Ids of the profiled arms.
    pub arms: Vec<String>,
    pub(crate) functions: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Assertion {
    pub(crate) arm: String,
    /// The arm that this one is compared with. `None` if the limits are absolute.
    pub(crate) over: Option<String>,
    pub(crate) metric: Metric,
    pub(crate) cases: Vec<String>,
    pub(crate) at_least: Option<f64>,
    pub(crate) at_most: Option<f64>,
    /// The allowance by which `at_least` is reduced.
    pub(crate) allow: Option<Allowance>,
}

impl Scenario {
    /// Parses and checks a scenario.
    ///
    /// # Errors
    ///
    /// Returns [`ScenarioError`] with the line, the problem, and the remedy.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let raw: RawScenario =
            toml::from_str(text).map_err(|error| ScenarioError::syntax(text, &error))?;
        let refuse = |why: &str| ScenarioError::new(text, raw.name.span().start, why);
        let variants = variants(&raw);
        if variants.is_empty() || raw.arm.is_empty() {
            return Err(refuse("there is nothing to measure: add an [[arm]]"));
        }
        let cells = variants.len() * raw.arm.len();
        if cells > MAX_CELLS {
            return Err(refuse(&format!(
                "{cells} cells in each block are more than {MAX_CELLS}: measure fewer cases, or split the scenario in two"
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
        for reps in scenario.reps {
            check_reps(reps).map_err(|error| {
                ScenarioError::new(text, raw.name.span().start, error.to_string())
            })?;
        }
        scenario.check_names(text, &raw.name)?;
        let names = NameResolver {
            scenario: &scenario,
            text,
        };
        let tables = names.all(raw.table, NameResolver::table)?;
        let compares = names.all(raw.compare, |names, raw| names.compare(&raw))?;
        let asserts = names.all(raw.assert, NameResolver::assert)?;
        let published = names.all(raw.published, NameResolver::published)?;
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

    /// Returns link and load of a cell. `case` and `arm` are indices into `cases` and `arms`.
    pub fn setup(&self, case: usize, arm: usize, quick: bool) -> &Setup {
        &self.setups[(case * self.arms.len() + arm) * 2 + usize::from(quick)]
    }

    /// Returns the payload that headers leave in a packet. Returns `None` unless the assertion allows for headers,
    /// compares a QUIC arm with a TCP arm, and both use links with the same MTU.
    pub(crate) fn room(&self, assertion: &Assertion, case: &str) -> Option<PayloadRoom> {
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
        (is_quic && theirs_is_tcp).then(|| PayloadRoom::new(mtu, ipv6))
    }

    /// Returns the scenario as it is measured over a path. Over a real path the links do not define the cases, so their
    /// labels change.
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

    fn check_names(&self, text: &str, at: &SpannedText) -> Result<(), ScenarioError> {
        let arms = self.arms.iter().map(|arm| &arm.id);
        let cases = self.cases.iter().map(|case| &case.id);
        for ids in [arms.collect::<Vec<_>>(), cases.collect()] {
            for (index, id) in ids.iter().enumerate() {
                if ids[..index].contains(id) {
                    let why = format!("the id {id:?} is used twice: give each a unique id");
                    return Err(ScenarioError::new(text, at.span().start, why));
                }
            }
        }
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.is_empty() || !self.name.chars().all(plain) {
            let name = &self.name;
            let why = format!("{name:?} is not a valid name: use a-z, 0-9 and '-'");
            return Err(ScenarioError::new(text, at.span().start, why));
        }
        Ok(())
    }
}

struct NameResolver<'a> {
    scenario: &'a Scenario,
    text: &'a str,
}

impl NameResolver<'_> {
    fn all<T, U>(
        &self,
        raw: Vec<T>,
        one: impl Fn(&Self, T) -> Result<U, ScenarioError>,
    ) -> Result<Vec<U>, ScenarioError> {
        raw.into_iter().map(|raw| one(self, raw)).collect()
    }

    fn refuse(&self, word: &SpannedText, why: &str) -> ScenarioError {
        ScenarioError::new(self.text, word.span().start, why)
    }

    fn arm(&self, word: &SpannedText) -> Result<String, ScenarioError> {
        let known: Vec<&str> = self.scenario.arms.iter().map(|arm| &*arm.id).collect();
        self.one_of("arm", &known, word)
    }

    fn case(&self, word: &SpannedText) -> Result<String, ScenarioError> {
        let known: Vec<&str> = self.scenario.cases.iter().map(|case| &*case.id).collect();
        self.one_of("case", &known, word)
    }

    fn one_of(
        &self,
        what: &str,
        known: &[&str],
        word: &SpannedText,
    ) -> Result<String, ScenarioError> {
        if known.contains(&word.get_ref().as_str()) {
            return Ok(word.get_ref().clone());
        }
        Err(self.unknown(word, what, word.get_ref(), known))
    }

    fn unknown(&self, at: &SpannedText, what: &str, name: &str, known: &[&str]) -> ScenarioError {
        let known = known.join(", ");
        self.refuse(
            at,
            &format!("there is no {what} {name:?}; there are {known}"),
        )
    }

    fn metric(&self, word: &SpannedText) -> Result<Metric, ScenarioError> {
        self.metric_called(word.get_ref(), word)
    }

    fn metric_called(&self, id: &str, at: &SpannedText) -> Result<Metric, ScenarioError> {
        Metric::find(id).ok_or_else(|| {
            let known: Vec<&str> = Metric::ALL.iter().map(|metric| metric.id()).collect();
            self.unknown(at, "metric", id, &known)
        })
    }

    /// Returns the named cases, or all of them without names.
    fn cases(&self, words: Option<Vec<SpannedText>>) -> Result<Vec<String>, ScenarioError> {
        let Some(words) = words else {
            let cases = self.scenario.cases.iter();
            return Ok(cases.map(|case| case.id.clone()).collect());
        };
        words.iter().map(|word| self.case(word)).collect()
    }

    fn arms(&self, words: Option<Vec<SpannedText>>) -> Result<Vec<String>, ScenarioError> {
        let Some(words) = words else {
            let arms = self.scenario.arms.iter();
            return Ok(arms.map(|arm| arm.id.clone()).collect());
        };
        words.iter().map(|word| self.arm(word)).collect()
    }

    fn profile(&self, raw: RawProfile) -> Result<ProfileSelection, ScenarioError> {
        Ok(ProfileSelection {
            cases: self.cases(raw.cases)?,
            arms: self.arms(raw.arms)?,
            functions: raw.functions,
        })
    }

    fn table(&self, raw: RawTable) -> Result<TableSpec, ScenarioError> {
        let columns = raw.columns.iter().map(|word| self.metric(word));
        Ok(TableSpec {
            title: raw.title,
            shape: raw.shape,
            row: raw.row.unwrap_or_default(),
            arms: self.arms(raw.arms)?,
            cases: self.cases(raw.cases)?,
            columns: columns.collect::<Result<_, _>>()?,
        })
    }

    fn compare(&self, raw: &RawCompare) -> Result<(String, String, Metric), ScenarioError> {
        Ok((
            self.arm(&raw.a)?,
            self.arm(&raw.b)?,
            self.metric(&raw.metric)?,
        ))
    }

    fn assert(&self, raw: RawAssert) -> Result<Assertion, ScenarioError> {
        if raw.at_least.is_none() && raw.at_most.is_none() {
            let why = "this assertion has no limit: set at_least or at_most";
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
                       iperf3, both on an emulated link: remove it";
            return Err(self.refuse(&at, why));
        }
        Ok(assertion)
    }

    #[expect(clippy::type_complexity, reason = "an entry of the map")]
    fn published(
        &self,
        raw: RawPublished,
    ) -> Result<((String, String), BTreeMap<Metric, Published>), ScenarioError> {
        let key = (self.case(&raw.case)?, self.arm(&raw.arm)?);
        let values = raw.values.into_iter();
        let values = values.map(|(id, figure)| Ok((self.metric_called(&id, &raw.case)?, figure)));
        Ok((key, values.collect::<Result<_, ScenarioError>>()?))
    }
}

struct SweepCase {
    case: Case,
    link: RawLink,
    load: RawLoad,
    quick: RawCaseQuick,
}

fn variants(raw: &RawScenario) -> Vec<SweepCase> {
    let whole = RawCase::default();
    let cases = if raw.case.is_empty() {
        std::slice::from_ref(&whole)
    } else {
        &raw.case
    };
    let mut variants: Vec<SweepCase> = cases
        .iter()
        .map(|case| SweepCase {
            case: Case {
                id: case.id.clone(),
                label: case.label.clone().unwrap_or_else(|| case.id.clone()),
            },
            link: case.link.clone(),
            load: case.workload.clone(),
            quick: case.quick.clone(),
        })
        .collect();
    for (key, values) in raw.sweep.factors() {
        let combined = variants.iter().flat_map(|variant| {
            values.iter().map(move |value| {
                let name = format!("{key}={}", value.get_ref());
                SweepCase {
                    case: Case {
                        id: joined(&variant.case.id, '/', &name),
                        label: joined(&variant.case.label, ' ', value.get_ref()),
                    },
                    link: RawLink::one(key, value).over(&variant.link),
                    load: variant.load.clone(),
                    quick: variant.quick.clone(),
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

fn setups(
    raw: &RawScenario,
    variants: &[SweepCase],
    text: &str,
) -> Result<Vec<Setup>, ScenarioError> {
    let mut setups = Vec::new();
    for variant in variants {
        for arm in &raw.arm {
            let link = arm.link.over(&variant.link.over(&raw.link));
            let load = arm.workload.over(&variant.load.over(&raw.workload));
            let link = link.link(text, arm.id.span().start)?;
            for quick in [false, true] {
                let load = if quick {
                    let quick = raw.quick.amounts().load_of(&load).over(&load);
                    variant.quick.load_of(&load).over(&quick)
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

fn arms(raw: &RawScenario, text: &str) -> Result<Vec<Arm>, ScenarioError> {
    let one = |arm: &raw::RawArm| {
        let is_command = arm.kind == ArmKind::Command;
        let commands = match (&arm.client_command, &arm.server_command) {
            (Some(client), Some(server)) if is_command => Some([client.clone(), server.clone()]),
            (None, None) if !is_command => None,
            _ => {
                let why = "kind = \"command\", and no other kind, takes client_command and server_command";
                return Err(ScenarioError::new(text, arm.id.span().start, why));
            }
        };
        Ok(Arm {
            id: arm.id.get_ref().clone(),
            line: error::line(text, arm.id.span().start),
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
