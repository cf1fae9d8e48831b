//! Findings about emulated links: namespaces, packet sockets, the kernel's own link emulation, BIG TCP, and TUN
//! devices.

use std::fs::OpenOptions;
use std::time::Duration;

use quictun_emu::{EmulatorConfig, KernelLink, LossUnit, RunningEmulator, World, WorldOptions};
use quictun_link::{LinkConfig, Queue, overhead};
use quictun_sys::{ContainError, Rights};

use super::finding::{Finding, Severity};
use crate::privilege;

const AREA: &str = "emulated link";

/// Segment limit that the published measurements of BIG TCP used, in bytes.
const BIG_TCP: u32 = 185_000;

pub(super) fn findings(inside: Option<Rights>, refused: Option<&ContainError>) -> Vec<Finding> {
    let mut findings = Vec::new();
    match (inside, refused) {
        (Some(rights), _) => {
            let found = match rights {
                Rights::Root => "as root",
                Rights::User => "in a user namespace, without root",
            };
            findings.push(Finding::ok(AREA, "namespaces", found));
            findings.extend(in_a_world());
        }
        (None, Some(error)) => {
            let fault = privilege::explain(error);
            let finding = Finding::ok(AREA, "namespaces", error.to_string());
            let finding =
                finding.with_severity(Severity::Bad, "no emulated link, no lab on this machine");
            findings.push(Finding {
                remedy: fault.next,
                ..finding
            });
        }
        (None, None) => {}
    }
    findings.push(tun());
    findings
}

fn in_a_world() -> Vec<Finding> {
    let world = match World::build(&WorldOptions::default()) {
        Ok(world) => world,
        Err(error) => {
            let finding = Finding::ok(AREA, "networks", error.to_string());
            return vec![
                finding.with_severity(Severity::Bad, "no emulated link, no lab on this machine"),
            ];
        }
    };
    let impaired = LinkConfig {
        delay: Duration::from_millis(1),
        ..LinkConfig::default()
    };
    let limited = LinkConfig {
        rate: Some(125_000_000),
        overhead: overhead::ETHERNET,
        queue: Queue::Packets(100),
        mtu: 1500,
        ..LinkConfig::default()
    };
    vec![
        emulator(&world),
        by_kernel("netem (delay, loss)", &impaired),
        by_kernel("TBF (rate)", &limited),
        big_tcp(),
    ]
}

fn emulator(world: &World) -> Finding {
    let way = LinkConfig::default();
    let plan = EmulatorConfig {
        up: way.clone(),
        down: way,
        seed: 1,
        coalesce: Duration::ZERO,
        loss_unit: LossUnit::Segment,
    };
    match RunningEmulator::start(world, plan).and_then(RunningEmulator::stop) {
        Ok(_) => Finding::ok(
            AREA,
            "emulator",
            "works; `quictun link calibrate` says how fast",
        ),
        Err(error) => Finding::ok(AREA, "emulator", error.to_string())
            .with_severity(Severity::Bad, "no emulated link, no lab on this machine")
            .remedy("a kernel with packet sockets (CONFIG_PACKET), and CAP_NET_RAW in containers"),
    }
}

fn by_kernel(what: &'static str, way: &LinkConfig) -> Finding {
    let tried = World::build(&WorldOptions::default())
        .map_err(|error| error.to_string())
        .and_then(|world| {
            KernelLink::start(&world, [way, way], 1).map_err(|error| error.to_string())
        });
    match tried {
        Ok(_) => Finding::ok(AREA, what, "in the kernel, too (`--backend kernel`)"),
        Err(why) => Finding::ok(AREA, what, why).with_severity(
            Severity::Note,
            "not needed, because the emulator does the same; no comparison with the kernel",
        ),
    }
}

fn big_tcp() -> Finding {
    let plan = WorldOptions {
        segment_limit: Some(BIG_TCP),
        ..WorldOptions::default()
    };
    let refused = World::build(&plan).err().map(|error| error.to_string());
    let missing = refused.is_some();
    let found = refused.unwrap_or_else(|| "IPv4 and IPv6".to_owned());
    Finding::ok(AREA, "BIG TCP", found)
        .note_if(missing, "no measurements of it")
        .remedy("Linux 6.3 or later")
}

fn tun() -> Finding {
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    let missing = opened.is_err();
    let found = opened.map_or_else(|error| error.to_string(), |_| "can be opened".to_owned());
    Finding::ok("transparent mode", "/dev/net/tun", found)
        .note_if(missing, "programs need the address of a client's listener")
        .remedy("`modprobe tun` as root; other users need permission to open it")
}
