//! The raw data of a run, as `run.json` stores it, with everything that reports need.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Metric, Scenario, ScenarioError};

/// Version of the format of `run.json`. The number rises when a key changes its meaning.
pub const SCHEMA: &str = "lab/1";

/// The raw data of one run of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The format's version, [`SCHEMA`].
    pub schema: String,
    /// The full text of the scenario.
    pub scenario: String,
    /// The options of the run.
    pub asked: RecordedOptions,
    /// The command line that repeats the run.
    pub command: String,
    /// Start time, in the format of RFC 3339.
    pub started: String,
    /// Duration of the run, in seconds.
    pub seconds: f64,
    /// Number of cells that were planned.
    pub planned: usize,
    /// The reason why the run ended early, if it did.
    pub ended_early: Option<String>,
    /// Warnings that affect how far the results can be trusted.
    pub warnings: Vec<String>,
    /// Properties of the machine, and of the remote machine if there is one.
    pub environment: BTreeMap<String, String>,
    /// The far end of a real path. `None` if the links were emulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// The measurements, in chronological order.
    pub cells: Vec<Cell>,
    /// Processor profiles of the arms' programs.
    #[serde(default)]
    pub profiles: Vec<Profile>,
}

/// A sampled profile of a program of an arm. It comes from an extra run, which contributes no figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// The id of the case.
    pub case: String,
    /// The id of the arm.
    pub arm: String,
    /// The program's role in the arm, for example `tunnel client`.
    pub role: String,
    /// Number of samples of this program.
    pub samples: u64,
    /// Samples of all programs of the arm that were lost because they were not read in time.
    pub lost: u64,
    /// True if the kernel allowed samples of its own functions.
    pub with_kernel: bool,
    /// Samples whose innermost function has no name, because the symbols do not contain it or could not be read.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unnamed: u64,
    /// The most frequent stacks with their number of samples. A stack lists functions from the outermost to the
    /// innermost, separated by `;`.
    pub stacks: Vec<(String, u64)>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The options of a run, besides the scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedOptions {
    /// Ids of the selected arms and cases. Empty selects all.
    pub only: Vec<String>,
    /// Number of blocks to measure.
    pub reps: u32,
    /// True for a quick run.
    pub quick: bool,
    /// Seed of the order of cells and of the random events on the links.
    pub seed: u64,
}

/// One measurement of an arm under a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The id of the case.
    pub case: String,
    /// The id of the arm.
    pub arm: String,
    /// The number of the block, starting at 1.
    pub block: u32,
    /// Seed of the random events on the link.
    pub seed: u64,
    /// Start of the measurement, in seconds since the start of the run.
    pub at_s: f64,
    /// Duration of the measurement, in seconds.
    pub seconds: f64,
    /// True if the measurement counts.
    pub valid: bool,
    /// Reasons why the measurement does not count, or peculiarities of a valid one.
    pub flags: Vec<String>,
    /// True if the measurement does not count because the machine disturbed it. It was repeated if time permitted.
    pub noise: bool,
    /// The figures, by `crate::Metric::id`.
    #[serde(deserialize_with = "crate::metric::known")]
    pub metrics: BTreeMap<Metric, f64>,
    /// The receiver's rate over time: seconds and bit/s.
    pub series: Vec<(f64, f64)>,
    /// Processor time of the arm's programs.
    pub processes: Vec<Process>,
    /// The emulator's account of the link. `None` if this program emulated no link.
    pub link: Option<LinkAccount>,
    /// Share of all processors' time that a hypervisor gave to other machines.
    pub steal: f64,
    /// Share of all processors' time that was idle.
    pub idle: f64,
}

/// The processor time of a program's threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// The program's role in the arm.
    pub role: String,
    /// Name of the threads. Threads with the same name are added up.
    pub thread: String,
    /// Processor time within the measured interval, in seconds.
    pub cpu_s: f64,
    /// Length of the measured interval, in seconds.
    pub seconds: f64,
}

/// The emulator's account of a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkAccount {
    /// Failures of the emulator, except lateness: [`crate::judge`] decides whether lateness matters, depending on the
    /// traffic.
    pub faults: Vec<String>,
    /// Account of the direction from the near side to the far side.
    pub up: DirectionAccount,
    /// Account of the direction from the far side to the near side.
    pub down: DirectionAccount,
}

