//! The flow: two directions, one socket, and what joins them.

mod moving;
mod pump;

pub use moving::BadNumber;

use bytes::Bytes;
use quictun_wire::code::FlowCode;

use crate::close::{Direction, Ending};
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
    /// The peer stopped us: once the reverse direction ends the application is reset, not finished.
    stopped: bool,
    /// The connection is gone, and all that the application is to receive is here.
    lost: Option<FlowCode>,
    /// Everything is written to the socket. Once it is sent the application is reset, and the flow ends so.
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

    /// Bytes of our own that go before the application's: a request or its answer.
    pub fn send_first(&mut self, prefix: Bytes) {
        self.to_tunnel.send_first(prefix);
    }

    /// How much of them the stream has yet to accept.
    pub fn prefix_left(&self) -> usize {
        self.to_tunnel.prefix_left()
    }

    /// Where the stream's bytes arrive: its header is taken off before they are pumped to the application.
    pub fn inlet(&mut self) -> &mut Inlet {
        &mut self.to_app.inlet
    }

    /// The inlet, to look at.
    pub fn arrived(&self) -> &Inlet {
        &self.to_app.inlet
    }

    /// Keeps the first [`HEAD_LEN`](crate::HEAD_LEN) bytes of both directions from now on.
    pub fn keep_heads(&mut self) {
        self.heads = Some(Box::default());
    }

    /// The first bytes of both directions, where [`Flow::keep_heads`] asked for them.
    pub fn heads(&self) -> Option<&Heads> {
        self.heads.as_deref()
    }

    /// The socket may have become readable or writable.
    pub fn handle_socket_ready(&mut self, readable: bool, writable: bool) {
        self.to_tunnel.readable |= readable;
        self.to_app.writable |= writable;
    }

    /// The application reset its connection, or its socket failed.
    pub fn handle_socket_error<T: Stream>(&mut self, stream: &mut T) {
        if self.ending.is_none() {
            self.cut_stream(stream, FlowCode::AppReset);
            self.socket.abort();
            self.settle(Ending::AppReset);
        }
    }

    /// The peer sent `STOP_SENDING`: the application is no longer read.
    pub fn handle_stopped<T: Stream>(&mut self, stream: &mut T, code: u64) {
        if self.to_tunnel.direction == Direction::Closed {
            return;
        }
        if self.to_tunnel.is_owed() {
            stream.reset(FlowCode::from_u64(code).unwrap_or(FlowCode::AppReset));
        }
        self.to_tunnel.close();
        self.stopped = true;
        if self.to_app.direction == Direction::Finished {
            self.part(Ending::PeerReset(FlowCode::from_u64(code)));
        }
    }

    /// The connection is gone. What has arrived whole, up to the FIN, goes on to the application
    /// (PROTOCOL CLOSE-12); where a byte is missing the application is reset at once.
    ///
    /// A flow that has no [`Flow::ending`] after this goes on without its stream: calls get a stream that
    /// is gone.
    pub fn handle_connection_lost<T: Stream>(&mut self, stream: &mut T, code: FlowCode) {
        if self.ending.is_some() || self.parting.is_some() {
            return;
        }
        let cut = self.to_tunnel.direction == Direction::Open;
        self.to_tunnel.close();
        self.stopped |= cut;
        if self.to_app.direction == Direction::Finished {
            self.part(Ending::Abandoned(code));
        } else if self.to_app.direction == Direction::Open && self.to_app.take_all(stream) {
            self.lost = Some(code);
        } else {
            self.cut(code);
        }
    }

    /// Resets the application, whatever has arrived.
    pub fn cut(&mut self, code: FlowCode) {
        if self.ending.is_none() {
            self.socket.abort();
            self.to_tunnel.close();
            self.to_app.close();
            self.settle(Ending::Abandoned(code));
        }
    }

    /// Whether the flow only waits for the socket to send what was written: see [`Flow::poll_parting`].
    pub fn is_parting(&self) -> bool {
        self.parting.is_some() && self.ending.is_none()
    }

    /// Resets the application where the socket has sent everything by now, or where that took too long (`late`). No event
    /// tells when it has: call this now and then while [`Flow::is_parting`].
    pub fn poll_parting(&mut self, late: bool) {
        if let Some(how) = self.parting
            && self.ending.is_none()
            && (late || self.socket.is_sent())
        {
            self.socket.abort();
            self.ending = Some(how);
        }
    }

    /// Gives the flow up: the application is reset and the peer told why.
    pub fn abandon<T: Stream>(&mut self, stream: &mut T, code: FlowCode) {
        if self.ending.is_none() {
            self.cut_stream(stream, code);
            self.socket.abort();
            self.settle(Ending::Abandoned(code));
        }
    }

    /// Whether nothing of the application's has gone anywhere: the flow could begin again elsewhere.
    /// An application that has only ended its direction will say so again.
    pub fn is_untouched(&self) -> bool {
        let to_app = &self.to_app;
        self.ending.is_none()
            && !self.stopped
            && self.to_tunnel.is_untouched()
            && to_app.direction == Direction::Open
            && to_app.bytes == 0
            && to_app.inlet.buffered() == 0
    }

    /// Gives the socket back, to begin again.
    pub fn into_socket(self) -> S {
        self.socket
    }

    /// How the flow ended, once it has.
    pub fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// Bytes the stream has accepted from the application.
    pub fn bytes_to_tunnel(&self) -> u64 {
        self.to_tunnel.app_bytes()
    }

    /// Bytes the application has accepted from the stream.
    pub fn bytes_to_app(&self) -> u64 {
        self.to_app.bytes
    }

    /// Whether the application does not take what is there for it.
    pub fn is_parked(&self) -> bool {
        !self.to_app.writable && self.to_app.inlet.ready() > 0
    }

    /// Whether the application may not have yet what is there for it.
    pub fn is_shaped(&self) -> bool {
        self.to_app.shaped
    }

    /// Once the application has finished and the stream has taken that: the number after the FIN's.
    pub fn end_sent(&self) -> Option<u64> {
        let finished = self.to_tunnel.direction == Direction::Finished;
        finished.then(|| self.to_tunnel.app_bytes() + 1)
    }

    /// The application's end of the flow.
    pub fn socket(&self) -> &S {
        &self.socket
    }

    /// The peer sent `RESET_STREAM`: what follows will never come, so the application must see a cut.
    pub fn handle_reset<T: Stream>(&mut self, stream: &mut T, code: u64) {
        if self.ending.is_none() {
            let code = FlowCode::from_u64(code);
            self.to_app.close();
            self.cut_stream(stream, code.unwrap_or(FlowCode::AppReset));
            self.socket.abort();
            self.settle(Ending::PeerReset(code));
        }
    }

    /// Ends what is still open of the stream. A direction that was finished on it stays finished: its bytes
    /// and its FIN are the peer's already.
    fn cut_stream<T: Stream>(&mut self, stream: &mut T, code: FlowCode) {
        if self.to_tunnel.is_owed() {
            stream.reset(code);
            self.to_tunnel.close();
        }
        if self.to_app.direction == Direction::Open {
            stream.stop(code);
            self.to_app.close();
        }
    }

    /// The application has been sent everything and no longer reaches anything: it is reset as soon as
    /// nothing of what it is to receive can be lost by that.
    fn part(&mut self, how: Ending) {
        self.parting.get_or_insert(how);
        self.poll_parting(false);
    }

    /// Notes how the flow ended, if both directions have.
    fn settle(&mut self, how: Ending) {
        let over = |direction| direction != Direction::Open;
        if self.ending.is_none() && over(self.to_tunnel.direction) && over(self.to_app.direction) {
            self.ending = Some(how);
            if how == Ending::Finished {
                self.socket.close();
            }
        }
    }
}
