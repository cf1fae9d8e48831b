//! A running server and client, with applications behind them.

use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use rustix::process::{Pid, Signal, kill_process};

use crate::programs::QUICTUN;

/// A running program, which is killed at the end of the test.
pub(crate) struct RunningProgram {
    child: Child,
    output: BufReader<PipeReader>,
    said: String,
}

impl RunningProgram {
    /// Starts `program` in `home`, where it also keeps its state.
    pub(crate) fn start(program: &str, arguments: &[&str], home: &Path) -> Self {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let child = Command::new(program)
            .args(arguments)
            .current_dir(home)
            .env_clear()
            .env("HOME", home)
            .env("QUICTUN_LOG_FORMAT", "console")
            .env("STATE_DIRECTORY", home.join("state"))
            .stdin(Stdio::null())
            .stdout(writer.try_clone().expect("a descriptor"))
            .stderr(writer)
            .spawn()
            .expect("the program starts");
        Self {
            child,
            output: BufReader::new(reader),
            said: String::new(),
        }
    }

    /// Reads the output until a line contains `phrase`, and returns that line.
    pub(crate) fn line(&mut self, phrase: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).expect("text");
            self.said.push_str(&line);
            assert!(read > 0, "never printed {phrase:?}:\n{}", self.said);
            if line.contains(phrase) {
                return line;
            }
        }
    }

    /// Sends SIGTERM and waits for the end. Returns the whole output.
    pub(crate) fn end(self) -> String {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).expect("the program runs");
        self.ended()
    }

    /// Waits for the end, which is to be in order. Returns the whole output.
    pub(crate) fn ended(mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("text");
        self.said.push_str(&rest);
        let status = self.child.wait().expect("the program has ended");
        assert_eq!(status.code(), Some(0), "{}", self.said);
        std::mem::take(&mut self.said)
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait()
            && let Err(error) = self.child.kill().and_then(|()| self.child.wait().map(drop))
        {
            self.said = format!("cannot kill the program: {error}");
        }
    }
}

/// Returns the value of a field in a log line.
pub(crate) fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let (_, rest) = line.split_once(&format!("\"{name}\": \"")).expect(line);
    rest.split('"').next().expect("a value")
}

/// Starts an application that sends back all it receives, and returns its target. It runs as long as the tests.
pub(crate) fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut writer = stream.try_clone().expect("a descriptor");
            std::thread::spawn(move || std::io::copy(&mut stream, &mut writer).map(drop));
        }
    });
    format!("tcp:{address}")
}

/// A running server and client, and a connection through them to an [`echo`].
pub(crate) struct EchoTunnel {
    pub(crate) server: RunningProgram,
    pub(crate) client: RunningProgram,
    /// The addresses of their HTTP interfaces.
    pub(crate) server_http: String,
    pub(crate) client_http: String,
    pub(crate) stream: TcpStream,
}

impl EchoTunnel {
    /// Starts everything in `home`. The client's socket for hand-overs is in `run`.
    pub(crate) fn start(home: &Path) -> Self {
        let target = echo();
        let allow = target.trim_start_matches("tcp:");
        let listen = ["server", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
        let arguments = [&listen[..], &["--workers", "1", "--allow", allow]].concat();
        let mut server = RunningProgram::start(QUICTUN, &arguments, home);
        let server_http = field(&server.line("HTTP interface"), "listen address").to_owned();
        let up = server.line("Server endpoint start up successful");
        let (address, pin) = (field(&up, "listen address"), field(&up, "pin"));
        let forward = format!("127.0.0.1:0={target}");
        let dial = ["client", "--server", address, "--pin", pin, "-L", &forward];
        let more = ["--psk-file", "state/client.psk", "--connections", "1"];
        let places = ["--http", "127.0.0.1:0", "--state-dir", "run"];
        let arguments = [&dial[..], &more, &places].concat();
        let mut client = RunningProgram::start(QUICTUN, &arguments, home);
        let client_http = field(&client.line("HTTP interface"), "listen address").to_owned();
        let up = client.line("Client endpoint start up successful");
        let stream = TcpStream::connect(field(&up, "listen address")).expect("the client");
        let mut tunnel = Self {
            server,
            client,
            server_http,
            client_http,
            stream,
        };
        tunnel.exchange(*b"hello");
        tunnel
    }

    /// Sends bytes, and awaits them.
    pub(crate) fn exchange(&mut self, question: [u8; 5]) {
        let mut answer = [0; 5];
        self.stream.write_all(&question).expect("a question");
        self.stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(answer, question);
    }
}

/// An address on which nothing listens. The port stays taken, so that no other program listens there meanwhile.
pub(super) struct SilentAddress {
    pub(super) address: String,
    _socket: OwnedFd,
}

impl SilentAddress {
    pub(super) fn new() -> Self {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = getsockname(&socket).expect("an address");
        let address = SocketAddr::try_from(address).expect("an Internet address");
        Self {
            address: address.to_string(),
            _socket: socket,
        }
    }
}

/// Connects, writes, finishes, and reads to the end, which may be a reset.
pub(super) fn exchange(address: &str) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let mut answer = Vec::new();
    let done = stream
        .write_all(b"hello")
        .and_then(|()| stream.shutdown(Shutdown::Write))
        .and_then(|()| stream.read_to_end(&mut answer));
    let Err(_) = done else {
        assert_eq!(answer, b"hello");
        return;
    };
}
