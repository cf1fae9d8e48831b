//! Processor, kernel and load.

use std::fs;
use std::thread;

use super::finding::{Finding, State};

const AREA: &str = "machine";

/// Oldest kernel with UDP segmentation offload in both directions.
const KERNEL_LEAST: (u32, u32) = (5, 0);

/// Runnable threads for each processor beyond which measurements are of the queue for it.
const LOAD_MOST: f64 = 0.25;

/// Share of the time since start-up that a host took away, beyond which times cannot be trusted.
const STEAL_MOST: f64 = 0.01;

pub(super) fn findings() -> Vec<Finding> {
    [
        kernel(),
        processor(),
        encryption(),
        load(),
        clock(),
        steal(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn kernel() -> Option<Finding> {
    let release = read("/proc/sys/kernel/osrelease")?;
    let finding = Finding::ok(AREA, "kernel", format!("Linux {release}"));
    let old = version(&release).is_some_and(|version| version < KERNEL_LEAST);
    Some(if old {
        let (major, minor) = KERNEL_LEAST;
        finding
            .but(
                State::Note,
                "no UDP segmentation offload: several times the processor time",
            )
            .remedy(format!("Linux {major}.{minor} or later"))
    } else {
        finding
    })
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn processor() -> Option<Finding> {
    let count = thread::available_parallelism().ok()?.get();
    let finding = Finding::ok(AREA, "processors", count.to_string());
    Some(if count < 2 {
        finding.but(
            State::Note,
            "both ends, the link and the load would take turns: measure between two machines",
        )
    } else {
        finding
    })
}

fn encryption() -> Option<Finding> {
    let text = read("/proc/cpuinfo")?;
    let flags = text
        .lines()
        .find(|line| line.starts_with("flags") || line.starts_with("Features"))?;
    let has = |name: &str| flags.split_whitespace().any(|flag| flag == name);
    let found = match (has("vaes"), has("aes")) {
        (true, _) => "AES, several blocks at once",
        (false, true) => "AES in hardware",
        (false, false) => "no AES in hardware",
    };
    let finding = Finding::ok(AREA, "encryption", found);
    Some(if has("aes") {
        finding
    } else {
        finding.but(
            State::Note,
            "ChaCha20-Poly1305 is used where both ends agree; it takes two to four times as long",
        )
    })
}

fn load() -> Option<Finding> {
    let text = read("/proc/loadavg")?;
    let minute: f64 = text.split_whitespace().next()?.parse().ok()?;
    let finding = Finding::ok(AREA, "load", format!("{minute:.2} in the last minute"));
    let processors = u32::try_from(thread::available_parallelism().ok()?.get()).ok()?;
    Some(if minute > LOAD_MOST * f64::from(processors) {
        finding
            .but(
                State::Note,
                "other programs run: what is measured now is theirs, too",
            )
            .remedy("`top` shows who they are; measure when they are done")
    } else {
        finding
    })
}

fn clock() -> Option<Finding> {
    let source = read("/sys/devices/system/clocksource/clocksource0/current_clocksource")?;
    let finding = Finding::ok(AREA, "clock", source.clone());
    let slow = ["hpet", "acpi_pm", "jiffies"].contains(&source.as_str());
    Some(if slow {
        finding.but(
            State::Note,
            "asking the time is a system call or worse: rates fall and delays grow",
        )
    } else {
        finding
    })
}

#[expect(clippy::cast_precision_loss, reason = "a share of ticks")]
fn steal() -> Option<Finding> {
    let text = read("/proc/stat")?;
    let ticks: Vec<u64> = text
        .lines()
        .next()?
        .split_whitespace()
        .skip(1)
        .map_while(|word| word.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal; guests are in user already.
    let all: u64 = ticks.iter().take(8).sum();
    let share = *ticks.get(7)? as f64 / all.max(1) as f64;
    let finding = Finding::ok(
        AREA,
        "taken by the host",
        format!("{:.1} % of the time since it started", share * 100.0),
    );
    Some(if share > STEAL_MOST {
        finding.but(
            State::Note,
            "a virtual machine that stands still at times: repeat what you measure, and use medians",
        )
    } else {
        finding
    })
}

pub(super) fn read(path: &str) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_a_version() {
        assert_eq!(version("6.18.44-fc"), Some((6, 18)));
        assert_eq!(version("4.19.0"), Some((4, 19)));
        assert_eq!(version("rolling"), None);
    }
}
