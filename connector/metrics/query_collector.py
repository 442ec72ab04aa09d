"""The driver's metrics: what the progress reports of its queries add up to.

prometheus-client's own metric classes are not used, since they write to the user's files when the user has set
``PROMETHEUS_MULTIPROC_DIR``, and can't take series away then.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client.core import Metric
from prometheus_client.metrics_core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from connector.metrics.catalog import BATCH_DURATION, BATCHES, LAST_COMMIT, ROWS, TOPIC_LAG, MetricSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from connector.metrics.progress import BatchFacts

__all__ = ["QueryCollector"]

_ENDED_QUERY_LIMIT: Final = 100


class QueryCollector(Collector):
    """Holds the metrics of the driver's queries. Thread-safe.

    Counters of an ended query stay, so that they never fall when it is started again; of the ended ones only the
    last `_ENDED_QUERY_LIMIT` are kept, since queries without a name have a new id with every checkpoint.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, _Query] = {}
        self._ended: dict[str, None] = {}

    def on_started(self, query: str) -> None:
        """Begin a query's series at 0."""
        with self._lock:
            self._running(query)

    def on_progress(self, facts: BatchFacts) -> None:
        """Add one report."""
        with self._lock:
            held = self._running(facts.query)
            held.lag_by_topic = facts.lag_by_topic
            if not facts.is_executed:
                return
            held.batch_count += 1
            held.row_count += facts.row_count
            held.last_commit_s = facts.finished_at_s
            for phase, duration_ms in facts.phase_durations_ms.items():
                held.durations.setdefault(phase, _Durations()).add(duration_ms / 1000)

    def on_terminated(self, query: str) -> None:
        """Drop the gauges of a query that ended: they describe what is no more."""
        with self._lock:
            held = self._queries.get(query)
            if held is None:
                return
            held.lag_by_topic = {}
            held.last_commit_s = None
            self._ended[query] = None
            if len(self._ended) > _ENDED_QUERY_LIMIT:
                oldest = next(iter(self._ended))
                del self._ended[oldest], self._queries[oldest]

    def collect(self) -> Iterable[Metric]:
        """Return the metric families of this moment."""
        rows, batches, lag, commits = map(_family, (ROWS, BATCHES, TOPIC_LAG, LAST_COMMIT))
        durations = HistogramMetricFamily(BATCH_DURATION.name, BATCH_DURATION.help, labels=BATCH_DURATION.labels)
        with self._lock:
            for query, held in self._queries.items():
                _add(rows, ROWS, held.row_count, query)
                _add(batches, BATCHES, held.batch_count, query)
                for topic, lag_records in held.lag_by_topic.items():
                    _add(lag, TOPIC_LAG, lag_records, query, topic)
                if held.last_commit_s is not None:
                    _add(commits, LAST_COMMIT, held.last_commit_s, query)
                for phase, observed in held.durations.items():
                    durations.add_metric([query, phase], observed.cumulative_buckets(), observed.sum_s)
        return [rows, batches, lag, commits, durations]

    def _running(self, query: str) -> _Query:
        self._ended.pop(query, None)
        return self._queries.setdefault(query, _Query())


class _Query:
    """The numbers of one query."""

    def __init__(self) -> None:
        self.row_count = 0
        self.batch_count = 0
        self.last_commit_s: float | None = None
        self.lag_by_topic: dict[str, int] = {}
        self.durations: dict[str, _Durations] = {}


class _Durations:
    """The histogram of one phase."""

    def __init__(self) -> None:
        self.sum_s = 0.0
        self._counts = [0] * (len(BATCH_DURATION.buckets) + 1)

    def add(self, duration_s: float) -> None:
        """Count a duration in the first bucket whose upper bound it does not pass."""
        self.sum_s += duration_s
        self._counts[bisect_left(BATCH_DURATION.buckets, duration_s)] += 1

    def cumulative_buckets(self) -> list[tuple[str, float]]:
        """Return upper bounds and how many durations were at most that long."""
        bounds = [*map(floatToGoString, BATCH_DURATION.buckets), "+Inf"]
        return list(zip(bounds, accumulate(self._counts), strict=True))


def _family(spec: MetricSpec) -> Metric:
    return Metric(spec.family, spec.help, spec.kind)


def _add(family: Metric, spec: MetricSpec, value: float, *label_values: str) -> None:
    family.add_sample(spec.name, dict(zip(spec.labels, label_values, strict=True)), value)
