//! Leaks: sends packets of every kind in every state of a tunnel, and counts them on the cable. No packet may leave
//! outside the tunnel except those that docs/OPERATIONS.md names: to neighbours, on this link, and answers to
//! connections from outside.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use quictun_testbed::deadline;
use quictun_testbed::isolation::isolated_with;
use quictun_testbed::leaks::probe::send_all;
use quictun_testbed::leaks::tap::Tap;
use quictun_testbed::leaks::{PROTOCOLS, PacketKind};
use quictun_testbed::machine;
use quictun_testbed::program::{Program, lower_own_priority, output};
use rustix::process::Signal;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::apart::{CLIENT, crash};
use crate::detour::{Lan, SERVER, accept, end, routing};
use crate::wrapped::HOSTS;

const SOON: Duration = Duration::from_secs(20);

/// The device at this end of the cable.
const DEVICE: &str = "lan0";

/// Routes that a hostile DHCP server and a hostile router hand out: to everything, in halves and quarters, and to
/// single addresses. An honest network hands out only the first two.
const ROUTES: [&str; 12] = [
    "ip route replace default via 10.1.0.2",
    "ip -6 route replace default via fd00:1::2",
    "ip route replace 0.0.0.0/1 via 10.1.0.2",
    "ip route replace 128.0.0.0/1 via 10.1.0.2",
    "ip route replace 192.0.0.0/2 via 10.1.0.2",
    "ip route replace 203.0.113.0/24 via 10.1.0.2",
    "ip route replace 203.0.113.9/32 via 10.1.0.2",
    "ip -6 route replace ::/1 via fd00:1::2",
    "ip -6 route replace 8000::/1 via fd00:1::2",
    "ip -6 route replace 2000::/3 via fd00:1::2",
    "ip -6 route replace 2001:db8::/32 via fd00:1::2",
    "ip -6 route replace 2001:db8::9/128 via fd00:1::2",
];

/// The number of routes at the front that an honest network hands out.
const HONEST: usize = 2;

/// Environment variable that is set in a test that runs under `quictun run`.
const BEHIND: &str = "QUICTUN_E2E_LEAKS_BEHIND";

fn targets() -> Result<Vec<IpAddr>> {
    Ok(HOSTS
        .iter()
        .map(|it| it.parse())
        .collect::<Result<_, _>>()?)
}

fn routes(lines: &[&str]) -> Result<()> {
    lines
        .iter()
        .try_for_each(|line| machine::run(line).map(drop))
}

/// Sets the device down and up, and restores what it lost.
fn flap() -> Result<()> {
    machine::run("ip link set lan0 down")?;
    machine::run("ip link set lan0 up")?;
    machine::run("ip address replace fd00:1::1/64 dev lan0 nodad")?;
    routes(&ROUTES)
}

fn tap(lan: &Lan) -> Result<Tap> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{DEVICE}/address"));
    // If /sys does not show this network, use `ip`.
    let text = text.or_else(|_| machine::run("ip -o link show lan0"))?;
    let words = text.split_whitespace().filter(|word| word.len() == 17);
    let word = words.clone().next().context("no hardware address")?;
    let mut mac = [0; 6];
    for (byte, hex) in mac.iter_mut().zip(word.split(':')) {
        *byte = u8::from_str_radix(hex, 16)?;
    }
    let server = SocketAddr::new(SERVER.parse()?, 7500);
    Tap::start(&lan.far, mac, server, "10.1.0.3".parse()?)
}

/// Checks that no packet has left outside the tunnel since the last look.
fn check_no_leak(tap: &mut Tap, state: &str) -> Result<()> {
    let (kinds, others) = tap.take()?;
    let kinds: BTreeMap<_, _> = kinds.iter().map(|(it, n)| (it.to_string(), n)).collect();
    ensure!(
        kinds.is_empty() && others.is_empty(),
        "{state}: packets left outside the tunnel: {kinds:?} {others:?}"
    );
    Ok(())
}

/// Checks that the tap sees packets of all kinds when there is no tunnel.
fn check_open(tap: &mut Tap) -> Result<()> {
    tap.take()?;
    send_all(&targets()?, DEVICE)?;
    let (kinds, _) = tap.take()?;
    let seen: BTreeSet<PacketKind> = kinds.keys().copied().collect();
    for protocol in PROTOCOLS {
        for v6 in [false, true] {
            let kind = PacketKind { protocol, v6 };
            ensure!(seen.contains(&kind), "{kind} was not seen: {kinds:?}");
        }
    }
    Ok(())
}

