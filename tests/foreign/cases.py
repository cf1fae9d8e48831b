"""What a foreign client does to a server of ours."""

import itertools
import json
import os
import random
import socket
import time

import socks
import wire
from download import Download
from http2 import Proxy
from peer import Peer, run

PATIENCE = 20.0

# Content of one STREAM frame that fits into a packet with its header.
CHUNK = 1100

# Raw frames that wait in a connection at once.
QUEUE = 64

# Without new credit for so long, all has been used.
STANDSTILL = 2.0

APP_RESET = 0x01


def tell(**what) -> None:
    print(json.dumps(what), flush=True)


def hold(peers: list[Peer]) -> None:
    """Keeps everything until standard input ends."""
    run(peers, lambda: False, 600.0, stdin=True)


def connect(
    arguments, count: int = 1, alpn: list[str] | None = None, some: bool = False
) -> list[Peer]:
    """Connects all, or those of `some` for which the server has a place."""
    peers = [Peer(arguments.server, alpn or [wire.NATIVE]) for _ in range(count)]
    settled = lambda: all(peer.established or peer.closed for peer in peers)
    done = run(peers, settled, PATIENCE)
    connected = [peer for peer in peers if peer.established and not peer.closed]
    if len(connected) < (1 if some else count) or not (done or some):
        raise SystemExit(f"not connected: {[peer.closed for peer in peers]}")
    return connected


def proof(arguments, peer: Peer) -> bytes | None:
    if arguments.psk_file is None:
        return None
    with open(arguments.psk_file, "rb") as file:
        secret = file.read().removesuffix(b"\n")
    return wire.proof_of(secret, peer.quic.exporter())


def echo(arguments) -> None:
    """An honest flow: what goes out comes back, and so does the end, in this order."""
    (peer,) = connect(arguments, alpn=[arguments.alpn])
    payload = random.Random(5).randbytes(arguments.bytes)
    stream = peer.open(wire.request(arguments.alpn, arguments.target, proof(arguments, peer)))
    answer = wire.ANSWERS[arguments.alpn]
    received = lambda: bytes(peer.received.get(stream, b""))
    ended = lambda: bool(peer.closed or stream in peer.reset or stream in peer.finished)
    half = len(payload) // 2
    peer.quic.send_stream_data(stream, payload[:half])
    run([peer], lambda: ended() or len(received()) >= len(answer) + half, PATIENCE)
    early_end = ended()
    if not early_end:
        peer.quic.send_stream_data(stream, payload[half:], end_stream=True)
        run([peer], ended, PATIENCE)
    peer.quic.close()
    run([peer], lambda: True, 1.0)
    tell(
        alpn=peer.alpn,
        answer=received()[: len(answer)] == answer,
        equal=received()[len(answer) :] == payload,
        finished=stream in peer.finished,
        early_end=early_end,
        reset=peer.reset.get(stream),
    )


def pour(arguments, peers: list[Peer], start: bytes, flows: int) -> int:
    """On each connection, opens `flows` streams with `start`, leaves out one byte, and sends all that credit allows
    behind it, in turns. Returns the bytes sent."""
    state = []
    for peer in peers:
        count = min(flows, peer.quic.streams_granted())
        streams = [4 * number for number in range(count)]
        for stream in streams:
            peer.quic.known_stream(stream)
            if start:
                peer.quic.raw(wire.stream_frame(stream, 0, start))
        offsets = {stream: len(start) + 1 for stream in streams}
        state.append([peer, itertools.cycle(streams), offsets])
    zeros = bytes(CHUNK)
    moved = time.monotonic()

    def feed() -> bool:
        nonlocal moved
        for peer, turns, offsets in state:
            used = sum(offsets.values())
            while peer.quic.raw_waiting() < QUEUE and used + CHUNK <= peer.quic.credit():
                stream = next(turns)
                peer.quic.raw(wire.stream_frame(stream, offsets[stream], zeros))
                offsets[stream] += CHUNK
                used += CHUNK
                moved = time.monotonic()
        return all(peer.closed for peer in peers) or time.monotonic() > moved + STANDSTILL

    run(peers, feed, 4 * PATIENCE)
    return sum(sum(offsets.values()) for _, _, offsets in state)


