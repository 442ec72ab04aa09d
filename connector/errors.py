"""The error tree: every failure the connector raises, and who must act on it.

Spark shows a user the text of an error and nothing else, so each message stands alone: topic-partition,
offset, node and the name of Kafka's error code are in it. Errors cross process boundaries (executor to
driver), so each one pickles: all fields go to ``Exception.__init__`` and ``__str__`` builds the text.

Who must act: the operator (`ConfigError`, `AuthFailed`), nobody (``retriable``), a developer
(`LocalViolation`), the owner of the data (`DataLossError`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
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
    "LogTruncated",
    "LossReason",
    "OffsetsAgedOut",
    "ProtocolViolation",
    "RangeTimedOut",
    "RecordDecodeError",
    "RemoteViolation",
    "RequestTimedOut",
    "SourceOffsetError",
    "TopicDeleted",
    "TopicRecreated",
    "TransportError",
    "UnsupportedApi",
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


class UnsupportedApi(RemoteViolation):
    """A broker is too old, or too new, for a request: the two sides share no version of it."""

    retriable = False


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


class LossReason(StrEnum):
    """Why records are gone, as metrics name it."""

    AGED_OUT = "aged_out"
    TRUNCATED = "truncated"
    TOPIC_RECREATED = "topic_recreated"
    TOPIC_DELETED = "topic_deleted"


class DataLossError(ConnectorError):
    """Records that the query planned to read are gone. `failOnDataLoss` governs what happens then."""

    reason: ClassVar[LossReason]


class OffsetsAgedOut(DataLossError):
    """The wanted offset lies before the log's start: retention or delete-records was faster than the query."""

    reason = LossReason.AGED_OUT

    def __init__(self, topic_partition: str, fetch_offset: int, log_start_offset: int, node: str) -> None:
        super().__init__(topic_partition, fetch_offset, log_start_offset, node)
        self.topic_partition = topic_partition
        self.fetch_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.node = node

    def __str__(self) -> str:
        """Return the wanted offset, where the log begins, and what to do."""
        return (
            f"{self.topic_partition}: offset {self.fetch_offset} was deleted before it was read (retention or "
            f"delete-records); at the leader, broker {self.node}, the log begins at {self.log_start_offset}. "
            "Give the topic a longer retention, and set failOnDataLoss to false to go on without the lost records."
        )


class LogTruncated(DataLossError):
    """The log lost its end, and with it records that were read or planned (unclean leader election; KIP-320).

    Attributes
    ----------
    divergent_offset : int
        Where the log ends that the query was planned on, or where another history begins; -1 when unknown.
    expected_epoch : int
        Leader epoch of the record before `fetch_offset`; -1 when unknown.
    """

    reason = LossReason.TRUNCATED

    def __init__(
        self, topic_partition: str, fetch_offset: int, divergent_offset: int, expected_epoch: int, node: str
    ) -> None:
        super().__init__(topic_partition, fetch_offset, divergent_offset, expected_epoch, node)
        self.topic_partition = topic_partition
        self.fetch_offset = fetch_offset
        self.divergent_offset = divergent_offset
        self.expected_epoch = expected_epoch
        self.node = node

    def __str__(self) -> str:
        """Return the position, where the histories part, and what to do."""
        where = "at an offset that it does not tell" if self.divergent_offset < 0 else f"at {self.divergent_offset}"
        epoch = "" if self.expected_epoch < 0 else f" (leader epoch {self.expected_epoch})"
        return (
            f"{self.topic_partition}: the log was truncated before offset {self.fetch_offset}{epoch}: at the leader, "
            f"broker {self.node}, what was there ends {where}. An unclean leader election does this, or a topic that "
            "was created anew. Start from a new checkpoint, or set failOnDataLoss to false to go on with what is there."
        )


class TopicRecreated(DataLossError):
    """A topic was deleted and created again: offsets of the old one mean nothing in the new one (KIP-516)."""

    reason = LossReason.TOPIC_RECREATED

    def __init__(self, topic: str, planned_id: str, found_id: str) -> None:
        super().__init__(topic, planned_id, found_id)
        self.topic = topic
        self.planned_id = planned_id
        self.found_id = found_id

    def __str__(self) -> str:
        """Return both ids, and what to do."""
        return (
            f"topic {self.topic} was deleted and created again (topic id {self.planned_id} was planned, brokers have "
            f"{self.found_id}): its offsets start over. Start from a new checkpoint."
        )


class TopicDeleted(DataLossError):
    """A topic that is being read does not exist any more."""

    reason = LossReason.TOPIC_DELETED

    def __init__(self, topic: str, missing_ms: int) -> None:
        super().__init__(topic, missing_ms)
        self.topic = topic
        self.missing_ms = missing_ms

    def __str__(self) -> str:
        """Return which topic, and for how long brokers did not know it."""
        return (
            f"topic {self.topic} was deleted while it was read: brokers have not known it for {self.missing_ms} ms. "
            "Take it out of the subscription, or create it and start from a new checkpoint."
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
