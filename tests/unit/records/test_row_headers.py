"""Record headers as rows have them."""

from __future__ import annotations

import pytest

from tests.unit.records.built_rows import rows
from tests.unit.records.record_bytes import Headers, record, record_batch


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((), None),
        ([(b"a", b"1")], [{"key": "a", "value": b"1"}]),
        ([(b"a", None)], [{"key": "a", "value": None}]),
        ([(b"", b"")], [{"key": "", "value": b""}]),
        (
            [(b"a", b"1"), (b"b", None), (b"a", b"2")],
            [{"key": "a", "value": b"1"}, {"key": "b", "value": None}, {"key": "a", "value": b"2"}],
        ),
        ([("größe".encode(), b"\xff")], [{"key": "größe", "value": b"\xff"}]),
    ],
    ids=["none", "one", "null value", "empty", "duplicate key", "text"],
)
def test_headers(headers: Headers, expected: object) -> None:
    written = record_batch([record(0, headers=[(b"x", b"y")]), record(1, headers=headers), record(2)])
    assert [row["headers"] for row in rows(written, include_headers=True)] == [
        [{"key": "x", "value": b"y"}],
        expected,
        None,
    ]


def test_many_headers_in_one_record() -> None:
    headers = [(b"header %d" % i, None if i % 7 == 0 else b"%d" % i) for i in range(5000)]
    found = rows(record_batch([record(0), record(1, headers=headers)]), include_headers=True)
    assert [(each["key"].encode(), each["value"]) for each in found[1]["headers"]] == headers


@pytest.mark.parametrize(
    ("key", "java"),
    [
        ("61ff62", "a\ufffdb"),
        ("c080", "\ufffd\ufffd"),
        ("e28241", "\ufffdA"),
        ("e282", "\ufffd"),
        ("e08080", "\ufffd\ufffd\ufffd"),
        ("eda080", "\ufffd"),
        ("edb080ed9fbf", "\ufffd\ud7ff"),
        ("eda0", "\ufffd"),
        ("eda041", "\ufffdA"),
        ("ed80", "\ufffd"),
        ("f09f92", "\ufffd"),
        ("f09f9241", "\ufffdA"),
        ("f4908080", "\ufffd\ufffd\ufffd\ufffd"),
        ("f8888080", "\ufffd\ufffd\ufffd\ufffd"),
        ("f09f9280", "\U0001f480"),
    ],
)
def test_header_key_that_is_no_utf_8_reads_as_in_java(key: str, java: str) -> None:
    """Expected: what ``new String(bytes, UTF_8)`` of OpenJDK 17 gives for these bytes."""
    headers = [("é".encode(), b"1"), (bytes.fromhex(key), b"2"), (b"plain", None)]
    found = rows(record_batch([record(0, headers=headers)]), include_headers=True)
    assert [each["key"] for each in found[0]["headers"]] == ["é", java, "plain"]


def test_character_split_over_two_header_keys_is_not_one() -> None:
    whole = "é".encode()
    found = rows(record_batch([record(0, headers=[(whole[:1], b""), (whole[1:], b"")])]), include_headers=True)
    assert [each["key"] for each in found[0]["headers"]] == ["\ufffd", "\ufffd"]