def first_byte_missing(arguments) -> None:
    """One client whose flows lack the first byte after OPEN, or that of the stream."""
    peers = connect(arguments)
    start = wire.open_frame(arguments.target, proof(arguments, peers[0])) if arguments.target else b""
    sent = pour(arguments, peers, start, arguments.count or 60)
    answered = sum(1 for data in peers[0].received.values() if data)
    tell(sent=sent, answered=answered, refused=len(peers[0].reset), closed=peers[0].closed)
    hold(peers)


def unfinished_opens(arguments) -> None:
    """Strangers that begin OPEN on every stream and never finish it."""
    peers = connect(arguments, arguments.count or 15, some=True)
    start = bytes.fromhex("0150004400").ljust(100, b"a")
    sent = pour(arguments, peers, start, 1 << 20)
    tell(sent=sent, closed=sum(1 for peer in peers if peer.closed))
    hold(peers)


def tiny_streams(arguments) -> None:
    """One stranger with as many streams as it gets, one byte on each."""
    peers = connect(arguments)
    peer = peers[0]
    wanted, opened, moved = arguments.count or 4000, 0, time.monotonic()

    def feed() -> bool:
        nonlocal opened, moved
        while opened < min(wanted, peer.quic.streams_granted()) and peer.quic.raw_waiting() < QUEUE:
            peer.quic.known_stream(4 * opened)
            peer.quic.raw(wire.stream_frame(4 * opened, 0, b"\x01"))
            opened, moved = opened + 1, time.monotonic()
        done = opened == wanted and not peer.quic.raw_waiting()
        return done or bool(peer.closed) or time.monotonic() > moved + STANDSTILL

    run(peers, feed, PATIENCE)
    tell(opened=opened, refused=len(peer.reset), closed=peer.closed)
    hold(peers)


def open_reset(arguments) -> None:
    """Flows that are reset right after their OPEN."""
    peers = connect(arguments)
    peer = peers[0]
    request = wire.open_frame(arguments.target, proof(arguments, peer))
    wanted, opened, began, moved = arguments.count or 600, 0, [], time.monotonic()

    def feed() -> bool:
        nonlocal opened, moved
        now = time.monotonic()
        while opened < min(wanted, peer.quic.streams_granted()) and peer.quic.raw_waiting() < QUEUE:
            peer.quic.known_stream(4 * opened)
            peer.quic.raw(wire.stream_frame(4 * opened, 0, request))
            began.append((now, 4 * opened))
            opened, moved = opened + 1, now
        # The server has time to begin the dial.
        while began and began[0][0] + 0.1 < now:
            for frame in wire.reset_frames(began.pop(0)[1], APP_RESET, len(request)):
                peer.quic.raw(frame)
        done = opened == wanted and not began and not peer.quic.raw_waiting()
        return done or bool(peer.closed) or now > moved + STANDSTILL

    run(peers, feed, PATIENCE)
    tell(opened=opened, closed=peer.closed)
    hold(peers)


def stranger(arguments) -> None:
    """A client that finishes its handshake and says nothing: how long it may stay."""
    peers = connect(arguments)
    tell(connected=True)
    started = time.monotonic()
    run(peers, lambda: bool(peers[0].closed), arguments.seconds)
    code, frame_type, reason = peers[0].closed or (None, None, None)
    tell(
        closed=bool(peers[0].closed),
        code=code,
        by_application=bool(peers[0].closed) and frame_type is None,
        reason=reason,
        after=time.monotonic() - started,
    )