/// Sends packets continuously while `act` runs, and a few more rounds afterwards.
fn while_sending(act: impl FnOnce() -> Result<()>) -> Result<()> {
    let (ended, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    let targets = targets()?;
    std::thread::scope(|scope| {
        let sends = scope.spawn(|| {
            // The programs under test carry what this thread sends, and must keep up with it.
            lower_own_priority()?;
            while !ended.load(Ordering::Relaxed) {
                send_all(&targets, DEVICE)?;
                rounds.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
        let done = act();
        let before = rounds.load(Ordering::Relaxed);
        let more = deadline::until("more rounds of packets", SOON, || {
            sends.is_finished() || rounds.load(Ordering::Relaxed) > before + 2
        });
        ended.store(true, Ordering::Relaxed);
        let sent = sends
            .join()
            .map_err(|_| anyhow::anyhow!("the sending thread panicked"))?;
        done.and(more).and(sent)
    })
}

/// Connects from the far machine to a listener here, from an address that this host reaches only through the tunnel.
fn connect_from_outside(lan: &Lan, listener: &TcpListener) -> Result<(TcpStream, TcpStream)> {
    let port = listener.local_addr()?.port();
    let far = lan.far.within(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SockAddr::from(SocketAddr::new(HOSTS[0].parse()?, 0)))?;
        let here = SocketAddr::new("10.1.0.1".parse()?, port);
        socket.connect_timeout(&here.into(), SOON)?;
        Ok(TcpStream::from(socket))
    });
    let far = far.context("connecting from outside")?;
    let (near, _) = accept(listener)?;
    for stream in [&far, &near] {
        stream.set_read_timeout(Some(SOON))?;
    }
    Ok((near, far))
}

fn echo(near: &mut TcpStream, far: &mut TcpStream) -> Result<()> {
    let mut byte = [0];
    near.write_all(b"n")?;
    far.read_exact(&mut byte).context("to outside")?;
    far.write_all(b"f")?;
    near.read_exact(&mut byte).context("from outside")?;
    Ok(())
}

/// Checks that connections from outside work: one that was open before, and a new one.
fn check_reached(
    lan: &Lan,
    tap: &mut Tap,
    listener: &TcpListener,
    open: &mut (TcpStream, TcpStream),
    state: &str,
) -> Result<()> {
    echo(&mut open.0, &mut open.1).with_context(|| format!("{state}: opened before"))?;
    let (mut near, mut far) = connect_from_outside(lan, listener).context(state.to_owned())?;
    echo(&mut near, &mut far).with_context(|| format!("{state}: a new connection"))?;
    drop((near, far));
    tap.take().map(drop)
}

fn kill_all(client: &mut Program) -> Result<()> {
    client.signal(Signal::KILL)?;
    client.wait_end(SOON)?;
    for process in [CLIENT, "quictun-netstackd"] {
        deadline::wait("the other processes to end", SOON, || {
            Ok(crate::apart::process(process)?.is_none().then_some(()))
        })?;
    }
    Ok(())
}

fn quictun(lan: &Lan, arguments: &[&str]) -> Result<(bool, String)> {
    let ended = output(lan.quictun()?.args(arguments))?;
    let text = [ended.stdout, ended.stderr].concat();
    Ok((
        ended.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    ))
}

#[test]
fn nothing_leaves_beside_a_tunnel_for_the_host_in_any_state() -> Result<()> {
    isolated_with(Lan::start, |mut lan| {
        routes(&ROUTES[..HONEST])?;
        let mut tap = tap(&lan)?;
        check_open(&mut tap).context("without a tunnel, before the client starts")?;
        let before = routing()?;
        let listener = TcpListener::bind("0.0.0.0:0")?;
        let mut open = connect_from_outside(&lan, &listener)?;
        let mut client = lan.client(&["--dns", "203.0.113.53"])?;
        check_reached(&lan, &mut tap, &listener, &mut open, "up")?;
        while_sending(|| lan.check_through(&HOSTS))?;
        check_no_leak(&mut tap, "up")?;
        // DNS queries to a neighbour must go through the tunnel.
        send_all(&["10.1.0.3".parse()?], DEVICE)?;
        let (kinds, _) = tap.take()?;
        let names = kinds.keys().any(|it| it.to_string() == "Dns/v4");
        ensure!(!names && !kinds.is_empty(), "{kinds:?}");
        while_sending(|| {
            routes(&ROUTES)?;
            lan.check_through(&HOSTS)
        })?;
        check_no_leak(&mut tap, "hostile routes")?;
        check_reached(&lan, &mut tap, &listener, &mut open, "hostile routes")?;
        while_sending(flap)?;
        check_no_leak(&mut tap, "interface flap")?;
        while_sending(|| {
            crash(CLIENT)?;
            client.wait_for("has died", SOON).map(drop)
        })?;
        check_no_leak(&mut tap, "client killed")?;
        while_sending(|| lan.kill_server())?;
        check_no_leak(&mut tap, "server dead")?;
        check_reached(&lan, &mut tap, &listener, &mut open, "server dead")?;
        while_sending(|| kill_all(&mut client))?;
        check_no_leak(&mut tap, "supervisor killed")?;
        while_sending(flap)?;
        check_no_leak(&mut tap, "supervisor killed, and interface flap")?;
        check_reached(&lan, &mut tap, &listener, &mut open, "supervisor killed")?;
        while_sending(|| machine::run("ip link delete quictun0").map(drop))?;
        check_no_leak(&mut tap, "supervisor killed, and device deleted")?;
        check_reached(&lan, &mut tap, &listener, &mut open, "device deleted")?;
        let (done, said) = quictun(&lan, &["down"])?;
        ensure!(done && said.contains("removed"), "{said}");
        let (done, said) = quictun(&lan, &["down"])?;
        ensure!(done && said.contains("nothing to remove"), "{said}");
        check_open(&mut tap).context("after `quictun down`")?;
        routes(&[
            "ip route flush 0.0.0.0/1",
            "ip route flush 128.0.0.0/1",
            "ip route flush 192.0.0.0/2",
            "ip route flush root 203.0.113.0/24",
            "ip -6 route flush ::/1",
            "ip -6 route flush 8000::/1",
            "ip -6 route flush 2000::/3",
            "ip -6 route flush root 2001:db8::/32",
        ])?;
        let after = routing()?;
        ensure!(before == after, "before:\n{before}\nafter:\n{after}");
        Ok(())
    })
}

#[test]
fn nothing_leaves_beside_a_tunnel_for_one_command_in_any_state() -> Result<()> {
    if let Some(rounds) = std::env::var_os(BEHIND) {
        lower_own_priority()?;
        // This loop runs until the process is killed.
        for round in 0_u64.. {
            send_all(&targets()?, DEVICE)?;
            std::fs::write(&rounds, round.to_string())?;
        }
    }
    isolated_with(Lan::start, |mut lan| {
        routes(&ROUTES[..HONEST])?;
        let mut tap = tap(&lan)?;
        check_open(&mut tap).context("without a tunnel, before the command starts")?;
        let directory = tempfile::tempdir()?;
        let rounds = directory.path().join("rounds");
        let mut command = lan.run_command(&["--dns", "203.0.113.53"])?;
        command.args(["--"]).arg(std::env::current_exe()?);
        command.args([
            "--exact",
            "leaks::nothing_leaves_beside_a_tunnel_for_one_command_in_any_state",
            "--nocapture",
        ]);
        command.env(BEHIND, &rounds);
        let mut run = Program::start("quictun run", &mut command)?;
        let more = |run: &mut Program| {
            let round = || {
                let text = std::fs::read_to_string(&rounds).unwrap_or_default();
                text.parse::<u64>().unwrap_or_default()
            };
            let before = round();
            deadline::wait("more rounds of packets", SOON, || {
                ensure!(run.ended()?.is_none(), "it ended: {:?}", run.lines());
                Ok((round() > before + 2).then_some(()))
            })
        };
        more(&mut run)?;
        check_no_leak(&mut tap, "up")?;
        routes(&ROUTES)?;
        more(&mut run)?;
        check_no_leak(&mut tap, "hostile routes")?;
        flap()?;
        more(&mut run)?;
        check_no_leak(&mut tap, "interface flap")?;
        crash(CLIENT)?;
        run.wait_for("has died", SOON)?;
        more(&mut run)?;
        check_no_leak(&mut tap, "client killed")?;
        lan.kill_server()?;
        more(&mut run)?;
        check_no_leak(&mut tap, "server dead")?;
        run.kill()?;
        check_no_leak(&mut tap, "supervisor killed")?;
        check_open(&mut tap).context("without a tunnel, after the command was killed")
    })
}

#[test]
fn with_fail_open_traffic_leaves_when_all_are_killed_and_the_next_start_cleans_up() -> Result<()> {
    isolated_with(Lan::start, |lan| {
        routes(&ROUTES[..HONEST])?;
        let mut tap = tap(&lan)?;
        let before = routing()?;
        let mut client = lan.client(&["--fail-open"])?;
        tap.take()?;
        while_sending(|| lan.check_through(&HOSTS))?;
        // With `--fail-open`, packets bound to a device leave through it; discard what the tap saw.
        tap.take()?;
        kill_all(&mut client)?;
        check_open(&mut tap)?;
        let mut client = lan.client(&[])?;
        client.wait_for("removed the rules and routes", SOON)?;
        while_sending(|| lan.check_through(&HOSTS))?;
        tap.take()?;
        send_all(&targets()?, DEVICE)?;
        check_no_leak(&mut tap, "the next client")?;
        let (done, said) = quictun(&lan, &["down"])?;
        ensure!(!done && said.contains("stop that client first"), "{said}");
        end(client)?;
        let after = routing()?;
        ensure!(before == after, "before:\n{before}\nafter:\n{after}");
        check_open(&mut tap)
    })
}

/// Starts a client that needs a confirmation, checks that it undoes its changes without one, and returns it. The limit
/// of the confirmation counts from the client's start: if a slow machine needs longer to connect, the next client has a
/// longer limit.
fn unconfirmed(lan: &Lan, flags: &[&str]) -> Result<Program> {
    let before = routing()?;
    let ssh = format!("{} 50000 10.1.0.1 22", HOSTS[0]);
    for limit in [1, 4, 16] {
        let seconds = limit.to_string();
        let mut command = lan.client_command(&[flags, &["--confirm", &seconds]].concat())?;
        let mut client = Program::start("client", command.env("SSH_CONNECTION", &ssh))?;
        client.wait_for(
            &format!("confirm within {limit} s with `quictun confirm`"),
            SOON,
        )?;
        client.wait_end(SOON + Duration::from_secs(limit))?;
        ensure!(client.has_printed("not confirmed"), "{:?}", client.lines());
        let after = routing()?;
        ensure!(before == after, "before:\n{before}\nafter:\n{after}");
        if client.has_printed("connected to server endpoint") {
            return Ok(client);
        }
    }
    bail!("no client connected within its limit")
}

#[test]
fn unconfirmed_changes_are_undone_and_confirmed_ones_stay() -> Result<()> {
    isolated_with(Lan::start, |lan| {
        let client = unconfirmed(&lan, &[])?;
        let warned = client.has_printed("you are connected from 203.0.113.9");
        ensure!(warned, "{:?}", client.lines());
        let (done, said) = quictun(&lan, &["confirm"])?;
        let unawaited = said.starts_with("quictun: confirm: no client waits for it\n");
        ensure!(!done && unawaited, "{said}");
        unconfirmed(&lan, &["--one-process"])?;
        let mut client = lan.client(&["--confirm", "60"])?;
        let (done, said) = quictun(&lan, &["confirm"])?;
        ensure!(done && said == "confirmed\n", "{said}");
        client.wait_for("quictun: confirmed", SOON)?;
        lan.check_through(&HOSTS)?;
        end(client)
    })
}

#[test]
fn without_rights_one_error_states_the_remedy() -> Result<()> {
    isolated_with(Lan::start, |lan| {
        let client = lan.client_command(&[])?;
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-net_admin", "--inh-caps", "-all", "--"]);
        command.arg(client.get_program()).args(client.get_args());
        for (name, value) in client.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        let ended = output(&mut command)?;
        let said = String::from_utf8_lossy(&ended.stderr);
        let lines: Vec<_> = said.lines().collect();
        ensure!(
            ended.status.code() == Some(1)
                && lines.len() == 1
                && said.contains("run it with sudo")
                && said.contains("CAP_NET_ADMIN"),
            "{ended:?}"
        );
        Ok(())
    })
}

#[test]
fn a_spoofed_packet_cannot_pass_as_an_answer_of_a_target() -> Result<()> {
    isolated_with(Lan::start, |lan| {
        routes(&ROUTES[..HONEST])?;
        let mut tap = tap(&lan)?;
        let client = lan.client(&[])?;
        tap.take()?;
        // A packet that claims to come from a target, sent to this host's address behind the device and to its own
        // address.
        for own in ["198.18.0.2", "10.1.0.1"] {
            lan.far.run("ip route replace 198.18.0.2 via 10.1.0.1")?;
            let tried = lan.far.within(|| {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
                socket.bind(&SockAddr::from(SocketAddr::new(HOSTS[0].parse()?, 80)))?;
                let there = SocketAddr::new(own.parse()?, 40_000);
                Ok(socket.connect_timeout(&there.into(), Duration::from_millis(200)))
            })?;
            ensure!(tried.is_err(), "{own} was reached");
            // The same addresses and ports, in the opposite direction.
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_nonblocking(true)?;
            socket.bind(&SockAddr::from(SocketAddr::new(own.parse()?, 40_000)))?;
            tap.take()?;
            let there = SocketAddr::new(HOSTS[0].parse()?, 80);
            if socket.connect(&there.into()).is_err() {
                // The connection is in progress.
            }
            check_no_leak(&mut tap, own)?;
        }
        end(client)
    })
}
