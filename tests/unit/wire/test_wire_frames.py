from __future__ import annotations

import pickle
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.errors import LocalViolation, RemoteViolation
from connector.wire import api_versions
from connector.wire.frames import DEFAULT_MAX_FRAME_BYTES, Frame, FrameAssembler


def wire(correlation_id: int, payload: bytes) -> bytes:
    return struct.pack(">ii", len(payload) + 4, correlation_id) + payload


def feed(assembler: FrameAssembler, stream: bytes, piece_sizes: list[int]) -> list[Frame]:
    """Receive a stream as a socket would: never more than asked for, often less."""
    frames = []
    sizes = iter(piece_sizes)
    while stream:
        target = assembler.writable()
        assert len(target) > 0
        n = min(len(target), len(stream), next(sizes, len(stream)))
        target[:n] = stream[:n]
        stream = stream[n:]
        frame = assembler.on_received(n)
        if frame is not None:
            frames.append(frame)
    return frames


MESSAGES = [(7, b"first answer"), (-1, b""), (2**31 - 1, bytes(5000)), (0, b"\x00\x00\x00\x05")]
STREAM = b"".join(wire(*message) for message in MESSAGES)


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 4, 5, 7, 8, 9, 4096, 10**6])
def test_frames_in_pieces_of_any_size_equal_the_messages(piece_bytes):
    frames = feed(FrameAssembler(), STREAM, [piece_bytes] * len(STREAM))
    assert [(frame.correlation_id, bytes(frame.payload)) for frame in frames] == MESSAGES


@given(
    st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=40)), max_size=5),
    st.lists(st.integers(1, 30), max_size=60),
)
def test_frames_in_random_pieces_equal_the_messages(messages, piece_sizes):
    frames = feed(FrameAssembler(), b"".join(wire(*message) for message in messages), piece_sizes)
    assert [(frame.correlation_id, bytes(frame.payload)) for frame in frames] == messages


def test_the_payload_is_received_in_place_into_one_allocation():
    assembler = FrameAssembler()
    head = wire(1, bytes(100))[:8]
    assembler.writable()[:] = head
    assert assembler.on_received(8) is None
    target = assembler.writable()
    assert len(target) == 100
    target[:60] = b"a" * 60
    assert assembler.on_received(60) is None
    assembler.writable()[:] = b"b" * 40
    frame = assembler.on_received(40)
    assert frame is not None
    assert frame.payload.obj is target.obj
    assert bytes(frame.payload) == b"a" * 60 + b"b" * 40


def test_a_frame_is_read_only_and_outlives_the_next_one():
    assembler = FrameAssembler()
    (first,) = feed(assembler, wire(1, b"kept"), [])
    feed(assembler, wire(2, b"next"), [])
    assert bytes(first.payload) == b"kept"
    assert first.payload.readonly


@pytest.mark.parametrize(
    ("first_bytes", "text"),
    [
        pytest.param(b"\xff\xff\xff\xff", "-1 bytes", id="negative"),
        pytest.param(b"\x80\x00\x00\x00", "-2147483648 bytes", id="most negative"),
        pytest.param(b"\x00\x00\x00\x00", "0 bytes", id="empty: no correlation id"),
        pytest.param(b"\x00\x00\x00\x03", "3 bytes", id="shorter than a correlation id"),
        pytest.param(b"\x7f\xff\xff\xff", "2147483647 bytes", id="absurd"),
        pytest.param(struct.pack(">i", DEFAULT_MAX_FRAME_BYTES + 1), "4 to 268435456", id="one byte too long"),
        pytest.param(b"\x15\x03\x03\x00", "TLS", id="a TLS alert"),
        pytest.param(b"HTTP", "HTTP answer", id="an HTTP server"),
    ],
)
@pytest.mark.parametrize("piece_bytes", [1, 4])
def test_an_impossible_length_is_refused_as_soon_as_it_is_there(first_bytes, text, piece_bytes):
    assembler = FrameAssembler()
    with pytest.raises(RemoteViolation, match=text) as raised:
        feed(assembler, first_bytes, [piece_bytes] * 4)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_the_longest_accepted_frame_is_the_callers_choice():
    assembler = FrameAssembler(max_frame_bytes=14)
    assert len(feed(assembler, wire(1, bytes(10)), [])) == 1
    with pytest.raises(RemoteViolation, match="4 to 14"):
        feed(assembler, wire(1, bytes(11)), [])


@pytest.mark.parametrize("n", [0, -1, 9])
def test_a_count_that_can_not_have_been_received_is_our_own_mistake(n):
    with pytest.raises(LocalViolation):
        FrameAssembler().on_received(n)


@pytest.mark.parametrize("version", [0, 3])
@pytest.mark.parametrize(
    ("correlation_id", "client_id"),
    [(2**31, "x"), (1, "x" * 40_000), (1, "\ud800")],
    ids=["correlation id", "client id too long", "client id not encodable"],
)
def test_a_value_that_does_not_fit_is_our_own_mistake(version, correlation_id, client_id):
    with pytest.raises(LocalViolation, match=f"API_VERSIONS v{version}"):
        api_versions.encode_request(version=version, correlation_id=correlation_id, client_id=client_id)
