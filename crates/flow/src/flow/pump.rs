//! Moves the bytes of a flow, and passes on the FIN of each direction.

use std::io::{self, IoSlice};

use bytes::Bytes;
use quictun_wire::code::FlowCode;

use super::Flow;
use crate::close::{DirectionState, Ending};
use crate::heads::extend_head;
use crate::read_buffer::ReadBuffer;
use crate::ready::WRITE_CHUNKS;
use crate::socket::Socket;
use crate::stream::{ReadEnd, Stream, WriteEnd};
use crate::to_app::ToAppStop;
use crate::to_tunnel::ToTunnelStop;

/// Smallest read from an application. Reading only what the window allows at the moment would cost a system call per
/// acknowledgement. Bytes beyond the window wait in `pending`.
const READ_MIN: usize = 16 * 1024;

/// From the application to the stream.
impl<S: Socket> Flow<S> {
    /// Moves at most `budget` bytes from the application to the stream, and subtracts them from `budget`.
    pub fn pump_to_tunnel<T: Stream>(
        &mut self,
        stream: &mut T,
        buffer: &mut ReadBuffer,
        budget: &mut usize,
    ) -> ToTunnelStop {
        loop {
            if !self.to_tunnel.is_owed() {
                return ToTunnelStop::Ended;
            }
            if self.to_tunnel.is_waiting() {
                return ToTunnelStop::Blocked;
            }
            if *budget == 0 {
                return ToTunnelStop::Budget;
            }
            if self.to_tunnel.is_written()
                && let Some(stopped) = self.read_app(stream, buffer, *budget)
            {
                return stopped;
            }
            match self.to_tunnel.write(stream, budget) {
                WriteEnd::Taken => {}
                WriteEnd::Blocked => return ToTunnelStop::Blocked,
                WriteEnd::Stopped(code) => self.handle_stopped(stream, code),
                WriteEnd::Gone => {
                    self.give_up_failed(stream);
                    // A flow that has finished before has nothing else to give up.
                    self.to_tunnel.close();
                }
            }
        }
    }

    /// Fills `pending`, or returns why it could not.
    fn read_app<T: Stream>(
        &mut self,
        stream: &mut T,
        buffer: &mut ReadBuffer,
        budget: usize,
    ) -> Option<ToTunnelStop> {
        if self.stopped {
            // The peer has stopped an earlier stream, and will stop this one.
            return Some(ToTunnelStop::Starved);
        }
        if self.to_tunnel.direction == DirectionState::Finished {
            // The FIN was sent on an earlier stream, and the peer has not received it.
            self.to_tunnel.finish(stream);
            return Some(ToTunnelStop::Ended);
        }
        if !self.to_tunnel.readable || self.read_out {
            return Some(ToTunnelStop::Starved);
        }
        if buffer.is_restrained() && stream.write(&mut Bytes::new()) == WriteEnd::Blocked {
            return Some(ToTunnelStop::Blocked);
        }
        let unconfirmed = self.to_tunnel.unconfirmed();
        match buffer.read_from(&mut self.socket, budget.max(READ_MIN), unconfirmed) {
            Ok(chunk) if chunk.is_empty() => {
                self.to_tunnel.finish(stream);
                if !self.failed {
                    self.settle(Ending::Finished);
                }
                Some(ToTunnelStop::Ended)
            }
            Ok(chunk) => {
                // No event follows after a failure.
                self.to_tunnel.readable = self.failed || !self.socket.is_drained();
                if let Some(heads) = &mut self.heads {
                    extend_head(&mut heads.from_app, &chunk);
                }
                self.to_tunnel.push(chunk);
                None
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::WouldBlock {
                    self.handle_socket_failed();
                    self.read_out = true;
                }
                self.to_tunnel.readable = false;
                Some(ToTunnelStop::Starved)
            }
        }
    }
}

/// From the stream to the application.
impl<S: Socket> Flow<S> {
    /// Moves everything that has arrived from the stream to the application.
    pub fn pump_to_app<T: Stream>(&mut self, stream: &mut T) -> ToAppStop {
        let mut any = u64::MAX;
        self.pump_to_app_within(stream, &mut any)
    }

