//! Tests how connections end: the table of docs/PROTOCOL.md section 7, over real TCP and Unix sockets.

use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use quictun_testbed::application::Application;
use quictun_testbed::connection::{Connection, DirectionEnd, Endpoint};
use quictun_testbed::deadline;
use quictun_testbed::isolation::with_programs;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::{Program, command, installed, run};
use quictun_testbed::tunnel::{Home, Tunnel};

use crate::reverse::{self, ReverseServer};

const SOON: Duration = Duration::from_secs(10);
const REQUEST: Payload = Payload {
    seed: 1,
    bytes: 300_000,
};
const REPLY: Payload = Payload {
    seed: 2,
    bytes: 3_000_000,
};

/// Runs a check over TCP at both ends, and over Unix sockets at both ends. Then repeats both with a reverse forward,
/// where the connecting application is on the server's side.
pub(crate) fn over_both(
    serve: impl Fn(Connection) -> Result<()> + Clone + Send + 'static,
    check: impl Fn(&Endpoint, &Application) -> Result<()>,
) -> Result<()> {
    let application = Application::tcp(serve.clone())?;
    let tunnel = Tunnel::to(&application.target())?;
    check(&tunnel.client.forward, &application).context("over TCP")?;

    let home = Home::new()?;
    let socket = |name: &str| home.path().join(name);
    let application = Application::unix(&socket("target.sock"), serve)?;
    let listen = format!("unix:{}", socket("forward.sock").display());
    let tunnel = Tunnel::with(
        &application.target(),
        &["--allow-unix"],
        &["--listen-on", &listen],
    )?;
    check(&tunnel.client.forward, &application).context("over Unix sockets")?;

    let reverse = ReverseServer::new(&["127.0.0.1:0", "unix:HOME/*"])?;
    let mut client = reverse.client(&[&format!("0={}", application.target())])?;
    check(&reverse::bound(&mut client)?, &application).context("reverse, over TCP")?;
    reverse::end(&mut client)?;
    let listen = reverse.path("forward.sock");
    let one = format!("unix:{}={}", listen.display(), application.target());
    let mut client = reverse.client(&[&one])?;
    check(&reverse::bound(&mut client)?, &application).context("reverse, over Unix sockets")
}

#[test]
fn close_1_and_2_a_finished_request_still_gets_its_whole_reply() -> Result<()> {
    let serve = |mut connection: Connection| {
        REQUEST.read_to_end_of(&mut connection)?;
        REPLY.write_to(&mut connection)?;
        connection.finish()
    };
    over_both(serve, |forward, application| {
        let mut connection = forward.connect()?;
        REQUEST.write_to(&mut connection)?;
        connection.finish()?;
        REPLY.read_to_end_of(&mut connection)?;
        application.outcome(SOON)
    })
}

#[test]
fn close_1_and_2_a_target_that_finishes_first_still_gets_everything() -> Result<()> {
    let serve = |mut connection: Connection| {
        REPLY.write_to(&mut connection)?;
        connection.finish()?;
        REQUEST.read_to_end_of(&mut connection)
    };
    over_both(serve, |forward, application| {
        let mut connection = forward.connect()?;
        REPLY.read_to_end_of(&mut connection)?;
        REQUEST.write_to(&mut connection)?;
        connection.finish()?;
        application.outcome(SOON)
    })
}

#[test]
fn close_1_and_2_nc_gets_the_reply_to_a_request_that_it_finished() -> Result<()> {
    with_programs(|| {
        let nc = installed("nc", "netcat-openbsd")?;
        let serve = |mut connection: Connection| {
            let mut request = String::new();
            connection.read_to_string(&mut request)?;
            ensure!(request == "what is it?\n", "{request:?}");
            connection.write_all(b"it is this\n")?;
            connection.finish()
        };
        let application = Application::tcp(serve)?;
        let tunnel = Tunnel::to(&application.target())?;
        let request = tempfile::tempfile()?;
        let mut writing = &request;
        writing.write_all(b"what is it?\n")?;
        std::io::Seek::rewind(&mut writing)?;
        let mut nc = command(nc);
        nc.args([
            "-N",
            "127.0.0.1",
            &tunnel.client.forward.port()?.to_string(),
        ]);
        let mut nc = Program::start_with("nc", &mut nc, Stdio::from(request))?;
        let status = nc.wait_end(SOON)?;
        ensure!(
            status.success() && nc.lines() == ["it is this"],
            "{status}: {:?}",
            nc.lines()
        );
        application.outcome(SOON)
    })
}

