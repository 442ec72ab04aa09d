"""What a scrape of an executor shows: the slots of its folder, put together."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import Metric
from prometheus_client.registry import Collector

from connector.metrics.executor_folder import value_paths
from connector.metrics.value_file import read_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

__all__ = ["SlotCollector"]


class _Value(NamedTuple):
    """The merged value of a series; `time_s` is when a gauge was last set."""

    value: float
    time_s: float


class SlotCollector(Collector):
    """Counters are summed over the slots; of a gauge the value that was set last counts, until it expires.

    Expiry makes room for the truth: a topic-partition's preferred replica is written by whichever executor reads it,
    and the executor that read it before must stop claiming it.
    """

    def __init__(self, folder: Path, gauge_expiry_s: float, now_s: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._gauge_expiry_s = gauge_expiry_s
        self._now_s = now_s

    def collect(self) -> Iterable[Metric]:
        """Return the metric families of this moment."""
        counter_paths, gauge_paths = value_paths(self._folder)
        counters: dict[str, _Value] = {}
        for path in counter_paths:
            for key, value, time_s in read_values(path):
                held = counters.get(key)
                counters[key] = _Value(value if held is None else held.value + value, time_s)
        gauges: dict[str, _Value] = {}
        oldest_s = self._now_s() - self._gauge_expiry_s
        for path in gauge_paths:
            for key, value, time_s in read_values(path):
                held = gauges.get(key)
                if time_s > oldest_s and (held is None or held.time_s < time_s):
                    gauges[key] = _Value(value, time_s)
        return [*_families("counter", counters), *_families("gauge", gauges)]


def _families(kind: str, series: dict[str, _Value]) -> Iterable[Metric]:
    families: dict[str, Metric] = {}
    for key, merged in series.items():
        family_name, name, labels, help_text = json.loads(key)
        family = families.get(family_name)
        if family is None:
            family = families[family_name] = Metric(family_name, help_text, kind)
        family.add_sample(name, labels, merged.value)
    return families.values()
