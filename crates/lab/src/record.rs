//! What was measured, as `run.json` keeps it: raw, with all that is needed to show it again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Metric, Refused, Scenario};

/// Of the format; its number rises when a key changes its meaning.
pub const SCHEMA: &str = "lab/1";

/// A run of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`SCHEMA`].
    pub schema: String,
    /// The scenario's text, whole.
    pub scenario: String,
    /// What was asked for.
    pub asked: Asked,
    /// The command line that repeats it.
    pub command: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// How long it took, seconds.
    pub seconds: f64,
    /// How many cells there were to be.
    pub planned: usize,
    /// Why it ended early, if it did.
    pub ended_early: Option<String>,
    /// What one should know before believing it.
    pub warnings: Vec<String>,
    /// The machine, and the other one where there are two.
    pub environment: BTreeMap<String, String>,
    /// The far end of a real path; `None`: links were emulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// In the order of time.
    pub cells: Vec<Cell>,
    /// What programs were in the middle of.
    #[serde(default)]
    pub profiles: Vec<Profile>,
}

/// What a program of an arm was in the middle of, in a run of its own that no figure is from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Its case.
    pub case: String,
    /// Its arm.
    pub arm: String,
    /// What the program is to the arm.
    pub role: String,
    /// Samples.
    pub samples: u64,
    /// Samples of the whole arm that nobody fetched in time.
    pub lost: u64,
    /// Whether the kernel let itself be seen.
    pub with_kernel: bool,
    /// Samples of which the innermost function has no name: who asked could not read it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unnamed: u64,
    /// Functions from the outermost on, separated by `;`, with the number of samples: the most frequent stacks.
    pub stacks: Vec<(String, u64)>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What was asked for besides the scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Arms and cases; none: all.
    pub only: Vec<String>,
    /// Blocks.
    pub reps: u32,
    /// In a hurry.
    pub quick: bool,
    /// What order and accidents follow from.
    pub seed: u64,
}

/// One measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Its case.
    pub case: String,
    /// Its arm.
    pub arm: String,
    /// Its block, from 1.
    pub block: u32,
    /// What accidents followed from.
    pub seed: u64,
    /// When it began, seconds from the run's begin.
    pub at_s: f64,
    /// How long it took, seconds.
    pub seconds: f64,
    /// Whether it counts.
    pub valid: bool,
    /// Why it does not, or what is odd about it.
    pub flags: Vec<String>,
    /// The machine is why it does not: the same was measured again, if time permitted.
    pub noise: bool,
    /// Figures, by [`crate::Metric::id`].
    #[serde(deserialize_with = "crate::metric::known")]
    pub metrics: BTreeMap<Metric, f64>,
    /// What the receiver got, over time: seconds and bit/s.
    pub series: Vec<(f64, f64)>,
    /// What the arm's programs took.
    pub processes: Vec<Process>,
    /// What the link did; `None` on the loopback device.
    pub link: Option<LinkAccount>,
    /// Share of all processors that was stolen by other machines.
    pub steal: f64,
    /// Share of all processors that did nothing.
    pub idle: f64,
}

/// A program's share of the processors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// What it is to the arm.
    pub role: String,
    /// Threads of one name together.
    pub thread: String,
    /// Processor time in the time that counts, seconds.
    pub cpu_s: f64,
    /// That time, seconds.
    pub seconds: f64,
}

/// What an emulator says of its link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkAccount {
    /// What it fell short in, save lateness: that depends on what crossed it.
    pub faults: Vec<String>,
    /// From near to far.
    pub up: WayAccount,
    /// And back.
    pub down: WayAccount,
}

/// The same for one direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WayAccount {
    /// Packets that came.
    pub packets: u64,
    /// Packets in a frame, on average: 1 where nothing is offloaded.
    pub packets_per_frame: f64,
    /// Share to be lost, where that is one number.
    pub loss_asked: Option<f64>,
    /// Share that was.
    pub loss: f64,
    /// Dropped for want of room in the queue.
    pub queue_drops: u64,
    /// Dropped by accident: the machine's fault.
    pub unintended_drops: u64,
    /// 99 of 100 frames left no later than this after they were due.
    pub late_p99_us: f64,
    /// What is late enough to matter.
    pub late_limit_us: f64,
    /// Share of frames that were later than that.
    pub late_share: f64,
    /// Share of a processor that the emulation of this direction took.
    pub busy: f64,
}

