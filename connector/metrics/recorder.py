"""Where measured facts go: the interface that `connector.net` writes to, and the recorder that drops everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from connector.metrics.catalog import MetricSpec

__all__ = ["NullRecorder", "Recorder"]


class Recorder(Protocol):
    """Takes facts, about one call per Fetch reply: cheap, thread-safe, and never in the way of reading.

    Label values are strings, in the order of `MetricSpec.labels`.
    """

    def count(self, spec: MetricSpec, amount: float, /, *label_values: str) -> None:
        """Add `amount` (0 or more) to a counter; 0 makes its series exist, so that its first increase is seen."""

    def gauge(self, spec: MetricSpec, value: float, /, *label_values: str) -> None:
        """Set a gauge. Set it again while it holds: one that is not refreshed expires, unless `spec.lasting`."""


class NullRecorder:
    """A recorder for where there is no endpoint."""

    def count(self, spec: MetricSpec, amount: float, /, *label_values: str) -> None:
        """Do nothing."""

    def gauge(self, spec: MetricSpec, value: float, /, *label_values: str) -> None:
        """Do nothing."""
