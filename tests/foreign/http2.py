"""A client of an HTTPS proxy by HTTP/2, on the package h2."""

import base64
import socket
import ssl

import h2.config
import h2.connection
import h2.events


class Proxy:
    """A connection whose streams are tunnels."""

    def __init__(self, server: tuple[str, int], patience: float) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        self.tls = context.wrap_socket(socket.create_connection(server, patience))
        self.http2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.statuses: dict[int, str] = {}
        self.received: dict[int, bytearray] = {}
        self.finished: set[int] = set()
        self.resets: dict[int, int] = {}
        self.waiting: dict[int, bytes] = {}
        self.http2.initiate_connection()
        self.flush()

    def flush(self) -> None:
        self.tls.sendall(self.http2.data_to_send())

    def open(self, target: str, login: str | None) -> int:
        """Asks for a tunnel. The request leaves with the next flush."""
        fields = [(":method", "CONNECT"), (":authority", target)]
        if login is not None:
            credentials = base64.b64encode(login.encode()).decode()
            fields.append(("proxy-authorization", f"Basic {credentials}"))
        stream = self.http2.get_next_available_stream_id()
        self.http2.send_headers(stream, fields)
        self.received[stream] = bytearray()
        return stream

    def send(self, stream: int, payload: bytes) -> None:
        """Sends a payload and the end, as credit allows."""
        self.waiting[stream] = payload

    def advance(self) -> None:
        """Sends what credit allows, and handles what arrives next."""
        for stream, payload in list(self.waiting.items()):
            while self.waiting.get(stream) is not None:
                frame = self.http2.max_outbound_frame_size
                room = min(self.http2.local_flow_control_window(stream), frame)
                if room <= 0:
                    break
                piece, payload = payload[:room], payload[room:]
                self.http2.send_data(stream, piece, end_stream=not payload)
                self.waiting[stream] = payload
                if not payload:
                    del self.waiting[stream]
        self.flush()
        data = self.tls.recv(65536)
        if not data:
            raise SystemExit("the proxy has closed the connection")
        for event in self.http2.receive_data(data):
            self.handle(event)
        self.flush()

    def handle(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.ResponseReceived():
                self.statuses[event.stream_id] = dict(event.headers)[":status"]
            case h2.events.DataReceived():
                self.received[event.stream_id] += event.data
                self.http2.acknowledge_received_data(
                    event.flow_controlled_length, event.stream_id
                )
            case h2.events.StreamEnded():
                self.finished.add(event.stream_id)
            case h2.events.StreamReset():
                self.resets[event.stream_id] = int(event.error_code)
            case h2.events.ConnectionTerminated():
                raise SystemExit(f"the proxy has ended the connection: {event.error_code}")

    def wait(self, holds) -> None:
        while not holds():
            self.advance()