/// The emulator's account of one direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DirectionAccount {
    /// Number of packets that entered the link.
    pub packets: u64,
    /// Mean number of packets per frame: 1 without offload.
    pub packets_per_frame: f64,
    /// Configured share of lost packets, if a single number describes it.
    pub loss_asked: Option<f64>,
    /// Share of packets that the link lost.
    pub loss: f64,
    /// Packets dropped because the queue was full.
    pub queue_drops: u64,
    /// Packets dropped by accident, for which the machine is responsible.
    pub unintended_drops: u64,
    /// The 99th percentile of the delay between a frame's due time and its departure, in microseconds.
    pub late_p99_us: f64,
    /// Delay from which on a frame counts as late, in microseconds.
    pub late_limit_us: f64,
    /// Share of frames that were later than `late_limit_us`.
    pub late_share: f64,
    /// Share of one processor that the emulation of this direction used.
    pub busy: f64,
}

/// Errors of reading `run.json`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The text is not JSON, or does not have the keys and types of a run.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// The file has the format of another version.
    #[error("unsupported schema {0:?}: this program reads {SCHEMA:?}")]
    Schema(String),
    /// The scenario in the file is invalid.
    #[error("invalid scenario: {0}")]
    Scenario(#[from] ScenarioError),
}

impl Run {
    /// Parses the text of `run.json`, and the scenario in it.
    ///
    /// # Errors
    ///
    /// Returns [`RunError`] if the text or its scenario is invalid, or if another version wrote it.
    pub fn from_json(text: &str) -> Result<(Self, Scenario), RunError> {
        #[derive(Deserialize)]
        struct Schema {
            schema: String,
        }
        let Schema { schema } = serde_json::from_str(text)?;
        if schema != SCHEMA {
            return Err(RunError::Schema(schema));
        }
        let run: Self = serde_json::from_str(text)?;
        let scenario = Scenario::parse(&run.scenario)?.over_a_path(run.remote.is_some());
        Ok((run, scenario))
    }

    /// Returns the text of `run.json`. Each cell and each profile is one line, which keeps files small and makes
    /// differences between them readable.
    ///
    /// # Errors
    ///
    /// Returns an error of `serde_json`; numbers and strings do not cause any.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let frame = Self {
            cells: Vec::new(),
            profiles: Vec::new(),
            ..self.clone()
        };
        let cells = lines("cells", &self.cells)?;
        let profiles = lines("profiles", &self.profiles)?;
        // No string in the frame matches these patterns, because JSON escapes quotation marks with a backslash.
        let text = serde_json::to_string_pretty(&frame)?
            .replace("\"cells\": []", &cells)
            .replace("\"profiles\": []", &profiles);
        Ok(text + "\n")
    }

    /// Returns the valid cells of an arm under a case, in chronological order.
    pub(crate) fn valid<'a>(
        &'a self,
        case: &'a str,
        arm: &'a str,
    ) -> impl Iterator<Item = &'a Cell> {
        let here = move |cell: &&Cell| cell.valid && cell.case == case && cell.arm == arm;
        self.cells.iter().filter(here)
    }

    pub(crate) fn measured_cases<'a>(
        &'a self,
        scenario: &'a Scenario,
    ) -> impl Iterator<Item = &'a str> {
        let ids = scenario.cases.iter().map(|case| &*case.id);
        ids.filter(|id| self.cells.iter().any(|cell| cell.case == **id))
    }

    pub(crate) fn has(&self, case: Option<&str>, arm: &str) -> bool {
        let mut cells = self.cells.iter();
        cells.any(|cell| cell.arm == arm && case.is_none_or(|case| cell.case == case))
    }

    /// Returns case, arm and block of all measurements, with true if any attempt is valid.
    pub(crate) fn outcomes(&self) -> BTreeMap<(&str, &str, u32), bool> {
        let mut all = BTreeMap::new();
        for cell in &self.cells {
            *all.entry((&*cell.case, &*cell.arm, cell.block))
                .or_insert(false) |= cell.valid;
        }
        all
    }

    pub(crate) fn values(&self, case: &str, arm: &str, metric: Metric) -> Vec<f64> {
        self.valid(case, arm)
            .filter_map(|cell| cell.metrics.get(&metric).copied())
            .collect()
    }

    /// Returns the values of a metric for two arms under a case, paired by block.
    pub(crate) fn pairs(&self, case: &str, [a, b]: [&str; 2], metric: Metric) -> Vec<(f64, f64)> {
        let value = |cell: &Cell| cell.metrics.get(&metric).copied();
        self.valid(case, a)
            .filter_map(|first| {
                let second = self.valid(case, b).find(|cell| cell.block == first.block)?;
                Some((value(first)?, value(second)?))
            })
            .collect()
    }
}

