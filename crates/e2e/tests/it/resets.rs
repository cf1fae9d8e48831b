//! Tests that a reset does not overtake the bytes before it (PROTOCOL CLOSE-3, CLOSE-4, CLOSE-7).

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_testbed::application::Application;
use quictun_testbed::connection::{Connection, DirectionEnd, Endpoint};
use quictun_testbed::isolation::{isolated_with, with_programs};
use quictun_testbed::program::{Program, command, installed, output};
use quictun_testbed::tunnel::Tunnel;

use crate::closes::over_both;
use crate::wrapped::{HOSTS, WrappedServer};

const SOON: Duration = Duration::from_secs(20);

/// Number of connections for each size. Without the promise, hardly one of twenty delivers a byte.
const TRIES: usize = 20;

/// Sizes of early answers.
const ANSWERS: [usize; 4] = [1, 620, 64 << 10, 1 << 20];

/// Sizes of what an application sends although it does not read the banner.
const UPLOADS: [usize; 2] = [5_000, 1 << 20];

/// Checks that a connection has delivered `bytes` before its abrupt end. A Unix socket shows the abrupt end as an end if
/// the other program had read everything (PROTOCOL CLOSE-9).
fn check_end(end: &DirectionEnd, bytes: usize, unix: bool) -> Result<()> {
    let bytes = bytes as u64;
    let whole = match *end {
        DirectionEnd::Reset { bytes: received } => received == bytes,
        DirectionEnd::Finished { bytes: received } => unix && received == bytes,
        DirectionEnd::Other(_) => false,
    };
    ensure!(whole, "{end:?} instead of {bytes} bytes and a reset");
    Ok(())
}

fn is_unix(forward: &Endpoint) -> bool {
    matches!(forward, Endpoint::Unix(_))
}

/// Answers with `bytes` bytes although a part of the request is unread.
fn answer_early(mut connection: Connection, bytes: usize) -> Result<()> {
    connection.read_exact(&mut [0])?;
    connection.write_all(&vec![b'a'; bytes])?;
    connection.close_unread()
}

#[test]
fn an_answer_arrives_although_the_target_closes_before_it_has_read_the_request() -> Result<()> {
    for bytes in ANSWERS {
        let serve = move |connection| answer_early(connection, bytes);
        over_both(serve, |forward, application| {
            for _ in 0..TRIES {
                let mut connection = forward.connect()?;
                connection.write_all(&[b'r'; 5000])?;
                let end = connection.ending();
                check_end(&end, bytes, is_unix(forward))?;
                application.outcome(SOON)?;
            }
            Ok(())
        })
        .with_context(|| format!("an answer of {bytes} bytes"))?;
    }
    Ok(())
}

#[test]
fn an_application_that_is_blocked_in_its_upload_still_reads_the_answer() -> Result<()> {
    let serve = move |connection| answer_early(connection, 620);
    over_both(serve, |forward, application| {
        for _ in 0..TRIES {
            let connection = forward.connect()?;
            let mut writes = connection.try_clone()?;
            // More than all buffers on the way hold: the application writes until its connection is reset.
            let upload =
                std::thread::spawn(move || while writes.write_all(&[b'r'; 8192]).is_ok() {});
            let mut reads = connection;
            let mut answer = [0; 620];
            reads
                .read_exact(&mut answer)
                .context("reading the answer")?;
            application.outcome(SOON)?;
            upload.join().expect("no panic");
        }
        Ok(())
    })
}

#[test]
fn an_upload_arrives_although_the_application_closes_before_it_has_read_the_banner() -> Result<()> {
    for bytes in UPLOADS {
        let serve = move |mut connection: Connection| {
            connection.write_all(b"banner")?;
            check_end(&connection.ending(), bytes, true)
        };
        over_both(serve, |forward, application| {
            for _ in 0..TRIES {
                let mut connection = forward.connect()?;
                connection.read_exact(&mut [0])?;
                connection.write_all(&vec![b'u'; bytes])?;
                connection.close_unread()?;
                application.outcome(SOON)?;
            }
            Ok(())
        })
        .with_context(|| format!("an upload of {bytes} bytes"))?;
    }
    Ok(())
}

