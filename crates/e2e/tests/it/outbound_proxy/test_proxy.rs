//! A proxy for HTTP CONNECT and SOCKS5 that tests can stop and start again.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result};
use quictun_wire::proxy::{Handshake, HandshakeStep};

/// The name that this proxy resolves, and no other program.
pub(super) const NAME: &str = "server.example";

/// The user and password that a protected proxy knows.
pub(super) const LOGIN: &str = "ann:wonder";

/// A running proxy. Dropping it cuts all connections and closes its port.
pub(super) struct TestProxy {
    pub(super) address: SocketAddr,
    state: Arc<State>,
    listening: Option<JoinHandle<()>>,
}

struct State {
    protected: bool,
    /// The address of [`NAME`].
    server: SocketAddr,
    stopped: AtomicBool,
    sockets: Mutex<Vec<TcpStream>>,
    asked: Mutex<Vec<String>>,
}

impl TestProxy {
    /// Starts a proxy on `address` of the test's own host.
    pub(super) fn start(address: SocketAddr, protected: bool, server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address).context("the proxy's port")?;
        let state = Arc::new(State {
            protected,
            server,
            stopped: AtomicBool::new(false),
            sockets: Mutex::default(),
            asked: Mutex::default(),
        });
        let address = listener.local_addr()?;
        let of_thread = state.clone();
        let listening = std::thread::spawn(move || {
            for accepted in listener.incoming() {
                if of_thread.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let (state, Ok(accepted)) = (of_thread.clone(), accepted) else {
                    continue;
                };
                // A connection that fails is the client's to notice.
                std::thread::spawn(move || state.serve(accepted).ok());
            }
        });
        Ok(Self {
            address,
            state,
            listening: Some(listening),
        })
    }

    /// Returns the targets that clients have asked for.
    pub(super) fn asked(&self) -> Vec<String> {
        let asked = self.state.asked.lock();
        asked.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for TestProxy {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::SeqCst);
        // The listener wakes up.
        let _woken = TcpStream::connect(self.address);
        if let Some(listening) = self.listening.take() {
            let _ended = listening.join();
        }
        let sockets = self.state.sockets.lock();
        for socket in sockets.unwrap_or_else(PoisonError::into_inner).iter() {
            let _closed = socket.shutdown(Shutdown::Both);
        }
    }
}

impl State {
    fn serve(&self, mut client: TcpStream) -> Result<()> {
        self.keep(&client)?;
        let mut handshake = Handshake::new(self.protected);
        let mut buffer = [0; 1024];
        loop {
            let mut step = handshake.poll();
            if let HandshakeStep::Login(login) = &step {
                let login = [&login.user[..], b":", &login.password].concat();
                step = handshake.handle_login(login == LOGIN.as_bytes());
            }
            match step {
                HandshakeStep::Reply(bytes) => client.write_all(&bytes)?,
                HandshakeStep::Refuse(refusal) => return Ok(client.write_all(&refusal.answer)?),
                HandshakeStep::Connect(request) => {
                    let target = request.target.to_string();
                    let target = target.trim_start_matches("tcp:");
                    let asked = self.asked.lock();
                    asked
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(target.to_owned());
                    let mut server = match target.strip_prefix(NAME) {
                        Some(_) => TcpStream::connect(self.server)?,
                        None => TcpStream::connect(target)?,
                    };
                    self.keep(&server)?;
                    client.write_all(request.dialect.accepted())?;
                    server.write_all(&request.rest)?;
                    return splice(client, server);
                }
                HandshakeStep::Associate { .. } => anyhow::bail!("a carrier needs no datagrams"),
                HandshakeStep::More | HandshakeStep::Login(_) => {
                    let read = client.read(&mut buffer)?;
                    anyhow::ensure!(read > 0, "the client has gone");
                    handshake.push(&buffer[..read]);
                }
            }
        }
    }

    fn keep(&self, socket: &TcpStream) -> Result<()> {
        let sockets = self.sockets.lock();
        sockets
            .unwrap_or_else(PoisonError::into_inner)
            .push(socket.try_clone()?);
        Ok(())
    }
}

/// Copies in both directions until both have ended.
fn splice(client: TcpStream, server: TcpStream) -> Result<()> {
    let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
    let back = std::thread::spawn(move || copy(&mut from, &mut to));
    let (mut from, mut to) = (client, server);
    copy(&mut from, &mut to);
    let _ended = back.join();
    Ok(())
}

fn copy(from: &mut TcpStream, to: &mut TcpStream) {
    // An error of one side is the end of the other.
    let _copied = std::io::copy(from, to);
    let _closed = to.shutdown(Shutdown::Write);
}
