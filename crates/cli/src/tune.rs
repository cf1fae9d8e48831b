//! `quictun tune`: the few system settings that matter, with their reasons and values, and with the command that undoes
//! a change.
//!
//! Without `--apply` it changes nothing. Settings are raised, never lowered: another program may need the higher value.

use std::fmt;
use std::fs;
use std::io;
use std::process::ExitCode;

use quictun_sys::{Ethtool, set_sysctl};
use serde::Serialize;

use crate::exit::{self, ProgramError};

const PROGRAM: &str = "quictun tune";

/// Numeric sysctls, each with its least value and the reason for it.
const SYSCTLS: [(&str, u64, &str); 3] = [
    (
        "net.core.rmem_max",
        8 << 20,
        "UDP packets that arrive while a worker is busy wait here; packets that do not fit are lost",
    ),
    (
        "net.core.wmem_max",
        8 << 20,
        "packets that a worker sends at once wait here for the device",
    ),
    (
        "net.core.netdev_max_backlog",
        10_000,
        "packets between namespaces, and from slow cards, wait here for a processor",
    ),
];

/// Features that a network device should have on if it supports them, each with the reason.
const FEATURES: [(&str, &str); 2] = [
    (
        "rx-gro",
        "packets that belong together go up the stack together",
    ),
    (
        "tx-udp-segmentation",
        "the device, not the processor, cuts large pieces into packets",
    ),
];

/// One setting with its value, and the outcome of a change.
#[derive(Debug, Serialize)]
struct SystemSetting {
    setting: String,
    why: &'static str,
    now: String,
    wanted: String,
    state: SettingState,
    /// The command that undoes the change; `None` without a change.
    undo: Option<String>,
    error: Option<String>,
    #[serde(skip)]
    refusal: Option<io::ErrorKind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum SettingState {
    Ok,
    /// `--apply` would change it.
    Would,
    Changed,
    Failed,
}

#[derive(Debug, Serialize)]
struct Report {
    version: u32,
    settings: Vec<SystemSetting>,
}

/// Examines the settings, and with `apply` raises those that are too low. The exit code is 1 if a change failed.
pub(crate) fn main(apply: bool, json: bool) -> ExitCode {
    let mut settings: Vec<SystemSetting> =
        SYSCTLS.iter().filter_map(|it| sysctl(it, apply)).collect();
    for device in devices() {
        settings.extend(FEATURES.iter().filter_map(|it| feature(&device, it, apply)));
    }
    let failed = settings
        .iter()
        .any(|line| line.state == SettingState::Failed);
    let report = Report {
        version: 1,
        settings,
    };
    let shown = exit::show(&report, json);
    let code = shown.map(|()| u8::from(failed));
    exit::code(PROGRAM, code.map_err(ProgramError::from))
}

fn sysctl((name, least, why): &(&str, u64, &'static str), apply: bool) -> Option<SystemSetting> {
    let path = name.replace('.', "/");
    let text = fs::read_to_string(format!("/proc/sys/{path}")).ok()?;
    let now: u64 = text.trim().parse().ok()?;
    let wanted = now.max(*least);
    let line = SystemSetting::new((*name).to_owned(), why, now.to_string(), wanted.to_string());
    if now == wanted {
        return Some(line);
    }
    let change = || set_sysctl(&path, &wanted.to_string());
    Some(line.change(apply, format!("sysctl -w {name}={now}"), change))
}

/// Returns the names of the network devices that have hardware.
fn devices() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/sys/class/net") else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            // Software devices have no directory `device`. Their settings belong to the program that made them.
            entry.path().join("device").exists().then_some(())?;
            entry.file_name().into_string().ok()
        })
        .collect();
    names.sort();
    names
}

fn feature(device: &str, (name, why): &(&str, &'static str), apply: bool) -> Option<SystemSetting> {
    let ethtool = Ethtool::open(device).ok()?;
    let on = ethtool.feature(name).ok()??;
    let now = if on { "on" } else { "off" };
    let line = SystemSetting::new(
        format!("{device} {name}"),
        why,
        now.to_owned(),
        "on".to_owned(),
    );
    if on {
        return Some(line);
    }
    if !ethtool.can_change(name).ok()? {
        return None;
    }
    let undo = format!("ethtool -K {device} {name} off");
    Some(line.change(apply, undo, || ethtool.set_features(&[(*name, true)])))
}

impl SystemSetting {
    fn new(setting: String, why: &'static str, now: String, wanted: String) -> Self {
        Self {
            setting,
            why,
            now,
            wanted,
            state: SettingState::Ok,
            undo: None,
            error: None,
            refusal: None,
        }
    }

    fn change(self, apply: bool, undo: String, change: impl FnOnce() -> io::Result<()>) -> Self {
        let (state, undo, error) = match apply.then(change) {
            None => (SettingState::Would, None, None),
            Some(Ok(())) => (SettingState::Changed, Some(undo), None),
            Some(Err(error)) => (SettingState::Failed, None, Some(error)),
        };
        Self {
            state,
            undo,
            refusal: error.as_ref().map(io::Error::kind),
            error: error.map(|error| error.to_string()),
            ..self
        }
    }
}

impl fmt::Display for SystemSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            setting,
            now,
            wanted,
            ..
        } = self;
        match self.state {
            SettingState::Ok => writeln!(f, "  {setting} is {now}"),
            SettingState::Would => writeln!(f, "- {setting} is {now}, should be {wanted}"),
            SettingState::Changed => writeln!(f, "+ {setting} was {now}, is {wanted}"),
            SettingState::Failed => writeln!(
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
            writeln!(f, "\nthese last until the next start; to undo them before:")?;
            undo.try_for_each(|command| writeln!(f, "  {command}"))?;
            writeln!(f, "a file in /etc/sysctl.d makes sysctl settings permanent")?;
        }
        let some = |state| self.settings.iter().any(|line| line.state == state);
        let refused = |kind| self.settings.iter().any(|line| line.refusal == Some(kind));
        if refused(io::ErrorKind::PermissionDenied) {
            writeln!(f, "\nonly root can do that: `sudo quictun tune --apply`")?;
        }
        if refused(io::ErrorKind::ReadOnlyFilesystem) {
            writeln!(
                f,
                "\nthe kernel's settings are read-only here, as in a container: run it on the host"
            )?;
        }
        if some(SettingState::Would) {
            writeln!(
                f,
                "\n`quictun tune --apply` as root changes them, until the next start"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> SystemSetting {
        SystemSetting::new(
            "net.core.rmem_max".to_owned(),
            "packets wait here",
            "212992".to_owned(),
            "8388608".to_owned(),
        )
    }

    #[test]
    fn nothing_is_changed_without_apply() {
        let line = line().change(false, String::new(), || {
            panic!("without --apply, nothing may change");
        });
        assert_eq!(line.state, SettingState::Would);
    }

    #[test]
    fn a_change_states_its_undo_and_a_refusal_its_reason() {
        let undo = "sysctl -w net.core.rmem_max=212992";
        let changed = line().change(true, undo.to_owned(), || Ok(()));
        let refusal = || Err(io::ErrorKind::PermissionDenied.into());
        let failed = line().change(true, undo.to_owned(), refusal);
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

    #[test]
    fn read_only_settings_lead_to_the_host_and_not_to_root() {
        let refusal = || Err(io::ErrorKind::ReadOnlyFilesystem.into());
        let report = Report {
            version: 1,
            settings: vec![line().change(true, String::new(), refusal)],
        };
        let said = report.to_string();
        assert!(said.contains("run it on the host"), "{said}");
        assert!(!said.contains("sudo"), "{said}");
    }
}
