"""The planner's questions to the cluster: which topic-partitions there are, and where their logs begin and end."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from connector.config import ClientConfig
from connector.errors import BrokerError, ConnectorError
from connector.fetch.progress import Backoff, exponential_pause_ms
from connector.model import ClusterView, OffsetQuery, TopicPartition
from connector.net.addresses import AddressBook
from connector.net.clock import monotonic_ms
from connector.net.connection import Answer, ConnectionLimits, Exchange
from connector.net.network import Network
from connector.net.transport import TcpTransports
from connector.wire import error_codes, list_offsets, metadata
from connector.wire.versions import Api

__all__ = ["ClusterClient"]

_log = logging.getLogger(__name__)

_PATIENCE_MS: Final = 60_000
"""How long a question is asked again (Java: ``default.api.timeout.ms``)."""
_MISSING_TOPIC_PATIENCE_MS: Final = 3_000
"""How long a topic may be unknown: a new one needs a moment to reach every broker."""


class ClusterClient:
    """Asks, waits for the answer, and asks again as long as that may help. Not thread-safe.

    Parameters
    ----------
    config : ClientConfig
        How to reach the cluster.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        limits = ConnectionLimits(config.connect_timeout_ms)
        transports = TcpTransports(config.receive_buffer_bytes)
        self._network = Network(transports, config.client_id, limits, monotonic_ms)
        self._addresses = AddressBook(config.bootstrap_servers)
        self._view = ClusterView()

    def describe(self, topics: Iterable[str]) -> ClusterView:
        """Return the cluster's view of these topics, each with a leader for every partition.

        Raises
        ------
        BrokerError
            When a topic does not exist or may not be described.
        ConnectorError
            When no broker gave a whole answer for a minute.
        """
        names = tuple(sorted(topics))
        started_ms = monotonic_ms()
        attempt = 0
        while True:
            attempt += 1
            problem: ConnectorError
            try:
                view = self._ask_any(names)
                trouble = _trouble(view)
                if trouble is None:
                    self._view = view
                    return view
                problem, patience_ms = trouble
            except ConnectorError as error:
                if not error.retriable:
                    raise
                problem, patience_ms = error, _PATIENCE_MS
            if monotonic_ms() - started_ms >= patience_ms:
                raise problem
            _log.info("asking for metadata again: %s", problem)
            self._pause(attempt)

    def log_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return an offset for each topic-partition, as its leader tells it (ListOffsets).

        Parameters
        ----------
        timestamps : mapping
            `LATEST_TIMESTAMP`, `EARLIEST_TIMESTAMP` or milliseconds. The topics must have been described. Latest is
            the high watermark, or under read_committed the last stable offset.

        Raises
        ------
        ConnectorError
            When a leader gave no answer for a minute.
        """
        found: dict[TopicPartition, int] = {}
        started_ms = monotonic_ms()
        attempt = 0
        while True:
            attempt += 1
            missing = {each: timestamp for each, timestamp in timestamps.items() if each not in found}
            if not missing:
                return found
            problem = self._ask_leaders(missing, found)
            if problem is None:
                continue
            if monotonic_ms() - started_ms >= _PATIENCE_MS or not _is_worth_retrying(problem):
                raise problem
            _log.info("asking for offsets again: %s", problem)
            self._pause(attempt)
            self.describe({each.topic for each in timestamps})

    def close(self) -> None:
        """Close all connections."""
        self._network.close()

    def _ask_any(self, topics: tuple[str, ...]) -> ClusterView:
        address, node = self._addresses.any_broker(self._view, self._network.has_ready)
        encode = partial(metadata.encode_request, topics)
        self._network.submit(address, node, self._exchange(Api.METADATA, encode, metadata.decode_reply, None))
        answers, problem = self._gather(1)
        if problem is not None:
            raise problem
        view: ClusterView = answers[0].value
        return view

    def _ask_leaders(
        self, timestamps: Mapping[TopicPartition, int], found: dict[TopicPartition, int]
    ) -> ConnectorError | None:
        """Ask every leader at once; put what is answered into `found`, return one problem of those that came up."""
        by_leader: dict[int, list[OffsetQuery]] = {}
        for topic_partition, timestamp in timestamps.items():
            info = self._view.partitions.get(topic_partition)
            if info is None or info.leader_id not in self._view.nodes:
                subject = f"finding the leader of {topic_partition}"
                return error_codes.broker_error(error_codes.LEADER_NOT_AVAILABLE, subject, "(any)")
            query = OffsetQuery(topic_partition, timestamp, info.leader_epoch)
            by_leader.setdefault(info.leader_id, []).append(query)
        for leader_id, queries in by_leader.items():
            address, node = self._addresses.of_node(self._view, leader_id)
            encode = partial(list_offsets.encode_request, queries, isolation_level=self._config.isolation_level)
            exchange = self._exchange(Api.LIST_OFFSETS, encode, list_offsets.decode_reply, node)
            self._network.submit(address, node, exchange)
        answers, problem = self._gather(len(by_leader))
        for answer in answers:
            for each in answer.value:
                if each.error_code == error_codes.NONE:
                    found[each.topic_partition] = each.log_offset
                else:
                    subject = f"asking for an offset of {each.topic_partition}"
                    problem = error_codes.broker_error(each.error_code, subject, answer.exchange.subject)
        return problem

    def _exchange(self, api: Api, encode: Any, decode: Any, subject: Any) -> Exchange:  # noqa: ANN401 - as Exchange
        return Exchange(api, encode, decode, subject, self._config.request_timeout_ms)

    def _gather(self, exchange_count: int) -> tuple[list[Answer], ConnectorError | None]:
        """Wait until every exchange has come to an end."""
        answers: list[Answer] = []
        problem: ConnectorError | None = None
        left_count = exchange_count
        while left_count > 0:
            for event in self._network.wait_events(self._config.request_timeout_ms):
                if isinstance(event, Answer):
                    answers.append(event)
                    left_count -= 1
                else:
                    self._addresses.on_failed(event.address)
                    left_count -= len(event.exchanges)
                    problem = event.error if event.exchanges else problem
        return answers, problem

    def _pause(self, attempt: int) -> None:
        """Let the network rest, longer after each attempt; answers can't come, nothing was asked."""
        backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        until_ms = monotonic_ms() + exponential_pause_ms(backoff, attempt)
        while (left_ms := until_ms - monotonic_ms()) > 0:
            self._network.wait_events(left_ms)


def _trouble(view: ClusterView) -> tuple[ConnectorError, int] | None:
    """Return what keeps a view from being whole, and how long to hope that it passes."""
    for topic, code in view.topic_errors.items():
        if code == error_codes.TOPIC_AUTHORIZATION_FAILED:
            return error_codes.not_authorized(topic), 0
        if code == error_codes.UNKNOWN_TOPIC_OR_PARTITION:
            advice = "Create the topic, or correct subscribe or assign."
            return error_codes.broker_error(code, f"topic {topic}", "(any)", advice), _MISSING_TOPIC_PATIENCE_MS
        return error_codes.broker_error(code, f"topic {topic}", "(any)"), _PATIENCE_MS
    for topic_partition, info in view.partitions.items():
        if info.leader_id not in view.nodes:
            code = info.error_code or error_codes.LEADER_NOT_AVAILABLE
            subject = f"finding the leader of {topic_partition}"
            return error_codes.broker_error(code, subject, "(any)"), _PATIENCE_MS
    return None


def _is_worth_retrying(error: ConnectorError) -> bool:
    return error_codes.is_retriable(error.code) if isinstance(error, BrokerError) else error.retriable
