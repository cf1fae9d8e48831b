//! `quictun perf`: the byte and message counts of every transport and mode, and the detection of errors.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quictun_e2e::load::carriers::native_tunnel::NativeServer;
use quictun_e2e::load::machines::{LinkKind, LinkedMachines};
use quictun_testbed::binaries;
use quictun_testbed::isolation::isolated;
use quictun_testbed::program::{self, Program};
use rustix::process::Signal;
use serde_json::Value;

const SOON: Duration = Duration::from_mins(1);

fn perf(arguments: &[&str]) -> Result<Command> {
    let mut command = program::command(binaries::path("quictun")?);
    command.arg("perf").args(arguments);
    Ok(command)
}

fn server(arguments: &[&str]) -> Result<(Program, String)> {
    let arguments = [&["server", "--listen", "127.0.0.1:0"], arguments].concat();
    let mut server = Program::start("perf-server", &mut perf(&arguments)?)?;
    let line = server.wait_for("listening on ", SOON)?;
    let (_, address) = line.split_once("listening on ").context("no address")?;
    Ok((server, address.trim().to_owned()))
}

/// Runs a client with the flags `words`, which are separated by spaces.
fn client(address: &str, words: &str) -> Result<Output> {
    let fixed = ["client", "--connect", address, "--json", "-"];
    let words: Vec<&str> = words.split_whitespace().collect();
    Ok(perf(&[&fixed[..], &words].concat())?.output()?)
}

fn report(address: &str, words: &str) -> Result<Value> {
    let output = client(address, words)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{words}: {said}");
    serde_json::from_slice(&output.stdout).with_context(|| words.to_owned())
}

fn number(report: &Value, path: &str) -> Result<u64> {
    let value = report.pointer(path).and_then(Value::as_u64);
    value.with_context(|| format!("no number {path} in {report}"))
}

fn end(mut server: Program) -> Result<()> {
    server.signal(Signal::TERM)?;
    let status = server.wait_end(SOON)?;
    ensure!(status.success(), "the server ended with {status}");
    server.silence();
    Ok(())
}

#[test]
fn streams_of_a_number_of_bytes_arrive_whole_over_every_transport() -> Result<()> {
    isolated(|| {
        let (server, address) = server(&[])?;
        let shapes = ["", "--flows 3", "--connections 2 --flows 2"];
        for (transport, shapes, bytes) in [
            ("tcp", &shapes[..], 3_000_001),
            ("tls", &shapes, 3_000_001),
            ("quic", &shapes, 3_000_001),
            // No more than fits into a socket buffer while the receiver does not read.
            ("udp --rate 1gbit --mtu 1500", &shapes[..1], 100_001),
        ] {
            for shape in shapes {
                for way in ["", "--reverse"] {
                    let words = format!("--transport {transport} {way} {shape} --bytes {bytes}");
                    check_bytes(&report(&address, &words)?, bytes).context(words)?;
                }
            }
        }
        end(server)
    })
}

/// Checks that all bytes were sent and received, and that this took time, packets and processor time.
fn check_bytes(report: &Value, bytes: u64) -> Result<()> {
    ensure!(report["verified"] == true, "{report}");
    ensure!(number(report, "/sender/bytes")? == bytes, "{report}");
    ensure!(number(report, "/receiver/bytes")? == bytes, "{report}");
    ensure!(number(report, "/total_us")? > 0, "{report}");
    ensure!(number(report, "/path/sent_packets")? > 0, "{report}");
    for end in ["client", "server"] {
        let ns = number(report, &format!("/cpu/{end}/0/ns"))?;
        ensure!(ns > 0, "{report}");
    }
    ensure!(report["transactions"].is_null(), "{report}");
    Ok(())
}

#[test]
fn a_timed_stream_counts_only_bytes_after_the_warm_up() -> Result<()> {
    isolated(|| {
        let (server, address) = server(&[])?;
        for transport in ["tcp", "tls", "quic", "udp --rate 50mbit --mtu 1500"] {
            for way in ["", "--reverse"] {
                let words =
                    format!("--transport {transport} {way} --duration 600ms --warm-up 300ms");
                let report = report(&address, &words)?;
                ensure!(report["receiver"]["seconds"] == 0.6, "{words}: {report}");
                let series = report["intervals"].as_array().context("no series")?;
                let bytes = series.iter().filter_map(|each| each["bit_per_s"].as_u64());
                let bytes: Vec<u64> = bytes.map(|rate| rate / 80).collect();
                ensure!(bytes.len() == 9 && bytes[0] > 0, "{words}: {report}");
                let counted = number(&report, "/receiver/bytes")?;
                let after: u64 = bytes[3..].iter().sum();
                ensure!(counted > 0 && counted == after, "{words}: {report}");
                if transport.starts_with("udp") {
                    // A sender that did not stop at the end of its time would send six times as much.
                    let sent = number(&report, "/path/sent_packets")? * 1500 * 8;
                    ensure!(sent < 3 * 50_000_000, "{words}: {report}");
                }
            }
        }
        end(server)
    })
}

