//! The flow: two directions and one socket.

mod moving;
mod pump;

pub use moving::ResumeError;

use bytes::Bytes;
use quictun_wire::code::FlowCode;

use crate::close::{DirectionState, Ending};
use crate::heads::Heads;
use crate::to_app::ToApp;
use crate::to_tunnel::ToTunnel;
use crate::{Inlet, Socket, Stream};

/// One bridged connection. See the crate documentation for the order of calls.
#[derive(Debug)]
pub struct Flow<S> {
    socket: S,
    to_tunnel: ToTunnel,
    to_app: ToApp,
    /// The peer stopped this side. Once the reverse direction ends, the application is reset, not finished.
    stopped: bool,
    /// The connection is lost, and everything that the application is to receive has arrived. The value says why it was
    /// lost.
    lost: Option<Ending>,
    /// Everything is written to the socket. Once the socket has sent it, the application is reset and the flow ends
    /// with this value.
    parting: Option<Ending>,
    ending: Option<Ending>,
    heads: Option<Box<Heads>>,
}

impl<S: Socket> Flow<S> {
    /// Bridges `socket` to a stream whose bytes arrive in `inlet`.
    pub fn new(socket: S, inlet: Inlet) -> Self {
        Self {
            socket,
            to_tunnel: ToTunnel::new(),
            to_app: ToApp::new(inlet),
            stopped: false,
            lost: None,
            parting: None,
            ending: None,
            heads: None,
        }
    }

    /// Sets protocol bytes that are sent before the application's: a request or its answer.
    pub fn send_first(&mut self, prefix: Bytes) {
        self.to_tunnel.send_first(prefix);
    }

    /// Returns the number of bytes of [`Flow::send_first`] that the stream has not accepted.
    pub fn prefix_left(&self) -> usize {
        self.to_tunnel.prefix_left()
    }

    /// Returns the inlet where the stream's bytes arrive. Take the header off it before pumping to the application.
    pub fn inlet(&mut self) -> &mut Inlet {
        &mut self.to_app.inlet
    }

    /// Returns the inlet, for reading its state.
    pub fn arrived(&self) -> &Inlet {
        &self.to_app.inlet
    }

    /// Keeps the first [`HEAD_LEN`](crate::HEAD_LEN) bytes of both directions from now on.
    pub fn keep_heads(&mut self) {
        self.heads = Some(Box::default());
    }

    /// Returns the first bytes of both directions, if [`Flow::keep_heads`] was called.
    pub fn heads(&self) -> Option<&Heads> {
        self.heads.as_deref()
    }

    /// Notes that the socket may have become readable or writable.
    pub fn handle_socket_ready(&mut self, readable: bool, writable: bool) {
        self.to_tunnel.readable |= readable;
        self.to_app.writable |= writable;
    }

    /// Ends the flow after the application reset its connection, or its socket failed.
    pub fn handle_socket_error<T: Stream>(&mut self, stream: &mut T) {
        if self.ending.is_none() {
            self.cut_stream(stream, FlowCode::AppReset);
            self.socket.abort();
            self.settle(Ending::AppReset);
        }
    }

    /// Handles the peer's `STOP_SENDING`: the application is no longer read.
    pub fn handle_stopped<T: Stream>(&mut self, stream: &mut T, code: u64) {
        if self.to_tunnel.direction == DirectionState::Closed {
            return;
        }
        if self.to_tunnel.is_owed() {
            stream.reset(FlowCode::from_u64(code).unwrap_or(FlowCode::AppReset));
        }
        self.to_tunnel.close();
        self.stopped = true;
        if self.to_app.direction == DirectionState::Finished {
            self.part(Ending::PeerReset(FlowCode::from_u64(code)));
        }
    }

    /// Handles the loss of the connection. If everything up to the FIN has arrived, it is still delivered to the
    /// application (PROTOCOL CLOSE-12). If a byte is missing, the application is reset at once.
    ///
    /// If [`Flow::ending`] is `None` after this call, the flow continues without its stream: pass a
    /// [`LostStream`](crate::LostStream) to later calls.
    pub fn handle_connection_lost<T: Stream>(&mut self, stream: &mut T, how: impl Into<Ending>) {
        let how = how.into();
        if self.ending.is_some() || self.parting.is_some() {
            return;
        }
        let cut = self.to_tunnel.direction == DirectionState::Open;
        self.to_tunnel.close();
        self.stopped |= cut;
        if self.to_app.direction == DirectionState::Finished {
            self.part(how);
        } else if self.to_app.direction == DirectionState::Open && self.to_app.take_all(stream) {
            self.lost = Some(how);
        } else {
            self.cut(how);
        }
    }

