from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial.readers import read_compact_string_nullable, read_unsigned_varint

from connector.errors import RemoteViolation
from connector.wire.cursor import Cursor
from connector.wire.versions import Api


def cursor(data: bytes) -> Cursor:
    return Cursor(memoryview(data), Api.FETCH, 12)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x00", 0),
        (b"\x7f", 127),
        (b"\x80\x01", 128),
        (b"\xff\x7f", 16383),
        (b"\xff\xff\xff\xff\x07", 2**31 - 1),
        (b"\xff\xff\xff\xff\x0f", 2**32 - 1),
        (b"\x80\x80\x80\x80\x00", 0),
    ],
    ids=lambda part: part.hex() if isinstance(part, bytes) else str(part),
)
def test_a_varint_reads_as_in_the_protocol_guide(data, value):
    reading = cursor(data + b"\xff")
    assert reading.read_unsigned_varint() == value
    assert reading.position == len(data)
    assert read_unsigned_varint(data, 0) == (value, len(data))


@given(st.binary(min_size=6, max_size=8))
def test_a_varint_reads_as_kio_reads_it(data):
    reading = cursor(data)
    try:
        value = reading.read_unsigned_varint()
    except RemoteViolation:
        assert all(byte >= 0x80 for byte in data[:5])
    else:
        assert (value, reading.position) == read_unsigned_varint(data, 0)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "ends inside a varint"),
        (b"\x80", "ends inside a varint"),
        (b"\xff\xff\xff\xff", "ends inside a varint"),
        (b"\xff\xff\xff\xff\xff", "longer than five bytes"),
        (b"\x80\x80\x80\x80\x80\x00", "longer than five bytes"),
    ],
    ids=lambda part: part.hex() if isinstance(part, bytes) else part,
)
def test_a_varint_without_an_end_is_refused(data, text):
    with pytest.raises(RemoteViolation, match=f"FETCH v12 answer, byte 0 of {len(data)}: .*{text}"):
        cursor(data).read_unsigned_varint()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        pytest.param(b"\x00", None, id="null"),
        pytest.param(b"\x01", "", id="empty"),
        pytest.param(b"\x06az-\xc3\xa4", "az-ä", id="text"),
        pytest.param(b"\x86\x00az-\xc3\xa4", "az-ä", id="a longer varint than needed"),
    ],
)
def test_null_text_and_empty_text_differ(data, text):
    reading = cursor(data + b"rest")
    assert reading.read_compact_nullable_text("rack") == text
    assert reading.position == len(data)
    assert read_compact_string_nullable(data, 0) == (text, len(data))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x04az", b"\x03\xc3\xc3"], ids=lambda data: data.hex() or "nothing")
def test_text_that_may_be_null_is_cut_off_or_damaged(data):
    with pytest.raises(RemoteViolation, match=f"of {len(data)}: "):
        cursor(data).read_compact_nullable_text("rack")
