//! The two processes of `--tun`: their descriptors and rights, and the consequences when one dies.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use quictun_testbed::application::Application;
use quictun_testbed::binaries;
use quictun_testbed::deadline;
use quictun_testbed::environment;
use quictun_testbed::isolation::isolated_with;
use quictun_testbed::machine;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::detour::{Lan, end, routing};
use crate::wrapped::HOSTS;

const SOON: Duration = Duration::from_secs(20);

/// The number of times that each of the two processes is killed, unless `QUICTUN_E2E_KILLS` is set.
const KILLS: usize = 3;

/// Finds a process of the pair by a word of its command line.
pub(crate) fn process(word: &str) -> Result<Option<u32>> {
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else {
            continue;
        };
        // The process may have ended just now.
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if line
            .split(|byte| *byte == 0)
            .any(|it| it == word.as_bytes())
        {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}

const NETSTACKD: &str = "quictun-netstackd";
pub(crate) const CLIENT: &str = "--netstack-fd";

/// The number of bytes in one write.
const BLOCK: usize = 16 * 1024;

/// Returns what the descriptors of a process refer to.
fn descriptors(pid: u32) -> Result<BTreeSet<PathBuf>> {
    let all = fs::read_dir(format!("/proc/{pid}/fd"))?;
    all.map(|entry| Ok(fs::read_link(entry?.path())?)).collect()
}

fn check_rights(pid: u32) -> Result<()> {
    // Rights are per thread.
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = fs::read_to_string(task?.path().join("status"))?;
        for (name, value) in [
            ("CapInh", "0000000000000000"),
            ("CapPrm", "0000000000000000"),
            ("CapEff", "0000000000000000"),
            ("CapBnd", "0000000000000000"),
            ("CapAmb", "0000000000000000"),
            ("NoNewPrivs", "1"),
            ("Seccomp", "2"),
        ] {
            let found = status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            ensure!(
                found.map(str::trim) == Some(value),
                "{name} is not {value}: {status}"
            );
        }
    }
    Ok(())
}

#[test]
fn the_device_process_has_no_network_and_the_key_process_no_device() -> Result<()> {
    isolated_with(Lan::start, |lan| {
        let client = lan.client(&[])?;
        lan.check_through(&HOSTS)?;
        let netstackd = process(NETSTACKD)?.context("no process with the network stack")?;
        check_rights(netstackd)?;
        let all = descriptors(netstackd)?;
        let named = |word: &str| {
            let all = all.iter().map(|it| it.to_string_lossy().into_owned());
            all.filter(|it| it.starts_with(word)).count()
        };
        // It may hold only the socket to the client, and no network socket.
        ensure!(
            named("socket:") == 1 && named("/dev/net/tun") == 1,
            "{all:?}"
        );
        let sockets = machine::run("ss -Hanp")?;
        let known = sockets
            .lines()
            .filter(|line| line.contains(&format!("pid={netstackd},")));
        ensure!(
            known.clone().all(|line| line.starts_with("u_seq")),
            "{sockets}"
        );
        let keys = process(CLIENT)?.context("no client process")?;
        check_rights(keys)?;
        let all = descriptors(keys)?;
        ensure!(
            !all.iter().any(|it| it.starts_with("/dev/net/tun")),
            "{all:?}"
        );
        end(client)
    })
}

/// Kills a process of the pair, as a crash or the out-of-memory killer would.
pub(crate) fn crash(word: &str) -> Result<()> {
    let pid = process(word)?.with_context(|| format!("no {word}"))?;
    let pid = Pid::from_raw(pid.cast_signed()).context("process id 0")?;
    Ok(kill_process(pid, Signal::KILL)?)
}

/// Connects through the tunnel, retrying until a connection has carried a byte in both directions.
fn connect(address: SocketAddr) -> Result<TcpStream> {
    let deadline = Instant::now() + SOON;
    loop {
        let tried = TcpStream::connect_timeout(&address, SOON).and_then(|mut stream| {
            stream.set_read_timeout(Some(SOON))?;
            stream.write_all(b"x")?;
            stream.read_exact(&mut [0; 1])?;
            Ok(stream)
        });
        match tried {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > deadline => {
                return Err(error).context("connections through the tunnel no longer work");
            }
            // Connections are refused or reset while the pair is being replaced.
            Err(_) => {}
        }
    }
}

