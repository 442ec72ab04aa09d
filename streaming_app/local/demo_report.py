"""What the demo found, and how it is told: values in, text out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from streaming_app.local.rack_bytes import RackBytes
from streaming_app.local.row_check import RowCheck

__all__ = ["LEAST_LOCAL_RATIO", "DemoResult", "find_problems", "render_report"]

LEAST_LOCAL_RATIO: Final = 0.99
_MOST_DISAGREEMENT_RATIO: Final = 0.01
_LABEL_WIDTH: Final = 34
_NUMBER_WIDTH: Final = 14
_CELL_WIDTH: Final = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """Everything the report says.

    Attributes
    ----------
    wanted_count, acknowledged_count
        Orders that were to be produced, and that brokers acknowledged.
    rows
        Parquet against brokers.
    malformed_count
        Rows of the Parquet that are no orders.
    counted, served
        Bytes that executors read: by their own counters, and by the brokers' request logs.
    leader_only
        The same reads, had each partition been read from its leader.
    lag_records
        As the driver's metrics told it last; None when they never did.
    stop_exit_code
        Of spark-submit after SIGTERM; None when it had to be killed.
    places
        What can be looked at afterwards: name and path or address.
    """

    wanted_count: int
    acknowledged_count: int
    rows: RowCheck
    malformed_count: int
    racks: tuple[str, ...]
    counted: RackBytes
    served: RackBytes
    leader_only: RackBytes
    batch_count: int
    lag_records: int | None
    stop_exit_code: int | None
    query_s: float
    total_s: float
    places: Sequence[tuple[str, str]]


STOPPED_BY_SIGTERM: Final = 128 + 15
"""Exit code of a JVM that SIGTERM ended, shutdown hooks and all."""


def find_problems(result: DemoResult) -> tuple[str, ...]:
    """Return what is wrong, a sentence each; nothing when the demo shows what it should."""
    rows = result.rows
    checks = (
        (
            result.acknowledged_count != result.wanted_count,
            f"{result.wanted_count - result.acknowledged_count:,} orders were not acknowledged by the brokers.",
        ),
        (
            rows.expected_count != result.acknowledged_count,
            f"Brokers acknowledged {result.acknowledged_count:,} orders and hold {rows.expected_count:,}.",
        ),
        (rows.missing_count > 0, f"{rows.missing_count:,} rows are missing from the Parquet."),
        (rows.doubled_count > 0, f"{rows.doubled_count:,} rows are in the Parquet more than once."),
        (rows.stray_count > 0, f"{rows.stray_count:,} rows have offsets that no broker holds."),
        (result.malformed_count > 0, f"{result.malformed_count:,} rows could not be parsed as orders."),
        (result.lag_records != 0, f"The query ended with a lag of {_or_unknown(result.lag_records)} records."),
        (
            result.counted.local_ratio < LEAST_LOCAL_RATIO,
            f"By the executors' counters only {_percent(result.counted.local_ratio)} of the bytes were local.",
        ),
        (
            result.served.local_ratio < LEAST_LOCAL_RATIO,
            f"By the brokers' request logs only {_percent(result.served.local_ratio)} of the bytes were local.",
        ),
        (
            _disagreement_ratio(result) > _MOST_DISAGREEMENT_RATIO,
            f"Executors counted {result.counted.total_bytes:,} bytes, brokers served {result.served.total_bytes:,}.",
        ),
        (
            result.stop_exit_code != STOPPED_BY_SIGTERM,
            f"spark-submit answered SIGTERM with exit code {_or_unknown(result.stop_exit_code)}, not "
            f"{STOPPED_BY_SIGTERM}.",
        ),
    )
    return tuple(sentence for is_wrong, sentence in checks if is_wrong)


def render_report(result: DemoResult) -> str:
    """Return the report, at most 80 columns wide (long paths aside)."""
    return "\n".join([*_lines(result), ""])


def _lines(result: DemoResult) -> Iterator[str]:
    rows = result.rows
    yield "Rows"
    yield _number("produced (acknowledged, acks=all)", result.acknowledged_count)
    yield _number("held by brokers (high watermarks)", rows.expected_count)
    yield _number("in Parquet", rows.row_count)
    yield _number("  distinct topic-partition-offset", rows.distinct_count)
    yield _number("  missing", rows.missing_count)
    yield _number("  doubled", rows.doubled_count)
    yield ""
    yield from _table("Bytes read: executor rack x broker rack (executors' own counters)", result.counted, result.racks)
    yield ""
    yield from _table("The same, from outside (the brokers' request logs)", result.served, result.racks)
    yield ""
    yield "Local share of the bytes read"
    yield _text("executors' counters", _percent(result.counted.local_ratio))
    yield _text("brokers' request logs", _percent(result.served.local_ratio))
    yield _text("Spark's own source, same reads", _percent(result.leader_only.local_ratio))
    yield "  (it reads every partition from its leader; computed from leader placement)"
    yield ""
    yield "Query"
    yield _number("micro-batches", result.batch_count)
    yield _text("lag, in records", _or_unknown(result.lag_records))
    yield _text("time of the query", f"{result.query_s:.0f} s")
    yield _text("time in all", f"{result.total_s:.0f} s")
    yield ""
    yield "To look at"
    for name, place in result.places:
        yield f"  {name:<18} {place}"
    yield ""
    problems = find_problems(result)
    yield from (f"PROBLEM: {problem}" for problem in problems)
    if not problems:
        yield "Every row is there exactly once, and the bytes stayed in their racks."


def _table(title: str, read: RackBytes, racks: Sequence[str]) -> Iterator[str]:
    own_racks = sorted({*racks, *(own for own, _ in read.by_racks)})
    broker_racks = sorted({*racks, *(other for _, other in read.by_racks)})
    yield title
    yield f"  {'':<8}" + "".join(f"{rack or 'no rack':>{_CELL_WIDTH}}" for rack in broker_racks) + f"{'local':>10}"
    for own in own_racks:
        row = {other: read.by_racks.get((own, other), 0) for other in broker_racks}
        own_ratio = RackBytes({(own, other): bytes_ for other, bytes_ in row.items()}).local_ratio
        cells = "".join(f"{row[other]:>{_CELL_WIDTH},}" for other in broker_racks)
        yield f"  {own or 'no rack':<8}{cells}{_percent(own_ratio):>10}"


def _disagreement_ratio(result: DemoResult) -> float:
    larger = max(result.counted.total_bytes, result.served.total_bytes)
    return abs(result.counted.total_bytes - result.served.total_bytes) / larger if larger else 0.0


def _number(label: str, number: int) -> str:
    return _text(label, f"{number:,}")


def _text(label: str, text: str) -> str:
    return f"  {label:<{_LABEL_WIDTH}}{text:>{_NUMBER_WIDTH}}"


def _percent(ratio: float) -> str:
    """Return a share with one decimal, rounded down: 99.97 % is not all."""
    return f"{int(ratio * 1000) / 10:.1f} %"


def _or_unknown(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"
