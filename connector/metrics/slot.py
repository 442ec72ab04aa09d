"""A worker's place in its executor's folder, and the recorder that writes there.

Spark starts and ends Python workers all the time. Were files named after them, series would grow without bound, and a
counter would fall whenever a file went. So a worker takes the lowest free slot and continues the counters that it
finds: there are never more slots than workers ran at once, and a sum over all slots never falls.
"""

from __future__ import annotations

import fcntl
import itertools
import logging
import math
import os
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal

from connector.errors import LocalViolation
from connector.metrics.executor_folder import counter_path, gauge_path
from connector.metrics.value_file import ValueFile, series_key

if TYPE_CHECKING:
    from pathlib import Path

    from connector.metrics.catalog import MetricSpec

__all__ = ["SlotRecorder"]

logger = logging.getLogger(__name__)


class SlotRecorder:
    """Records into the lowest slot of a folder that no living process holds. Thread-safe.

    Raises
    ------
    OSError
        The folder is gone, full or unreadable.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self._slot, self._slot_descriptor = _take_slot(folder)
        self._counter_path = counter_path(folder, self._slot)
        with ExitStack() as undo:
            undo.callback(os.close, self._slot_descriptor)
            self._counters = ValueFile(self._counter_path)
            undo.callback(self._counters.close)
            self._gauges = ValueFile(gauge_path(folder, self._slot))
            undo.pop_all()
        self._counts: dict[tuple[str, tuple[str, ...]], _Count] = {}
        self._gauge_keys: dict[tuple[str, tuple[str, ...]], str] = {}
        self._is_closed = False
        self._warned = False

    @property
    def slot(self) -> int:
        """The number of the slot."""
        return self._slot

    def is_current(self) -> bool:
        """Return whether the files are still where the exporter looks; someone may have emptied the folder."""
        try:
            return os.path.samestat(self._counter_path.stat(), os.fstat(self._slot_descriptor))
        except FileNotFoundError:
            return False

    def count(self, spec: MetricSpec, amount: float, /, *label_values: str) -> None:
        """Add to a counter; see `Recorder.count`."""
        if amount < 0:
            raise LocalViolation(f"{spec.name} can't be counted by {amount}: a counter never falls")
        with self._lock:
            series = self._counts.get((spec.name, label_values)) or self._open_count(spec, label_values)
            if series is not None:
                series.value += amount
                self._counters.write(series.key, series.value, 0.0)

    def gauge(self, spec: MetricSpec, value: float, /, *label_values: str) -> None:
        """Set a gauge; see `Recorder.gauge`."""
        with self._lock:
            key = self._gauge_keys.get((spec.name, label_values)) or self._open_gauge(spec, label_values)
            if key is not None:
                self._gauges.write(key, value, math.inf if spec.lasting else time.time())

    def close(self) -> None:
        """Free the slot; the values stay and the next worker continues them. Later facts are dropped."""
        with self._lock:
            self._release()

    def abandon_in_child(self) -> None:
        """Let go after a fork: the slot is the parent's, and a copy of its descriptor would keep it taken.

        The lock may be held by a thread that does not exist in the child, so a new one replaces it.
        """
        self._lock = threading.Lock()
        self._release()

    def _release(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._counts.clear()
            self._gauge_keys.clear()
            self._counters.close()
            self._gauges.close()
            os.close(self._slot_descriptor)

    def _open_count(self, spec: MetricSpec, label_values: tuple[str, ...]) -> _Count | None:
        key = self._added_key(self._counters, "counter", spec, label_values)
        if key is None:
            return None
        series = self._counts[spec.name, label_values] = _Count(key, self._counters.add(key))
        return series

    def _open_gauge(self, spec: MetricSpec, label_values: tuple[str, ...]) -> str | None:
        key = self._added_key(self._gauges, "gauge", spec, label_values)
        if key is not None:
            self._gauge_keys[spec.name, label_values] = key
        return key

    def _added_key(
        self, file: ValueFile, kind: Literal["counter", "gauge"], spec: MetricSpec, label_values: tuple[str, ...]
    ) -> str | None:
        """Give a series its entry in the file; None when it has no place, which is said once and only costs it."""
        if spec.kind != kind or len(spec.labels) != len(label_values):
            raise LocalViolation(f"{spec.name}{spec.labels} is a {spec.kind}; recorded as {kind} with {label_values}")
        if self._is_closed:
            return None
        key = series_key(spec.family, spec.name, spec.labels, label_values, spec.help)
        try:
            file.add(key)
        except OSError as error:
            if not self._warned:
                self._warned = True
                logger.warning("no room for further metrics of this worker, reading goes on: %s", error)
            return None
        return key


class _Count:
    """A counter's key in the file, and its value."""

    __slots__ = ("key", "value")

    def __init__(self, key: str, value: float) -> None:
        self.key = key
        self.value = value


def _take_slot(folder: Path) -> tuple[int, int]:
    """Lock the lowest free slot; return its number, and the descriptor that holds it until it is closed."""
    for slot in itertools.count():
        descriptor = os.open(counter_path(folder, slot), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        return slot, descriptor
    raise AssertionError("itertools.count never ends")