#[test]
fn transactions_are_counted_over_every_transport() -> Result<()> {
    isolated(|| {
        let (server, address) = server(&[])?;
        for (words, count) in [
            ("--transport tcp --mode rr --count 500 --rr 1000,70000", 500),
            ("--transport tls --mode rr --count 500 --rr 1000,70000", 500),
            (
                "--transport quic --mode rr --count 500 --rr 1000,70000",
                500,
            ),
            ("--transport udp --mode rr --count 500 --rr 1000,1200", 500),
            ("--transport tcp --mode rr --count 301 --flows 4", 301),
            (
                "--transport quic --mode rr --count 301 --flows 4 --connections 2",
                301,
            ),
            ("--transport tcp --mode crr --count 41 --flows 2", 41),
            ("--transport tls --mode crr --count 11 --flows 2", 11),
            ("--transport quic --mode crr --count 11 --flows 2", 11),
            ("--transport tcp --mode rr --count 100 --rate 2000/s", 100),
            ("--transport quic --mode rr --count 100 --rate 2000/s", 100),
        ] {
            let report = report(&address, words)?;
            ensure!(report["verified"] == true, "{words}: {report}");
            ensure!(
                number(&report, "/transactions")? == count,
                "{words}: {report}"
            );
            ensure!(
                number(&report, "/latency_us/count")? == count,
                "{words}: {report}"
            );
            let first = number(&report, "/first_us")?;
            ensure!(first <= number(&report, "/total_us")?, "{words}: {report}");
            ensure!(report["receiver"].is_null(), "{words}: {report}");
            ensure!(report["latency_us"]["p99_9"].is_null(), "{words}: {report}");
        }
        end(server)
    })
}

#[test]
fn every_event_loop_and_option_of_quic_carries_the_bytes() -> Result<()> {
    isolated(|| {
        let (server, address) = server(&[])?;
        for (levers, single) in [
            ("--loop poll-100us", true),
            ("--loop event", true),
            ("--loop event+gso --mtu 1500", false),
            ("--loop event --mtu 1500 --gso on --gro on", false),
            ("--gso off --mtu 1500", true),
            ("--gro off --mtu 1500", false),
            ("--ack-every 2", false),
            ("--congestion newreno", false),
            ("--congestion fixed:500mbit", false),
        ] {
            let words = format!("--transport quic --bytes 2MB {levers}");
            let report = report(&address, &words)?;
            ensure!(
                number(&report, "/receiver/bytes")? == 2_000_000,
                "{words}: {report}"
            );
            let batch = report["path"]["gso_segments_per_send"].as_f64();
            let batch = batch.context("the report lacks the segments per send")?;
            ensure!(!single || batch <= 1.0, "{words}: {report}");
            if levers.contains("--mtu 1500") {
                ensure!(single || batch > 1.0, "{words}: {report}");
                ensure!(number(&report, "/path/mtu")? <= 1500, "{words}: {report}");
            }
            let congestion = levers.strip_prefix("--congestion ").unwrap_or("auto");
            ensure!(report["congestion"] == congestion, "{words}: {report}");
        }
        // A loop that sleeps while packets arrive: slow, but it completes.
        let words = "--transport quic --mode rr --count 2 --loop sleep-timeout";
        let slow = report(&address, words)?;
        ensure!(number(&slow, "/transactions")? == 2, "{slow}");
        end(server)
    })
}

/// Forwards bytes, and changes one byte of each data connection to the server.
fn tamper(listener: &TcpListener, server: SocketAddr) {
    const AT: usize = 100_000;
    for near in listener.incoming().map_while(Result::ok) {
        let pass = move || -> std::io::Result<()> {
            let far = TcpStream::connect(server)?;
            let (mut back_from, mut back_to) = (far.try_clone()?, near.try_clone()?);
            let back = std::thread::spawn(move || {
                // Either end may close first.
                if std::io::copy(&mut back_from, &mut back_to).is_ok() {
                    drop(back_to.shutdown(Shutdown::Write));
                }
            });
            let (mut near, mut far) = (near, far);
            let mut buffer = [0; 16 * 1024];
            let (mut passed, mut data) = (0, false);
            loop {
                let read = near.read(&mut buffer)?;
                if read == 0 {
                    break far.shutdown(Shutdown::Write)?;
                }
                data |= passed == 0 && buffer.starts_with(b"QTPERF1D");
                if data && (passed..passed + read).contains(&AT) {
                    buffer[AT - passed] ^= 1;
                }
                passed += read;
                far.write_all(&buffer[..read])?;
            }
            back.join().ok();
            Ok(())
        };
        std::thread::spawn(pass);
    }
}

