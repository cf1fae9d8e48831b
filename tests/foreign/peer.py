"""One connection to a server, and the loop that drives many of them."""

import selectors
import socket
import ssl
import sys
import time

from aioquic import tls
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from cryptography.hazmat.primitives import hashes

EXPORTER_LABEL = b"EXPORTER-quictun-psk"


class Quic(QuicConnection):
    """aioquic's connection; its DATAGRAM queue carries frames of any kind, and it keeps the exporter's secret."""

    exporter_secret = None

    def raw(self, frame: bytes) -> None:
        """Sends this frame, whatever it is. It is not sent again where it is lost."""
        self._datagrams_pending.append(frame)

    def raw_waiting(self) -> int:
        return len(self._datagrams_pending)

    def known_stream(self, stream: int) -> None:
        """Answers on a stream that only raw frames opened are not an error of the server."""
        self._get_or_create_stream_for_send(stream)

    def credit(self) -> int:
        """Bytes of all streams together that the server takes."""
        return self._remote_max_data

    def streams_granted(self) -> int:
        return self._remote_max_streams_bidi

    def _write_datagram_frame(self, builder, data, frame_type) -> bool:
        # Every frame type used here is an integer of one byte.
        buffer = builder.start_frame(data[0], capacity=len(data))
        buffer.push_bytes(data[1:])
        return True

    def _initialize(self, peer_cid: bytes) -> None:
        super()._initialize(peer_cid)
        context = self.tls
        inner = context._setup_traffic_protection

        def setup(direction, epoch, label):
            # The transcript now ends with the server's Finished: that is what the secret is made of
            # (RFC 8446 section 7.1).
            if label == b"s ap traffic":
                schedule = context.key_schedule
                self.exporter_secret = (
                    schedule.algorithm,
                    schedule.derive_secret(b"exp master"),
                )
            inner(direction, epoch, label)

        context._setup_traffic_protection = setup

    def exporter(self) -> bytes:
        """TLS-Exporter (RFC 8446 section 7.5) of PROTOCOL section 5.5."""
        algorithm, secret = self.exporter_secret
        empty = hashes.Hash(algorithm).finalize()
        size = algorithm.digest_size
        derived = tls.hkdf_expand_label(algorithm, secret, EXPORTER_LABEL, empty, size)
        return tls.hkdf_expand_label(algorithm, derived, b"exporter", empty, 32)


class Peer:
    """A client's connection, and what has arrived on it."""

    def __init__(self, server: tuple[str, int], alpn: list[str]):
        configuration = QuicConfiguration(
            is_client=True,
            alpn_protocols=alpn,
            verify_mode=ssl.CERT_NONE,
            max_data=8 << 20,
            max_stream_data=4 << 20,
            idle_timeout=60.0,
        )
        self.quic = Quic(configuration=configuration)
        self.server = server
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.established = False
        self.alpn = None
        self.closed = None
        self.received: dict[int, bytearray] = {}
        self.finished: set[int] = set()
        self.reset: dict[int, int] = {}
        self.quic.connect(server, now=time.monotonic())

    def open(self, data: bytes) -> int:
        """Opens a stream in the lawful way, with these bytes first."""
        stream = self.quic.get_next_available_stream_id()
        self.quic.send_stream_data(stream, data)
        return stream

    def turn(self) -> float | None:
        """Does what there is to do; tells when to come back."""
        now = time.monotonic()
        timer = self.quic.get_timer()
        if timer is not None and timer <= now:
            self.quic.handle_timer(now)
        while (event := self.quic.next_event()) is not None:
            self.handle(event)
        for data, _ in self.quic.datagrams_to_send(now):
            try:
                self.socket.sendto(data, self.server)
            except (BlockingIOError, ConnectionRefusedError):
                pass  # lost, as on any network
        return self.quic.get_timer()

    def receive(self) -> None:
        while True:
            try:
                data, source = self.socket.recvfrom(65536)
            except (BlockingIOError, ConnectionRefusedError):
                return
            self.quic.receive_datagram(data, source, time.monotonic())

    def handle(self, event: events.QuicEvent) -> None:
        if isinstance(event, events.HandshakeCompleted):
            self.established = True
            self.alpn = event.alpn_protocol
        elif isinstance(event, events.ConnectionTerminated):
            self.closed = (event.error_code, event.frame_type, event.reason_phrase)
        elif isinstance(event, events.StreamDataReceived):
            self.received.setdefault(event.stream_id, bytearray()).extend(event.data)
            if event.end_stream:
                self.finished.add(event.stream_id)
        elif isinstance(event, events.StreamReset):
            self.reset[event.stream_id] = event.error_code


def run(peers: list[Peer], done, within: float, stdin: bool = False) -> bool:
    """Drives them until `done()`, or the end of standard input where that is waited for; no longer than `within`."""
    end = time.monotonic() + within
    with selectors.DefaultSelector() as selector:
        for peer in peers:
            selector.register(peer.socket, selectors.EVENT_READ, peer)
        if stdin:
            selector.register(sys.stdin, selectors.EVENT_READ, None)
        while True:
            timers = [timer for peer in peers if (timer := peer.turn()) is not None]
            if done():
                return True
            now = time.monotonic()
            if now > end:
                return False
            # Raw frames are not among aioquic's timers: look again soon.
            soon = min(timers + [now + 0.05, end])
            for key, _ in selector.select(max(0.0, soon - now)):
                if key.data is not None:
                    key.data.receive()
                elif not sys.stdin.buffer.raw.read(1):
                    return True