/// Returns true if the error is a reset. The kernel reports it only once, to the first read or write.
fn is_cut(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
    )
}

/// Reads until the connection has ended; returns true if it was reset.
fn read_on(mut stream: TcpStream) -> Result<bool> {
    let mut buffer = vec![0; BLOCK];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(error) if is_cut(&error) => return Ok(true),
            Err(error) => return Err(error).context("the connection ended, but not with a reset"),
        }
    }
}

#[test]
fn either_process_may_be_killed_under_load() -> Result<()> {
    let kills = environment::number("QUICTUN_E2E_KILLS", KILLS)?;
    isolated_with(Lan::start, |lan| {
        let before = routing()?;
        let client = lan.client(&[])?;
        let during = routing()?;
        let mut echoes = Vec::new();
        for host in HOSTS {
            let address = SocketAddr::new(host.parse()?, 0);
            let echo = lan
                .far
                .within(|| Application::tcp_on(address, quictun_testbed::application::echo))?;
            echoes.push(SocketAddr::new(host.parse()?, echo.endpoint().port()?));
        }
        for kill in 0..2 * kills {
            let word = if kill % 2 == 0 { NETSTACKD } else { CLIENT };
            // One connection that transfers bytes in both directions, and one that is idle.
            let busy = connect(echoes[kill % echoes.len()])?;
            let idle = connect(echoes[(kill + 1) % echoes.len()])?;
            let mut writer = busy.try_clone()?;
            let load = std::thread::spawn(move || {
                loop {
                    if let Err(error) = writer.write_all(&[7; BLOCK]) {
                        return is_cut(&error);
                    }
                }
            });
            let mut reader = busy.try_clone()?;
            let mut moved = 0;
            while moved < 1 << 20 {
                let read = reader.read(&mut [0; BLOCK])?;
                ensure!(read > 0, "{word}, {kill}: the echo has ended");
                moved += read;
            }
            crash(word)?;
            let read = read_on(busy).with_context(|| format!("{word}, busy, {kill}"))?;
            let written = load.join().is_ok_and(|cut| cut);
            ensure!(
                read || written,
                "{word}, busy, {kill}: the cut looked like an end"
            );
            let read = read_on(idle).with_context(|| format!("{word}, idle, {kill}"))?;
            ensure!(read, "{word}, idle, {kill}: it looked like an end");
            drop(connect(echoes[0])?);
            ensure!(routing()? == during, "routing changed by {word}");
        }
        end(client)?;
        let after = routing()?;
        ensure!(before == after, "before:\n{before}\nafter:\n{after}");
        Ok(())
    })
}

/// Sends a byte to the echo and back.
fn echo(stream: &mut TcpStream) -> Result<()> {
    stream.write_all(b"y")?;
    stream.read_exact(&mut [0; 1])?;
    Ok(())
}

#[test]
fn a_signal_to_the_whole_group_drains() -> Result<()> {
    isolated_with(Lan::start, |lan| {
        let mut client = lan.client(&[])?;
        let address = SocketAddr::new(HOSTS[0].parse()?, 0);
        let far = lan
            .far
            .within(|| Application::tcp_on(address, quictun_testbed::application::echo))?;
        let address = SocketAddr::new(HOSTS[0].parse()?, far.endpoint().port()?);
        let mut open = connect(address)?;
        // As Ctrl-C at a terminal does.
        let group = Pid::from_raw(client.pid().cast_signed()).context("process id 0")?;
        kill_process_group(group, Signal::INT)?;
        client.wait_for("open flows may finish", SOON)?;
        echo(&mut open).context("an open connection must be able to finish")?;
        open.shutdown(std::net::Shutdown::Write)?;
        ensure!(open.read(&mut [0; 1])? == 0, "too many bytes");
        let status = client.wait_end(SOON)?;
        ensure!(status.success(), "{status}");
        Ok(())
    })
}

