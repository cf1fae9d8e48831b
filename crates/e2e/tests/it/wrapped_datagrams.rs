//! `quictun run`: programs that exchange datagrams (PROTOCOL section 5.11).

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use quictun_testbed::isolation::isolated_with;
use quictun_testbed::program::installed;

use crate::wrapped::{HOSTS, LINGER, WrappedServer};

const SOON: Duration = Duration::from_secs(20);

/// A program with two sockets. It sends datagrams of several lengths to each of the addresses in its arguments, and expects
/// them back behind the port from which the target has received them.
const EXCHANGES: &str = r#"
import socket, sys
for text in sys.argv[1:]:
    host, port = text.rsplit(":", 1)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    ports = []
    for number in range(2):
        s = socket.socket(family, socket.SOCK_DGRAM)
        s.connect((host, int(port)))
        s.settimeout(1)
        for length in [0, 1, 1200, 1472, 1473, 9000, 60000]:
            sent = bytes([number, length % 251]) * (length // 2) + b"x" * (length % 2)
            for attempt in range(20):
                s.send(sent)
                try:
                    answer = s.recv(65535)
                    while answer[2:] != sent:
                        answer = s.recv(65535)
                    break
                except TimeoutError:
                    pass
            else:
                sys.exit(f"{text}: {length} bytes were not answered")
            ports.append((number, answer[:2]))
    assert len(set(ports)) == 2, f"{text}: {ports}"
print("done")
"#;

/// A program whose datagrams are refused. It prints the error of its socket, and how long that took.
const REFUSED: &str = r#"
import socket, sys, time
for text in sys.argv[1:]:
    host, port = text.rsplit(":", 1)
    s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    s.connect((host, int(port)))
    s.settimeout(15)
    # The second one is refused because the first one was.
    for number in range(2):
        began = time.monotonic()
        s.send(b"x")
        try:
            s.recv(10)
            sys.exit("an answer")
        except OSError as error:
            print(type(error).__name__, time.monotonic() - began < 10)
"#;

/// Starts a server that permits the datagrams of programs behind its clients.
fn start(test: &str) -> Result<Option<WrappedServer>> {
    WrappedServer::start_with(test, &["udp:203.0.113.9:*", "udp:[2001:db8::9]:*"])
}

/// A target that answers each datagram with the port of its source, and the datagram.
fn echo_with_port(host: &str) -> Result<SocketAddr> {
    let socket = UdpSocket::bind((host, 0))?;
    let address = socket.local_addr()?;
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65_535];
        while let Ok((length, source)) = socket.recv_from(&mut buffer) {
            let answer = [&source.port().to_be_bytes()[..], &buffer[..length]].concat();
            // A source that has ended refuses the answer.
            let _sent = socket.send_to(&answer, source);
        }
    });
    Ok(address)
}

/// Returns an address without brackets, for a Python program.
fn plain(address: SocketAddr) -> String {
    format!("{}:{}", address.ip(), address.port())
}

fn python(far: &WrappedServer, program: &str, targets: &[String]) -> Result<String> {
    let python = installed("python3", "python3")?;
    let file = far.home.path().join("program.py");
    std::fs::write(&file, program)?;
    Ok(format!(
        "{} {} {}",
        python.display(),
        file.display(),
        targets.join(" ")
    ))
}

/// A name server that knows an address of each name.
fn name_server(host: &str) -> Result<()> {
    let socket = UdpSocket::bind((host, 53))?;
    std::thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((length, source)) = socket.recv_from(&mut query) {
            // The header, with one question and one answer; the question up to its end; a pointer to its name, type A, class
            // IN, a minute, and an address.
            let question = &query[12..length];
            let name = question.iter().position(|byte| *byte == 0).unwrap_or(0);
            let mut answer = [&query[..2], b"\x81\x80\0\x01\0\x01\0\0\0\0"].concat();
            answer.extend(&question[..(name + 5).min(question.len())]);
            answer.extend(b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x4d");
            let _sent = socket.send_to(&answer, source);
        }
    });
    Ok(())
}

