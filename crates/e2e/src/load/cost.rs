//! Splits the processor time that both programs spend per packet of an upload by cost centre.
//!
//! `perf` samples the programs' threads. Each sample belongs to one `CostCentre`, determined by its function and, in
//! the kernel, by the system call that led there. Programs without symbols show no centres of their own: build with
//! `CARGO_PROFILE_DIST_STRIP=false cargo build --profile dist`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use quictun_testbed::program::{self, Program};
use quictun_testbed::work::Work;

use super::machines::{EmulatedPath, LinkKind};
use super::measured::{MeasuredApplication, WARM_UP, pause, upload_by};
use super::report::{LoadReport, figure};
use super::tunnel::{LoadOptions, LoadTunnel};

/// The number of samples per second and thread.
const FREQUENCY: &str = "4999";

/// Application bytes in a packet of 1500 bytes.
const PACKET: f64 = 1430.0;

/// A cost centre: a kind of work on which processor time is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CostCentre {
    /// Waiting for events and waking up.
    Waking,
    /// UDP in the kernel, from the system call to the device and back.
    KernelUdp,
    /// The applications' TCP in the kernel.
    KernelTcp,
    /// Other work of the kernel.
    KernelOther,
    /// Copies, including checksums, in the kernel and in user space.
    Copies,
    /// Encryption and decryption of packets.
    Aead,
    /// The QUIC library quinn-proto.
    Library,
    /// All other work of the programs: engine, flows, congestion control, allocation.
    Engine,
}

impl CostCentre {
    const ALL: [Self; 8] = [
        Self::Waking,
        Self::KernelUdp,
        Self::KernelTcp,
        Self::KernelOther,
        Self::Copies,
        Self::Aead,
        Self::Library,
        Self::Engine,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Waking => "waiting and waking",
            Self::KernelUdp => "kernel: UDP",
            Self::KernelTcp => "kernel: TCP",
            Self::KernelOther => "kernel: other",
            Self::Copies => "copies",
            Self::Aead => "AEAD",
            Self::Library => "quinn-proto",
            Self::Engine => "engine and rest",
        }
    }

    /// Returns the centre of a sample, given its frames, innermost first, as `perf script` writes them: a function,
    /// followed by its file in brackets.
    fn of(frames: &[&str]) -> Self {
        let innermost = frames.first().copied().unwrap_or_default();
        let within = |names: &[&str]| {
            let named = |frame: &str| names.iter().any(|name| frame.contains(name));
            frames.iter().any(|frame| named(frame))
        };
        let is = |names: &[&str]| names.iter().any(|name| innermost.contains(name));
        if is(&COPIES) {
            return Self::Copies;
        }
        // Kernel modules are in brackets too. The vDSO is kernel code that runs in user space, and counts as the
        // program's.
        let kernel = innermost.ends_with("])") && !is(&["([vdso])", "([vsyscall])"]);
        if !kernel {
            return match () {
                () if is(&AEAD) => Self::Aead,
                () if is(&["quinn_proto", "rustc_hash"]) => Self::Library,
                () => Self::Engine,
            };
        }
        match () {
            () if within(&["recvmsg", "recvmmsg", "udp_sendmsg", "udpv6_sendmsg"]) => {
                Self::KernelUdp
            }
            () if within(&[
                "tcp_",
                "sock_read_iter",
                "sock_write_iter",
                "__x64_sys_writev",
            ]) =>
            {
                Self::KernelTcp
            }
            () if within(&["epoll", "ppoll", "schedule", "futex"]) => Self::Waking,
            () => Self::KernelOther,
        }
    }
}

/// Functions that copy, identified by parts of their names.
const COPIES: [&str; 7] = [
    "memmove",
    "memcpy",
    "_copy_to_iter",
    "_copy_from_iter",
    "copy_user",
    "csum_partial",
    "rep_movs",
];

/// Functions that encrypt or decrypt, identified by parts of their names.
const AEAD: [&str; 8] = [
    "aes",
    "gcm",
    "ghash",
    "chacha20_",
    "poly1305",
    "ring::",
    "ring_core",
    "aws_lc",
];

/// The cost of a packet at one end.
#[derive(Debug)]
struct EndCost {
    name: &'static str,
    /// The application's data rate in Mbit/s.
    rate: f64,
    /// Wake-ups per megabyte of data.
    wakes: f64,
    /// Nanoseconds of processor time per packet.
    packet: f64,
    samples: BTreeMap<CostCentre, u64>,
}

impl EndCost {
    /// Returns nanoseconds per byte, which equals seconds per gigabyte.
    fn byte(&self) -> f64 {
        self.packet / PACKET
    }

