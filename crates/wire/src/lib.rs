//! Byte formats: the data that quictun writes to QUIC streams and reads from them, and nothing else.
//!
//! Everything here is a pure function of its input: no sockets, clocks, files or randomness. Parsers read what a peer
//! sent, so none of them panics, allocates beyond its stated limit or accepts input that it does not understand.
//! `docs/PROTOCOL.md` is normative; the modules follow its sections:
//!
//! | module | contents | section |
//! |---|---|---|
//! | [`alpn`] | protocol names offered in the TLS handshake | 2.2 |
//! | [`target`] | the target of a flow: `tcp:host:port`, `unix:/path` | 3 |
//! | [`token`], [`ack`] | the `quic-tun` handshake: 512 bytes from the client, one byte back | 4 |
//! | [`varint`], [`open`] | the `quictun/1` frames OPEN and `OPEN_ACK` | 5 |
//! | [`control`] | the `quictun/1` frames of the control stream | 5.6 |
//! | [`invitation`], [`join`] | codes that invite a client, and how it joins by one | 5.7 |
//! | [`bond`], [`moving`] | flows that outlive their connection | 5.8 |
//! | [`listening`] | listeners of the server for its clients | 5.9 |
//! | [`proxy_header`] | haproxy's PROXY protocol: the header that the server writes to targets | 5.10 |
//! | [`datagram`] | the datagrams of flows in DATAGRAM frames | 5.11 |
//! | [`code`] | error codes of streams, connections and listeners | 6 |
//! | [`handover`] | the state that a server or client hands over to its successor on the same host | - |
//! | [`dns`] | DNS queries, which a client carries over streams | - |
//! | [`srv`] | queries for the SRV records of a service, and their answers (DNS) | - |
//! | [`proxy`] | the requests of applications to a proxy: SOCKS5, SOCKS4A, HTTP CONNECT | - |
//! | [`spice`] | recognising SPICE in the first bytes of a flow (for reports) | 9 |
//!
//! To read a `quictun/1` flow, a server collects bytes, calls [`open::Open::decode`] until it returns `Done`, parses
//! [`open::Open::target`] with [`target::Target::parse`], and treats the bytes after `consumed` as the application's.
//! For a `quic-tun` flow, it collects [`token::TOKEN_LEN`] bytes, calls [`token::unpack`] and
//! [`target::Target::parse`], and answers with [`ack::Ack::to_byte`].

#![forbid(unsafe_code)]

pub mod ack;
pub mod alpn;
pub mod bond;
#[doc(hidden)]
#[cfg(any(test, feature = "check"))]
pub mod check;
pub mod code;
pub mod control;
pub mod datagram;
pub mod dns;
pub mod handover;
pub mod invitation;
pub mod join;
pub mod listening;
pub mod moving;
pub mod open;
pub mod opening;
pub mod outbound_proxy;
pub mod proxy;
pub mod proxy_header;
pub mod spice;
pub mod srv;
pub mod target;
pub mod token;
pub mod varint;