    /// Resets the application, whatever has arrived.
    pub fn cut(&mut self, how: impl Into<Ending>) {
        if self.ending.is_none() {
            self.socket.abort();
            self.to_tunnel.close();
            self.to_app.close();
            self.settle(how.into());
        }
    }

    /// Returns whether the flow only waits for the socket to send what was written: see [`Flow::poll_parting`].
    pub fn is_parting(&self) -> bool {
        self.parting.is_some() && self.ending.is_none()
    }

    /// Resets the application if the socket has sent everything, or if that took too long (`late`). No event announces
    /// that the socket has sent everything, so call this at intervals while [`Flow::is_parting`].
    pub fn poll_parting(&mut self, late: bool) {
        if let Some(how) = self.parting
            && self.ending.is_none()
            && (late || self.socket.is_sent())
        {
            self.socket.abort();
            self.ending = Some(how);
        }
    }

    /// Gives the flow up: resets the application, and the stream with the code of `how`.
    pub fn abandon<T: Stream>(&mut self, stream: &mut T, how: impl Into<Ending>) {
        if self.ending.is_none() {
            let how = how.into();
            self.cut_stream(stream, how.code());
            self.socket.abort();
            self.settle(how);
        }
    }

    /// Returns whether no application byte has moved in either direction, so that the flow could start again elsewhere.
    /// If the application has only ended its direction, the next read will return the end again.
    pub fn is_untouched(&self) -> bool {
        let to_app = &self.to_app;
        self.ending.is_none()
            && !self.stopped
            && self.to_tunnel.is_untouched()
            && to_app.direction == DirectionState::Open
            && to_app.bytes == 0
            && to_app.inlet.buffered() == 0
    }

    /// Returns the socket, so that the flow can start again.
    pub fn into_socket(self) -> S {
        self.socket
    }

    /// Returns how the flow ended, or `None` while it lives.
    pub fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// Returns the number of bytes that the stream has accepted from the application.
    pub fn bytes_to_tunnel(&self) -> u64 {
        self.to_tunnel.app_bytes()
    }

    /// Returns the number of bytes that the application has accepted from the stream.
    pub fn bytes_to_app(&self) -> u64 {
        self.to_app.bytes
    }

    /// Returns whether bytes wait that the application does not read.
    pub fn is_parked(&self) -> bool {
        !self.to_app.writable && self.to_app.inlet.ready() > 0
    }

    /// Returns whether bytes wait that the application may not have yet, because its client's rate is used up.
    pub fn is_shaped(&self) -> bool {
        self.to_app.shaped
    }

    /// Returns the number after the FIN's, once the application has finished and the stream has accepted the FIN.
    pub fn end_sent(&self) -> Option<u64> {
        let finished = self.to_tunnel.direction == DirectionState::Finished;
        finished.then(|| self.to_tunnel.app_bytes() + 1)
    }

    /// Returns the socket of the application.
    pub fn socket(&self) -> &S {
        &self.socket
    }

    /// Handles the peer's `RESET_STREAM`: the rest of the data will never arrive, so the application must see a cut.
    pub fn handle_reset<T: Stream>(&mut self, stream: &mut T, code: u64) {
        if self.ending.is_none() {
            let code = FlowCode::from_u64(code);
            self.to_app.close();
            self.cut_stream(stream, code.unwrap_or(FlowCode::AppReset));
            self.socket.abort();
            self.settle(Ending::PeerReset(code));
        }
    }

    /// Resets and stops what is still open of the stream. A direction that has finished stays finished: the peer
    /// already has its bytes and its FIN.
    fn cut_stream<T: Stream>(&mut self, stream: &mut T, code: FlowCode) {
        if self.to_tunnel.is_owed() {
            stream.reset(code);
            self.to_tunnel.close();
        }
        if self.to_app.direction == DirectionState::Open {
            stream.stop(code);
            self.to_app.close();
        }
    }

    /// Resets the application as soon as the reset cannot discard data. It has been sent everything, and its own bytes
    /// no longer reach the peer.
    fn part(&mut self, how: Ending) {
        self.parting.get_or_insert(how);
        self.poll_parting(false);
    }

    /// Notes how the flow ended, if both directions have ended.
    fn settle(&mut self, how: Ending) {
        let over = |direction| direction != DirectionState::Open;
        if self.ending.is_none() && over(self.to_tunnel.direction) && over(self.to_app.direction) {
            self.ending = Some(how);
            if how == Ending::Finished {
                self.socket.close();
            }
        }
    }
}
