"""Bytes by executor rack and broker rack: told by executors' counters, and by brokers' own request logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from connector.metrics.catalog import FETCH_BYTES, RACK_INFO
from streaming_app.local.request_log import ServedFetch

__all__ = ["RackBytes", "counted_bytes", "leader_only_bytes", "served_bytes"]


@dataclass(frozen=True, slots=True)
class RackBytes:
    """Record bytes by (executor rack, broker rack); an unknown rack is the empty text."""

    by_racks: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def total_bytes(self) -> int:
        """All of them."""
        return sum(self.by_racks.values())

    @property
    def local_bytes(self) -> int:
        """Those that did not leave the executor's rack."""
        return sum(bytes_ for (own, other), bytes_ in self.by_racks.items() if own and own == other)

    @property
    def local_ratio(self) -> float:
        """Local share, 0 to 1; 0 when nothing was read."""
        return self.local_bytes / self.total_bytes if self.total_bytes else 0.0


def counted_bytes(expositions: Iterable[str], topic: str) -> RackBytes:
    """Add up the counters of executors.

    Parameters
    ----------
    expositions
        One scrape of each executor's ``/metrics``.
    topic
        Only bytes of this one count.
    """
    sums: dict[tuple[str, str], int] = {}
    for exposition in expositions:
        own_rack = ""
        read: dict[str, int] = {}
        for family in text_string_to_metric_families(exposition):
            for sample in family.samples:
                if sample.name == RACK_INFO.name:
                    own_rack = sample.labels["rack"]
                elif sample.name == FETCH_BYTES.name and sample.labels["topic"] == topic:
                    broker_rack = sample.labels["broker_rack"]
                    read[broker_rack] = read.get(broker_rack, 0) + int(sample.value)
        for broker_rack, bytes_ in read.items():
            sums[own_rack, broker_rack] = sums.get((own_rack, broker_rack), 0) + bytes_
    return RackBytes(sums)


def served_bytes(fetches: Iterable[ServedFetch]) -> RackBytes:
    """Add up what brokers logged, by the rack that each request named and the rack of the broker that answered it."""
    return _sum((fetch.client_rack, fetch.broker_rack, fetch.record_bytes) for fetch in fetches)


def leader_only_bytes(fetches: Iterable[ServedFetch], leader_racks: Mapping[int, str]) -> RackBytes:
    """Return what the same reads would have been, had each partition been read from its leader.

    That is what a consumer does which names no rack of its own, and Spark's own source can name one rack for all
    executors at most.

    Parameters
    ----------
    fetches
        What the executors read, and with it which executor read which partition.
    leader_racks
        Rack of each partition's leader.
    """
    return _sum((fetch.client_rack, leader_racks[fetch.partition], fetch.record_bytes) for fetch in fetches)


def _sum(reads: Iterable[tuple[str, str, int]]) -> RackBytes:
    sums: dict[tuple[str, str], int] = {}
    for own_rack, broker_rack, bytes_ in reads:
        sums[own_rack, broker_rack] = sums.get((own_rack, broker_rack), 0) + bytes_
    return RackBytes(sums)