#[test]
fn curl_shows_the_refusal_of_a_post_that_pythons_server_does_not_read() -> Result<()> {
    with_programs(|| {
        let (curl, python) = (installed("curl", "curl")?, installed("python3", "python3")?);
        let mut server = command(python);
        server.args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "0"]);
        let mut server = Program::start("python3", &mut server)?;
        let line = server.wait_for(" port ", SOON)?;
        let port = line
            .split(" port ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        let port: u16 = port.context("no port in the line")?.parse()?;
        let tunnel = Tunnel::to(&format!("tcp:127.0.0.1:{port}"))?;
        let body = tempfile::NamedTempFile::new()?;
        std::fs::write(body.path(), vec![b'b'; 3_000_000])?;
        for try_number in 0..5 {
            let mut post = command(&curl);
            post.args([
                "-sS",
                "-o",
                "/dev/null",
                "-w",
                "%{http_code}",
                "-H",
                "Expect:",
            ]);
            post.arg("--data-binary")
                .arg(format!("@{}", body.path().display()));
            post.arg(format!(
                "http://127.0.0.1:{}/",
                tunnel.client.forward.port()?
            ));
            let posted = output(&mut post)?;
            let code = String::from_utf8_lossy(&posted.stdout);
            ensure!(code == "501", "try {try_number}: {posted:?}");
        }
        Ok(())
    })
}

/// A program behind a device: it reads what it gets, and prints how many bytes that was and whether a reset came.
const READS: &str = r#"
import socket, sys
for _ in range(int(sys.argv[3])):
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    s.sendall(b"r" * 5000)
    got = 0
    try:
        while True:
            part = s.recv(65536)
            if not part:
                print(got, "end")
                break
            got += len(part)
    except ConnectionResetError:
        print(got, "reset")
"#;

/// A program behind a device: it leaves the banner unread, sends, and closes.
const SENDS: &str = r#"
import fcntl, socket, struct, sys, termios
for _ in range(int(sys.argv[3])):
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    s.recv(1)
    s.sendall(b"u" * int(sys.argv[4]))
    while struct.unpack("i", fcntl.ioctl(s, termios.TIOCOUTQ, b"0000"))[0]:
        pass
    s.recv(1, socket.MSG_PEEK)
    s.close()
"#;

#[test]
fn programs_behind_a_device_get_and_deliver_what_comes_before_a_reset() -> Result<()> {
    isolated_with(WrappedServer::start, |far| {
        installed("python3", "python3")?;
        let here = SocketAddr::new(HOSTS[0].parse()?, 0);
        let script = |name: &str, text: &str| -> Result<String> {
            let path = far.home.path().join(name);
            std::fs::write(&path, text)?;
            Ok(path.display().to_string())
        };
        let (reads, sends) = (script("reads.py", READS)?, script("sends.py", SENDS)?);
        for bytes in ANSWERS {
            let target =
                Application::tcp_on(here, move |connection| answer_early(connection, bytes))?;
            let port = target.endpoint().port()?;
            let ran = far.run(&format!("python3 {reads} {} {port} {TRIES}", HOSTS[0]))?;
            let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
            let wanted = format!("{bytes} reset\n").repeat(TRIES);
            ensure!(printed == wanted, "{printed} {ran:?}");
        }
        for bytes in UPLOADS {
            let target = Application::tcp_on(here, move |mut connection: Connection| {
                connection.write_all(b"banner")?;
                check_end(&connection.ending(), bytes, false)
            })?;
            let port = target.endpoint().port()?;
            let ran = far.run(&format!(
                "python3 {sends} {} {port} {TRIES} {bytes}",
                HOSTS[0]
            ))?;
            ensure!(ran.status.success(), "{ran:?}");
            for _ in 0..TRIES {
                target.outcome(SOON)?;
            }
        }
        Ok(())
    })
}
