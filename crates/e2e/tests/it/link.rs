//! `quictun link`: commands behind a link, how they end, and that they leave nothing behind.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quictun_skip::skipped;
use quictun_testbed::isolation::{isolated, with_programs};
use quictun_testbed::machine;
use quictun_testbed::program::{self, Program};
use quictun_testbed::{binaries, deadline};
use rustix::process::{Pid, Signal, kill_process};

const SOON: Duration = Duration::from_secs(20);

/// An argument of the commands below, by which they can be found.
const MARK: &str = "98765.4321";

fn shell(arguments: &[&str]) -> Result<Command> {
    let mut command = program::command(binaries::path("quictun")?);
    command.args(["link", "shell"]).args(arguments);
    Ok(command)
}

/// Counts the processes whose command line contains the mark, whatever started them.
fn marked() -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir("/proc")? {
        // Processes may end in the meantime.
        let line = fs::read(entry?.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        count += usize::from(line.starts_with("sleep\0") && line.contains(MARK));
    }
    Ok(count)
}

/// Returns the first child of a process.
fn child_of(pid: u32) -> Result<Pid> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let children = fs::read_to_string(path)?;
    let first = children.split_whitespace().next().context("no child")?;
    Pid::from_raw(first.parse()?).context("invariant: a process id is not 0")
}

#[test]
fn a_command_behind_the_link_reaches_this_machine_and_its_exit_code_is_passed_on() -> Result<()> {
    isolated(|| {
        let listener = TcpListener::bind("[::]:7777")?;
        let answering = std::thread::spawn(move || -> std::io::Result<()> {
            for _ in 0..2 {
                listener.accept()?.0.write_all(b"from this machine\n")?;
            }
            Ok(())
        });
        let fetch = "echo $QUICTUN_LINK; for far in $QUICTUN_FAR $QUICTUN_FAR6; do bash -c \"cat < /dev/tcp/$far/7777\"; done; exit 42";
        let output = shell(&["--delay", "5ms", "--", "sh", "-c", fetch])?.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.code() == Some(42),
            "{}: {said}",
            output.status
        );
        ensure!(
            output.stdout == *b"each way delay 5ms\nfrom this machine\nfrom this machine\n",
            "{:?}: {said}",
            output.stdout
        );
        ensure!(said.contains("100.127.0.1"), "{said}");
        ensure!(said.contains("verdict: "), "{said}");
        answering.join().expect("the answering thread panicked")?;
        Ok(())
    })
}

#[test]
fn a_command_that_cannot_run_ends_as_in_a_shell() -> Result<()> {
    isolated(|| {
        for (arguments, code, message) in [
            (
                &["--", "no-such-program"][..],
                127,
                "no-such-program: not found",
            ),
            (
                &["--", "/etc/passwd"],
                126,
                "/etc/passwd: Permission denied",
            ),
            (&["--", "sh", "-c", "kill -KILL $$"], 137, "ended with 137"),
            (
                &["--time-limit", "100ms", "--", "sleep", MARK],
                124,
                "--time-limit",
            ),
            (
                &["--far", "exit 3", "--", "true"],
                1,
                "ended with 3 before it opened a port",
            ),
        ] {
            let output = shell(arguments)?.output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.code() == Some(code), "{arguments:?}: {said}");
            ensure!(said.contains(message), "{arguments:?}: {said}");
        }
        ensure!(marked()? == 0, "a marked process is left");
        Ok(())
    })
}

#[test]
fn a_plan_runs_both_sides_and_reports() -> Result<()> {
    isolated(|| {
        let dir = tempfile::tempdir()?;
        let (plan, report) = (dir.path().join("plan.toml"), dir.path().join("report.json"));
        let text = r#"
            seed = 3
            time_limit = "60s"
            [link]
            rate = "50mbit"
            delay = "2ms"
            loss = "1%"
            [far]
            command = "exec nc -l 7777"
            [near]
            command = "head -c 4000000 /dev/zero | nc -N $QUICTUN_FAR 7777"
        "#;
        program::installed("nc", "netcat-openbsd")?;
        fs::write(&plan, text)?;
        let mut command = program::command(binaries::path("quictun")?);
        command
            .args(["link", "run"])
            .arg(&plan)
            .arg("--json")
            .arg(&report);
        program::run(&mut command)?;
        let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(&report)?)?;
        ensure!(report["exit_code"] == 0 && report["seed"] == 3, "{report}");
        let up = &report["achieved"]["up"];
        let (packets, lost) = (&up["packets_in"], &up["drops"]["random"]);
        ensure!(packets.as_u64() > Some(2000), "{report}");
        ensure!(lost.as_u64() > Some(0), "{report}");
        ensure!(up["drops"]["unintended"] == 0, "{report}");
        Ok(())
    })
}