#[test]
fn one_wrong_bit_on_the_path_is_detected() -> Result<()> {
    isolated(|| {
        let (server, address) = server(&[])?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let proxy = listener.local_addr()?.to_string();
        let target = address.parse()?;
        std::thread::spawn(move || tamper(&listener, target));
        let short = report(&proxy, "--bytes 50kB")?;
        ensure!(
            short["verified"] == true,
            "a payload shorter than the offset must not be changed: {short}"
        );
        let output = client(&proxy, "--bytes 1MB")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(1), "{}: {said}", output.status);
        // The offset does not include the header of the connection.
        ensure!(
            said.contains("payload was corrupted: byte 99980 "),
            "{said}"
        );
        ensure!(output.stdout.is_empty(), "an invalid result was printed");
        // TLS detects the change by itself, so the relay leaves those connections alone.
        let output = client(&proxy, "--transport tls --bytes 1MB")?;
        ensure!(
            output.status.success(),
            "the relay must change only plain data connections"
        );
        end(server)
    })
}

#[test]
fn an_impossible_measurement_gives_one_message() -> Result<()> {
    isolated(|| {
        let (server, address) = server(&["--transport", "tcp"])?;
        let closed = {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            listener.local_addr()?.to_string()
        };
        let other = TcpListener::bind("127.0.0.1:0")?;
        let stranger = other.local_addr()?.to_string();
        let strange = std::thread::spawn(move || -> std::io::Result<()> {
            let (mut socket, _) = other.accept()?;
            socket.write_all(b"SSH-2.0-other\r\n")
        });
        for (address, words, message) in [
            (&closed, "", "Connection refused"),
            (&stranger, "", "is not a `quictun perf server`"),
            (&address, "--transport quic", "started with --transport tcp"),
            (
                &address,
                "--congestion nosuch",
                "congestion control \"nosuch\"",
            ),
            (
                &address,
                "--congestion nosuch --reverse",
                "congestion control \"nosuch\"",
            ),
        ] {
            let output = client(address, words)?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(
                output.status.code() == Some(1),
                "{words}: {}: {said}",
                output.status
            );
            ensure!(said.contains(message), "{words}: {said}");
            ensure!(said.lines().count() <= 2, "{words}: {said}");
        }
        strange.join().expect("the stranger's thread panicked")?;
        let fine = report(&address, "--bytes 1kB")?;
        ensure!(fine["verified"] == true, "the server failed: {fine}");
        end(server)
    })
}

#[test]
fn a_second_concurrent_client_is_refused_without_disturbing_the_first() -> Result<()> {
    isolated(|| {
        let (server, address) = server(&[])?;
        for transport in ["tcp", "tls", "quic"] {
            // Repeat until the two clients meet: one may finish before the other starts.
            while !run_two_clients(&address, transport)? {}
        }
        end(server)
    })
}

/// Runs two clients; returns true if one of them was refused because of the other.
fn run_two_clients(address: &str, transport: &str) -> Result<bool> {
    let start = || {
        let words = ["client", "--connect", address, "--transport", transport];
        let mut command = perf(&words)?;
        command.args(["--duration", "1s", "--warm-up", "1s", "--json", "-"]);
        Program::start("perf-client", &mut command)
    };
    let (mut refused, mut done) = (0, 0);
    for mut client in [start()?, start()?] {
        let status = client.wait_end(SOON)?;
        if status.success() {
            ensure!(
                client.has_printed("\"verified\":true"),
                "{:?}",
                client.lines()
            );
            done += 1;
        } else {
            let busy = client.has_printed("busy with another measurement");
            ensure!(busy, "{transport}: {:?}", client.lines());
            refused += 1;
        }
        client.silence();
    }
    ensure!(done > 0, "{transport}: both were refused");
    Ok(refused == 1)
}

/// A tunnel lets eight datagrams pass to a target that has not answered (PROTOCOL UDP-7).
#[test]
fn datagrams_are_measured_through_a_tunnel() -> Result<()> {
    isolated(|| {
        let (server, address) = server(&[])?;
        let machines = LinkedMachines::new(&LinkKind::Loopback)?;
        let allow = ["--allow".to_owned(), format!("udp:{address}")];
        let tunnel = NativeServer::start(&machines, None, 7500, &format!("tcp:{address}"), &allow)?;
        let forwards = ["", "udp:"].map(|kind| format!("{kind}127.0.0.1:7400={address}"));
        let forwards = forwards.map(|forward| ["-L".to_owned(), forward]).concat();
        let client = tunnel.client(&forwards)?;
        for words in [
            "--rate 5mbit --mtu 1280 --bytes 400000",
            "--rate 5mbit --mtu 1280 --bytes 400000 --reverse",
            "--mode rr --count 50",
        ] {
            let words = format!("--transport udp {words}");
            let report = report("127.0.0.1:7400", &words)?;
            ensure!(report["verified"] == true, "{words}: {report}");
            if words.contains("bytes") {
                // A busy machine may lose some.
                let received = number(&report, "/receiver/bytes")?;
                ensure!(received > 200_000, "{words}: {report}");
            }
        }
        client.end()?;
        tunnel.end()?;
        end(server)
    })
}