    /// Returns nanoseconds per packet for one centre.
    fn centre(&self, centre: CostCentre) -> f64 {
        let all: u64 = self.samples.values().sum();
        let own = self.samples.get(&centre).copied().unwrap_or(0);
        self.packet * figure(own) / figure(all.max(1))
    }
}

/// Samples both ends for `time` each, and reports the cost of a packet.
///
/// # Errors
///
/// Fails if the tunnel does not work, or if `perf` is not installed.
pub fn run(plan: &LoadOptions, time: Duration) -> Result<LoadReport> {
    let ends = measure(plan, time)?;
    let mut report = LoadReport::new("What a packet of 1500 bytes costs".to_owned());
    for end in &ends {
        let name = end.name;
        report.add(format!("{name}: application"), end.rate, "Mbit/s");
        report.add(format!("{name}: wake-ups"), end.wakes, "/MB");
        report.add(format!("{name}: byte"), end.byte(), "ns");
        report.add(format!("{name}: packet"), end.packet, "ns");
        for centre in CostCentre::ALL {
            report.add(
                format!("{name}: {}", centre.name()),
                end.centre(centre),
                "ns",
            );
        }
    }
    Ok(report)
}

fn measure(plan: &LoadOptions, time: Duration) -> Result<[EndCost; 2]> {
    let application = MeasuredApplication::default();
    let serve = application.clone();
    let (site, _) = LoadTunnel::start(plan, move |listener| serve.serve(listener))?;
    let directory = tempfile::tempdir()?;
    let end = |name, program: &Program| {
        let file = directory.path().join(name);
        let (rate, [before, after]) = site.near(|client| {
            let looks = RefCell::new(Vec::new());
            let begin = Instant::now();
            // The measurement reads this clock twice: when it begins and when it ends.
            let clock = || {
                let look = (program.work()?, application.received());
                looks.borrow_mut().push(look);
                Ok(begin.elapsed())
            };
            let rate = std::thread::scope(|scope| {
                let sampling = scope.spawn(|| {
                    pause(WARM_UP);
                    record(program.pid(), &file, time)
                });
                let rate = upload_by(&client.forward, &application, time, &clock)?;
                let sampled = sampling.join();
                sampled.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                Ok::<_, anyhow::Error>(rate)
            })?;
            let looks = looks.into_inner().try_into();
            Ok((rate, looks.ok().context("two clock readings")?))
        })?;
        let work: Work = after.0 - before.0;
        let bytes = figure(after.1 - before.1);
        Ok::<_, anyhow::Error>(EndCost {
            name,
            rate,
            wakes: figure(work.wakes) * 1e6 / bytes,
            packet: work.time.as_secs_f64() * 1e9 * PACKET / bytes,
            samples: samples(&file)?,
        })
    };
    let ends = [
        end("client", &site.client.program)?,
        end("server", &site.server.program)?,
    ];
    site.end()?;
    Ok(ends)
}

/// Returns the text of `docs/COST.md`: four links, with the programs under test and with those of an `earlier` build.
///
/// # Errors
///
/// Fails if a tunnel does not work, or if `perf` is not installed.
pub fn document(plan: &LoadOptions, earlier: &Path, time: Duration) -> Result<String> {
    let emulated = |mbit: u64, round_trip_ms| {
        LinkKind::Emulated(EmulatedPath {
            rate: mbit * 125_000,
            round_trip: Duration::from_millis(round_trip_ms),
            jitter: Duration::ZERO,
            loss: 0.0,
        })
    };
    let links = [
        ("20 Mbit/s, 40 ms", emulated(20, 40)),
        ("600 Mbit/s, 20 ms", emulated(600, 20)),
        ("As fast as it goes, single packets", LinkKind::Packets),
        ("As fast as it goes, with offloads", LinkKind::Veth),
    ];
    let mut tables = String::new();
    for (title, link) in links {
        let now = LoadOptions {
            link,
            ..plan.clone()
        };
        let before = LoadOptions {
            programs: Some(earlier.to_owned()),
            ..now.clone()
        };
        let [client_before, server_before] = measure(&before, time)?;
        let [client, server] = measure(&now, time)?;
        let ends = [&client_before, &client, &server_before, &server];
        write!(tables, "{}", CostTable { title, ends })?;
    }
    Ok(include_str!("cost.md").replace("{tables}", tables.trim()))
}

/// The costs of one link, in Markdown.
struct CostTable<'a> {
    title: &'a str,
    /// The client before and now, the server before and now.
    ends: [&'a EndCost; 4],
}

