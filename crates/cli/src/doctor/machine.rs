//! Findings about processor, kernel and load.

use std::fs;
use std::thread;

use super::finding::Finding;

const AREA: &str = "machine";

/// Oldest kernel with UDP segmentation offload in both directions.
const KERNEL_LEAST: (u32, u32) = (5, 0);

/// Runnable threads per processor above which a measurement mostly shows their queueing.
const LOAD_MOST: f64 = 0.25;

/// Share of the time since start-up that the host took away, above which measured times cannot be trusted.
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
    let old = version(&release).is_some_and(|version| version < KERNEL_LEAST);
    let (major, minor) = KERNEL_LEAST;
    let finding = Finding::ok(AREA, "kernel", format!("Linux {release}"))
        .note_if(
            old,
            "no UDP segmentation offload: several times the processor time",
        )
        .remedy(format!("Linux {major}.{minor} or later"));
    Some(finding)
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn processor() -> Option<Finding> {
    let count = thread::available_parallelism().ok()?.get();
    Some(Finding::ok(AREA, "processors", count.to_string()).note_if(
        count < 2,
        "client, server, link and load would take turns: measure between two machines",
    ))
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
    Some(Finding::ok(AREA, "encryption", found).note_if(
        !has("aes"),
        "ChaCha20-Poly1305 is used where both ends agree; it takes two to four times as long",
    ))
}

fn load() -> Option<Finding> {
    let text = read("/proc/loadavg")?;
    let minute: f64 = text.split_whitespace().next()?.parse().ok()?;
    let processors = u32::try_from(thread::available_parallelism().ok()?.get()).ok()?;
    let finding = Finding::ok(AREA, "load", format!("{minute:.2} in the last minute"))
        .note_if(
            minute > LOAD_MOST * f64::from(processors),
            "other programs run: a measurement now includes their load",
        )
        .remedy("`top` shows them; measure when they are done");
    Some(finding)
}

fn clock() -> Option<Finding> {
    let source = read("/sys/devices/system/clocksource/clocksource0/current_clocksource")?;
    let slow = ["hpet", "acpi_pm", "jiffies"].contains(&source.as_str());
    Some(Finding::ok(AREA, "clock", source).note_if(
        slow,
        "reading the time is a system call or worse: rates fall and delays grow",
    ))
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
    // The columns: user nice system idle iowait irq softirq steal. Column user includes guests already.
    let all: u64 = ticks.iter().take(8).sum();
    let share = *ticks.get(7)? as f64 / all.max(1) as f64;
    let found = format!("{:.1} % of the time since it started", share * 100.0);
    Some(Finding::ok(AREA, "taken by the host", found).note_if(
        share > STEAL_MOST,
        "this virtual machine stands still at times: repeat measurements, and use medians",
    ))
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
