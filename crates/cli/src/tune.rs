//! `quictun tune`: the few settings of the system that matter, why, what they are, and how to undo a change.
//!
//! Without `--apply` it only looks. Settings are raised, never lowered: somebody else may need what is there.

use std::fmt;
use std::fs;
use std::io;
use std::process::ExitCode;

use quictun_sys::{Ethtool, set_sysctl};
use serde::Serialize;

use crate::exit;
use quictun_args::fault::Exit;

const PROGRAM: &str = "quictun tune";

/// A number of the system that should be at least so large.
struct Least {
    sysctl: &'static str,
    value: u64,
    why: &'static str,
}

const SYSCTLS: [Least; 3] = [
    Least {
        sysctl: "net.core.rmem_max",
        value: 8 << 20,
        why: "UDP packets that come while a worker is busy wait here; what does not fit is lost",
    },
    Least {
        sysctl: "net.core.wmem_max",
        value: 8 << 20,
        why: "what a worker sends at once waits here for the device",
    },
    Least {
        sysctl: "net.core.netdev_max_backlog",
        value: 10_000,
        why: "packets between namespaces, and from slow cards, wait here for a processor",
    },
];

/// A feature that a network device should have switched on, if it has it.
struct Feature {
    name: &'static str,
    why: &'static str,
}

const FEATURES: [Feature; 2] = [
    Feature {
        name: "rx-gro",
        why: "packets that belong together go up the stack together",
    },
    Feature {
        name: "tx-udp-segmentation",
        why: "the device, not the processor, cuts large pieces into packets",
    },
];

/// A setting, and what became of it.
#[derive(Debug, Serialize)]
struct Line {
    setting: String,
    why: &'static str,
    now: String,
    wanted: String,
    state: State,
    /// What to type to have it as it was; only after a change.
    undo: Option<String>,
    error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// As it should be.
    Ok,
    /// It would be changed with `--apply`.
    Would,
    /// It was changed.
    Changed,
    /// It could not be changed.
    Failed,
}

#[derive(Debug, Serialize)]
struct Report {
    version: u32,
    settings: Vec<Line>,
}

/// Looks at the settings, and with `apply` changes those that should be different. The exit code is 1 where one
/// could not be changed.
pub fn main(apply: bool, json: bool) -> ExitCode {
    let mut settings: Vec<Line> = SYSCTLS
        .iter()
        .filter_map(|least| sysctl(least, apply))
        .collect();
    for device in devices() {
        settings.extend(
            FEATURES
                .iter()
                .filter_map(|one| feature(&device, one, apply)),
        );
    }
    let failed = settings.iter().any(|line| line.state == State::Failed);
    let report = Report {
        version: 1,
        settings,
    };
    match show(&report, json) {
        Ok(()) if failed => Exit::Failure.into(),
        Ok(()) => Exit::Ok.into(),
        Err(error) => exit::report(PROGRAM, Err(error)).into(),
    }
}

fn sysctl(least: &Least, apply: bool) -> Option<Line> {
    let path = least.sysctl.replace('.', "/");
    let text = fs::read_to_string(format!("/proc/sys/{path}")).ok()?;
    let now: u64 = text.trim().parse().ok()?;
    let line = Line {
        setting: least.sysctl.to_owned(),
        why: least.why,
        now: now.to_string(),
        wanted: least.value.max(now).to_string(),
        state: State::Ok,
        undo: None,
        error: None,
    };
    if now >= least.value {
        return Some(line);
    }
    let undo = format!("sysctl -w {}={now}", least.sysctl);
    let change = || set_sysctl(&path, &least.value.to_string());
    Some(line.change(apply, undo, change))
}

/// Devices that lead somewhere.
fn devices() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/sys/class/net") else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            // Devices made of software have no hardware behind them, and settings of whoever made them.
            entry.path().join("device").exists().then_some(())?;
            entry.file_name().into_string().ok()
        })
        .collect();
    names.sort();
    names
}

