//! The handshake with an outbound proxy over a socket that does not block.
//!
//! Each turn looks at what has arrived, and takes only the bytes of the handshake out of the socket. All others stay
//! there for TLS.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::task::Poll;

use quictun_wire::outbound_proxy::{MAX_ANSWER, OutboundHandshake, OutboundStep};

/// A handshake, and the bytes that wait for room in the socket.
#[derive(Debug)]
pub(crate) struct ProxyHandshake {
    steps: OutboundHandshake,
    unsent: Vec<u8>,
}

impl ProxyHandshake {
    pub(crate) fn new(steps: OutboundHandshake) -> Self {
        Self {
            steps,
            unsent: Vec::new(),
        }
    }

    /// Goes on as far as the socket permits. An error is a sentence without its subject, the proxy.
    pub(crate) fn advance(&mut self, mut socket: &TcpStream) -> Poll<Result<(), String>> {
        loop {
            let moved = if self.unsent.is_empty() {
                match self.steps.poll() {
                    OutboundStep::Connected => return Poll::Ready(Ok(())),
                    OutboundStep::Failed(why) => return Poll::Ready(Err(why.to_string())),
                    OutboundStep::Send(bytes) => {
                        self.unsent = bytes;
                        continue;
                    }
                    OutboundStep::More => self.read(socket),
                }
            } else {
                socket.write(&self.unsent).map(|written| {
                    self.unsent.drain(..written);
                })
            };
            match moved {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => {
                    let why = format!("cuts the connection ({error}): is that the proxy's port?");
                    return Poll::Ready(Err(why));
                }
            }
        }
    }

    fn read(&mut self, mut socket: &TcpStream) -> io::Result<()> {
        let mut buffer = [0; MAX_ANSWER];
        let arrived = socket.peek(&mut buffer)?;
        if arrived == 0 {
            self.steps.handle_end();
            return Ok(());
        }
        let used = self.steps.handle_bytes(&buffer[..arrived]);
        // The socket has them.
        socket.read_exact(&mut buffer[..used])
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use quictun_wire::outbound_proxy::{OutboundProtocol, OutboundTarget};

    use super::*;

    fn ends() -> (ProxyHandshake, TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        let (far, _) = listener.accept().expect("the other end");
        near.set_nonblocking(true).expect("an option");
        let target = OutboundTarget {
            host: "server.example".to_owned(),
            port: 443,
        };
        let steps = OutboundHandshake::new(OutboundProtocol::Http, target, None);
        (ProxyHandshake::new(steps), near, far)
    }

    /// Goes on until the handshake ends.
    fn end(handshake: &mut ProxyHandshake, near: &TcpStream) -> Result<(), String> {
        loop {
            if let Poll::Ready(end) = handshake.advance(near) {
                return end;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_follows_the_answer_stays_in_the_socket() {
        let (mut handshake, near, mut far) = ends();
        assert!(handshake.advance(&near).is_pending());
        let mut request = [0; 7];
        far.read_exact(&mut request).expect("a request");
        assert_eq!(&request, b"CONNECT");
        far.write_all(b"HTTP/1.1 200 OK\r\n").expect("room");
        while near.peek(&mut [0]).is_err() {}
        assert!(handshake.advance(&near).is_pending(), "half an answer");
        far.write_all(b"\r\nTLS").expect("room");
        assert_eq!(end(&mut handshake, &near), Ok(()));
        near.set_nonblocking(false).expect("an option");
        let mut rest = [0; 3];
        (&near).read_exact(&mut rest).expect("the rest");
        assert_eq!(&rest, b"TLS");
    }

    #[test]
    fn a_proxy_that_goes_away_is_an_error() {
        let (mut handshake, near, far) = ends();
        drop(far);
        let error = end(&mut handshake, &near).expect_err("no proxy");
        assert!(error.contains("connection"), "{error}");
    }
}
