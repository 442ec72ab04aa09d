"""Stop a query between two micro-batches when the process is asked to end.

Who hears the request depends on who was started. Under ``spark-submit`` SIGTERM reaches the JVM alone: Python is its
child and never sees the signal, and a JVM that goes down takes the running micro-batch with it. So a Java ``Runnable``
that calls back into Python stands in Hadoop's ``ShutdownHookManager``, in front of Spark's own hook (priority 1000
against 50), and holds the JVM until the job has ended. Where Python itself was started, or where a terminal's Ctrl-C
reaches both, ordinary signal handlers ask for the same. Either way the micro-batch that runs commits, and the next run
goes on after it.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable
from enum import Enum, auto
from types import FrameType, TracebackType
from typing import Any, Final, Protocol, Self

from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["HOOK_PRIORITY", "HOOK_SLACK_S", "BatchedQuery", "GracefulStop", "StopOutcome", "stop_between_batches"]

HOOK_PRIORITY: Final = 1000
"""Hadoop runs the highest first; Spark stops its context at 50."""
HOOK_SLACK_S: Final = 30.0
"""How much longer the JVM waits than the micro-batch may take: time to close what the job holds open."""

_POLL_S: Final = 0.05
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

_log = logging.getLogger(__name__)


class BatchedQuery(Protocol):
    """What `stop_between_batches` needs of a ``StreamingQuery``."""

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        """Whether the query still runs."""
        ...

    @property
    def status(self) -> dict[str, Any]:
        """With ``isTriggerActive``: whether a trigger runs, from planning to commit."""
        ...

    @property
    def lastProgress(self) -> Any:  # noqa: N802, ANN401 - Spark's name, and its type differs by version
        """The progress of the latest finished trigger that had something to tell; None before the first."""
        ...

    def stop(self) -> None:
        """End the query; a micro-batch that runs is given up."""
        ...


class StopOutcome(Enum):
    """How a stop ended."""

    ENDED_BY_ITSELF = auto()
    BETWEEN_BATCHES = auto()
    GAVE_UP_BATCH = auto()


def stop_between_batches(query: BatchedQuery, timeout_s: float) -> StopOutcome:
    """Let the trigger that runs finish, then stop the query.

    Spark publishes a trigger's progress, and calls it inactive, only after its micro-batch is in the commit log. A
    trigger that begins between that and the stop is given up before it commits; the next run reads its rows again.

    Parameters
    ----------
    query
        May end by itself meanwhile, well or badly: whoever awaits it hears of that.
    timeout_s
        How long to wait for the trigger; afterwards its micro-batch is given up.
    """
    deadline_s = time.monotonic() + timeout_s
    seen = _latest_trigger(query)
    while query.isActive and query.status["isTriggerActive"] and _latest_trigger(query) == seen:
        if time.monotonic() >= deadline_s:
            query.stop()
            return StopOutcome.GAVE_UP_BATCH
        time.sleep(_POLL_S)
    if not query.isActive:
        return StopOutcome.ENDED_BY_ITSELF
    query.stop()
    return StopOutcome.BETWEEN_BATCHES


def _latest_trigger(query: BatchedQuery) -> tuple[int, str] | None:
    progress = query.lastProgress
    return None if progress is None else (progress.batchId, progress.timestamp)


class GracefulStop:
    """For as long as this context is open, a request to end the process stops the query between two micro-batches.

    Leave it last: the JVM, when it is the one that was asked, stays up until this context closes. Enter it on the main
    thread, where Python allows signal handlers.

    Parameters
    ----------
    spark
        The session whose JVM is to wait. Classic Spark: a Connect client has no JVM to hold.
    timeout_s
        How long the micro-batch that runs may take to commit.
    """

    def __init__(self, spark: SparkSession, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._hook = _JvmHook(spark, self._on_jvm_shutdown, timeout_s + HOOK_SLACK_S)
        self._previous: dict[signal.Signals, Any] = {}
        self._asked = threading.Event()
        self._closed = threading.Event()
        self._asker = ""
        self._jvm_call: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Start listening to signals and to the JVM."""
        self._hook.add()
        for number in _SIGNALS:
            self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the signals back, and let the JVM go."""
        for number, previous in self._previous.items():
            signal.signal(number, previous)
        self._hook.remove()
        self._closed.set()
        if self._jvm_call is not None:
            # Its answer leaves after `_on_jvm_shutdown` returns; were Python gone by then, the JVM would log a failed
            # hook. The thread serves that one connection, so it ends when the JVM does.
            self._jvm_call.join(HOOK_SLACK_S)

    def await_end(self, query: StreamingQuery) -> None:
        """Block until the query has ended: by itself, or because this process was asked to end.

        Raises
        ------
        pyspark.errors.StreamingQueryException
            The query failed.
        """
        stopper = threading.Thread(target=self._stop_when_asked, args=(query,), name="graceful-stop", daemon=True)
        stopper.start()
        try:
            query.awaitTermination()
        except StreamingQueryException:
            self._end(stopper)
            raise
        self._end(stopper)

    def _end(self, stopper: threading.Thread) -> None:
        """Let the stopper see that the query has ended. After a second Ctrl-C it has not, and nobody waits for it."""
        self._asked.set()
        stopper.join()

    def _stop_when_asked(self, query: BatchedQuery) -> None:
        self._asked.wait()
        if self._asker:
            _log.info("%s: the running micro-batch has %.0f s to commit.", self._asker, self._timeout_s)
        outcome = stop_between_batches(query, self._timeout_s)
        if outcome is StopOutcome.BETWEEN_BATCHES:
            _log.info("The query stopped between two micro-batches; the next run goes on here.")
        elif outcome is StopOutcome.GAVE_UP_BATCH:
            _log.warning("The micro-batch did not commit in time and was given up; the next run reads its rows again.")

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a handler's form
        self._asker = signal.Signals(number).name
        signal.signal(number, self._previous[signal.Signals(number)])  # asked twice, the process ends at once
        self._asked.set()

    def _on_jvm_shutdown(self) -> None:
        self._jvm_call = threading.current_thread()
        self._asker = self._asker or "The JVM was asked to end"
        self._asked.set()
        self._closed.wait(self._timeout_s + HOOK_SLACK_S)


class _Callback:
    """A Python function as a ``java.lang.Runnable``; called on a thread of Py4J's callback server."""

    class Java:  # how Py4J learns which interface to build
        implements = ("java.lang.Runnable",)

    def __init__(self, function: Callable[[], None]) -> None:
        self.run = function


