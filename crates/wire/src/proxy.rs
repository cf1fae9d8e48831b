//! What applications say to a proxy before their bytes: SOCKS5, SOCKS4, SOCKS4A, or HTTP/1.x CONNECT.
//!
//! The first byte decides: 5 and 4 are the versions of SOCKS, and a letter begins an HTTP request. [`Handshake`] takes
//! bytes and says what to do. Names are passed on as they are: who looks them up is not decided here.
//!
//! ```text
//!  bytes ─► push ─► poll ─┬► More                 read on, up to a deadline
//!                         ├► Reply(bytes)         write them, poll again
//!                         ├► Login(credentials)   handle_login(known), poll again
//!                         ├► Connect(request)     open a flow; Dialect::accepted once it is there, else Dialect::refused
//!                         └► Refuse(bytes)        write them and end
//! ```
//!
//! | document | section | here |
//! |---|---|---|
//! | RFC 1928 | 3 to 6 | `socks5` |
//! | RFC 1929 | 2 | `socks5` |
//! | SOCKS4, SOCKS4A | whole | `socks4` |
//! | RFC 9110 | 7.2, 9.3.6, 11.7 | `http` |
//! | RFC 9112 | 2.2, 3.2.3, 5, 6.3 | `http` |
//! | RFC 7617 | 2 | `http` |
//!
//! A page in a browser can make requests of its own to an address of this machine. It cannot ask for CONNECT nor choose the
//! first byte, and every other request is refused without an effect.

use crate::code::FlowCode;
use crate::target::Target;

mod http;
mod socks4;
mod socks5;

pub use http::MAX_HEAD;

/// The conversation with one application, up to its request.
pub struct Handshake {
    /// Whoever asks has to give a user and a password.
    protected: bool,
    stage: Stage,
    input: Vec<u8>,
}

/// The next thing to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// More bytes are needed.
    More,
    /// The application is to be sent this; then poll again.
    Reply(Vec<u8>),
    /// The application says who it is; answer with [`Handshake::handle_login`], then poll again.
    Login(Credentials),
    /// The application asks for a connection.
    Connect(Request),
    /// The application is to be sent this, and nothing more is taken from it.
    Refuse(Refusal),
}

/// A user and a password, as sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// 1 to 255 bytes over SOCKS5.
    pub user: Vec<u8>,
    /// The password.
    pub password: Vec<u8>,
}

/// A connection that an application asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// How it is to be answered.
    pub dialect: Dialect,
    /// Always of TCP; a name is as the application wrote it, in lower case.
    pub target: Target,
    /// What has followed the request already: the first bytes for the target.
    pub rest: Vec<u8>,
}

/// A request that is not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What to send; may be empty.
    pub answer: Vec<u8>,
    /// Why, for a log.
    pub why: &'static str,
}

/// The way in which an application has asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// RFC 1928.
    Socks5,
    /// SOCKS4 or SOCKS4A.
    Socks4,
    /// HTTP/1.0 or HTTP/1.1 CONNECT.
    Http,
}

impl Dialect {
    /// The answer once the target is connected.
    pub fn accepted(self) -> &'static [u8] {
        match self {
            Self::Socks5 => &socks5::ACCEPTED,
            Self::Socks4 => &socks4::ACCEPTED,
            Self::Http => http::ACCEPTED,
        }
    }

    /// The answer where it is not; `None`: nobody knows why.
    pub fn refused(self, code: Option<FlowCode>) -> Vec<u8> {
        match self {
            Self::Socks5 => socks5::refused(code),
            Self::Socks4 => socks4::REJECTED.to_vec(),
            Self::Http => http::refused(code),
        }
    }
}

enum Stage {
    /// Nothing has come yet.
    First,
    Socks5(socks5::Stage),
    Socks4,
    Http(http::Head),
    /// Who asks is known, or need not be; this comes next.
    Asked(Dialect, Box<str>),
    /// Who asks is being looked up; this comes next where it is known.
    LoggingIn(Box<Stage>, Dialect),
    Over,
}

impl Handshake {
    /// Of an application that has said nothing yet. `protected`: it has to give a user and a password.
    pub fn new(protected: bool) -> Self {
        Self {
            protected,
            stage: Stage::First,
            input: Vec::new(),
        }
    }

