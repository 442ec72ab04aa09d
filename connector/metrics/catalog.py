"""Every metric of the connector, declared once, as data.

Names follow Prometheus: base units as suffixes, `_total` on counters, `_info` on constant facts. Labels are bounded:
configured topics, racks of the cluster, fixed lists; never an offset, a client id or a process id.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal

from connector.errors import LossReason
from connector.model import ReplicaChange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "BATCHES",
    "BATCH_DURATION",
    "CATALOG",
    "DRIVER_METRICS",
    "EXECUTOR_METRICS",
    "FETCH_BYTES",
    "FETCH_RECORDS",
    "FETCH_REQUESTS",
    "LAST_COMMIT",
    "Locality",
    "MetricSpec",
    "PREFERRED_READ_REPLICA",
    "RACK_INFO",
    "READ_REPLICA_CHANGES",
    "ROWS",
    "SKIPPED_OFFSETS",
    "RequestOutcome",
    "TOPIC_LAG",
    "locality_of",
    "starting_series",
]


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric.

    Attributes
    ----------
    name : str
        As Prometheus shows it.
    kind : str
        Histograms exist only on the driver; executors count and set.
    labels : tuple of str
        In the order in which a recorder is given their values.
    help : str
        One sentence.
    unit : str
        The suffix that the name carries (before `_total`); empty for a value without a unit.
    lasting : bool
        A gauge that stays true while the executor lives, and so does not expire when nobody refreshes it.
    buckets : tuple of float
        Upper bounds of a histogram's buckets, ascending, without infinity.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    unit: str
    lasting: bool = False
    buckets: tuple[float, ...] = ()

    @property
    def family(self) -> str:
        """The name of the metric family: a counter's without `_total` (OpenMetrics)."""
        return self.name.removesuffix("_total") if self.kind == "counter" else self.name


class Locality(StrEnum):
    """Where a byte came from, seen from this executor."""

    LOCAL = "local"
    REMOTE = "remote"
    UNKNOWN = "unknown"


def locality_of(own_rack: str | None, broker_rack: str | None) -> Locality:
    """Compare the rack of the broker that served with ours; unknown when either has none."""
    if not own_rack or not broker_rack:
        return Locality.UNKNOWN
    return Locality.LOCAL if own_rack == broker_rack else Locality.REMOTE


class RequestOutcome(StrEnum):
    """What one Fetch request came to, as a whole."""

    DATA = "data"
    EMPTY = "empty"
    REDIRECT = "redirect"
    ERROR = "error"


FETCH_BYTES: Final = MetricSpec(
    "kafka_follower_fetch_bytes_total",
    "counter",
    ("topic", "broker_rack", "locality"),
    "Record bytes received from brokers, as on the wire (compressed).",
    "bytes",
)
FETCH_RECORDS: Final = MetricSpec(
    "kafka_follower_fetch_records_total",
    "counter",
    ("topic", "broker_rack", "locality"),
    "Records handed to Spark.",
    "records",
)
FETCH_REQUESTS: Final = MetricSpec(
    "kafka_follower_fetch_requests_total",
    "counter",
    ("broker_rack", "locality", "outcome"),
    "Fetch requests that were answered or failed.",
    "requests",
)
READ_REPLICA_CHANGES: Final = MetricSpec(
    "kafka_follower_read_replica_changes_total",
    "counter",
    ("reason",),
    "Times a topic-partition went on being read from another broker.",
    "changes",
)
SKIPPED_OFFSETS: Final = MetricSpec(
    "kafka_follower_skipped_offsets_total",
    "counter",
    ("topic", "reason"),
    "Offsets that were lost before they were read, and skipped because `failOnDataLoss` is false.",
    "offsets",
)
PREFERRED_READ_REPLICA: Final = MetricSpec(
    "kafka_follower_preferred_read_replica",
    "gauge",
    ("topic", "partition"),
    "Node id of the replica that the topic-partition is read from, -1 for the leader.",
    "",
)
RACK_INFO: Final = MetricSpec(
    "kafka_follower_rack_info",
    "gauge",
    ("rack", "source"),
    "Always 1: the rack that this executor names to brokers, and where it was found.",
    "info",
    lasting=True,
)

BATCH_DURATION: Final = MetricSpec(
    "kafka_follower_batch_duration_seconds",
    "histogram",
    ("query", "phase"),
    "Duration of the phases of a micro-batch, by the names of Spark's durationMs; triggerExecution is the whole.",
    "seconds",
    buckets=(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0),
)
ROWS: Final = MetricSpec(
    "kafka_follower_rows_total",
    "counter",
    ("query",),
    "Rows that the query's micro-batches read, from all its sources.",
    "rows",
)
BATCHES: Final = MetricSpec(
    "kafka_follower_batches_total",
    "counter",
    ("query",),
    "Micro-batches that the query finished.",
    "batches",
)
TOPIC_LAG: Final = MetricSpec(
    "kafka_follower_topic_lag_records",
    "gauge",
    ("query", "topic"),
    "Offsets between the end of the last micro-batch and the topic's end at that time, over all partitions.",
    "records",
)
LAST_COMMIT: Final = MetricSpec(
    "kafka_follower_last_commit_timestamp_seconds",
    "gauge",
    ("query",),
    "Time when the query's last micro-batch was finished, in seconds since 1970.",
    "seconds",
)

EXECUTOR_METRICS: Final = (
    FETCH_BYTES,
    FETCH_RECORDS,
    FETCH_REQUESTS,
    READ_REPLICA_CHANGES,
    SKIPPED_OFFSETS,
    PREFERRED_READ_REPLICA,
    RACK_INFO,
)
DRIVER_METRICS: Final = (BATCH_DURATION, ROWS, BATCHES, TOPIC_LAG, LAST_COMMIT)
CATALOG: Final = EXECUTOR_METRICS + DRIVER_METRICS


def starting_series(
    own_rack: str | None, broker_racks: Iterable[str | None], topics: Iterable[str]
) -> Iterator[tuple[MetricSpec, tuple[str, ...]]]:
    """Yield the counters' series that can be foreseen, to be counted with 0 before anything is read.

    A counter that is first seen above 0 hides its first increase, and a ratio such as "local share" is absent while
    one side of it has no series.

    Parameters
    ----------
    own_rack : str or None
        The rack of this executor.
    broker_racks : iterable of (str or None)
        The racks of the cluster's brokers, as Metadata tells them; repetitions do no harm.
    topics : iterable of str
        The topics that are about to be read.
    """
    for change in ReplicaChange:
        yield READ_REPLICA_CHANGES, (change,)
    topic_list = tuple(topics)
    for reason in LossReason:
        for topic in topic_list:
            yield SKIPPED_OFFSETS, (topic, reason)
    for broker_rack in dict.fromkeys(broker_racks):
        locality = locality_of(own_rack, broker_rack)
        for outcome in RequestOutcome:
            yield FETCH_REQUESTS, (broker_rack or "", locality, outcome)
        for topic in topic_list:
            yield FETCH_BYTES, (topic, broker_rack or "", locality)
            yield FETCH_RECORDS, (topic, broker_rack or "", locality)
