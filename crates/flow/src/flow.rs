//! The flow: two directions and one socket.

mod hand_over;
mod moving;
mod pump;

pub(crate) use hand_over::{copies, state_of};
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
#[expect(clippy::struct_excessive_bools, reason = "steps of a reset")]
pub struct Flow<S> {
    socket: S,
    to_tunnel: ToTunnel,
    to_app: ToApp,
    /// The peer stopped this side. Once the reverse direction ends, the application is reset, not finished.
    stopped: bool,
    /// The socket has failed, as after the application's reset. It takes nothing more, and what it has received before
    /// is still read.
    failed: bool,
    /// Everything was read that the failed socket had received.
    read_out: bool,
    /// The current stream was stopped because the socket has failed.
    stop_sent: bool,
    /// The connection is lost or the stream was reset, for this reason. The application still gets what has arrived in
    /// order.
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
            failed: false,
            read_out: false,
            stop_sent: false,
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

    /// Notes that the socket has failed, as after the application's reset. What it has received before is still read
    /// (PROTOCOL CLOSE-3). Call [`Flow::poll_reset`] next.
    pub fn handle_socket_failed(&mut self) {
        if self.failed || self.ending.is_some() {
            return;
        }
        self.failed = true;
        self.to_tunnel.readable = true;
        if self.parting.is_some() {
            self.poll_parting(true);
        } else if self.lost.is_some() {
            self.cut(Ending::AppReset);
        }
    }

    /// Returns whether the socket has failed.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Returns whether everything was read that a failed socket had received.
    pub fn is_read_out(&self) -> bool {
        self.read_out
    }

    /// Returns the number of chunks from the application that the peer has not confirmed: by SEEN if the flow can move,
    /// otherwise by QUIC's acknowledgement.
    pub fn unconfirmed_chunks(&self) -> usize {
        self.to_tunnel.unconfirmed_chunks()
    }

    /// Stops and resets the stream of a flow whose socket has failed. The reset waits until everything that the socket
    /// had received was read and is `confirmed`, because a reset discards what is in flight. A peer that has not
    /// `answered` the flow would give up its dial at the stop, so that waits, too, if the socket had received anything.
    pub fn poll_reset<T: Stream>(&mut self, stream: &mut T, answered: bool, confirmed: bool) {
        if !self.failed || self.ending.is_some() {
            return;
        }
        let read_out = self.read_out || self.to_tunnel.direction != DirectionState::Open;
        let nothing = read_out && !self.to_tunnel.has_bytes();
        if !answered && !nothing {
            return;
        }
        if self.to_app.direction != DirectionState::Finished && !self.stop_sent {
            stream.stop(FlowCode::AppReset);
            self.stop_sent = true;
            self.to_app.close();
        }
        let passed = read_out && self.to_tunnel.is_written() && confirmed;
        if nothing || passed {
            self.give_up_failed(stream);
        }
    }

    /// Resets the stream of a flow whose socket has failed, whatever the peer has confirmed.
    pub fn give_up_failed<T: Stream>(&mut self, stream: &mut T) {
        self.abandon(stream, Ending::AppReset);
    }

    /// Handles the peer's `STOP_SENDING`: the application is no longer read.
    pub fn handle_stopped<T: Stream>(&mut self, stream: &mut T, code: u64) {
        if self.to_tunnel.is_owed() {
            stream.reset(FlowCode::from_u64(code).unwrap_or(FlowCode::AppReset));
            self.to_tunnel.close();
        }
        if self.ending.is_some() {
            // The flow has finished here. The peer lacked the last bytes after a move, and no longer wants them.
            return;
        }
        self.to_tunnel.close();
        self.stopped = true;
        if self.to_app.direction == DirectionState::Finished {
            self.part(Ending::PeerReset(FlowCode::from_u64(code)));
        }
    }

    /// Returns whether the peer has stopped this side. It then waits for confirmations of what it has sent, if anything.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Handles the loss of the connection. What has arrived in order is still delivered to the application, and then
    /// the FIN, if everything has arrived, or a reset (PROTOCOL CLOSE-12).
    ///
    /// If [`Flow::ending`] is `None` after this call, the flow continues without its stream: pass a
    /// [`LostStream`](crate::LostStream) to later calls.
    pub fn handle_connection_lost<T: Stream>(&mut self, stream: &mut T, how: impl Into<Ending>) {
        if self.ending.is_some() || self.parting.is_some() || self.lost.is_some() {
            return;
        }
        if self.to_app.direction == DirectionState::Open {
            self.to_app.take_all(stream);
        }
        self.lose_stream(how.into());
    }

    /// Continues without a stream, if there is something left to deliver.
    fn lose_stream(&mut self, how: Ending) {
        self.stopped |= self.to_tunnel.direction == DirectionState::Open;
        self.to_tunnel.close();
        match self.to_app.direction {
            _ if self.failed => self.cut(how),
            DirectionState::Closed => self.cut(how),
            DirectionState::Finished => self.part(how),
            DirectionState::Open => {
                self.to_app.inlet.leave();
                self.lost = Some(how);
                self.end_lost();
            }
        }
    }

    /// Resets the application of a flow without a stream, if it has been given everything and nothing tells that it is
    /// complete.
    fn end_lost(&mut self) {
        let inlet = &self.to_app.inlet;
        if let Some(how) = self.lost
            && inlet.ready() == 0
            && !inlet.is_whole()
        {
            self.to_app.close();
            self.part(how);
        }
    }

    /// Returns why the flow continues without a stream, only to deliver what has arrived. `None` if it does not.
    pub fn lost(&self) -> Option<Ending> {
        self.lost
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
            && (late || self.socket.unsent() == 0)
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

    /// Returns the socket of the application, for the datagrams that do not pass the stream.
    pub fn socket_mut(&mut self) -> &mut S {
        &mut self.socket
    }

    /// Handles the peer's `RESET_STREAM`: the rest of the data will never arrive. The application gets what has arrived
    /// in order, and is then reset. The flow continues without its stream until then, as after
    /// [`Flow::handle_connection_lost`].
    pub fn handle_reset<T: Stream>(&mut self, stream: &mut T, code: u64) {
        if self.ending.is_some() || self.parting.is_some() || self.lost.is_some() {
            return;
        }
        let code = FlowCode::from_u64(code);
        if self.to_tunnel.is_owed() {
            stream.reset(code.unwrap_or(FlowCode::AppReset));
        }
        self.lose_stream(Ending::PeerReset(code));
    }

    /// Returns whether the flow has ended, or is about to: its socket has failed, it has no stream any more, or it only
    /// waits for its socket.
    pub fn is_at_end(&self) -> bool {
        self.failed || self.lost.is_some() || self.parting.is_some() || self.ending.is_some()
    }

    /// Returns a value that changes while a flow that only waits for its end makes progress. `None` if it does not.
    pub(crate) fn end_progress(&self) -> Option<(u64, usize)> {
        if self.ending.is_some() {
            None
        } else if self.parting.is_some() {
            Some((0, self.socket.unsent()))
        } else {
            let left = (self.bytes_to_tunnel(), self.unconfirmed_chunks());
            self.failed.then_some(left)
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
