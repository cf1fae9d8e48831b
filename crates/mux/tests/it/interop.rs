//! The crate `qmux` as the peer, over TCP on the loopback.

use std::time::{Duration, Instant};

use bytes::Bytes;
use quictun_flow::{ReadEnd, Side, StreamId, WriteEnd};
use quictun_mux::{Config, Error, Event, Mux, RECORD_MAX};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use web_transport_trait::{Error as _, RecvStream as _, SendStream as _, Session as _};

/// Longest wait for the peer.
const PATIENCE: Duration = Duration::from_secs(20);

/// More than any window, so that both sides have to give credit.
const LENGTH: usize = 3_000_000;

/// This side, its socket, and the events that have occurred.
struct TcpMux {
    mux: Mux,
    socket: TcpStream,
    events: Vec<Event>,
}

impl TcpMux {
    fn new(side: Side, socket: TcpStream) -> Self {
        let mux = Mux::new(side, Config::default());
        let events = Vec::new();
        Self {
            mux,
            socket,
            events,
        }
    }

    /// Exchanges bytes with the peer until `done` returns a value.
    async fn until<T>(&mut self, mut done: impl FnMut(&mut Mux, &[Event]) -> Option<T>) -> T {
        let mut slot = vec![0; RECORD_MAX];
        loop {
            self.events
                .extend(std::iter::from_fn(|| self.mux.poll_event()));
            let value = done(&mut self.mux, &self.events);
            loop {
                let length = self.mux.poll_transmit(Instant::now(), &mut slot);
                if length == 0 {
                    break;
                }
                let sent = self.socket.write_all(&slot[..length]).await;
                sent.expect("the peer reads");
            }
            if let Some(value) = value {
                return value;
            }
            let read = tokio::time::timeout(PATIENCE, self.socket.read(&mut slot)).await;
            let length = read.expect("the peer answers").expect("a connection");
            assert!(length > 0, "the peer has ended: {:?}", self.events);
            let bytes = Bytes::copy_from_slice(&slot[..length]);
            self.mux.handle_bytes(Instant::now(), bytes);
        }
    }

    async fn until_event(&mut self, event: &Event) {
        self.until(|_, events| events.contains(event).then_some(()))
            .await;
    }

    async fn open(&mut self) -> StreamId {
        self.until(|mux, _| mux.open()).await
    }

    async fn accept(&mut self) -> StreamId {
        self.until(|mux, _| mux.accept()).await
    }

    async fn write(&mut self, id: StreamId, mut bytes: Bytes) {
        self.until(|mux, _| match mux.write(id, &mut bytes) {
            WriteEnd::Taken => Some(()),
            WriteEnd::Blocked => None,
            end => panic!("{end:?}"),
        })
        .await;
    }

    /// Reads a stream to its end.
    async fn read(&mut self, id: StreamId) -> (Vec<u8>, ReadEnd) {
        let mut bytes = Vec::new();
        let sink = &mut bytes;
        let end = self
            .until(|mux, _| {
                let mut push = |_, piece: Bytes| sink.extend_from_slice(&piece);
                let end = mux.read(id, usize::MAX, &mut push);
                Some(end).filter(|end| *end != ReadEnd::Blocked)
            })
            .await;
        (bytes, end)
    }
}

/// Connects this side with the other implementation, of which each plays one role.
async fn connect(side: Side) -> (TcpMux, qmux::Session) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let foreign = qmux::tcp::Config::new(qmux::Version::QMux02);
    let accepting = async { listener.accept().await.expect("a connection").0 };
    let ours = |socket| async move {
        let mut ours = TcpMux::new(side, socket);
        ours.until_event(&Event::Connected).await;
        ours
    };
    let (ours, session) = match side {
        Side::Client => {
            let connecting =
                async { ours(TcpStream::connect(address).await.expect("a connection")).await };
            let theirs = async { foreign.accept(accepting.await).await };
            tokio::join!(connecting, theirs)
        }
        Side::Server => {
            let ours = async { ours(accepting.await).await };
            tokio::join!(ours, foreign.connect(address))
        }
    };
    (ours, session.expect("an established session"))
}

fn data() -> Bytes {
    (0..LENGTH).map(|at| (at / 251).to_le_bytes()[0]).collect()
}