#[test]
fn close_3_an_application_that_resets_is_seen_as_a_reset_by_the_target() -> Result<()> {
    let application = Application::tcp(|mut connection| {
        connection.write_all(b"go")?;
        let ending = connection.ending();
        ensure!(ending.is_reset(), "the target saw {ending:?}");
        Ok(())
    })?;
    let home = Home::new()?;
    let listen = format!("unix:{}", home.path().join("forward.sock").display());
    for arguments in [&[][..], &["--listen-on", &listen][..]] {
        let tunnel = Tunnel::with(&application.target(), &[], arguments)?;
        let mut connection = tunnel.client.forward.connect()?;
        connection.read_exact(&mut [0; 1])?;
        connection.write_all(&[0; 1000])?;
        // One unread byte remains: on a Unix socket, closing with unread data is what makes a reset.
        connection.reset()?;
        application
            .outcome(SOON)
            .with_context(|| format!("{arguments:?}"))?;
    }
    Ok(())
}

#[test]
fn close_4_a_truncated_transfer_is_an_error_and_not_an_end() -> Result<()> {
    let serve = |mut connection: Connection| {
        let mut go = [0; 1];
        connection.read_exact(&mut go)?;
        connection.write_all(&vec![7; 100_000])?;
        // The second byte of "go" is unread: on a Unix socket, closing with unread data is what makes a reset.
        connection.reset()
    };
    let home = Home::new()?;
    for application in [
        Application::tcp(serve)?,
        Application::unix(&home.path().join("target.sock"), serve)?,
    ] {
        let tunnel = Tunnel::with(&application.target(), &["--allow-unix"], &[])?;
        let mut connection = tunnel.client.forward.connect()?;
        connection.write_all(b"go")?;
        match connection.ending() {
            DirectionEnd::Reset { bytes } => {
                ensure!(bytes <= 100_000, "{bytes} bytes, but 100000 were sent");
            }
            other => bail!(
                "behind {} the application saw {other:?}",
                application.target()
            ),
        }
        application.outcome(SOON)?;
    }
    Ok(())
}

// PROTOCOL CLOSE-9: an abort discards data in flight, and the application sees a reset.
#[test]
fn close_9_an_aborted_unix_application_with_bytes_on_the_way_sees_a_reset() -> Result<()> {
    let stalled = Arc::new(Barrier::new(2));
    let reset = stalled.clone();
    let application = Application::tcp(move |mut connection| {
        connection.read_exact(&mut [0; 1])?;
        reset.wait();
        connection.reset()
    })?;
    let home = Home::new()?;
    let listen = format!("unix:{}", home.path().join("forward.sock").display());
    let tunnel = Tunnel::with(&application.target(), &[], &["--listen-on", &listen])?;
    let mut connection = tunnel.client.forward.connect()?;
    connection.set_timeout(Duration::from_millis(500))?;
    let block = vec![0; 64 * 1024];
    while connection.write(&block).is_ok() {}
    // All buffers on the way are full now, including the client's end of the socket.
    connection.set_timeout(SOON)?;
    stalled.wait();
    let ending = connection.ending();
    ensure!(
        ending == DirectionEnd::Reset { bytes: 0 },
        "the application saw {ending:?}"
    );
    application.outcome(SOON)
}

#[test]
fn close_4_curl_reports_a_truncated_download() -> Result<()> {
    with_programs(|| {
        let curl = installed("curl", "curl")?;
        let serve = |mut connection: Connection| {
            let mut request = [0; 16];
            connection.read_exact(&mut request)?;
            // Without a length, the end of the connection ends the body, so only a reset shows that it was cut.
            connection.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
            connection.write_all(&vec![b'x'; 50_000])?;
            connection.reset()
        };
        let application = Application::tcp(serve)?;
        let tunnel = Tunnel::to(&application.target())?;
        let mut curl = command(curl);
        curl.args(["--silent", "--show-error", "--output", "/dev/null"]);
        curl.arg(format!(
            "http://127.0.0.1:{}/",
            tunnel.client.forward.port()?
        ));
        let mut curl = Program::start("curl", &mut curl)?;
        let status = curl.wait_end(SOON)?;
        // curl's exit codes. 52: empty reply, 56: failure in receiving data.
        ensure!(
            matches!(status.code(), Some(52 | 56)),
            "{status}: {:?}",
            curl.lines()
        );
        Ok(())
    })
}