#[test]
fn the_kernel_emulation_is_used_if_present() -> Result<()> {
    isolated(|| {
        program::installed("nc", "netcat-openbsd")?;
        let dir = tempfile::tempdir()?;
        let report = dir.path().join("report.json");
        let kernel = |arguments: &[&str]| -> Result<_> {
            let mut command = shell(&["--backend", "kernel", "--rate", "50mbit"])?;
            command.arg("--json").arg(&report).args(arguments);
            command.args(["--far", "exec nc -l 7777 > /dev/null", "--", "sh", "-c"]);
            let send = "head -c 1000000 /dev/zero | nc -N $QUICTUN_FAR 7777";
            let output = command.arg(send).output()?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            Ok((output.status.code(), said))
        };

        let (code, said) = kernel(&["--codel", "5ms:100ms"])?;
        ensure!(
            code == Some(2) && said.contains("do not support CoDel"),
            "{said}"
        );
        for ignored in [["--coalesce", "1ms"], ["--loss-at", "exit"]] {
            let (code, said) = kernel(&ignored)?;
            ensure!(code == Some(2) && said.contains(ignored[0]), "{said}");
        }
        for (arguments, kind) in [(&[][..], "tbf"), (&["--delay", "5ms"], "netem")] {
            let (code, said) = kernel(arguments)?;
            if !kernel_has(kind)? {
                let named = said.contains(&format!("this kernel has no {kind}"));
                ensure!(code == Some(1) && named, "{said}");
                continue;
            }
            ensure!(code == Some(0), "{said}");
            ensure!(said.contains("verdict: none"), "{said}");
            let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(&report)?)?;
            let up = &report["disciplines"]["up"][0];
            ensure!(up["kind"] == kind, "{report}");
            // A megabyte in packets of 1500 bytes: the discipline counted packets, not super-packets of 64 KiB.
            ensure!(up["packets_out"].as_u64() > Some(680), "{report}");
        }
        Ok(())
    })
}

/// Returns whether `tc` can use a queueing discipline. Changes the loopback device, which must belong to the test.
fn kernel_has(kind: &str) -> Result<bool> {
    program::installed("tc", "iproute2")?;
    let parameters: &[&str] = match kind {
        "tbf" => &["rate", "50mbit", "burst", "20kb", "latency", "50ms"],
        _ => &[],
    };
    let mut tc = Command::new("tc");
    tc.args(["qdisc", "replace", "dev", "lo", "root", kind]);
    let output = tc.args(parameters).output()?;
    Ok(output.status.success())
}

/// Starts three sleeping processes, each detached in another way, and ends the session with `end`.
fn nothing_is_left_after(end: impl FnOnce(&Program) -> Result<()>) -> Result<()> {
    let line = format!("(sleep {MARK} &) ; setsid sleep {MARK} & sleep {MARK}");
    let mut session = Program::start("link", &mut shell(&["--", "sh", "-c", &line])?)?;
    deadline::wait(
        "three sleepers",
        SOON,
        || Ok((marked()? == 3).then_some(())),
    )?;
    let links = machine::run("ip -brief link")?;
    ensure!(links.contains("quictun0"), "{links}");
    end(&session)?;
    session.wait_end(SOON)?;
    deadline::wait("the sleeping processes to end", SOON, || {
        Ok((marked()? == 0).then_some(()))
    })?;
    // The kernel removes a network namespace some time after its last process ends.
    deadline::wait("the link's devices to be removed", SOON, || {
        let links = machine::run("ip -brief link")?;
        Ok((!links.contains("quictun")).then_some(()))
    })
}

#[test]
fn an_interrupt_leaves_nothing_behind() -> Result<()> {
    isolated(|| {
        nothing_is_left_after(|session| session.signal(Signal::INT))?;
        nothing_is_left_after(|session| session.signal(Signal::TERM))
    })
}

#[test]
fn a_calibration_ends_when_it_is_interrupted() -> Result<()> {
    isolated(|| {
        let mut command = program::command(binaries::path("quictun")?);
        command.args(["link", "calibrate", "--duration", "60s"]);
        let mut calibration = Program::start("calibrate", &mut command)?;
        calibration.wait_for("verdict", SOON)?;
        calibration.signal(Signal::INT)?;
        let status = calibration.wait_end(SOON)?;
        ensure!(status.code() == Some(130), "{status}");
        Ok(())
    })
}