#[tokio::test]
async fn data_that_they_send_comes_back() {
    for side in [Side::Client, Side::Server] {
        let (mut ours, session) = connect(side).await;
        let echoing = async {
            let id = ours.accept().await;
            let (bytes, end) = ours.read(id).await;
            assert_eq!(end, ReadEnd::Finished);
            ours.write(id, bytes.into()).await;
            ours.mux.finish(id);
            let idle = |mux: &mut Mux| (mux.unsettled_streams() == 0).then_some(());
            ours.until(|mux, _| idle(mux)).await;
        };
        let sending = async {
            let (mut send, mut recv) = session.open_bi().await.expect("a stream");
            send.write_chunk(data()).await.expect("room");
            send.finish().expect("open");
            recv.read_all().await.expect("a clean end")
        };
        let ((), echoed) = tokio::join!(echoing, sending);
        assert!(echoed == data());
    }
}

#[tokio::test]
async fn data_that_this_side_sends_comes_back() {
    for side in [Side::Client, Side::Server] {
        let (mut ours, session) = connect(side).await;
        let sending = async {
            let id = ours.open().await;
            ours.write(id, data()).await;
            ours.mux.finish(id);
            ours.read(id).await
        };
        let echoing = async {
            let (mut send, mut recv) = session.accept_bi().await.expect("a stream");
            let bytes = recv.read_all().await.expect("a clean end");
            send.write_chunk(bytes).await.expect("room");
            send.finish().expect("open");
        };
        let ((bytes, end), ()) = tokio::join!(sending, echoing);
        assert_eq!(end, ReadEnd::Finished);
        assert!(bytes == data());
    }
}

#[tokio::test]
async fn resets_and_stops_carry_their_codes() {
    for side in [Side::Client, Side::Server] {
        let (mut ours, session) = connect(side).await;
        let theirs = async {
            let (mut send, mut recv) = session.open_bi().await.expect("a stream");
            send.write_chunk(Bytes::from_static(b"a"))
                .await
                .expect("room");
            recv.stop(5);
            send.reset(7);
            let (mut send, mut recv) = session.open_bi().await.expect("a stream");
            send.write_chunk(Bytes::from_static(b"b"))
                .await
                .expect("room");
            let reset = recv.read_all().await.expect_err("a reset");
            assert_eq!(reset.stream_error(), Some(9));
            let stopped = send.closed().await.expect_err("a stop");
            assert_eq!(stopped.stream_error(), Some(6));
        };
        let here = async {
            let id = ours.accept().await;
            ours.until_event(&Event::Stopped(id, 5)).await;
            assert_eq!(ours.read(id).await.1, ReadEnd::Reset(7));
            ours.mux.reset(id, 5);
            let id = ours.accept().await;
            ours.mux.reset(id, 9);
            ours.mux.stop(id, 6);
            ours.until(|mux, _| (mux.peer_streams() == 0).then_some(()))
                .await;
        };
        tokio::join!(theirs, here);
    }
}

#[tokio::test]
async fn datagrams_and_pings_pass() {
    let (mut ours, session) = connect(Side::Server).await;
    let most = ours.mux.max_datagram().expect("permitted");
    let ours_most = Bytes::from(vec![7; most]);
    assert_eq!(ours.mux.send_datagram(ours_most.clone()), Ok(()));
    ours.mux.ping();
    let theirs = Bytes::from(vec![8; session.max_datagram_size()]);
    session.send_datagram(theirs.clone()).expect("room");
    let here = async {
        ours.until_event(&Event::Datagram(theirs)).await;
        let is_pong = |event: &Event| matches!(event, Event::Pong(_));
        ours.until(|_, events| events.iter().any(is_pong).then_some(()))
            .await;
    };
    let ((), received) = tokio::join!(here, session.recv_datagram());
    assert!(received.expect("a datagram") == ours_most);
}

#[tokio::test]
async fn closes_carry_their_codes() {
    for side in [Side::Client, Side::Server] {
        let (mut ours, session) = connect(side).await;
        ours.mux.close(42, Bytes::from_static(b"enough"));
        let here = ours.until(|mux, _| mux.is_closed().then_some(()));
        let ((), closed) = tokio::join!(here, session.closed());
        assert_eq!(closed.session_error(), Some((42, "enough".to_owned())));

        let (mut ours, session) = connect(side).await;
        session.close(43, "bye");
        let reason = Bytes::from_static(b"bye");
        let lost = Event::Lost(Error::ClosedByPeer { code: 43, reason });
        ours.until_event(&lost).await;
    }
}