#[test]
fn programs_exchange_datagrams_of_every_length_over_both_families() -> Result<()> {
    isolated_with(start, |far| {
        let targets = HOSTS.map(|host| echo_with_port(host).map(plain));
        let targets = targets.into_iter().collect::<Result<Vec<_>>>()?;
        let line = python(&far, EXCHANGES, &targets)?;
        for flags in [&[][..], &["--one-process"]] {
            let ran = far.run_with(flags, &line)?;
            ensure!(ran.stdout == b"done\n", "{flags:?}: {ran:?}");
        }
        Ok(())
    })
}

// `quictun run -- dig`: each resolver that the command asks is a target as any other.
#[test]
fn dig_asks_a_name_server_by_datagrams() -> Result<()> {
    isolated_with(start, |far| {
        let dig = installed("dig", "bind9-dnsutils")?;
        for host in HOSTS {
            name_server(host)?;
            let line = format!("{} +short +tries=3 @{host} a.example A", dig.display());
            let ran = far.run(&line)?;
            ensure!(ran.stdout == b"192.0.2.77\n", "{host}: {ran:?}");
        }
        Ok(())
    })
}

#[test]
fn a_refused_datagram_fails_the_socket_at_once() -> Result<()> {
    isolated_with(start, |far| {
        // No rule permits the first two, and no program listens at the others.
        let mut targets = vec!["203.0.113.10:9".to_owned(), "2001:db8::10:9".to_owned()];
        for host in HOSTS {
            let closed = UdpSocket::bind((host, 0))?.local_addr()?;
            targets.push(plain(closed));
        }
        let line = python(&far, REFUSED, &targets)?;
        for flags in [&[][..], &["--one-process"]] {
            let ran = far.run_with(flags, &line)?;
            let said = String::from_utf8_lossy(&ran.stdout);
            ensure!(
                said == "ConnectionRefusedError True\n".repeat(8),
                "{flags:?}: {ran:?}"
            );
        }
        Ok(())
    })
}

// Such as `logger` to a server that keeps logs.
#[test]
fn the_last_datagram_of_a_command_arrives_and_does_not_delay_its_end() -> Result<()> {
    isolated_with(start, |far| {
        let target = UdpSocket::bind((HOSTS[0], 0))?;
        target.set_read_timeout(Some(SOON))?;
        let port = target.local_addr()?.port();
        let program = "import socket, sys\n\
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
            s.sendto(b'last', ('203.0.113.9', int(sys.argv[1])))\n";
        let line = python(&far, program, &[port.to_string()])?;
        let line = format!("{line}; date +%s%N");
        // A busy machine delays some runs. A client that waits for the end of the flow's idle time delays all of them.
        let mut waits = Vec::new();
        for _ in 0..4 {
            let ran = far.run(&line)?;
            let ended = UNIX_EPOCH.elapsed()?;
            ensure!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
            let command_ended = String::from_utf8(ran.stdout)?.trim().parse()?;
            waits.push(ended.saturating_sub(Duration::from_nanos(command_ended)));
            let mut buffer = [0; 64];
            let length = target.recv(&mut buffer).context("the last datagram")?;
            ensure!(&buffer[..length] == b"last");
        }
        let least = waits.iter().min().context("no run")?;
        ensure!(
            *least < LINGER,
            "the runs outlived their commands by {waits:?}"
        );
        Ok(())
    })
}

#[test]
fn a_datagram_that_may_not_be_cut_is_refused_if_it_is_longer_than_a_packet() -> Result<()> {
    isolated_with(start, |far| {
        // IP_MTU_DISCOVER, IP_PMTUDISC_DO.
        let program = "import socket\n\
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
            s.setsockopt(socket.IPPROTO_IP, 10, 2)\n\
            try:\n    s.sendto(b'x' * 1473, ('203.0.113.9', 9))\n\
            except OSError as error:\n    print(error.errno)\n";
        let ran = far.run(&python(&far, program, &[])?)?;
        ensure!(ran.stdout == b"90\n", "EMSGSIZE: {ran:?}");
        Ok(())
    })
}