#[test]
fn close_5_a_target_that_goes_away_resets_an_application_that_still_sends() -> Result<()> {
    let serve = |mut connection: Connection| {
        let mut first = [0; 1];
        connection.read_exact(&mut first)?;
        Ok(())
    };
    over_both(serve, |forward, application| {
        let mut connection = forward.connect()?;
        connection.write_all(b"xx")?;
        application.outcome(SOON)?;
        let block = vec![0; 64 * 1024];
        let error = loop {
            if let Err(error) = connection.write(&block) {
                break error;
            }
        };
        let kind = error.kind();
        let gone = [
            std::io::ErrorKind::ConnectionReset,
            std::io::ErrorKind::BrokenPipe,
        ];
        ensure!(gone.contains(&kind), "writing failed: {error}");
        Ok(())
    })
}

#[test]
fn close_6_a_lost_connection_resets_its_flows() -> Result<()> {
    let application = Application::echo()?;
    let flags = ["--idle-timeout", "3s", "--bond-ttl", "0s"];
    let mut tunnel = Tunnel::with(&application.target(), &[], &flags)?;
    let mut connections = (0..10)
        .map(|_| tunnel.client.forward.connect())
        .collect::<Result<Vec<_>>>()?;
    for connection in &mut connections {
        connection.write_all(b"x")?;
        connection.read_exact(&mut [0; 1])?;
    }
    tunnel.server.program.kill()?;
    for connection in &mut connections {
        let ending = connection.ending();
        ensure!(ending == DirectionEnd::Reset { bytes: 0 }, "{ending:?}");
    }
    ensure!(
        tunnel
            .client
            .program
            .count("connection to server endpoint lost")
            <= 2,
        "the client must log the loss per connection, not per flow"
    );
    Ok(())
}

// PROTOCOL CLOSE-14.
#[test]
fn close_14_a_half_closed_connection_is_probed_within_minutes() -> Result<()> {
    with_programs(|| {
        let ss = installed("ss", "iproute2")?;
        let hold = Arc::new(Barrier::new(2));
        let held = hold.clone();
        // The target never answers.
        let application = Application::tcp(move |_connection| {
            held.wait();
            Ok(())
        })?;
        let tunnel = Tunnel::to(&application.target())?;
        let mut connection = tunnel.client.forward.connect()?;
        connection.write_all(b"x")?;
        let (near, far) = (
            tunnel.client.forward.port()?,
            application.endpoint().port()?,
        );
        // Minutes until the system probes the other end of the client's and of the server's socket.
        let minutes = |filter: &str| -> Option<u64> {
            let mut ask = command(&ss);
            ask.args(["-tnoH", "state", "connected", filter]);
            let listed = run(&mut ask).ok()?;
            let (_, time) = listed.split_once("timer:(keepalive,")?;
            let (time, _) = time.split_once("min")?;
            time.parse().ok()
        };
        let probed = |filter: &str| minutes(filter).is_some_and(|minutes| minutes <= 2);
        let sockets = [format!("sport = :{near}"), format!("dport = :{far}")];
        ensure!(
            !sockets.iter().any(|filter| probed(filter)),
            "probed too early"
        );
        connection.finish()?;
        for filter in &sockets {
            deadline::until("the probes", SOON, || probed(filter))?;
        }
        hold.wait();
        application.outcome(SOON)
    })
}

#[test]
fn a_stale_unix_socket_is_replaced_and_a_live_one_is_not() -> Result<()> {
    let application = Application::echo()?;
    let home = Home::new()?;
    let path = home.path().join("forward.sock");
    drop(std::os::unix::net::UnixListener::bind(&path)?);
    let listen = format!("unix:{}", path.display());
    let tunnel = Tunnel::with(&application.target(), &[], &["--listen-on", &listen])?;
    quictun_testbed::application::through_echo(&tunnel.client.forward, REQUEST)?;
    let error = Tunnel::with(&application.target(), &[], &["--listen-on", &listen])
        .err()
        .context("two clients listen on the same socket")?;
    ensure!(
        format!("{error:#}").contains(&path_text(&path)),
        "{error:#}"
    );
    quictun_testbed::application::through_echo(&tunnel.client.forward, REQUEST)
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}
