"""Bytes of docs/PROTOCOL.md: OPEN, tokens, proofs; and QUIC frames."""

import hashlib
import hmac

NATIVE = "quictun/1"
COMPAT = "quic-tun"

# PROTOCOL section 5.2: OPEN_ACK without options; section 4.3: the ack for success.
ANSWERS = {NATIVE: b"\x02\x00", COMPAT: b"\x01"}

TOKEN_LENGTH = 512
OPTION_PROOF = 0x02

PING = b"\x01"


def varint(value: int) -> bytes:
    """An integer in its shortest form (RFC 9000 section 16)."""
    for form, size in enumerate((1, 2, 4, 8)):
        if value < 1 << (8 * size - 2):
            return (value | form << (8 * size - 2)).to_bytes(size, "big")
    raise ValueError(f"{value} is too large for QUIC")


def open_frame(target: str, proof: bytes | None = None) -> bytes:
    """OPEN (PROTOCOL section 5.2)."""
    text = target.encode()
    body = varint(len(text)) + text
    if proof is not None:
        body += varint(OPTION_PROOF) + varint(len(proof)) + proof
    return varint(0x01) + varint(len(body)) + body


def token(target: str) -> bytes:
    """A token (PROTOCOL section 4.2)."""
    return target.encode().ljust(TOKEN_LENGTH, b"\x00")


def request(alpn: str, target: str, proof: bytes | None = None) -> bytes:
    """What a stream begins with."""
    return open_frame(target, proof) if alpn == NATIVE else token(target)


def proof_of(secret: bytes, exporter: bytes) -> bytes:
    """A proof (PROTOCOL section 5.5)."""
    return hmac.new(secret, exporter, hashlib.sha256).digest()


def stream_frame(stream: int, offset: int, data: bytes) -> bytes:
    """A STREAM frame with offset and length, without FIN."""
    return b"\x0e" + varint(stream) + varint(offset) + varint(len(data)) + data


def reset_frames(stream: int, code: int, final_size: int) -> list[bytes]:
    """RESET_STREAM and STOP_SENDING."""
    reset = b"\x04" + varint(stream) + varint(code) + varint(final_size)
    return [reset, b"\x05" + varint(stream) + varint(code)]
