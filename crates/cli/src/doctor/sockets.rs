//! Findings about a tunnel's needs: UDP segmentation and buffers, file descriptors, and TCP congestion controllers.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};

use quictun_sys::{BufferSide, raise_nofile_limit, socket_buffer_force};
use quinn_udp::{UdpSockRef, UdpSocketState};

use super::finding::{Finding, Severity};
use super::machine::read;

const AREA: &str = "tunnel";

/// Buffer size that a worker asks for, in bytes.
const BUFFER: usize = 8 << 20;

/// Minimum size of a buffer, in bytes. A smaller one overflows within one or two milliseconds at 10 Gbit/s.
const BUFFER_LEAST: usize = 4 << 20;

/// Minimum limit of descriptors: two for each of a thousand flows, with room to spare.
const NOFILE_LEAST: u64 = 4096;

pub(super) fn findings() -> Vec<Finding> {
    let mut findings = udp().unwrap_or_else(|error| {
        let finding = Finding::ok(AREA, "UDP", error.to_string());
        vec![finding.with_severity(Severity::Bad, "no UDP socket, no tunnel")]
    });
    findings.push(descriptors());
    findings.extend(controllers());
    findings
}

fn udp() -> io::Result<Vec<Finding>> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
    let (out, back) = (state.max_gso_segments(), state.gro_segments());
    let batches = |what, count: usize, cost| {
        let found = match count {
            0 | 1 => "one at a time".to_owned(),
            _ => format!("up to {count} at once"),
        };
        Finding::ok(AREA, what, found).note_if(count <= 1, cost)
    };
    let mut findings = vec![
        batches(
            "packets out (GSO)",
            out,
            "a system call for each: about three times the time",
        ),
        batches(
            "packets in (GRO)",
            back,
            "each goes up the stack alone: about twice the time",
        ),
    ];
    for (what, side, setting) in [
        ("receive buffer", BufferSide::Receive, "net.core.rmem_max"),
        ("send buffer", BufferSide::Send, "net.core.wmem_max"),
    ] {
        let granted = socket_buffer_force(&socket, side, BUFFER)?;
        let finding = Finding::ok(AREA, what, format!("{} KiB", granted >> 10))
            .note_if(
                granted < BUFFER_LEAST,
                "bursts overflow it, which looks like loss on the path",
            )
            .remedy(format!("`quictun tune` sets {setting}"));
        findings.push(finding);
    }
    Ok(findings)
}

fn descriptors() -> Finding {
    let limit = raise_nofile_limit().unwrap_or(0);
    let found = match limit {
        u64::MAX => "no limit".to_owned(),
        limit => limit.to_string(),
    };
    Finding::ok(AREA, "open descriptors", found)
        .note_if(
            limit < NOFILE_LEAST,
            format!("about {} connections at once", limit / 2),
        )
        .remedy("LimitNOFILE= in its systemd unit, or `ulimit -Hn` in the shell that starts it")
}

fn controllers() -> Option<Finding> {
    let available = read("/proc/sys/net/ipv4/tcp_available_congestion_control")?;
    let current = read("/proc/sys/net/ipv4/tcp_congestion_control")?;
    let missing: Vec<&str> = ["cubic", "bbr"]
        .into_iter()
        .filter(|name| !available.split_whitespace().any(|known| known == *name))
        .collect();
    let found = format!("{available} ({current} unless asked)");
    let finding = Finding::ok(AREA, "TCP's controllers", found)
        .note_if(
            !missing.is_empty(),
            format!("no comparison with {}", missing.join(" and ")),
        )
        .remedy(format!(
            "`modprobe tcp_{}` as root",
            missing.first().unwrap_or(&"")
        ));
    Some(finding)
}
