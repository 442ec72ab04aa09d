"""Options as Spark hands them over → one frozen `ConnectorConfig`, or every problem at once."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Final

from connector.config.options import CLIENT_REFUSALS, OPTIONS, SOURCE_REFUSALS, WITHOUT_EFFECT, OptionSpec
from connector.config.settings import (
    Assign,
    ClientConfig,
    ConnectorConfig,
    OffsetBound,
    PartitionOffsets,
    ReplicaSelection,
    SessionUse,
    Subscribe,
    Subscription,
    WholeLog,
)
from connector.errors import ConfigError, ConfigProblem
from connector.model import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    TopicPartition,
)

__all__ = ["parse_options"]

_SPECS: Final = {spec.name.lower(): spec for spec in OPTIONS}
_REFUSALS: Final = {name.lower(): (name, reason) for name, reason in (CLIENT_REFUSALS | SOURCE_REFUSALS).items()}
_WITHOUT_EFFECT: Final = frozenset(name.lower() for name in WITHOUT_EFFECT)
_TRUE_FALSE: Final = {"true": True, "false": False}
_ISOLATION_LEVELS: Final = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
_NEAR_RATIO: Final = 0.82
"""Above this likeness an unknown name is taken for a misspelling of ours (`difflib`)."""

_ASSIGN_EXAMPLE: Final = '{"topicA":[0,1],"topicB":[0,1]}'
_OFFSETS_EXAMPLE: Final = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'


def parse_options(options: Mapping[str, str]) -> ConnectorConfig:
    """Read the options of one ``load()``.

    Parameters
    ----------
    options : Mapping[str, str]
        As Spark hands them over; names are compared without regard to case.

    Returns
    -------
    ConnectorConfig
        With `warnings` for unknown options, which Spark's own source ignores too.

    Raises
    ------
    ConfigError
        With every problem found, not only the first.
    """
    return _Parser({name.lower(): (name, value) for name, value in options.items()}).parse()


class _Parser:
    """One pass over the options; problems are collected, values of broken options stand in as defaults."""

    def __init__(self, given: dict[str, tuple[str, str]]) -> None:
        self._given = given
        self._problems: list[ConfigProblem] = []

    def parse(self) -> ConnectorConfig:
        warnings = self._check_names()
        self._refuse_what_is_not_built()
        config = ConnectorConfig(
            client=self._client(),
            subscription=self._subscription(),
            starting_offsets=self._offset_bound("startingOffsets"),
            ending_offsets=self._offset_bound("endingOffsets"),
            max_offsets_per_trigger=self._optional_integer("maxOffsetsPerTrigger"),
            include_headers=self._boolean("includeHeaders"),
            warnings=warnings,
        )
        if self._problems:
            raise ConfigError(tuple(self._problems))
        return config

    def _refuse(self, option: str, reason: str, *, given: str | None = None) -> None:
        problem = ConfigProblem(option, given, reason)
        if problem not in self._problems:
            self._problems.append(problem)

    def _check_names(self) -> tuple[str, ...]:
        unknown: list[str] = []
        for lowered, (name, _) in self._given.items():
            if lowered in _SPECS:
                continue
            if lowered in _REFUSALS:
                self._refuse(*_REFUSALS[lowered])
            elif lowered.startswith(("kafka.ssl.", "kafka.sasl.")):
                self._refuse(name, "encrypted and authenticated connections are not supported; only PLAINTEXT is")
            elif lowered in _WITHOUT_EFFECT:
                unknown.append(name)
            elif near := difflib.get_close_matches(lowered, _SPECS, n=1, cutoff=_NEAR_RATIO):
                self._refuse(name, f"no such option; did you mean {_SPECS[near[0]].name}?")
            elif self._boolean("strictOptions"):
                self._refuse(name, "no such option, and strictOptions is true")
            else:
                unknown.append(name)
        return tuple(f"option {name} has no effect on kafka_follower" for name in sorted(unknown))

    def _refuse_what_is_not_built(self) -> None:
        protocol = self._choice("kafka.security.protocol")
        if protocol != "PLAINTEXT":
            self._refuse("kafka.security.protocol", "only PLAINTEXT is supported", given=protocol)

    def _client(self) -> ClientConfig:
        return ClientConfig(
            bootstrap_servers=self._servers(),
            client_id=self._text("kafka.client.id") or "",
            rack=self._text("rack"),
            client_rack=self._text("kafka.client.rack"),
            replica_selection=ReplicaSelection(self._choice("replicaSelection")),
            local_log_ms=self._integer("localLogMs"),
            local_log_bytes=self._integer("localLogBytes"),
            session_use=SessionUse(self._choice("sessions")),
            isolation_level=_ISOLATION_LEVELS[self._choice("kafka.isolation.level")],
            is_data_loss_fatal=self._boolean("failOnDataLoss"),
            follower_wait_ms=self._integer("followerWaitMs"),
            progress_timeout_ms=self._integer("kafkaConsumer.pollTimeoutMs"),
            fetch_max_bytes=self._integer("kafka.fetch.max.bytes"),
            partition_max_bytes=self._integer("kafka.max.partition.fetch.bytes"),
            fetch_max_wait_ms=self._integer("kafka.fetch.max.wait.ms"),
            fetch_min_bytes=self._integer("kafka.fetch.min.bytes"),
            request_timeout_ms=self._integer("kafka.request.timeout.ms"),
            connect_timeout_ms=self._integer("kafka.socket.connection.setup.timeout.ms"),
            receive_buffer_bytes=self._integer("kafka.receive.buffer.bytes"),
            metadata_max_age_ms=self._integer("kafka.metadata.max.age.ms"),
            retry_backoff_ms=self._integer("kafka.retry.backoff.ms"),
            retry_backoff_max_ms=self._integer("kafka.retry.backoff.max.ms"),
        )

    def _text(self, name: str) -> str | None:
        """Return the trimmed text of an option; blank counts as not given."""
        spec = _SPECS[name.lower()]
        _, value = self._given.get(name.lower(), (name, ""))
        return value.strip() or spec.default

    def _boolean(self, name: str) -> bool:
        text = self._text(name) or "false"
        value = _TRUE_FALSE.get(text.lower())
        if value is None:
            self._refuse(name, "expected true or false", given=text)
            return _SPECS[name.lower()].default == "true"
        return value

    def _choice(self, name: str) -> str:
        spec = _SPECS[name.lower()]
        text = self._text(name) or ""
        for choice in spec.choices:
            if choice.lower() == text.lower():
                return choice
        self._refuse(name, f"expected one of {', '.join(spec.choices)}", given=text)
        return spec.default or spec.choices[0]

    def _optional_integer(self, name: str) -> int | None:
        return None if self._text(name) is None else self._integer(name)

    def _integer(self, name: str) -> int:
        spec = _SPECS[name.lower()]
        text = self._text(name) or ""
        value = _whole_number(text)
        if value is None or not spec.minimum <= value <= spec.maximum:
            self._refuse(name, f"expected a whole number {_bounds(spec)}", given=text)
            return int(spec.default) if spec.default is not None else spec.minimum
        return value

    def _servers(self) -> tuple[tuple[str, int], ...]:
        name = "kafka.bootstrap.servers"
        text = self._text(name)
        if text is None:
            self._refuse(name, "required: the brokers to ask first, host:port,host:port")
            return ()
        servers: list[tuple[str, int]] = []
        for entry in filter(None, (each.strip() for each in text.split(","))):
            host, _, port_text = entry.removeprefix("[").replace("]:", ":").rpartition(":")
            port = _whole_number(port_text)
            if not host or port is None or not 0 < port < 65536:
                self._refuse(name, f"{entry!r} is not host:port", given=text)
            else:
                servers.append((host, port))
        return tuple(servers)

    def _subscription(self) -> Subscription:
        subscribe, assign = self._text("subscribe"), self._text("assign")
        if subscribe is None and assign is None:
            name = next((n for n in ("subscribe", "assign") if n in self._given), None)
            reason = f"{name} names no topic" if name else "one of subscribe and assign must be given"
            self._refuse("subscribe / assign", reason)
            return Subscribe(())
        if subscribe is not None and assign is not None:
            self._refuse("subscribe / assign", "only one of them can be given")
        if subscribe is not None:
            topics = tuple(sorted({topic.strip() for topic in subscribe.split(",")} - {""}))
            if not topics:
                self._refuse("subscribe", "no topic named; expected topicA,topicB", given=subscribe)
            return Subscribe(topics)
        return self._assigned(assign or "")

    def _assigned(self, text: str) -> Assign:
        expected = f"expected JSON like {_ASSIGN_EXAMPLE}"
        partitions: list[TopicPartition] = []
        for topic, indexes in self._json_object("assign", text, expected).items():
            if not isinstance(indexes, list) or not all(_is_index(index) for index in indexes):
                self._refuse("assign", expected, given=text)
                return Assign(())
            partitions.extend(TopicPartition(topic, index) for index in indexes)
        if not partitions:
            self._refuse("assign", f"no topic-partition named; {expected}", given=text)
        return Assign(tuple(sorted(set(partitions))))

    def _offset_bound(self, name: str) -> OffsetBound | None:
        text = self._text(name)
        if text is None:
            return None
        if text.lower() in ("earliest", "latest"):
            return WholeLog[text.upper()]
        expected = f"expected earliest, latest or JSON like {_OFFSETS_EXAMPLE}"
        offsets: dict[TopicPartition, int] = {}
        for topic, by_index in self._json_object(name, text, expected).items():
            parsed = _offsets_of_topic(topic, by_index)
            if parsed is None:
                self._refuse(name, f"{expected}; offsets are whole numbers, or -1 (latest), or -2", given=text)
                return None
            offsets |= parsed
        return PartitionOffsets(tuple(sorted(offsets.items())))

    def _json_object(self, name: str, text: str, expected: str) -> dict[str, object]:
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            self._refuse(name, expected, given=text)
            return {}
        return value


def _whole_number(text: str) -> int | None:
    """Return the number in ASCII decimal `text`, or None; `int` alone takes "1_0", " 1" and other scripts too."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _offsets_of_topic(topic: str, by_index: object) -> dict[TopicPartition, int] | None:
    """Read ``{"0": 23, "1": -1}``; None when anything in it is not an index or an offset."""
    if not isinstance(by_index, dict):
        return None
    offsets: dict[TopicPartition, int] = {}
    for index_text, log_offset in by_index.items():
        index = _whole_number(index_text)
        if index is None or not isinstance(log_offset, int) or isinstance(log_offset, bool):
            return None
        if not (0 <= log_offset < 2**63 or log_offset in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)):
            return None
        offsets[TopicPartition(topic, index)] = log_offset
    return offsets


def _bounds(spec: OptionSpec) -> str:
    if spec.maximum == 2**63 - 1:
        return f"of at least {spec.minimum}"
    return f"from {spec.minimum} to {spec.maximum}"