fn lines<T: Serialize>(key: &str, items: &[T]) -> Result<String, serde_json::Error> {
    let items: Result<Vec<String>, _> = items.iter().map(serde_json::to_string).collect();
    let items = items?;
    Ok(match &items[..] {
        [] => format!("\"{key}\": []"),
        items => format!("\"{key}\": [\n    {}\n  ]", items.join(",\n    ")),
    })
}

impl Profile {
    pub(crate) fn share(&self, function: &str) -> f64 {
        let has = |(stack, _): &&(String, u64)| stack.split(';').any(|one| one == function);
        self.of_all(self.stacks.iter().filter(has).map(|(_, count)| count).sum())
    }

    #[expect(clippy::cast_precision_loss, reason = "samples of minutes")]
    fn of_all(&self, samples: u64) -> f64 {
        samples as f64 / self.samples.max(1) as f64
    }

    /// Returns the number of samples whose innermost function is shown as its file.
    pub(crate) fn nameless(&self) -> u64 {
        let innermost = |stack: &str| stack.rsplit(';').next().is_some_and(is_file);
        let nameless = self.stacks.iter().filter(|(stack, _)| innermost(stack));
        // Runs of older versions also count samples whose callers have no name.
        let counted = nameless.map(|(_, count)| count).sum();
        self.unnamed.min(counted)
    }

