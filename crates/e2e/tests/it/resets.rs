//! Tests that a reset does not overtake the bytes before it (PROTOCOL CLOSE-3, CLOSE-4, CLOSE-7).

use std::io::{Read, Write};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_testbed::application::Application;
use quictun_testbed::connection::{Connection, DirectionEnd, Endpoint};
use quictun_testbed::program::{Program, command, installed, output};
use quictun_testbed::tunnel::Tunnel;

use crate::closes::over_both;

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
                std::thread::spawn(move || while writes.write_all(&[b'r'; 65_536]).is_ok() {});
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
}
