//! An engine and its UDP socket.

use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::time::Instant;

use bytes::BytesMut;
use mio::net::UdpSocket;
use mio::{Interest, Poll, Token};
use quictun_engine::{Engine, FlowId, Role};

use crate::app::App;

pub(crate) struct Peer<R> {
    pub(crate) engine: Engine<App, R>,
    pub(crate) udp: UdpSocket,
    pub(crate) flow: Option<FlowId>,
    buffer: Vec<u8>,
}

impl<R: Role> Peer<R> {
    pub(crate) fn new(engine: Engine<App, R>, poll: &Poll) -> io::Result<Self> {
        let mut udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into())?;
        poll.registry()
            .register(&mut udp, Token(0), Interest::READABLE)?;
        Ok(Self {
            engine,
            udp,
            flow: None,
            buffer: Vec::new(),
        })
    }

    /// Passes all inputs to the engine, lets it work, and sends its datagrams.
    pub(crate) fn turn(&mut self, now: Instant) -> io::Result<()> {
        // mio reports a socket once, so it has to be read until it blocks.
        let mut datagram = [0; 2048];
        loop {
            match self.udp.recv_from(&mut datagram) {
                Ok((length, remote)) => {
                    let data = BytesMut::from(&datagram[..length]);
                    self.engine.handle_datagram(now, remote, None, None, data);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if self.engine.next_timeout().is_some_and(|due| due <= now) {
            self.engine.handle_timeout(now);
        }
        self.engine.drive(now);
        // An application in memory may be ready after each delivery. With a kernel socket, mio would report that.
        if let Some(flow) = self.flow {
            self.engine.handle_socket(now, flow, true, true, false);
        }
        // The input of the application is work, too.
        self.engine.drive(now);
        while let Some(datagrams) = self.engine.poll_transmit(now, &mut self.buffer) {
            // `setup` allows one datagram in each batch. If the socket has no room, the datagram is lost, and QUIC
            // sends its data again.
            let bytes = &self.buffer[..datagrams.size];
            let _sent = self.udp.send_to(bytes, datagrams.destination);
        }
        Ok(())
    }
}