    /// Takes bytes. To be polled until it wants more before the next ones: it holds at most [`MAX_HEAD`] and these.
    pub fn push(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Step {
        if matches!(self.stage, Stage::First) {
            self.stage = match self.input.first() {
                None => return Step::More,
                Some(5) => Stage::Socks5(socks5::Stage::Methods),
                Some(4) => Stage::Socks4,
                Some(byte) if byte.is_ascii_alphabetic() => Stage::Http(http::Head::default()),
                Some(_) => return self.refuse(Vec::new(), "it speaks neither SOCKS nor HTTP"),
            };
        }
        loop {
            let (next, step) = match &mut self.stage {
                Stage::Socks5(stage) => socks5::poll(*stage, &mut self.input, self.protected),
                Stage::Socks4 => socks4::poll(&mut self.input, self.protected),
                Stage::Http(head) => match head.read(&self.input) {
                    http::Read::More => return Step::More,
                    http::Read::Done {
                        length,
                        authority,
                        login,
                    } => {
                        self.input.drain(..length);
                        asked_by_http(&authority, login, self.protected)
                    }
                    http::Read::Refuse(refusal) => (Stage::Over, Step::Refuse(refusal)),
                },
                Stage::Asked(dialect, target) => {
                    let (dialect, target) = (*dialect, Target::parse(target));
                    return self.connect(dialect, target.ok());
                }
                Stage::First | Stage::LoggingIn(..) | Stage::Over => return Step::More,
            };
            self.stage = next;
            if !matches!(self.stage, Stage::Asked(..)) {
                return step;
            }
        }
    }

    fn connect(&mut self, dialect: Dialect, target: Option<Target>) -> Step {
        let Some(target) = target else {
            let answer = dialect.refused(Some(FlowCode::BadOpen));
            return self.refuse(answer, "it names no target");
        };
        self.stage = Stage::Over;
        let rest = std::mem::take(&mut self.input);
        Step::Connect(Request {
            dialect,
            target,
            rest,
        })
    }

    /// The answer to [`Step::Login`]: whether this user has this password. Returns the next thing to do.
    pub fn handle_login(&mut self, known: bool) -> Step {
        let (next, dialect) = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::LoggingIn(next, dialect) => (*next, dialect),
            stage => {
                self.stage = stage;
                return self.poll();
            }
        };
        match (dialect, known) {
            (Dialect::Http, false) => Step::Refuse(http::unknown()),
            (_, false) => {
                let answer = socks5::UNKNOWN.to_vec();
                self.refuse(answer, "no such user, or another password")
            }
            (Dialect::Http, true) => {
                self.stage = next;
                self.poll()
            }
            (_, true) => {
                self.stage = next;
                Step::Reply(socks5::WELCOME.to_vec())
            }
        }
    }

    fn refuse(&mut self, answer: Vec<u8>, why: &'static str) -> Step {
        self.stage = Stage::Over;
        Step::Refuse(Refusal { answer, why })
    }
}

impl std::fmt::Debug for Handshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The bytes may be a password.
        f.debug_struct("Handshake")
            .field("protected", &self.protected)
            .field("held", &self.input.len())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// What comes after the head of a request.
fn asked_by_http(authority: &str, login: Option<Credentials>, protected: bool) -> (Stage, Step) {
    let asked = Stage::Asked(Dialect::Http, format!("tcp:{authority}").into());
    match login {
        _ if !protected => (asked, Step::More),
        Some(login) => (
            Stage::LoggingIn(Box::new(asked), Dialect::Http),
            Step::Login(login),
        ),
        None => (Stage::Over, Step::Refuse(http::unknown())),
    }
}

/// The text of a target of a host and a port, where the host may be an address.
fn target(host: &str, port: u16) -> Box<str> {
    match host.parse::<std::net::IpAddr>() {
        Ok(ip) => format!("tcp:{}", std::net::SocketAddr::new(ip, port)).into(),
        Err(_) => format!("tcp:{host}:{port}").into(),
    }
}

#[cfg(test)]
mod tests;
