//! One hostile connection to the HTTPS proxy: TLS, and bytes of HTTP/1.1 or HTTP/2 that no library sends.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quictun_wire::alpn;
use rustls::{ClientConfig, ClientConnection};

use super::tls_session;

/// The bytes that a hostile program sends after the handshake of TLS.
#[derive(Clone, Debug)]
pub enum HttpsAttack {
    /// Sends half of a head of HTTP/1.1.
    HalfHead,
    /// Sends a head of HTTP/1.1 whose end depends on the reader, with a second request in its content.
    Smuggled,
    /// Sends a part of a block of fields of HTTP/2, whose rest does not follow.
    HalfBlock,
    /// Opens streams of HTTP/2, and resets each at once.
    RapidReset(Option<Login>),
    /// Sends a block of fields of HTTP/2 in frames without end.
    Continuation,
    /// Sends settings, and does not read the answers.
    Settings,
    /// Sends pings, and does not read the answers.
    Pings,
    /// Sends DATA frames without content on a stream.
    EmptyData(Option<Login>),
    /// Opens as many streams as permitted to a target that sends without end, and gives no credit.
    NoCredit(Login),
}

/// The field with the login of a known client, and a target that it may reach.
#[derive(Clone, Debug)]
pub struct Login {
    field: String,
    target: String,
}

impl Login {
    /// Makes the field of a user and the secret in its file.
    pub fn new(user: &str, secret: &str, target: &str) -> Self {
        let login = STANDARD.encode(format!("{user}:{}", secret.trim()));
        let target = target.trim_start_matches("tcp:").to_owned();
        Self {
            field: format!("Basic {login}"),
            target,
        }
    }
}

impl HttpsAttack {
    fn protocol(&self) -> &'static [u8] {
        match self {
            Self::HalfHead | Self::Smuggled => alpn::HTTP_1,
            _ => alpn::HTTP_2,
        }
    }

    /// Returns what is sent first.
    fn first(&self) -> Vec<u8> {
        let greeting = || [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
        match self {
            Self::HalfHead => b"CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: a\r\nX: ".to_vec(),
            Self::Smuggled => {
                b"CONNECT 127.0.0.1:1 HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: \
                chunked\r\n\r\n0\r\n\r\nCONNECT 127.0.0.1:2 HTTP/1.1\r\n\r\n"
                    .to_vec()
            }
            Self::HalfBlock | Self::Continuation => {
                let block = fields(None);
                [greeting(), frame(HEADERS, 0, 1, &block)].concat()
            }
            Self::EmptyData(login) => {
                let request = frame(HEADERS, END_HEADERS, 1, &fields(login.as_ref()));
                [greeting(), request].concat()
            }
            Self::NoCredit(login) => {
                let no_window = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
                let block = fields(Some(login));
                let requests =
                    (0..100).map(|count| frame(HEADERS, END_HEADERS, 2 * count + 1, &block));
                [
                    PREFACE.to_vec(),
                    no_window,
                    requests.collect::<Vec<_>>().concat(),
                ]
                .concat()
            }
            Self::RapidReset(_) | Self::Settings | Self::Pings => greeting(),
        }
    }

    /// Returns what is sent again and again, for the `count`th time. Empty if the program is silent.
    fn again(&self, count: u32) -> Vec<u8> {
        match self {
            Self::RapidReset(login) => {
                let stream = (2 * count + 1) & 0x7fff_ffff;
                let request = frame(HEADERS, END_HEADERS, stream, &fields(login.as_ref()));
                [request, frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
            }
            Self::Continuation => frame(CONTINUATION, 0, 1, &fields(None)),
            Self::Settings => frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]),
            Self::Pings => frame(PING, 0, 0, &[0; 8]),
            Self::EmptyData(_) => frame(DATA, 0, 1, &[]),
            Self::HalfHead | Self::Smuggled | Self::HalfBlock | Self::NoCredit(_) => Vec::new(),
        }
    }
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;

const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags];
    [&head[..], &stream.to_be_bytes(), payload].concat()
}

/// Returns the block of a request for a tunnel (RFC 7541 section 6.2.2).
fn fields(login: Option<&Login>) -> Vec<u8> {
    let target = login.map_or("127.0.0.1:1", |login| &*login.target);
    let mut fields = vec![(":method", "CONNECT"), (":authority", target)];
    fields.extend(login.map(|login| ("proxy-authorization", &*login.field)));
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            // All are shorter than 127 bytes.
            block.push(u8::try_from(text.len()).unwrap_or(0));
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// The TLS connection, without its socket.
#[derive(Debug)]
pub struct HttpsSession {
    tls: ClientConnection,
    attack: HttpsAttack,
    begun: bool,
    count: u32,
}

impl HttpsSession {
    /// Begins a handshake.
    ///
    /// # Errors
    ///
    /// Fails if the TLS library refuses the configuration.
    pub fn new(config: &Arc<ClientConfig>, attack: HttpsAttack) -> Result<Self> {
        let mut config = ClientConfig::clone(config);
        config.alpn_protocols = vec![attack.protocol().to_vec()];
        let mut tls = ClientConnection::new(Arc::new(config), "attacked.test".try_into()?)?;
        tls.set_buffer_limit(None);
        Ok(Self {
            tls,
            attack,
            begun: false,
            count: 0,
        })
    }

    /// Returns the configuration for [`HttpsSession::new`].
    ///
    /// # Errors
    ///
    /// Fails if the TLS library lacks a feature.
    pub fn config() -> Result<Arc<ClientConfig>> {
        tls_session::client_config()
    }

    /// Returns true once the handshake is complete.
    pub fn is_connected(&self) -> bool {
        !self.tls.is_handshaking()
    }

    /// Handles bytes from the socket. Returns the reason if the server has ended the connection.
    pub fn handle_bytes(&mut self, mut bytes: &[u8]) -> Option<String> {
        while !bytes.is_empty() {
            if let Err(error) = self.tls.read_tls(&mut bytes) {
                return Some(error.to_string());
            }
            let state = match self.tls.process_new_packets() {
                Ok(state) => state,
                Err(error) => return Some(error.to_string()),
            };
            let mut plaintext = vec![0; state.plaintext_bytes_to_read()];
            if let Err(error) = self.tls.reader().read_exact(&mut plaintext) {
                return Some(error.to_string());
            }
            if state.peer_has_closed() {
                return Some("the server has said goodbye".to_owned());
            }
        }
        None
    }

    /// Appends what the library and the attack have to send, `most` bytes of the attack at least.
    ///
    /// # Errors
    ///
    /// Fails if the TLS library refuses a record.
    pub fn poll_transmit(&mut self, most: usize, out: &mut Vec<u8>) -> Result<()> {
        if self.is_connected() {
            let mut bytes = Vec::new();
            if !std::mem::replace(&mut self.begun, true) {
                bytes = self.attack.first();
            }
            while bytes.len() < most {
                let more = self.attack.again(self.count);
                if more.is_empty() {
                    break;
                }
                self.count += 1;
                bytes.extend(more);
            }
            self.tls.writer().write_all(&bytes)?;
        }
        while self.tls.wants_write() {
            self.tls.write_tls(out)?;
        }
        Ok(())
    }
}
