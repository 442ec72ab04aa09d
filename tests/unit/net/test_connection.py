"""A connection with a scripted byte stream: negotiation, order, pieces, and what is lost when it breaks."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from types import ModuleType

import pytest
from kio.schema.api_versions.v0 import response as api_versions_v0
from kio.schema.api_versions.v3 import response as api_versions_v3
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v5 import response as list_offsets_v5
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32, i32Timedelta, i64

from connector.errors import ConnectFailed, ConnectionLost, RemoteViolation, RequestTimedOut, UnsupportedApi
from connector.model import EpochQuery, OffsetAnswer, OffsetQuery, TopicPartition
from connector.net.connection import Connection, ConnectionLimits, Exchange
from connector.wire import list_offsets, offset_for_leader_epoch
from connector.wire.versions import Api
from tests.unit.wire.kio_entities import encode

TP = TopicPartition("t", 0)


class ScriptedTransport:
    """Gives what a test puts into `incoming`, keeps what is sent."""

    def __init__(self) -> None:
        self.is_connected = True
        self.incoming = bytearray()
        self.ends = False
        self.sent = bytearray()
        self.is_closed = False

    def fileno(self) -> int:
        return 0

    def is_connected_nowait(self) -> bool:
        return self.is_connected

    def send_nowait(self, data: memoryview) -> int:
        self.sent += data
        return len(data)

    def receive_nowait(self, into: memoryview) -> int | None:
        if not self.incoming:
            if self.ends:
                raise ConnectionLost("1 (h:9)", "the broker closed the connection")
            return None
        taken = min(len(into), len(self.incoming))
        into[:taken] = self.incoming[:taken]
        del self.incoming[:taken]
        return taken

    def close(self) -> None:
        self.is_closed = True

    def requests(self) -> list[tuple[int, int, int]]:
        """Return API key, version and correlation id of each request that was sent."""
        found, at = [], 0
        while at < len(self.sent):
            length = int.from_bytes(self.sent[at : at + 4], "big")
            header = self.sent[at + 4 : at + 12]
            key, version = int.from_bytes(header[:2], "big"), int.from_bytes(header[2:4], "big")
            found.append((key, version, int.from_bytes(header[4:], "big")))
            at += 4 + length
        return found


def frame(correlation_id: int, body: memoryview) -> bytes:
    return (4 + len(body)).to_bytes(4, "big") + correlation_id.to_bytes(4, "big") + bytes(body)


def api_versions_reply(schema: ModuleType = api_versions_v3) -> memoryview:
    ranges = {Api.API_VERSIONS: (0, 2), Api.LIST_OFFSETS: (1, 5), Api.FETCH: (4, 11), Api.METADATA: (4, 8)}
    offered = tuple(
        schema.ApiVersion(api_key=i16(key), min_version=i16(low), max_version=i16(high))
        for key, (low, high) in ranges.items()
    )
    given = {} if schema is api_versions_v0 else {"throttle_time": i32Timedelta.parse(timedelta())}
    return encode(schema.ApiVersionsResponse(error_code=ErrorCode.none, api_keys=offered, **given))


def offsets_reply(log_offset: int) -> memoryview:
    partition = list_offsets_v5.ListOffsetsPartitionResponse(
        partition_index=i32(0),
        error_code=ErrorCode.none,
        timestamp=i64(-1),
        offset=i64(log_offset),
        leader_epoch=i32(3),
    )
    topic = list_offsets_v5.ListOffsetsTopicResponse(name=TopicName("t"), partitions=(partition,))
    return encode(list_offsets_v5.ListOffsetsResponse(throttle_time=i32Timedelta.parse(timedelta()), topics=(topic,)))


def exchange(subject: str, timeout_ms: int = 30_000) -> Exchange:
    ask = partial(list_offsets.encode_request, [OffsetQuery(TP, -1)], isolation_level=0)
    return Exchange(Api.LIST_OFFSETS, ask, list_offsets.decode_reply, subject, timeout_ms)


@pytest.fixture
def transport() -> ScriptedTransport:
    return ScriptedTransport()


@pytest.fixture
def connection(transport: ScriptedTransport) -> Connection:
    return Connection("1 (h:9)", transport, "client", ConnectionLimits(setup_timeout_ms=10_000), now_ms=0)


def negotiate(connection: Connection, transport: ScriptedTransport) -> None:
    connection.on_ready(1)
    transport.incoming += frame(1, api_versions_reply())
    connection.on_ready(2)
    assert connection.is_ready


def test_requests_wait_for_the_negotiation_and_use_what_it_says(
    connection: Connection, transport: ScriptedTransport
) -> None:
    connection.submit(exchange("first"), 0)
    connection.on_ready(1)
    assert [key for key, _, _ in transport.requests()] == [Api.API_VERSIONS]
    transport.incoming += frame(1, api_versions_reply())
    connection.on_ready(2)
    assert transport.requests()[1][:2] == (Api.LIST_OFFSETS, 5)


def test_a_broker_that_knows_no_newer_api_versions_is_asked_in_version_0(
    connection: Connection, transport: ScriptedTransport
) -> None:
    connection.on_ready(1)
    assert transport.requests()[0][:2] == (Api.API_VERSIONS, 3)
    refusal = encode(api_versions_v0.ApiVersionsResponse(error_code=ErrorCode.unsupported_version, api_keys=()))
    transport.incoming += frame(1, refusal)
    connection.on_ready(2)
    assert transport.requests()[1][:2] == (Api.API_VERSIONS, 0)
    transport.incoming += frame(2, api_versions_reply(api_versions_v0))
    connection.on_ready(3)
    assert connection.is_ready


def test_an_answer_in_pieces_is_one_answer(connection: Connection, transport: ScriptedTransport) -> None:
    negotiate(connection, transport)
    connection.submit(exchange("subject"), 10)
    for byte in frame(2, offsets_reply(77)):
        assert connection.take_answers() == []
        transport.incoming.append(byte)
        connection.on_ready(25)
    (answer,) = connection.take_answers()
    assert answer.exchange.subject == "subject"
    assert answer.value == (OffsetAnswer(TP, 0, 77, -1, 3),)
    assert answer.duration_ms == 15
    assert connection.pending == ()


def test_an_answer_that_came_before_the_end_is_good_and_only_the_rest_is_lost(
    connection: Connection, transport: ScriptedTransport
) -> None:
    negotiate(connection, transport)
    for subject in ("answered", "lost"):
        connection.submit(exchange(subject), 10)
    transport.incoming += frame(2, offsets_reply(1))
    transport.ends = True
    with pytest.raises(ConnectionLost):
        connection.on_ready(11)
    assert [each.exchange.subject for each in connection.take_answers()] == ["answered"]
    assert [each.subject for each in connection.pending] == ["lost"]


def test_an_answer_that_can_not_be_read_stays_pending(connection: Connection, transport: ScriptedTransport) -> None:
    negotiate(connection, transport)
    connection.submit(exchange("unreadable"), 10)
    transport.incoming += frame(2, memoryview(b"\x00\x00\x00\x00\x7f\xff\xff\xff"))
    with pytest.raises(RemoteViolation):
        connection.on_ready(11)
    assert [each.subject for each in connection.pending] == ["unreadable"]


def test_an_answer_to_another_request_ends_the_connection(connection: Connection, transport: ScriptedTransport) -> None:
    negotiate(connection, transport)
    connection.submit(exchange("first"), 10)
    transport.incoming += frame(99, offsets_reply(1))
    with pytest.raises(RemoteViolation, match="answered request 99"):
        connection.on_ready(11)


def test_patience_ends_for_connecting_and_for_each_request(
    connection: Connection, transport: ScriptedTransport
) -> None:
    transport.is_connected = False
    connection.on_ready(9_999)
    connection.check_deadline(9_999)
    with pytest.raises(ConnectFailed):
        connection.check_deadline(10_000)
    transport.is_connected = True
    negotiate(connection, transport)
    connection.submit(exchange("slow", timeout_ms=500), 20_000)
    connection.check_deadline(20_499)
    with pytest.raises(RequestTimedOut, match="no answer to LIST_OFFSETS for 500 ms"):
        connection.check_deadline(20_500)


def test_a_request_that_the_broker_does_not_speak_stays_pending_although_it_waited_for_the_negotiation(
    connection: Connection, transport: ScriptedTransport
) -> None:
    # The broker offers ListOffsets and no OffsetForLeaderEpoch.
    encode_query = partial(offset_for_leader_epoch.encode_request, [EpochQuery(TP, 3)])
    unspoken = Exchange(
        Api.OFFSET_FOR_LEADER_EPOCH, encode_query, offset_for_leader_epoch.decode_reply, "unspoken", 30_000
    )
    connection.submit(unspoken, 0)
    connection.submit(exchange("behind it"), 0)
    with pytest.raises(UnsupportedApi, match="OFFSET_FOR_LEADER_EPOCH"):
        negotiate(connection, transport)
    assert [each.subject for each in connection.pending] == ["unspoken", "behind it"]