fn feature(device: &str, feature: &Feature, apply: bool) -> Option<Line> {
    let ethtool = Ethtool::open(device).ok()?;
    let on = ethtool.feature(feature.name).ok()??;
    let word = |on: bool| if on { "on" } else { "off" };
    let line = Line {
        setting: format!("{device} {}", feature.name),
        why: feature.why,
        now: word(on).to_owned(),
        wanted: word(true).to_owned(),
        state: State::Ok,
        undo: None,
        error: None,
    };
    if on {
        return Some(line);
    }
    if !ethtool.can_change(feature.name).ok()? {
        return None;
    }
    let undo = format!("ethtool -K {device} {} off", feature.name);
    Some(line.change(apply, undo, || {
        ethtool.set_features(&[(feature.name, true)])
    }))
}

impl Line {
    fn change(self, apply: bool, undo: String, change: impl FnOnce() -> io::Result<()>) -> Self {
        if !apply {
            return Self {
                state: State::Would,
                ..self
            };
        }
        match change() {
            Ok(()) => Self {
                state: State::Changed,
                undo: Some(undo),
                ..self
            },
            Err(error) => Self {
                state: State::Failed,
                error: Some(error.to_string()),
                ..self
            },
        }
    }
}

fn show(report: &Report, json: bool) -> anyhow::Result<()> {
    if json {
        return exit::print(&(serde_json::to_string_pretty(report)? + "\n"));
    }
    exit::print(&report.to_string())
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            setting,
            now,
            wanted,
            ..
        } = self;
        match self.state {
            State::Ok => writeln!(f, "  {setting} is {now}"),
            State::Would => writeln!(f, "- {setting} is {now}, should be {wanted}"),
            State::Changed => writeln!(f, "+ {setting} was {now}, is {wanted}"),
            State::Failed => writeln!(
                f,
                "x {setting} is {now}, should be {wanted}: {}",
                self.error.as_deref().unwrap_or_default()
            ),
        }?;
        writeln!(f, "    {}", self.why)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.settings {
            line.fmt(f)?;
        }
        let mut undo = self
            .settings
            .iter()
            .filter_map(|line| line.undo.as_deref())
            .peekable();
        if undo.peek().is_some() {
            writeln!(f, "\nuntil the next start; to undo it before:")?;
            undo.try_for_each(|command| writeln!(f, "  {command}"))?;
            writeln!(f, "a file in /etc/sysctl.d keeps what sysctl set")?;
        }
        let some = |state| self.settings.iter().any(|line| line.state == state);
        if some(State::Failed) {
            writeln!(f, "\nroot may change these: `sudo quictun tune --apply`")?;
        }
        if some(State::Would) {
            writeln!(
                f,
                "\n`quictun tune --apply` as root changes it, until the next start"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(state: State) -> Line {
        Line {
            setting: "net.core.rmem_max".to_owned(),
            why: "packets wait here",
            now: "212992".to_owned(),
            wanted: "8388608".to_owned(),
            state,
            undo: None,
            error: None,
        }
    }

    #[test]
    fn nothing_is_changed_unless_it_is_asked_for() {
        let line = line(State::Ok).change(false, String::new(), || {
            panic!("it only looks");
        });
        assert_eq!(line.state, State::Would);
    }

    #[test]
    fn a_change_comes_with_the_way_back_and_a_refusal_with_its_reason() {
        let undo = "sysctl -w net.core.rmem_max=212992";
        let changed = line(State::Ok).change(true, undo.to_owned(), || Ok(()));
        let refusal = || Err(io::ErrorKind::PermissionDenied.into());
        let failed = line(State::Ok).change(true, undo.to_owned(), refusal);
        assert_eq!(failed.undo, None);
        let report = Report {
            version: 1,
            settings: vec![changed, failed],
        };
        let said = report.to_string();
        for words in [undo, "permission denied", "sudo quictun tune --apply"] {
            assert!(said.contains(words), "{said}");
        }
    }
}
