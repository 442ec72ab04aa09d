"""Read ``/metrics`` of the demo's own processes."""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass
from urllib.error import URLError

from prometheus_client.parser import text_string_to_metric_families

from connector.metrics.catalog import BATCHES, ROWS, TOPIC_LAG

__all__ = ["QueryReading", "parse_query_reading", "scrape"]


@dataclass(frozen=True, slots=True)
class QueryReading:
    """What a driver's metrics say of its queries, added up; `lag_records` is None until a micro-batch told it."""

    batch_count: int
    row_count: int
    lag_records: int | None


def scrape(url: str, timeout_s: float = 5.0) -> str | None:
    """Return what an endpoint of this machine serves; None while nobody serves there."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=timeout_s) as answer:
            return str(answer.read(), "utf-8")
    except (URLError, TimeoutError, ConnectionError):
        return None


def parse_query_reading(exposition: str) -> QueryReading | None:
    """Return the reading; None while the driver has no query."""
    values: dict[str, list[float]] = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            values.setdefault(sample.name, []).append(sample.value)
    if BATCHES.name not in values:
        return None
    lags = values.get(TOPIC_LAG.name)
    return QueryReading(
        batch_count=int(sum(values[BATCHES.name])),
        row_count=int(sum(values.get(ROWS.name, ()))),
        lag_records=None if lags is None else int(sum(lags)),
    )