class _JvmHook:
    """One entry in Hadoop's ``ShutdownHookManager``, which runs hooks by priority before the JVM ends.

    Counterpart: ``org.apache.hadoop.util.ShutdownHookManager``. It keeps hooks in a hash set and removes them by
    identity. A Py4J proxy would have to answer ``hashCode``, ``equals`` and ``toString`` from Python, and could never
    be removed, since a new one is made each time a Python object crosses over. So the hook is a Java object that holds
    the proxy: a thread that is never started.
    """

    def __init__(self, spark: SparkSession, function: Callable[[], None], timeout_s: float) -> None:
        self._timeout_s = timeout_s
        gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - there is no public way to a Java class
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]  # pyspark leaves it untyped
        self._jvm: Any = gateway.jvm
        self._manager = self._jvm.org.apache.hadoop.util.ShutdownHookManager.get()
        self._thread = self._jvm.java.lang.Thread(_Callback(function), "graceful-stop")

    def add(self) -> None:
        seconds = self._jvm.java.util.concurrent.TimeUnit.SECONDS
        self._manager.addShutdownHook(self._thread, HOOK_PRIORITY, int(self._timeout_s), seconds)

    def remove(self) -> None:
        if self._manager.isShutdownInProgress():
            return
        with contextlib.suppress(Py4JJavaError):  # the shutdown began since the line above: IllegalStateException
            self._manager.removeShutdownHook(self._thread)
