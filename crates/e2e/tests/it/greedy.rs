//! A client that takes all it can get: the resources that it leaves behind, and the service that other clients get.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use quictun_testbed::application::{Application, BlackHole, served_within, through_echo};
use quictun_testbed::binaries;
use quictun_testbed::connection::{Connection, is_reset};
use quictun_testbed::deadline;
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine::{self, Machine};
use quictun_testbed::payload::Payload;
use quictun_testbed::program::{Program, run};
use quictun_testbed::tunnel::{Client, Home, START, Server, listen_address, server_pin};
use socket2::{Domain, Socket, Type};

/// A time limit below that of a dial or a look-up.
const SOON: Duration = Duration::from_secs(4);
/// A time limit for steps without one of their own, on a busy machine too.
const LATER: Duration = Duration::from_secs(20);
const SOME: Payload = Payload {
    seed: 121,
    bytes: 10_000,
};

/// A client that the server knows, with the files of its certificate and key.
struct KnownClient {
    name: &'static str,
    files: [String; 2],
}

/// A `quictun server` that knows these clients.
struct KnowingServer {
    program: Program,
    address: String,
    pin: String,
    known: Vec<KnownClient>,
    _home: Home,
}

impl KnowingServer {
    /// Starts the server. `wrapper` is put before the command.
    fn start(rules: &[(&'static str, String)], wrapper: &[&str]) -> Result<Self> {
        let home = Home::new()?;
        let mut known = Vec::new();
        let mut file = String::new();
        for (name, rule) in rules {
            let (pin, files) = keygen(&home, name)?;
            let table = format!("[[client]]\nname = '{name}'\nkey = '{pin}'\nallow = ['{rule}']\n");
            file.push_str(&table);
            known.push(KnownClient { name, files });
        }
        std::fs::write(home.path().join("server.toml"), file)?;
        let program = binaries::path("quictun")?.into_os_string();
        let mut words: Vec<_> = wrapper.iter().map(std::ffi::OsString::from).collect();
        words.push(program);
        let mut command = Machine::here().command(&words[0]);
        command.args(&words[1..]);
        home.settle(&mut command);
        command.args(["server", "--listen", "127.0.0.1:0", "--http", "off"]);
        command.args(["-c", "server.toml", "--log-level", "debug"]);
        let mut program = Program::start("server", &mut command)?;
        let line = program.wait_for("Server endpoint start up successful", START)?;
        Ok(Self {
            address: listen_address(&line)?,
            pin: server_pin(&line)?,
            program,
            known,
            _home: home,
        })
    }

    /// Starts the client of that name, with a forward to `target`.
    fn client(&self, name: &str, target: &str) -> Result<Client> {
        let known = self.known.iter().find(|known| known.name == name);
        let known = known.context("no such client")?;
        let home = Home::new()?;
        let mut command: Command = home.command(&Machine::here(), "quictun")?;
        let forward = format!("127.0.0.1:0={}", target.trim_start_matches("tcp:"));
        command.args(["client", "--server", &self.address, "--pin", &self.pin]);
        command.args(["--cert", &known.files[0], "--key", &known.files[1]]);
        command.args(["--http", "off", "-L", &forward]);
        Client::from_command(home, &mut command)
    }
}

/// Runs `quictun keygen`. Returns the pin, and the files of the certificate and the key.
pub(crate) fn keygen(home: &Home, name: &str) -> Result<(String, [String; 2])> {
    let mut command = home.command(&Machine::here(), "quictun")?;
    let printed = run(command.args(["keygen", "--out", name]))?;
    let [key, certificate, pin] = &printed.lines().collect::<Vec<_>>()[..] else {
        anyhow::bail!("keygen printed {printed:?}");
    };
    let path = |name: &str| {
        let path = home.path().join(name).into_os_string();
        path.into_string().ok().context("a path that is no text")
    };
    Ok(((*pin).to_owned(), [path(certificate)?, path(key)?]))
}

/// Binds the only name server of this world, which never answers. The resolver waits for `timeout_s` in each of
/// `attempts`.
fn silent_name_server(home: &Home, timeout_s: u32, attempts: u32) -> Result<UdpSocket> {
    let list = home.path().join("resolv.conf");
    let options = format!("options timeout:{timeout_s} attempts:{attempts}");
    std::fs::write(&list, format!("nameserver 127.0.0.1\n{options}\n"))?;
    machine::run(&format!("mount --bind {} /etc/resolv.conf", list.display()))?;
    let socket = UdpSocket::bind("127.0.0.1:53")?;
    socket.set_read_timeout(Some(LATER))?;
    Ok(socket)
}

/// Opens many connections, and returns those that were not refused.
fn crowd(client: &Client, count: usize) -> Result<Vec<Connection>> {
    let connections = (0..count).map(|_| client.forward.connect());
    // A refusal may arrive before the system reports that the connection is up.
    let refused = |connection: &Result<Connection>| connection.as_ref().is_err_and(is_reset);
    connections
        .filter(|connection| !refused(connection))
        .collect()
}

/// Counts the TCP sockets of this world that wait for an answer to their SYN.
fn syn_sent() -> Result<usize> {
    const SYN_SENT: &str = "02";
    let table = std::fs::read_to_string("/proc/net/tcp")?;
    let states = table.lines().skip(1);
    Ok(states
        .filter(|line| line.split_whitespace().nth(3) == Some(SYN_SENT))
        .count())
}

// PROTOCOL OPEN-12.
#[test]
fn dials_end_with_their_flows() -> Result<()> {
    isolated(|| {
        let hole = BlackHole::new()?;
        let server = Server::start(&["--dial-timeout", "60s"])?;
        let target = ["--token-source", &hole.target()];
        let client = Client::start(&server.address.to_string(), &target)?;
        let before = server.program.descriptors()?;
        let crowd = crowd(&client, 600)?;
        deadline::wait(
            "600 dials",
            LATER,
            || Ok((syn_sent()? >= 600).then_some(())),
        )?;
        for connection in crowd {
            connection.reset()?;
        }
        // This is a third of the time limit of these dials.
        deadline::wait("the dials to end with their flows", LATER, || {
            let left = (syn_sent()?, server.program.descriptors()?);
            Ok((left.0 == 0 && left.1 <= before).then_some(()))
        })
    })
}

// PROTOCOL OPEN-12.
#[test]
fn look_ups_that_wait_end_with_their_flows() -> Result<()> {
    isolated(|| {
        // The limit of one client's look-ups under way; each asks for both families, once.
        const QUESTIONS: usize = 2 * 32;
        let home = Home::new()?;
        let name_server = silent_name_server(&home, 4, 1)?;
        let server = Server::start(&[])?;
        let [slow, last] = ["tcp:slow.example:80", "tcp:last.example:80"]
            .map(|target| Client::start(&server.address.to_string(), &["--token-source", target]));
        let (slow, last) = (slow?, last?);
        let crowd = crowd(&slow, 64)?;
        deadline::until("64 look-ups", SOON, || {
            server.program.count("starting connect to server app") >= 64
        })?;
        for connection in crowd {
            connection.reset()?;
        }
        deadline::until("their end", SOON, || {
            server.program.count("handshake error!") >= 64
        })?;
        // The look-up for this flow would come after theirs.
        let _last = last.forward.connect()?;
        let mut asked = 0;
        let mut question = [0; 512];
        loop {
            let size = name_server.recv(&mut question).context("a question")?;
            if question[..size].windows(4).any(|part| part == b"last") {
                break;
            }
            asked += 1;
        }
        ensure!(
            asked <= QUESTIONS,
            "{asked} questions of flows that have ended"
        );
        Ok(())
    })
}

// PROTOCOL LIMIT-2.
#[test]
fn names_that_hang_leave_places_for_the_names_of_other_clients() -> Result<()> {
    isolated(|| {
        let home = Home::new()?;
        let name_server = silent_name_server(&home, 30, 5)?;
        let application = Application::echo()?;
        let near = format!("localhost:{}", application.endpoint().port()?);
        let rules = [("greedy", "*:*".to_owned()), ("modest", near.clone())];
        let server = KnowingServer::start(&rules, &[])?;
        let greedy = server.client("greedy", "slow.example:80")?;
        let modest = server.client("modest", &near)?;
        let _crowd = crowd(&greedy, 200)?;
        deadline::until("200 look-ups", LATER, || {
            server.program.count("dialling the target") >= 200
        })?;
        name_server
            .recv(&mut [0; 512])
            .context("the name server is asked")?;
        let start = Instant::now();
        through_echo(&modest.forward, SOME).context("beside names that hang")?;
        let took = start.elapsed();
        ensure!(took < SOON, "{near} took {took:?}");
        Ok(())
    })
}

// PROTOCOL AUTH-3.
#[test]
fn no_name_is_looked_up_for_a_client_whose_rules_name_no_hosts() -> Result<()> {
    isolated(|| {
        let home = Home::new()?;
        let name_server = silent_name_server(&home, 30, 5)?;
        let rules = [("networks", "0.0.0.0/0:*".to_owned())];
        let mut server = KnowingServer::start(&rules, &[])?;
        let client = server.client("networks", "db.example:5432")?;
        let ending = client.forward.ending()?;
        ensure!(ending.is_reset(), "it ended as {ending:?}");
        name_server.set_nonblocking(true)?;
        match name_server.recv(&mut [0; 512]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            asked => anyhow::bail!("the name server was asked: {asked:?}"),
        }
        let line = server.program.wait_for("flow refused", LATER)?;
        ensure!(line.contains("db.example:5432"), "no rule to add: {line}");
        Ok(())
    })
}

// PROTOCOL LIMIT-2.
#[test]
fn a_client_that_holds_most_descriptors_leaves_some_for_others() -> Result<()> {
    let application = Application::echo()?;
    let target = application.target();
    let rule = target.trim_start_matches("tcp:").to_owned();
    let rules = [("greedy", rule.clone()), ("modest", rule)];
    // The process cannot raise its limit, because the hard limit is the same.
    let mut server = KnowingServer::start(&rules, &["prlimit", "--nofile=160:160", "--"])?;
    let mut greedy = server.client("greedy", &target)?;
    let modest = server.client("modest", &target)?;
    let mut crowd = crowd(&greedy, 300)?;
    for connection in &mut crowd {
        // A reset may arrive before the byte is written.
        if connection.write_all(b"x").is_err() {}
    }
    greedy.program.wait_for("has reached a limit", LATER)?;
    through_echo(&modest.forward, SOME).context("beside one that holds most descriptors")?;
    let said = "its client has its share of the descriptors";
    server.program.wait_for(said, LATER)?;
    drop(crowd);
    served_within(&greedy.forward, SOME, LATER).context("after the crowd had gone")?;
    Ok(())
}

// PROTOCOL TCP-5.
#[test]
fn a_server_that_has_no_descriptors_for_strangers_sleeps_and_serves_again() -> Result<()> {
    /// Descriptors that are left for strangers, who have places for more.
    const LEFT: usize = 4;
    /// Processor time in ten seconds that a loop of failing calls exceeds by far.
    const RESTS: Duration = Duration::from_secs(2);
    let application = Application::echo()?;
    let target = application.target();
    let rules = [("modest", target.trim_start_matches("tcp:").to_owned())];
    let needed = KnowingServer::start(&rules, &[])?.program.descriptors()?;
    let limit = format!("--nofile={0}:{0}", needed + LEFT);
    let mut server = KnowingServer::start(&rules, &["prlimit", &limit, "--"])?;
    let address: SocketAddr = server.address.parse()?;
    let mut strangers = Vec::new();
    for number in 2..2 + 2 * LEFT {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        let source = [127, 0, 0, u8::try_from(number)?];
        socket.bind(&SocketAddr::from((source, 0)).into())?;
        socket.connect(&address.into())?;
        strangers.push(socket);
    }
    server.program.wait_for("accepting pauses", LATER)?;
    let before = server.program.work()?.time;
    // A stranger loses its connection because it sends nothing.
    strangers[0].set_read_timeout(Some(LATER))?;
    let ended = strangers[0].read(&mut [0]);
    ensure!(ended.is_ok_and(|count| count == 0), "a stranger stays");
    let worked = server.program.work()?.time.saturating_sub(before);
    ensure!(worked < RESTS, "the server worked for {worked:?}");
    drop(strangers);
    let modest = server.client("modest", &target)?;
    served_within(&modest.forward, SOME, LATER).map(drop)
}
