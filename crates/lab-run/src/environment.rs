//! Facts about the machine, and whether it is idle enough for measurements.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::Duration;

use crate::client::SignalWaiter;
use crate::processors::ProcessorTicks;

/// Time for which the machine is observed before a run.
const LOOK: Duration = Duration::from_secs(1);

/// Shares of processor time that other programs and other machines may use. A second busy program changes every figure.
const BUSY: f64 = 0.05;
const STEAL: f64 = 0.01;

const FILES: [(&str, &str); 8] = [
    ("kernel", "/proc/sys/kernel/osrelease"),
    (
        "clock source",
        "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    ),
    (
        "CPU governor",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    ),
    ("load average", "/proc/loadavg"),
    (
        "TCP by default",
        "/proc/sys/net/ipv4/tcp_congestion_control",
    ),
    ("rmem_max", "/proc/sys/net/core/rmem_max"),
    ("wmem_max", "/proc/sys/net/core/wmem_max"),
    ("tcp_wmem", "/proc/sys/net/ipv4/tcp_wmem"),
];

pub(crate) fn snapshot() -> BTreeMap<String, String> {
    let read = |path: &str| {
        fs::read_to_string(path)
            .ok()
            .map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let mut all: BTreeMap<String, String> = FILES
        .iter()
        .filter_map(|(name, path)| Some(((*name).to_owned(), read(path)?)))
        .collect();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("unknown", |(_, model)| model.trim());
    let cores = thread::available_parallelism().map_or(0, usize::from);
    all.insert("processors".to_owned(), format!("{cores} x {model}"));
    all.insert(
        "program".to_owned(),
        format!("quictun {}", env!("CARGO_PKG_VERSION")),
    );
    all.insert("build".to_owned(), quictun_lab::BUILD_PROFILE.to_owned());
    all
}

pub(crate) fn noise(waiter: &SignalWaiter) -> anyhow::Result<Vec<String>> {
    let before = ProcessorTicks::read();
    waiter.pause(LOOK)?;
    let (idle, steal) = ProcessorTicks::read().since(before);
    let mut warnings = Vec::new();
    let busy = 1.0 - idle - steal;
    if busy > BUSY {
        warnings.push(format!(
            "before the run other programs used {:.0} % of the processors: the figures are of a busy machine",
            busy * 100.0
        ));
    }
    if steal > STEAL {
        warnings.push(format!(
            "before the run {:.0} % of the processors' time was stolen: other machines share them",
            steal * 100.0
        ));
    }
    if cfg!(debug_assertions) {
        warnings.push(
            "this is a debug build: tunnel and emulator are slow; use cargo run --release"
                .to_owned(),
        );
    }
    Ok(warnings)
}