#[test]
fn a_process_that_dies_after_a_hangup_is_still_replaced() -> Result<()> {
    isolated_with(Lan::start, |lan| {
        let mut client = lan.client(&[])?;
        client.signal(Signal::HUP)?;
        client.wait_for("log files are opened again", SOON)?;
        crash(CLIENT)?;
        client.wait_for("the client has died", SOON)?;
        let address = SocketAddr::new(HOSTS[0].parse()?, 0);
        let far = lan
            .far
            .within(|| Application::tcp_on(address, quictun_testbed::application::echo))?;
        drop(connect(SocketAddr::new(
            HOSTS[0].parse()?,
            far.endpoint().port()?,
        ))?);
        end(client)
    })
}

/// Returns the id of a process's parent, unless the process has ended.
fn parent(pid: Pid) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}

/// Stops the next process with this word in its command line, before it has done much. Returns its id.
fn stop_next(word: &str, before: Option<u32>) -> Result<Pid> {
    let start = Instant::now();
    // This loop does not pause: the process must not have prepared for its parent's end.
    loop {
        match process(word)? {
            Some(pid) if Some(pid) != before => {
                let pid = Pid::from_raw(pid.cast_signed()).context("process id 0")?;
                kill_process(pid, Signal::STOP)?;
                return Ok(pid);
            }
            _ => ensure!(start.elapsed() < SOON, "no other {word} has started"),
        }
    }
}

#[test]
fn a_pair_that_still_starts_ends_with_its_parent() -> Result<()> {
    isolated_with(Lan::start, |lan| {
        let mut client = lan.client(&[])?;
        let before = [NETSTACKD, CLIENT].map(process);
        crash(CLIENT)?;
        let [netstackd, key_holder] = before;
        let pair = [
            stop_next(NETSTACKD, netstackd?)?,
            stop_next(CLIENT, key_holder?)?,
        ];
        client.signal(Signal::KILL)?;
        for pid in pair {
            deadline::until("the process to be adopted or to end", SOON, || {
                // A process that is killed with its parent has no status any more, or that of a zombie.
                parent(pid).is_none_or(|parent| parent != client.pid())
            })?;
            // The process may have ended.
            if kill_process(pid, Signal::CONT).is_err() {}
        }
        for word in [CLIENT, NETSTACKD] {
            deadline::wait(word, SOON, || Ok(process(word)?.is_none().then_some(())))?;
        }
        client.wait_end(SOON).map(drop)
    })
}

#[test]
fn a_new_pair_finds_its_old_device_or_none() -> Result<()> {
    isolated_with(Lan::start, |lan| {
        let mut client = lan.client(&[])?;
        machine::run("ip link set quictun0 down")?;
        crash(NETSTACKD)?;
        client.wait_for("has died", SOON)?;
        deadline::wait("both families to go through the tunnel", SOON, || {
            Ok(lan.check_through(&HOSTS).is_ok().then_some(()))
        })?;
        machine::run("ip link delete quictun0")?;
        let status = client.wait_end(SOON)?;
        ensure!(status.code() == Some(1), "{status}");
        let said = client.lines();
        let gone = said
            .iter()
            .filter(|line| line.contains("quictun0 is gone"))
            .count();
        ensure!(gone == 1, "{said:?}");
        Ok(())
    })
}

#[test]
fn a_pair_is_replaced_after_an_upgrade_in_place() -> Result<()> {
    isolated_with(Lan::start, |lan| {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("quictun");
        fs::copy(binaries::path("quictun")?, &file)?;
        let mut client = lan.client_from(&file)?;
        fs::remove_file(&file)?;
        fs::write(&file, "another version")?;
        crash(CLIENT)?;
        client.wait_for("has died", SOON)?;
        deadline::wait("a connection through the tunnel", SOON, || {
            Ok(lan.check_through(&HOSTS).is_ok().then_some(()))
        })?;
        end(client)
    })
}