    /// Like [`Flow::pump_to_app`], but moves at most `budget` bytes and subtracts them from `budget`.
    pub fn pump_to_app_within<T: Stream>(&mut self, stream: &mut T, budget: &mut u64) -> ToAppStop {
        self.to_app.shaped = *budget == 0;
        let drained = self.drain(stream, budget);
        self.to_app.shaped = drained == ToAppStop::Budget;
        drained
    }

    fn drain<T: Stream>(&mut self, stream: &mut T, budget: &mut u64) -> ToAppStop {
        let mut exhausted = false;
        if self.to_app.inlet.is_drain_only() {
            self.to_app.inlet.take_in(stream, usize::MAX);
        }
        loop {
            if self.to_app.direction != DirectionState::Open || self.failed {
                return ToAppStop::Ended;
            }
            while !exhausted && !self.to_app.inlet.is_whole() && self.lost.is_none() {
                let read_budget = self.to_app.read_budget();
                if read_budget == 0 {
                    break;
                }
                match self.to_app.inlet.take_in(stream, read_budget) {
                    ReadEnd::More | ReadEnd::Finished => {}
                    ReadEnd::Blocked => exhausted = true,
                    ReadEnd::Reset(code) if self.is_left(code) => return ToAppStop::Left,
                    ReadEnd::Reset(code) => self.handle_reset(stream, code),
                    ReadEnd::Gone => {
                        self.abandon(stream, FlowCode::Internal);
                        return ToAppStop::Ended;
                    }
                }
            }
            if self.to_app.inlet.ready() == 0 {
                self.end_lost();
                if self.to_app.direction != DirectionState::Open {
                    return ToAppStop::Ended;
                }
                if !self.to_app.inlet.is_whole() {
                    return ToAppStop::Starved;
                }
                self.finish_app();
                return ToAppStop::Ended;
            }
            if !self.to_app.writable {
                self.to_app.inlet.compact();
                return ToAppStop::AppBlocked;
            }
            if *budget == 0 {
                if self.to_app.shaped {
                    self.to_app.inlet.compact();
                    return ToAppStop::Budget;
                }
                // Take everything from the stream first, as for an application that does not read.
                self.to_app.shaped = true;
                continue;
            }
            self.write_app(budget);
        }
    }

    fn write_app(&mut self, budget: &mut u64) {
        let mut slices = [IoSlice::new(&[]); WRITE_CHUNKS];
        let most = usize::try_from(*budget).unwrap_or(usize::MAX);
        let count = self.to_app.inlet.slices(&mut slices, most);
        match self.socket.write(&slices[..count]) {
            Ok(written) => {
                *budget = budget.saturating_sub(written as u64);
                if let Some(heads) = &mut self.heads {
                    let mut left = written;
                    for chunk in self.to_app.inlet.chunks() {
                        let part: &Bytes = chunk;
                        let part = &part[..part.len().min(left)];
                        extend_head(&mut heads.to_app, part);
                        left -= part.len();
                    }
                }
                self.to_app.bytes += written as u64;
                self.to_app.inlet.advance(written);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.to_app.writable = false;
            }
            Err(_) => self.handle_socket_failed(),
        }
    }

    /// Passes on the FIN. All bytes must have been written to the application.
    fn finish_app(&mut self) {
        if self.stopped && self.lost.is_none() {
            self.to_app.direction = DirectionState::Finished;
            self.part(Ending::PeerReset(None));
            return;
        }
        if self.socket.finish().is_err() {
            self.handle_socket_failed();
            return;
        }
        self.to_app.direction = DirectionState::Finished;
        // An application that exchanges datagrams has no end of its own: its direction ends with the other one.
        self.to_tunnel.readable |= self.socket.carries_datagrams();
        match self.lost {
            Some(how) if self.stopped => self.part(how),
            _ => self.settle(Ending::Finished),
        }
    }
}
