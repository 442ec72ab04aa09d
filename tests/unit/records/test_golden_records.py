"""Bytes that others wrote: the rows must be those of another consumer, in both isolation levels.

``tests/golden/PROVENANCE.md`` tells who wrote the files, and whose the expected rows are: Java's consumer for the Java
writer's bytes, librdkafka's for a broker's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from connector.records.layout import scan_record_batches
from tests.unit.records.built_rows import arrow_batches, offsets

GOLDEN = Path(__file__).parents[2] / "golden"
CASES: dict[str, dict[str, Any]] = {
    each["name"]: each
    for expected in ("expected.json", "captured.json")
    for each in json.loads((GOLDEN / expected).read_bytes())
}
BEHIND_ALL = 1 << 40

GoldenRow: TypeAlias = list[Any]
"""Offset, timestamp in ms, timestamp type, key and value in hexadecimal, headers."""


def written(name: str) -> bytes:
    return (GOLDEN / f"{name}.bin").read_bytes()


def as_told(batch: pa.RecordBatch) -> list[GoldenRow]:
    def hexadecimal(value: bytes | None) -> str | None:
        return None if value is None else value.hex()

    timestamps_us = batch.column("timestamp").cast(pa.int64()).to_pylist()
    assert not any(timestamp_us % 1000 for timestamp_us in timestamps_us)
    return [
        [
            row["offset"],
            timestamp_us // 1000,
            row["timestampType"],
            hexadecimal(row["key"]),
            hexadecimal(row["value"]),
            [[each["key"], hexadecimal(each["value"])] for each in row["headers"] or ()],
        ]
        for row, timestamp_us in zip(batch.to_pylist(), timestamps_us, strict=True)
    ]


def test_every_file_is_looked_at() -> None:
    assert {path.stem for path in GOLDEN.glob("*.bin")} == set(CASES)
    assert all(case["rows"] for case in CASES.values())


@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_of_the_other_consumer(name: str) -> None:
    case = CASES[name]
    batches = arrow_batches(written(name), (case["fetch_offset"], BEHIND_ALL), include_headers=True)
    assert [row for each in batches for row in as_told(each)] == case["rows"]


@pytest.mark.parametrize("name", CASES)
def test_committed_rows_are_those_of_the_other_consumer(name: str) -> None:
    case = CASES[name]
    wanted = (case["fetch_offset"], BEHIND_ALL)
    batches = arrow_batches(written(name), wanted, aborted=case["aborted_transactions"], include_headers=True)
    committed = [row for row in case["rows"] if row[0] in case["committed_offsets"]]
    assert [row for each in batches for row in as_told(each)] == committed


@pytest.mark.parametrize("name", CASES)
def test_position_and_leader_epoch_are_those_of_the_other_consumer(name: str) -> None:
    scan = scan_record_batches(memoryview(written(name)))
    assert (scan.next_offset, scan.last_leader_epoch) == (CASES[name]["next_offset"], CASES[name]["last_leader_epoch"])


@pytest.mark.parametrize("name", CASES)
def test_any_part_of_the_range_has_its_part_of_the_rows(name: str) -> None:
    """The records stay whole, as they do when a later range is served from what was fetched for an earlier one."""
    case, records = CASES[name], written(name)
    first, behind = case["fetch_offset"], max(case["next_offset"], case["rows"][-1][0] + 1)
    for cut in range(first, behind + 1):
        for wanted in ((first, cut), (cut, behind)):
            expected = [each for each in case["committed_offsets"] if wanted[0] <= each < wanted[1]]
            assert offsets(records, wanted, case["aborted_transactions"]) == expected, wanted