/// A file that is no run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Not JSON, or not of this shape.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// Of another version.
    #[error("its schema is {0:?}, and this program reads {SCHEMA:?}")]
    Schema(String),
    /// Its scenario is none.
    #[error("its scenario: {0}")]
    Scenario(#[from] Refused),
}

impl Run {
    /// Reads `run.json`, and the scenario in it.
    ///
    /// # Errors
    ///
    /// [`RunError`].
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

    /// The text of `run.json`: each cell and each profile is a line, so that files are small and differences are seen.
    ///
    /// # Errors
    ///
    /// serde's; numbers and texts give no cause for any.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let frame = Self {
            cells: Vec::new(),
            profiles: Vec::new(),
            ..self.clone()
        };
        let cells = lines("cells", &self.cells)?;
        let profiles = lines("profiles", &self.profiles)?;
        // In no text of the frame: a quotation mark there has a backslash in front of it.
        let text = serde_json::to_string_pretty(&frame)?
            .replace("\"cells\": []", &cells)
            .replace("\"profiles\": []", &profiles);
        Ok(text + "\n")
    }

    /// What was measured of an arm under a case, in the order of blocks: all that counts.
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

    /// Case, arm and block of what was measured, and whether an attempt counts.
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

    /// A metric of two arms under a case, from the same blocks.
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

    /// Samples whose innermost function is shown as the file it is in.
    pub(crate) fn nameless(&self) -> u64 {
        let innermost = |stack: &str| stack.rsplit(';').next().is_some_and(is_file);
        let nameless = self.stacks.iter().filter(|(stack, _)| innermost(stack));
        // Older runs count those whose callers have no name, too.
        let counted = nameless.map(|(_, count)| count).sum();
        self.unnamed.min(counted)
    }

    /// The innermost functions with the largest shares of the samples, and these.
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

/// What the kernel lends to every program is a name, though it looks like a file.
fn is_file(function: &str) -> bool {
    function.starts_with('[') && function != "[vdso]"
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A run with two arms under two cases, in seven blocks; `second` is so many times as fast.
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
            asked: Asked {
                reps: 7,
                seed: 1,
                ..Asked::default()
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
        let way = WayAccount {
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
            up: way,
            down: way,
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
    fn what_is_written_is_read_and_another_schema_is_refused() {
        let run = run(1.5);
        let text = run.to_json().expect("JSON");
        let (read, scenario) = Run::from_json(&text).expect("a run");
        assert_eq!(read, run);
        assert!(
            text.lines().count() < run.cells.len() + 60,
            "a line for each"
        );
        assert_eq!(scenario.name, "small");
        let other = text.replace("lab/1", "lab/2");
        let error = Run::from_json(&other).expect_err("another schema");
        assert!(error.to_string().contains("lab/2"), "{error}");
        Run::from_json("{").expect_err("no JSON");
        let newer = text.replace("cpu_s_per_gb\":", "unheard_of\":");
        let (read, _) = Run::from_json(&newer).expect("a run of a newer version");
        let ids: Vec<_> = read.cells[0].metrics.keys().collect();
        assert_eq!(ids, [&Metric::ReceiverMbitPerS]);
    }

    #[test]
    fn shares_of_a_profile_are_of_stacks_and_the_hottest_of_their_ends() {
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
    fn pairs_are_of_one_block_and_what_does_not_count_is_left_out() {
        let mut run = run(2.0);
        run.command = "\"cells\": []".to_owned();
        let text = run.to_json().expect("JSON");
        assert_eq!(Run::from_json(&text).expect("a run").0, run);
        let bad = run
            .cells
            .iter_mut()
            .find(|cell| cell.block == 3 && cell.arm == "second" && cell.case == "loss=0%");
        bad.expect("it is there").valid = false;
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
