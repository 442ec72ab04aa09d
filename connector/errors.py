"""The error tree: every failure the connector raises, and who must act on it.

Spark shows a user the text of an error and nothing else, so each message stands alone: topic-partition,
offset, node and the name of Kafka's error code are in it. Errors cross process boundaries (executor to
driver), so each one pickles: all fields go to ``Exception.__init__`` and ``__str__`` builds the text.

Who must act: the operator (`ConfigError`, `AuthFailed`), nobody (``retriable``), a developer
(`LocalViolation`), the owner of the data (`DataLossError`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

__all__ = [
    "AuthFailed",
    "BrokerError",
    "ConfigError",
    "ConfigProblem",
    "ConnectFailed",
    "ConnectionLost",
    "ConnectorError",
    "CorruptBatch",
    "DataLossError",
    "KernelMissing",
    "LocalViolation",
    "OffsetOutOfRange",
    "ProtocolViolation",
    "RangeTimedOut",
    "RecordDecodeError",
    "RemoteViolation",
    "RequestTimedOut",
    "SourceOffsetError",
    "TransportError",
    "UnsupportedFeature",
]


class ConnectorError(Exception):
    """Base of every error raised by the connector on purpose; anything else is a bug."""

    retriable: ClassVar[bool] = False
    """Trying again, unchanged, may succeed."""
    refresh_metadata: ClassVar[bool] = False
    """The view of the cluster that led here is stale."""


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One thing wrong with the options: which, what was given (never a secret), and why it is refused."""

    option: str
    given: str | None
    reason: str

    def __str__(self) -> str:
        """Return one line for the list of problems."""
        given = "" if self.given is None else f" = {self.given!r}"
        return f"{self.option}{given}: {self.reason}"


class ConfigError(ConnectorError, ValueError):
    """The options can't be used. The operator must change them; all problems are listed at once."""

    def __init__(self, problems: tuple[ConfigProblem, ...]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        """Return all problems, one a line."""
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        return f"kafka_follower can't use these options:\n{lines}"


class SourceOffsetError(ConnectorError, ValueError):
    """A source offset (Spark's JSON, from a checkpoint) can't be read or doesn't fit the query."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class TransportError(ConnectorError):
    """A connection to a broker could not be made, broke, or stayed silent."""

    retriable = True
    refresh_metadata = True

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(node, reason)
        self.node = node
        self.reason = reason

    def __str__(self) -> str:
        """Return what failed and at which broker."""
        return f"broker {self.node}: {self.reason}"


class ConnectFailed(TransportError):
    """No connection: wrong address, a broker that is down, or a closed network path."""


class ConnectionLost(TransportError):
    """The broker closed the connection, or it broke, while a request was under way."""


class RequestTimedOut(TransportError):
    """The broker accepted the connection but did not answer in time."""


class AuthFailed(TransportError):
    """The broker refused the credentials. The operator must change them."""

    retriable = False
    refresh_metadata = False


class BrokerError(ConnectorError):
    """A broker answered with an error code that retries did not cure."""

    def __init__(self, code: int, code_name: str, subject: str, node: str, advice: str = "") -> None:
        super().__init__(code, code_name, subject, node, advice)
        self.code = code
        self.code_name = code_name
        self.subject = subject
        self.node = node
        self.advice = advice

    def __str__(self) -> str:
        """Return the code's name, what was asked, of whom, and what to do."""
        advice = f" {self.advice}" if self.advice else ""
        return f"{self.subject}: broker {self.node} answered {self.code_name} ({self.code}).{advice}"


class ProtocolViolation(ConnectorError):
    """The protocol was broken, by us or by the broker."""


class LocalViolation(ProtocolViolation):
    """We broke the protocol or an invariant of our own. A developer must act: please report it."""


class RemoteViolation(ProtocolViolation):
    """A broker sent a malformed answer, or one that was not asked for."""

    retriable = True


class RecordDecodeError(ConnectorError):
    """Records of a topic-partition can't be turned into rows."""

    def __init__(self, topic_partition: str, base_offset: int, byte_position: int, reason: str) -> None:
        super().__init__(topic_partition, base_offset, byte_position, reason)
        self.topic_partition = topic_partition
        self.base_offset = base_offset
        self.byte_position = byte_position
        self.reason = reason

    def __str__(self) -> str:
        """Return where the record batch stands and what is wrong with it."""
        return (
            f"{self.topic_partition}: record batch at offset {self.base_offset} "
            f"(byte {self.byte_position} of the fetched records): {self.reason}"
        )


class CorruptBatch(RecordDecodeError):
    """A record batch fails its checksum or contradicts itself."""


class UnsupportedFeature(RecordDecodeError):
    """A record batch uses something this version does not read; it is refused, never read wrongly."""


class KernelMissing(ConnectorError, ImportError):
    """The compiled record loop is not there. Whoever installed the connector must build it."""

    def __init__(self, module: str, found: str) -> None:
        super().__init__(module, found)
        self.module = module
        self.found = found

    def __str__(self) -> str:
        """Return what is missing, what was found in its place, and how to build it."""
        return (
            f"{self.module} is not compiled for this Python ({self.found}). Install the wheel of "
            "spark-kafka-follower, or build it in a checkout with `make setup` (needs a C compiler)."
        )


class DataLossError(ConnectorError):
    """Records that the query planned to read are gone. `failOnDataLoss` governs what happens then."""


class OffsetOutOfRange(DataLossError):
    """The leader does not hold the wanted offset: aged out, truncated, or beyond the log's end."""

    def __init__(
        self,
        topic_partition: str,
        fetch_offset: int,
        node: str,
        log_start_offset: int,
        log_end_offset: int,
    ) -> None:
        super().__init__(topic_partition, fetch_offset, node, log_start_offset, log_end_offset)
        self.topic_partition = topic_partition
        self.fetch_offset = fetch_offset
        self.node = node
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset

    def __str__(self) -> str:
        """Return the wanted offset, what the leader holds, and what it means."""
        held = f"the leader, broker {self.node}, holds offsets {self.log_start_offset} to {self.log_end_offset}"
        if 0 <= self.fetch_offset < self.log_start_offset:
            cause = "they were deleted before they were read (retention or delete-records)"
        elif self.fetch_offset > self.log_end_offset >= 0:
            cause = "the log is shorter than it was (truncated, or the topic was deleted and created again)"
        else:
            cause = "it came back into range only after the fetch was refused"
        return (
            f"{self.topic_partition}: offset {self.fetch_offset} can't be read, {held}: {cause}. "
            "Start from offsets that exist, or from a new checkpoint."
        )


class RangeTimedOut(ConnectorError):
    """A planned range made no progress within the allowed time, whichever replica was asked."""

    def __init__(
        self, topic_partition: str, fetch_offset: int, end_offset: int, waited_ms: int, last_problem: str
    ) -> None:
        super().__init__(topic_partition, fetch_offset, end_offset, waited_ms, last_problem)
        self.topic_partition = topic_partition
        self.fetch_offset = fetch_offset
        self.end_offset = end_offset
        self.waited_ms = waited_ms
        self.last_problem = last_problem

    def __str__(self) -> str:
        """Return the position that is stuck, for how long, and the last thing that went wrong."""
        return (
            f"{self.topic_partition}: no progress at offset {self.fetch_offset} (range ends at {self.end_offset}) "
            f"for {self.waited_ms} ms; last problem: {self.last_problem}. "
            "Check that the partition's leader is up and reachable from the executors."
        )
