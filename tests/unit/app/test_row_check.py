from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_app.local.row_check import LogBounds, RowCheck, check_rows, read_row_offsets


def check(rows: dict[int, list[int]], bounds: dict[int, tuple[int, int]]) -> RowCheck:
    return check_rows(
        {partition: np.array(offsets, np.int64) for partition, offsets in rows.items()},
        {partition: LogBounds(*ends) for partition, ends in bounds.items()},
    )


@pytest.mark.parametrize(
    ("rows", "bounds", "expected"),
    [
        ({0: [2, 0, 1]}, {0: (0, 3)}, RowCheck(3, 3, 3, 0, 0)),
        ({0: [0, 2]}, {0: (0, 3)}, RowCheck(2, 2, 3, 1, 0)),
        ({0: [0, 1, 1, 2, 2]}, {0: (0, 3)}, RowCheck(5, 3, 3, 0, 0)),
        ({0: [5, 6]}, {0: (5, 7)}, RowCheck(2, 2, 2, 0, 0)),
        ({0: [4, 5, 6, 7]}, {0: (5, 7)}, RowCheck(4, 4, 2, 0, 2)),
        ({0: [0]}, {0: (0, 1), 1: (0, 4)}, RowCheck(1, 1, 5, 4, 0)),
        ({3: [0]}, {0: (0, 0)}, RowCheck(1, 1, 0, 0, 1)),
        ({}, {0: (0, 0)}, RowCheck(0, 0, 0, 0, 0)),
    ],
    ids=["exact", "missing", "doubled", "log-starts-later", "stray", "whole-partition", "unknown-partition", "empty"],
)
def test_each_kind_of_difference(rows, bounds, expected):
    assert check(rows, bounds) == expected


def test_one_missing_and_one_doubled_do_not_make_up_for_each_other():
    found = check({0: [0, 0]}, {0: (0, 2)})
    assert (found.row_count, found.expected_count) == (2, 2)
    assert (found.missing_count, found.doubled_count, found.is_exact) == (1, 1, False)


@given(
    rows=st.dictionaries(st.integers(0, 3), st.lists(st.integers(0, 12), max_size=20)),
    bounds=st.dictionaries(st.integers(0, 3), st.tuples(st.integers(0, 5), st.integers(5, 12))),
)
def test_counts_are_those_of_plain_sets(rows, bounds):
    held = {(partition, offset) for partition, (start, end) in bounds.items() for offset in range(start, end)}
    found = Counter((partition, offset) for partition, offsets in rows.items() for offset in offsets)
    result = check(rows, bounds)
    assert result == RowCheck(
        row_count=found.total(),
        distinct_count=len(found),
        expected_count=len(held),
        missing_count=len(held - found.keys()),
        stray_count=len(found.keys() - held),
    )
    assert result.is_exact == (found == Counter(held))


def test_offsets_are_read_from_the_files_that_are_named(tmp_path):
    def write(name: str, topics: list[str], partitions: list[int], offsets: list[int]) -> None:
        columns = {
            "topic": pa.array(topics, pa.string()),
            "partition": pa.array(partitions, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "sku": pa.array(["x"] * len(topics)),
        }
        pq.write_table(pa.table(columns), tmp_path / name)

    write("a.parquet", ["orders"] * 3, [0, 1, 0], [0, 0, 1])
    write("b.parquet", ["orders", "other"], [0, 0], [1, 77])
    write("left-over.parquet", ["orders"], [0], [99])
    found = read_row_offsets([tmp_path / "a.parquet", tmp_path / "b.parquet"], "orders")
    assert {partition: sorted(offsets.tolist()) for partition, offsets in found.items()} == {0: [0, 1, 1], 1: [0]}
