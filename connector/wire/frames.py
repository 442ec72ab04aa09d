"""Frames: the length prefix and the correlation id around every message, without any I/O.

A frame is an int32 length and that many bytes. A reply's bytes begin with the correlation id of its request; what
follows is the payload that each API's ``decode_reply`` takes, tagged fields of the response header included.

Notes
-----
Spec: Kafka protocol guide, "Common Request and Response Structure"; KIP-482 for header versions.
Counterpart: ``NetworkReceive``, ``RequestHeader``.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from connector.errors import LocalViolation, RemoteViolation
from connector.wire.versions import Api

if TYPE_CHECKING:
    from kio.static.protocol import RequestPayload

__all__ = ["DEFAULT_MAX_FRAME_BYTES", "Frame", "FrameAssembler", "encode_frame"]

DEFAULT_MAX_FRAME_BYTES: Final = 256 * 1024 * 1024
"""Longer frames are refused: the first bytes of a TLS alert or of an HTTP answer announce more than this."""

_LENGTH: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">ii")
_CORRELATION_ID_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Frame:
    """One reply: whose it is, and its bytes from right after the correlation id.

    `payload` is read-only and owns its memory: it lives as long as any slice of it does.
    """

    correlation_id: int
    payload: memoryview


def encode_frame(api: Api, version: int, correlation_id: int, client_id: str, body: RequestPayload) -> bytes:
    """Encode a request with its header and length prefix.

    Parameters
    ----------
    body : RequestPayload
        kio's dataclass of the request in `version`; it knows which request header goes with it.

    Raises
    ------
    LocalViolation
        A value does not fit into its field.
    """
    # Imported here, because it brings asyncio and ssl along: a process pays when it talks to a broker, not before.
    from kio.serial import entity_writer
    from kio.serial.errors import SerialError

    header_type: Any = body.__header_schema__
    header = header_type(
        request_api_key=api.value,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    buffer = io.BytesIO()
    buffer.write(_LENGTH.pack(0))
    try:
        entity_writer(header_type)(buffer, header)
        entity_writer(type(body))(buffer, body)
    except (struct.error, SerialError, UnicodeEncodeError) as error:
        raise LocalViolation(f"a {api.name} v{version} request can't be encoded: {error}") from error
    with buffer.getbuffer() as frame:
        _LENGTH.pack_into(frame, 0, len(frame) - _LENGTH.size)
    return buffer.getvalue()


class FrameAssembler:
    """Puts the frames of one connection together from whatever pieces arrive.

    The owner of the socket receives into `writable` and reports with `on_received`. Each frame is allocated once and
    received in place. After a `RemoteViolation` the connection has lost its place and must be closed.

    Parameters
    ----------
    max_frame_bytes : int
        The longest frame to accept. Raise it together with fetch.max.bytes: a Fetch answer may exceed that by one
        record batch (KIP-74).
    """

    def __init__(self, *, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._head = memoryview(bytearray(_HEAD.size))
        self._payload: memoryview | None = None
        self._received_bytes = 0

    def writable(self) -> memoryview:
        """Return where the next received bytes go; never empty, and valid until the next `on_received`."""
        target = self._head if self._payload is None else self._payload
        return target[self._received_bytes :]

    def on_received(self, n: int) -> Frame | None:
        """Take note of `n` bytes that were put into `writable`; return the frame that they complete, if any.

        Raises
        ------
        RemoteViolation
            The announced length is negative, too small for a correlation id, or beyond `max_frame_bytes`.
        LocalViolation
            `n` is not a count of bytes that fit.
        """
        if not 0 < n <= len(self.writable()):
            raise LocalViolation(f"{n} bytes can't have been received into {len(self.writable())}")
        self._received_bytes += n
        if self._payload is None:
            if self._received_bytes >= _LENGTH.size:
                self._check_length()
            if self._received_bytes < _HEAD.size:
                return None
            self._payload = memoryview(bytearray(self._length - _CORRELATION_ID_BYTES))
            self._received_bytes = 0
        if self._received_bytes < len(self._payload):
            return None
        frame = Frame(_HEAD.unpack_from(self._head)[1], self._payload.toreadonly())
        self._payload = None
        self._received_bytes = 0
        return frame

    @property
    def _length(self) -> int:
        length: int
        (length,) = _LENGTH.unpack_from(self._head)
        return length

    def _check_length(self) -> None:
        length = self._length
        if _CORRELATION_ID_BYTES <= length <= self._max_frame_bytes:
            return
        first_bytes = bytes(self._head[: _LENGTH.size])
        if first_bytes[:2] == b"\x15\x03":
            hint = "this is a TLS alert: the listener wants TLS (security.protocol SSL or SASL_SSL)"
        elif first_bytes == b"HTTP":
            hint = "this is an HTTP answer: the address is not a Kafka listener's"
        else:
            hint = f"lengths from {_CORRELATION_ID_BYTES} to {self._max_frame_bytes} bytes are accepted"
        raise RemoteViolation(f"an answer announces a length of {length} bytes: {hint}")