def offer(arguments) -> None:
    """A client that offers one protocol: whether the handshake ends well."""
    peer = Peer(arguments.server, [arguments.alpn])
    run([peer], lambda: peer.established or bool(peer.closed), PATIENCE)
    # A server's refusal may follow its Finished.
    run([peer], lambda: bool(peer.closed), 0.5)
    tell(established=peer.established, closed=bool(peer.closed), code=peer.closed and peer.closed[0])


def names(arguments) -> None:
    """Flows to names that are looked up at the same time."""
    peers = connect(arguments)
    count = arguments.count or 64
    for number in range(count):
        target = f"tcp:name-{number}.silent.test:80"
        peers[0].open(wire.open_frame(target, proof(arguments, peers[0])))
    run(peers, lambda: bool(peers[0].closed), 0.5)
    tell(opened=count, closed=peers[0].closed)
    hold(peers)


def associate(arguments) -> None:
    """Datagrams through the proxy of a client of ours: `--server` is the proxy. Each is sent until it is answered."""
    user, _, password = (arguments.login or ":").partition(":")
    host, _, port = arguments.target.rpartition(":")
    datagrams = socks.socksocket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.set_proxy(
        socks.SOCKS5, *arguments.server, username=user or None, password=password or None
    )
    datagrams.settimeout(0.2)
    try:
        datagrams.bind(("", 0))
    except socks.ProxyError:
        return tell(refused=True)
    deadline = time.monotonic() + PATIENCE
    count = arguments.count or 100
    for number in range(count):
        payload = random.Random(number).randbytes(number * 10)
        answer, source = b"", None
        while answer[2:] != payload or source is None:
            if time.monotonic() > deadline:
                return tell(answered=number)
            datagrams.sendto(payload, (host, int(port)))
            try:
                answer, (name, of) = datagrams.recvfrom(65535)
                # PySocks gives names as bytes.
                source = (name.decode() if isinstance(name, bytes) else name, of)
            except TimeoutError:
                pass
        if source != (host, int(port)):
            return tell(answered=number, source=source)
    tell(answered=count)


def tunnels(arguments) -> None:
    """Tunnels of an HTTPS proxy by HTTP/2: two at once, of which one is reset, and a third on the same connection."""
    proxy = Proxy(arguments.server, PATIENCE)
    refused = proxy.open(arguments.target, None)
    proxy.wait(lambda: refused in proxy.finished)
    first, second = (proxy.open(arguments.target, arguments.login) for _ in range(2))
    proxy.wait(lambda: {first, second} <= proxy.statuses.keys())
    payload = random.Random(6).randbytes(arguments.bytes)
    proxy.send(first, payload)
    proxy.wait(lambda: first in proxy.finished)
    # The other one was not touched.
    quiet = second not in proxy.finished and second not in proxy.resets
    proxy.http2.reset_stream(second)
    third = proxy.open(arguments.target, arguments.login)
    proxy.send(third, b"the third")
    proxy.wait(lambda: third in proxy.finished)
    tell(
        alpn=proxy.tls.selected_alpn_protocol(),
        statuses=[proxy.statuses[stream] for stream in (refused, first, second, third)],
        equal=proxy.received[first] == payload,
        quiet=quiet,
        third=proxy.received[third].decode(),
    )


def download(arguments) -> None:
    """A download through an HTTPS proxy by libcurl's HTTP/2."""
    got = Download(
        arguments.server, arguments.target, arguments.login, arguments.authority, PATIENCE
    )
    error = got.run(arguments.output)
    tell(
        error=error,
        alpn=got.protocol(),
        status=got.status(),
        bytes=os.path.getsize(arguments.output),
    )


ALL = {
    case.__name__.replace("_", "-"): case
    for case in (
        echo,
        first_byte_missing,
        unfinished_opens,
        tiny_streams,
        open_reset,
        stranger,
        offer,
        names,
        associate,
        tunnels,
        download,
    )
}
