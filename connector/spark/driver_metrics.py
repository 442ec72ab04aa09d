"""The driver's ``/metrics``: batch durations, rows and lag of every streaming query of a session.

It needs nothing of the connector's data source, so that any job can attach it, also one that reads Spark's own
`kafka` source.
"""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, start_http_server
from pyspark.sql.streaming.listener import StreamingQueryListener

from connector.errors import ConfigError, ConfigProblem
from connector.metrics.address import metrics_url
from connector.metrics.progress import parse_progress, query_label
from connector.metrics.query_collector import QueryCollector

if TYPE_CHECKING:
    from uuid import UUID

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

__all__ = ["DriverMonitor", "monitor"]

_open_monitors: Final[dict[SparkSession, DriverMonitor]] = {}
_open_monitors_lock: Final = threading.Lock()


def monitor(spark: SparkSession, *, host: str = "0.0.0.0", port: int = 0) -> DriverMonitor:  # noqa: S104 - scraped
    """Serve the metrics of a session's streaming queries, those that run already too.

    Parameters
    ----------
    spark : SparkSession
        Each session has its own queries. One that is monitored already keeps its monitor, which is returned.
    host : str
        Address to bind. By default all, as Spark does for its UI: Prometheus scrapes from another machine.
    port : int
        Port to bind; 0 is any free one, see `DriverMonitor.port`.

    Raises
    ------
    ConfigError
        The port is taken, or the session's open monitor serves another address.
    OSError
        The address can't be bound for another reason.
    """
    with _open_monitors_lock:
        held = _open_monitors.get(spark)
        if held is None:
            held = _open_monitors[spark] = DriverMonitor(spark, host, port)
        elif held.host != host or port not in (0, held.port):
            reason = f"this session's metrics are served at {held.host}:{held.port}; close that monitor first"
            raise ConfigError((ConfigProblem("monitor", f"{host}:{port}", reason),))
        return held


class DriverMonitor:
    """An attached listener and the endpoint that shows what it heard; made by `monitor`.

    Attributes
    ----------
    registry : CollectorRegistry
        What is served; an app may register collectors of its own.
    host, port : str, int
        What is bound.
    """

    def __init__(self, spark: SparkSession, host: str, port: int) -> None:
        self._spark = spark
        collector = QueryCollector()
        self.registry = CollectorRegistry()
        self.registry.register(collector)
        self.host = host
        self._listener = _ProgressListener(collector)
        spark.streams.addListener(self._listener)
        try:
            self._server, self._thread = start_http_server(port, host, self.registry)
        except OSError as error:
            spark.streams.removeListener(self._listener)
            if error.errno != errno.EADDRINUSE:
                raise
            reason = "is taken; close the monitor of the former session, or choose another port (0 is any free one)"
            raise ConfigError((ConfigProblem("monitor", f"{host}:{port}", reason),)) from error
        self.port: int = self._server.server_port

    @property
    def url(self) -> str:
        """The address to look at from this machine."""
        return metrics_url(self.host, self.port)

    def close(self) -> None:
        """Stop serving and listening. Closing twice does no harm."""
        with _open_monitors_lock:
            if _open_monitors.get(self._spark) is not self:
                return
            del _open_monitors[self._spark]
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._spark.streams.removeListener(self._listener)


class _ProgressListener(StreamingQueryListener):
    """Hands Spark's events to the collector. Spark calls it from a thread of its own, in order."""

    def __init__(self, collector: QueryCollector) -> None:
        self._collector = collector
        self._labels: dict[UUID, str] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Note the query's name, which the event of its end does not carry."""
        self._labels[event.runId] = query_label(event.name, event.id)
        self._collector.on_started(self._labels[event.runId])

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Add a report. The query may have been started before we listened."""
        facts = parse_progress(event.progress.json)
        self._labels[event.progress.runId] = facts.query
        self._collector.on_progress(facts)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing happened."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Drop the query's gauges."""
        label = self._labels.pop(event.runId, None)
        if label is not None:
            self._collector.on_terminated(label)