    /// Returns the innermost functions with the largest shares of the samples, at most `most`, with their shares.
    pub(crate) fn hottest(&self, most: usize) -> Vec<(&str, f64)> {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for (stack, count) in &self.stacks {
            let innermost = stack.rsplit(';').next().unwrap_or_default();
            *sums.entry(innermost).or_default() += count;
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        sums.truncate(most);
        let shares = sums.into_iter().map(|(name, sum)| (name, self.of_all(sum)));
        shares.collect()
    }
}

/// Returns true if a stack entry is a file in brackets instead of a function. `[vdso]`, which the kernel maps into
/// every program, counts as a function.
fn is_file(function: &str) -> bool {
    function.starts_with('[') && function != "[vdso]"
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a run with two arms under two cases, in seven blocks. The arm `second` is `second` times as fast as the
    /// other.
    pub(crate) fn run(second: f64) -> Run {
        let mut cells = Vec::new();
        for block in 1..=7_u32 {
            for (case, rate) in [("loss=0%", 500.0), ("loss=1%", 50.0)] {
                for (arm, factor) in [("first", 1.0), ("second", second)] {
                    let rate = rate * factor * (1.0 + f64::from(block) / 1000.0);
                    let metrics = [
                        (Metric::ReceiverMbitPerS, rate),
                        (Metric::CpuSPerGb, 2.0 / factor),
                    ];
                    cells.push(Cell {
                        case: case.to_owned(),
                        arm: arm.to_owned(),
                        block,
                        valid: true,
                        metrics: metrics.into(),
                        link: Some(account()),
                        seconds: 1.0,
                        idle: 0.5,
                        ..Cell::default()
                    });
                }
            }
        }
        Run {
            schema: SCHEMA.to_owned(),
            scenario: TEXT.to_owned(),
            asked: RecordedOptions {
                reps: 7,
                seed: 1,
                ..RecordedOptions::default()
            },
            command: "quictun lab run small --seed 1".to_owned(),
            started: "2026-01-01T00:00:00Z".to_owned(),
            seconds: 28.0,
            planned: cells.len(),
            ended_early: None,
            warnings: Vec::new(),
            environment: [("kernel".to_owned(), "6.1 <x>".to_owned())].into(),
            remote: None,
            cells,
            profiles: vec![Profile {
                case: "loss=1%".to_owned(),
                arm: "second".to_owned(),
                role: "tunnel client".to_owned(),
                samples: 10,
                lost: 0,
                with_kernel: true,
                unnamed: 0,
                stacks: vec![
                    ("run<T>;sendmsg;udp_sendmsg".to_owned(), 6),
                    ("run<T>;encrypt".to_owned(), 4),
                ],
            }],
        }
    }

    pub(crate) fn account() -> LinkAccount {
        let direction = DirectionAccount {
            packets: 1000,
            packets_per_frame: 10.0,
            loss_asked: Some(0.01),
            loss: 0.011,
            queue_drops: 3,
            unintended_drops: 0,
            late_p99_us: 60.0,
            late_limit_us: 500.0,
            late_share: 0.001,
            busy: 0.2,
        };
        LinkAccount {
            faults: Vec::new(),
            up: direction,
            down: direction,
        }
    }

    pub(crate) const TEXT: &str = r#"
name = "small"
title = "Two arms"
source = "a document"
about = "Why & how."
link.rate = "600mbit"
workload.duration = "1s"
sweep.loss = ["0%", "1%"]
[[arm]]
id = "first"
kind = "tcp"
[[arm]]
id = "second"
kind = "tunnel"
[[table]]
title = "Bandwidth"
row = "loss"
columns = ["receiver_mbit_per_s", "cpu_s_per_gb"]
[[table]]
title = "Side by side"
shape = "arms"
row = "loss"
columns = ["receiver_mbit_per_s"]
[[compare]]
a = "second"
b = "first"
metric = "receiver_mbit_per_s"
[[assert]]
arm = "second"
over = "first"
metric = "receiver_mbit_per_s"
at_least = 0.97
[[published]]
case = "loss=1%"
arm = "first"
values = { receiver_mbit_per_s = 60.3 }
"#;

    #[test]
    fn a_written_run_is_read_back_and_another_schema_is_refused() {
        let run = run(1.5);
        let text = run.to_json().expect("JSON");
        let (read, scenario) = Run::from_json(&text).expect("a run");
        assert_eq!(read, run);
        assert!(
            text.lines().count() < run.cells.len() + 60,
            "one line per cell"
        );
        assert_eq!(scenario.name, "small");
        let other = text.replace("lab/1", "lab/2");
        let error = Run::from_json(&other).expect_err("another schema");
        assert!(error.to_string().contains("lab/2"), "{error}");
        Run::from_json("{").expect_err("broken JSON");
        let newer = text.replace("cpu_s_per_gb\":", "unheard_of\":");
        let (read, _) = Run::from_json(&newer).expect("a run of a newer version");
        let ids: Vec<_> = read.cells[0].metrics.keys().collect();
        assert_eq!(ids, [&Metric::ReceiverMbitPerS]);
    }

    #[test]
    fn profile_shares_count_stacks_and_the_hottest_functions_are_innermost() {
        let run = run(1.0);
        let [profile] = &run.profiles[..] else {
            panic!("one profile");
        };
        for (function, share) in [("udp_sendmsg", 0.6), ("run<T>", 1.0), ("udp", 0.0)] {
            assert!((profile.share(function) - share).abs() < 1e-9, "{function}");
        }
        let [(name, share)] = profile.hottest(1)[..] else {
            panic!("{profile:?}");
        };
        assert!(name == "udp_sendmsg" && (share - 0.6).abs() < 1e-9);
    }

    #[test]
    fn pairs_belong_to_one_block_and_invalid_cells_are_left_out() {
        let mut run = run(2.0);
        run.command = "\"cells\": []".to_owned();
        let text = run.to_json().expect("JSON");
        assert_eq!(Run::from_json(&text).expect("a run").0, run);
        let bad = run
            .cells
            .iter_mut()
            .find(|cell| cell.block == 3 && cell.arm == "second" && cell.case == "loss=0%");
        bad.expect("the run has this cell").valid = false;
        let pairs = run.pairs("loss=0%", ["second", "first"], Metric::ReceiverMbitPerS);
        assert_eq!(pairs.len(), 6);
        assert!(pairs.iter().all(|(a, b)| (a / b - 2.0).abs() < 1e-9));
        assert_eq!(
            run.values("loss=0%", "first", Metric::ReceiverMbitPerS)
                .len(),
            7
        );
        assert!(run.values("loss=0%", "first", Metric::RttUs).is_empty());
    }
}