impl fmt::Display for CostTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n## {}\n", self.title)?;
        writeln!(
            f,
            "| ns for a packet | client before | client now | server before | server now |"
        )?;
        writeln!(f, "|---|---|---|---|---|")?;
        for centre in CostCentre::ALL {
            write!(f, "| {} ", centre.name())?;
            self.row(f, 0, |end| end.centre(centre))?;
        }
        write!(f, "| **all** ")?;
        self.row(f, 0, |end| end.packet)?;
        write!(f, "| for a byte ")?;
        self.row(f, 2, EndCost::byte)?;
        write!(f, "| wake-ups for a megabyte ")?;
        self.row(f, 1, |end| end.wakes)?;
        write!(f, "| Mbit/s, sampled ")?;
        self.row(f, 0, |end| end.rate)
    }
}

impl CostTable<'_> {
    fn row(
        &self,
        f: &mut fmt::Formatter<'_>,
        digits: usize,
        value: impl Fn(&EndCost) -> f64,
    ) -> fmt::Result {
        for end in self.ends {
            write!(f, "| {:.digits$} ", value(end))?;
        }
        writeln!(f, "|")
    }
}

/// Samples a process for `time`, into `file`.
fn record(pid: u32, file: &Path, time: Duration) -> Result<()> {
    let mut perf = program::command("perf");
    perf.args([
        "record",
        "-q",
        "-e",
        "cpu-clock",
        "-F",
        FREQUENCY,
        "-g",
        "-o",
    ])
    .arg(file)
    .args(["-p", &pid.to_string(), "--", "sleep"])
    .arg(time.as_secs_f64().to_string());
    program::run(&mut perf).context("apt-get install -y linux-perf")?;
    Ok(())
}

/// Counts the samples of each centre.
fn samples(file: &Path) -> Result<BTreeMap<CostCentre, u64>> {
    let mut perf = program::command("perf");
    perf.args(["script", "-F", "ip,sym,dso", "-i"]).arg(file);
    let text = program::run(&mut perf)?;
    let centres = count(&text);
    ensure!(!centres.is_empty(), "perf has recorded no samples");
    Ok(centres)
}

fn count(text: &str) -> BTreeMap<CostCentre, u64> {
    let mut centres = BTreeMap::new();
    let mut frames: Vec<&str> = Vec::new();
    for line in text.lines().chain([""]) {
        let line = line.trim();
        if !line.is_empty() {
            frames.push(line);
            continue;
        }
        if !frames.is_empty() {
            *centres.entry(CostCentre::of(&frames)).or_default() += 1;
        }
        frames.clear();
    }
    centres
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_count_for_the_cost_centre_of_their_function_and_system_call() {
        let text = "
            ffffffffa1 _copy_from_iter ([kernel.kallsyms])
            ffffffffa2 udp_sendmsg ([kernel.kallsyms])

            ffffffffa1 skb_segment ([kernel.kallsyms])
            ffffffffa2 udp_sendmsg ([kernel.kallsyms])
            55aa seal (/usr/bin/quictun)

            ffffffffa1 veth_xmit ([veth])
            ffffffffa2 udp_sendmsg ([kernel.kallsyms])
            55aa seal (/usr/bin/quictun)

            7ffc __vdso_clock_gettime ([vdso])

            ffffffffa1 tcp_write_xmit ([kernel.kallsyms])
            ffffffffa2 __x64_sys_writev ([kernel.kallsyms])

            ffffffffa1 finish_task_switch.isra.0 ([kernel.kallsyms])
            ffffffffa2 schedule ([kernel.kallsyms])
            ffffffffa3 __x64_sys_epoll_pwait2 ([kernel.kallsyms])

            55aa ring_core_0_17_14__aes_gcm_enc_update_vaes_avx2 (/usr/bin/quictun)

            55aa quinn_proto::connection::Connection::poll_transmit (/usr/bin/quictun)

            55aa __memmove_avx_unaligned_erms (/usr/lib/libc.so.6)

            55aa quictun_engine::engine::Engine<S,R>::drive (/usr/bin/quictun)
        ";
        let counts = count(text);
        let expected = [
            (CostCentre::Waking, 1),
            (CostCentre::KernelUdp, 2),
            (CostCentre::KernelTcp, 1),
            (CostCentre::Copies, 2),
            (CostCentre::Aead, 1),
            (CostCentre::Library, 1),
            (CostCentre::Engine, 2),
        ];
        assert_eq!(counts.into_iter().collect::<Vec<_>>(), expected);
    }
}
