"""Messages to and from one broker: version negotiation first, then requests in order.

A connection moves only when its owner says that the transport is ready; nothing here waits. Kafka answers the
requests of a connection in the order they were sent, so a queue is enough to know whose answer came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from connector.errors import ConnectFailed, RemoteViolation, RequestTimedOut
from connector.net.transport import Transport
from connector.wire import api_versions, error_codes
from connector.wire.frames import DEFAULT_MAX_FRAME_BYTES, Frame, FrameAssembler
from connector.wire.versions import SUPPORTED, Api, negotiate

__all__ = ["Answer", "Connection", "ConnectionLimits", "Encode", "Exchange"]

_READ_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""How much one connection may take in before others get their turn."""


class Encode(Protocol):
    """Makes a request's frame, once the version is known."""

    def __call__(self, *, version: int, correlation_id: int, client_id: str) -> bytes:
        """Return the frame, length prefix included."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request, and how its answer is read. `subject` is whatever the owner wants back with the answer."""

    api: Api
    encode: Encode
    decode: Callable[[memoryview, int], Any]
    subject: Any
    timeout_ms: int
    version_cap: int | None = None


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How long connecting and negotiating versions may take together, and how long an answer may be."""

    setup_timeout_ms: int
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES


@dataclass(frozen=True, slots=True)
class Answer:
    """The decoded answer to an exchange, how long it took, and the size of its frame."""

    exchange: Exchange
    value: Any
    duration_ms: int
    frame_bytes: int


@dataclass(slots=True)
class _InFlight:
    exchange: Exchange
    version: int
    correlation_id: int
    sent_ms: int


class Connection:
    """One connection, from the first byte to the last.

    Parameters
    ----------
    node : str
        The broker, for messages.
    transport : Transport
        Connecting or connected; owned from here on.
    client_id : str
        The name brokers see.
    limits : ConnectionLimits
        Patience while setting up, and the longest answer.
    """

    def __init__(self, node: str, transport: Transport, client_id: str, limits: ConnectionLimits, now_ms: int) -> None:
        self.node = node
        self._transport = transport
        self._client_id = client_id
        self._assembler = FrameAssembler(max_frame_bytes=limits.max_frame_bytes)
        self._outgoing = bytearray()
        self._queued: deque[tuple[Exchange, int]] = deque()
        self._in_flight: deque[_InFlight] = deque()
        self._answers: list[Answer] = []
        self._correlation_id = 0
        self._is_connected = False
        self._ranges: dict[int, tuple[int, int]] | None = None
        self._setup_deadline_ms = now_ms + limits.setup_timeout_ms

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._transport.fileno()

    @property
    def wants_to_write(self) -> bool:
        """Whether there is something to send, or the connection is not open yet."""
        return not self._is_connected or bool(self._outgoing)

    @property
    def is_ready(self) -> bool:
        """Whether versions are negotiated."""
        return self._ranges is not None

    @property
    def pending(self) -> tuple[Exchange, ...]:
        """What was submitted and not answered."""
        exchanges = [each.exchange for each in self._in_flight if each.exchange.api is not Api.API_VERSIONS]
        return (*exchanges, *(exchange for exchange, _ in self._queued))

    def deadline_ms(self) -> int | None:
        """Return when patience ends; None when nothing is awaited."""
        if self._ranges is None:
            return self._setup_deadline_ms
        return min((each.sent_ms + each.exchange.timeout_ms for each in self._in_flight), default=None)

    def check_deadline(self, now_ms: int) -> None:
        """Raise `ConnectFailed` or `RequestTimedOut` when patience has ended."""
        deadline_ms = self.deadline_ms()
        if deadline_ms is None or now_ms < deadline_ms:
            return
        if self._ranges is None:
            raise ConnectFailed(self.node, "no connection within kafka.socket.connection.setup.timeout.ms")
        oldest = self._in_flight[0]
        raise RequestTimedOut(self.node, f"no answer to {oldest.exchange.api.name} for {now_ms - oldest.sent_ms} ms")

    def submit(self, exchange: Exchange, now_ms: int) -> None:
        """Send a request, as soon as versions are negotiated."""
        if self._ranges is None:
            self._queued.append((exchange, now_ms))
        else:
            self._send(exchange, self._ranges, now_ms)

    def on_ready(self, now_ms: int) -> None:
        """Move what can be moved; answers that came wait in `take_answers`.

        Raises
        ------
        TransportError, ProtocolViolation, BrokerError
            The connection is of no more use; `pending` says what was lost with it. Answers that came before are good.
        """
        if not self._is_connected:
            if not self._transport.is_connected_nowait():
                return
            self._is_connected = True
            self._negotiate(SUPPORTED[Api.API_VERSIONS][1], now_ms)
        self._flush()
        self._receive(now_ms)

    def take_answers(self) -> list[Answer]:
        """Return the answers that came since the last call."""
        answers, self._answers = self._answers, []
        return answers

    def close(self) -> None:
        """Close; what is pending is never answered."""
        self._transport.close()

    def _negotiate(self, version: int, now_ms: int) -> None:
        timeout_ms = self._setup_deadline_ms - now_ms
        exchange = Exchange(Api.API_VERSIONS, api_versions.encode_request, api_versions.decode_reply, None, timeout_ms)
        self._enqueue(exchange, version, now_ms)

    def _send(self, exchange: Exchange, ranges: dict[int, tuple[int, int]], now_ms: int) -> None:
        self._enqueue(exchange, negotiate(exchange.api, ranges, exchange.version_cap), now_ms)
        if self._is_connected:
            self._flush()

    def _enqueue(self, exchange: Exchange, version: int, now_ms: int) -> None:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        self._outgoing += exchange.encode(
            version=version, correlation_id=self._correlation_id, client_id=self._client_id
        )
        self._in_flight.append(_InFlight(exchange, version, self._correlation_id, now_ms))

    def _flush(self) -> None:
        if self._outgoing:
            with memoryview(self._outgoing) as outgoing:
                sent_bytes = self._transport.send_nowait(outgoing)
            del self._outgoing[:sent_bytes]

    def _receive(self, now_ms: int) -> None:
        taken_bytes = 0
        while taken_bytes < _READ_LIMIT_BYTES:
            received_bytes = self._transport.receive_nowait(self._assembler.writable())
            if received_bytes is None:
                break
            taken_bytes += received_bytes
            frame = self._assembler.on_received(received_bytes)
            if frame is not None:
                self._on_frame(frame, now_ms)

    def _on_frame(self, frame: Frame, now_ms: int) -> None:
        if not self._in_flight or self._in_flight[0].correlation_id != frame.correlation_id:
            raise RemoteViolation(f"broker {self.node} answered request {frame.correlation_id}, which was not next")
        awaited = self._in_flight[0]
        value = awaited.exchange.decode(frame.payload, awaited.version)
        # Only an answer that could be read leaves the queue: `pending` must name every other one.
        self._in_flight.popleft()
        if awaited.exchange.api is Api.API_VERSIONS:
            self._on_api_versions(value, awaited.version, now_ms)
        else:
            self._answers.append(Answer(awaited.exchange, value, now_ms - awaited.sent_ms, len(frame.payload)))

    def _on_api_versions(self, reply: api_versions.ApiVersionsReply, version: int, now_ms: int) -> None:
        if reply.error_code == error_codes.UNSUPPORTED_VERSION and version > 0:
            # Old brokers leave the ranges out; version 0 is understood by all (KIP-35).
            _, highest = reply.ranges.get(Api.API_VERSIONS, (0, 0))
            self._negotiate(min(highest, version - 1), now_ms)
            self._flush()
            return
        if reply.error_code != error_codes.NONE:
            raise error_codes.broker_error(reply.error_code, "negotiating versions", self.node)
        self._ranges = reply.ranges
        while self._queued:
            # It leaves the queue when a version was found for it: `pending` must name every one that was not sent.
            exchange, _ = self._queued[0]
            version = negotiate(exchange.api, reply.ranges, exchange.version_cap)
            self._queued.popleft()
            self._enqueue(exchange, version, now_ms)
        self._flush()
