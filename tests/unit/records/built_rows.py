"""Rows of fetched records, with all that is true of every arrow batch checked on the way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from connector.model import TopicPartition
from connector.records.arrow import RowBuilder, arrow_schema

ORDERS = TopicPartition("orders", 3)
EVERYTHING = (0, 2**63 - 1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def arrow_batches(
    records: bytes,
    wanted: tuple[int, int] = EVERYTHING,
    *,
    aborted: Sequence[tuple[int, int]] | None = (),
    include_headers: bool = False,
    **limits: int,
) -> list[pa.RecordBatch]:
    builder = RowBuilder(include_headers=include_headers, **limits)
    batches = list(builder.append(ORDERS, memoryview(records), *wanted, aborted))
    rest = builder.finish()
    if rest is not None:
        batches.append(rest)
    for each in batches:
        each.validate(full=True)
        assert each.num_rows > 0
        assert each.schema.equals(arrow_schema(include_headers), check_metadata=True)
    assert builder.row_count == sum(each.num_rows for each in batches)
    return batches


def rows(records: bytes, wanted: tuple[int, int] = EVERYTHING, **options: Any) -> list[dict[str, Any]]:
    return [row for each in arrow_batches(records, wanted, **options) for row in each.to_pylist()]


def offsets(
    records: bytes, wanted: tuple[int, int] = EVERYTHING, aborted: Sequence[tuple[int, int]] | None = ()
) -> list[int]:
    return [row["offset"] for row in rows(records, wanted, aborted=aborted)]


def row_counts(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [each.num_rows for each in batches]