#[test]
fn a_killed_session_leaves_no_process() -> Result<()> {
    isolated(|| {
        nothing_is_left_after(|session| session.signal(Signal::KILL))?;
        // The process with the emulator is the child of the process that setpriv became.
        nothing_is_left_after(|session| {
            kill_process(child_of(session.pid())?, Signal::KILL).context("killing the emulator")
        })
    })
}

#[test]
fn without_root_the_far_network_is_reachable() -> Result<()> {
    with_programs(|| {
        let test = "without_root_the_far_network_is_reachable";
        let quictun = binaries::path("quictun")?;
        let as_nobody = || {
            let mut command = Command::new("setpriv");
            let who = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
            command.args(who).arg("--").arg(&quictun);
            command
        };
        let mut command = if !rustix::process::getuid().is_root() {
            Command::new(&quictun)
        } else if as_nobody().arg("version").output()?.status.success() {
            as_nobody()
        } else {
            skipped(test, "user nobody cannot run the program");
            return Ok(());
        };
        let far = "bash -c 'echo from the far side | nc -N -l 7777'";
        program::installed("nc", "netcat-openbsd")?;
        let near = "cat < /dev/tcp/$QUICTUN_FAR/7777";
        let output = command
            .args([
                "link", "shell", "--loss", "1%", "--far", far, "--", "bash", "-c", near,
            ])
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("does not allow this process to make namespaces") {
            skipped(test, said.trim());
            return Ok(());
        }
        ensure!(output.status.success(), "{}: {said}", output.status);
        ensure!(output.stdout == b"from the far side\n", "{said}");
        Ok(())
    })
}

#[test]
fn an_error_states_how_to_permit_namespaces() -> Result<()> {
    isolated(|| {
        // A user namespace that allows no further namespaces, with a root user that lacks CAP_SYS_ADMIN.
        let line = "echo 0 > /proc/sys/user/max_user_namespaces && \
                    exec setpriv --bounding-set -sys_admin -- \"$@\"";
        let run = |arguments: &[&str]| -> Result<_> {
            let mut command = program::command("unshare");
            command.args(["--user", "--map-root-user", "--", "sh", "-c", line, "sh"]);
            command.arg(binaries::path("quictun")?).args(arguments);
            Ok(command.output()?)
        };
        let output = run(&["link", "shell", "--", "true"])?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(1), "{said}");
        ensure!(
            said.contains("does not allow this process to make namespaces")
                && said.contains("run it as root")
                && said.contains("sysctl user.max_user_namespaces="),
            "{said}"
        );
        Ok(())
    })
}

#[test]
fn virtual_and_real_time_are_compared_and_loss_of_packets_with_loss_of_super_packets() -> Result<()>
{
    isolated(|| {
        let dir = tempfile::tempdir()?;
        let json = dir.path().join("table.json");
        let compare = |what: &str, more: &[&str]| -> Result<serde_json::Value> {
            let mut command = program::command(binaries::path("quictun")?);
            command.args(["link", what, "--runs", "1", "--duration", "300ms", "--json"]);
            let output = command.arg(&json).args(more).output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{}: {said}", output.status);
            Ok(serde_json::from_str(&fs::read_to_string(&json)?)?)
        };
        let cell = ["--cells", "20mbit:4ms:0", "--loads", "tunnel,cubic"];
        let table = compare("check", &cell)?;
        for (row, load) in [(0, "tunnel"), (1, "cubic")] {
            let row = &table["rows"][row];
            ensure!(row["load"] == load, "{table}");
            for rate in ["virtual_bit_per_s", "real_bit_per_s"] {
                // At most the link's rate; a busy machine may reduce it.
                let rate = row[rate].as_u64().context("a rate")?;
                ensure!((1..=20_000_000).contains(&rate), "{table}");
            }
        }
        let cell = ["--cells", "100mbit:4ms:0", "--loads", "cubic"];
        let table = compare("artefact", &cell)?;
        for side in ["per_segment", "per_super_packet"] {
            let packets = &table["rows"][0][side]["packets_per_frame"];
            ensure!(
                packets.as_f64().is_some_and(|packets| packets > 1.5),
                "{table}"
            );
        }
        Ok(())
    })
}
