"""Read ranges: carry out what the engine plans, hand it what comes back, decode what arrived.

The loop decides nothing. Before the records of an answer are decoded, the next request is on its way, so that a
broker works while we do.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, assert_never

import pyarrow as pa

from connector.config import ClientConfig
from connector.errors import UnsupportedApi
from connector.fetch.actions import (
    Action,
    Delivery,
    EngineSettings,
    SendDescribeLogDirs,
    SendFetch,
    SendListOffsets,
    SendMetadata,
    SendOffsetForLeaderEpoch,
)
from connector.fetch.engine import FetchEngine
from connector.fetch.progress import Backoff
from connector.metrics.recorder import Recorder
from connector.model import ClusterView, EpochAnswer, FetchReply, OffsetRange
from connector.net.accounts import FetchAccounts
from connector.net.addresses import AddressBook
from connector.net.clock import monotonic_ms, unix_ms
from connector.net.connection import Answer, ConnectionLimits, Exchange
from connector.net.exchanges import exchange_for
from connector.net.network import Event, Failure, Network
from connector.net.transport import TcpTransports
from connector.records.arrow import RowBuilder
from connector.records.layout import scan_record_batches
from connector.wire import error_codes
from connector.wire.frames import DEFAULT_MAX_FRAME_BYTES

__all__ = ["Fetcher"]

_CLOSE_PATIENCE_MS: Final = 500
"""How long closing waits for brokers to take note: their sessions grow old without it, too."""


class Fetcher:
    """Reads ranges for one task at a time; keeps connections and what it learned for the next.

    Parameters
    ----------
    config : ClientConfig
        How to reach the cluster.
    rack : str or None
        Our rack, as brokers are told it.
    """

    def __init__(self, config: ClientConfig, rack: str | None) -> None:
        self._config = config
        self._engine = FetchEngine(_engine_settings(config, rack), random.random, unix_ms() - monotonic_ms())
        # An answer may exceed the limit that was asked for by one record batch, however large (KIP-74).
        limits = ConnectionLimits(config.connect_timeout_ms, DEFAULT_MAX_FRAME_BYTES + config.fetch_max_bytes)
        transports = TcpTransports(config.receive_buffer_bytes)
        self._network = Network(transports, config.client_id, limits, monotonic_ms)
        self._addresses = AddressBook(config.bootstrap_servers)
        self._accounts = FetchAccounts(rack)

    def use_recorder(self, recorder: Recorder) -> None:
        """Count what is fetched into this recorder from here on."""
        self._accounts.use_recorder(recorder)

    def read(
        self, ranges: Sequence[OffsetRange], view: ClusterView | None, *, include_headers: bool
    ) -> Iterator[pa.RecordBatch]:
        """Read ranges to their ends.

        Parameters
        ----------
        ranges : sequence of OffsetRange
            Each topic-partition at most once.
        view : ClusterView or None
            The planner's view of the cluster; saves the first Metadata request.
        include_headers : bool
            Whether the rows have the column `headers`.

        Yields
        ------
        pyarrow.RecordBatch
            Rows; those of one topic-partition in the order of their offsets.

        Raises
        ------
        ConnectorError
            When a range can't be read.
        """
        builder = RowBuilder(include_headers=include_headers)
        # Connections that brokers closed since the last read are noticed here, or the first request would find out; and
        # Metadata that came since then is taken.
        for event in self._network.wait_events(0):
            self._on_event(event)
        started = self._engine.on_read_started(ranges, view, monotonic_ms())
        self._accounts.on_view(self._engine.view, {each.topic_partition.topic for each in ranges})
        self._accounts.on_decisions(started.decisions)
        try:
            for delivery in started.deliveries:
                yield from self._rows(builder, delivery)
            while not self._engine.is_finished:
                for delivery in self._turn():
                    yield from self._rows(builder, delivery)
            rest = builder.finish()
            if rest is not None:
                yield rest
        finally:
            self._on_read_ended()

    def close(self) -> None:
        """Close the fetch sessions as far as brokers can be reached at once, and all connections."""
        deadline_ms = monotonic_ms() + _CLOSE_PATIENCE_MS
        closing = 0
        for action in self._engine.plan_close():
            address, _ = self._addresses.of_node(self._engine.view, action.plan.node_id)
            if self._network.has_ready(address):
                self._send(action)
                closing += 1
        while closing > 0 and (left_ms := deadline_ms - monotonic_ms()) > 0:
            closing -= len(self._network.wait_events(left_ms))
        self._network.close()

    def _on_read_ended(self) -> None:
        """Let go of what the read asked for, also when it is cancelled: answers must not meet the next read.

        Metadata is about the cluster and not about a read; it stays awaited.
        """
        self._engine.on_read_ended()
        for exchange in self._network.close_unwanted(_is_metadata):
            self._engine.on_node_failed(
                exchange.subject, "the connection was closed at the end of a read", monotonic_ms()
            )

    def _turn(self) -> list[Delivery]:
        """Send what is due, wait for something to happen, and send what is due after it."""
        self._send_due()
        now_ms = monotonic_ms()
        deliveries: list[Delivery] = []
        for event in self._network.wait_events(self._engine.wake_at_ms(now_ms) - now_ms):
            deliveries.extend(self._on_event(event))
        if deliveries:
            self._send_due()
        return deliveries

    def _rows(self, builder: RowBuilder, delivery: Delivery) -> Iterator[pa.RecordBatch]:
        """Decode one delivery; time in which nobody takes the rows does not count as time without progress."""
        row_count = builder.row_count
        for arrow_batch in builder.append(
            delivery.topic_partition,
            delivery.records,
            delivery.start_offset,
            delivery.end_offset,
            delivery.aborted_transactions,
        ):
            yielded_ms = monotonic_ms()
            yield arrow_batch
            self._engine.on_resumed(monotonic_ms() - yielded_ms)
        self._accounts.on_rows(delivery, builder.row_count - row_count)

    def _send_due(self) -> None:
        now_ms = monotonic_ms()
        for action in self._engine.plan(now_ms):
            self._engine.on_sent(action, now_ms)
            self._send(action)

    def _send(self, action: Action) -> None:
        view = self._engine.view
        if isinstance(action, SendMetadata):
            address, node = self._addresses.any_broker(view, self._network.has_ready)
        else:
            node_id = action.plan.node_id if isinstance(action, SendFetch) else action.node_id
            address, node = self._addresses.of_node(view, node_id)
        self._network.submit(address, node, exchange_for(action, self._config))

    def _on_event(self, event: Event) -> Iterable[Delivery]:
        now_ms = monotonic_ms()
        if isinstance(event, Failure):
            self._on_failure(event, now_ms)
            return ()
        action: Action = event.exchange.subject
        match action:
            case SendMetadata():
                events = self._engine.on_metadata(event.value, now_ms)
                self._accounts.on_view(self._engine.view, action.topics)
            case SendListOffsets():
                events = self._engine.on_offsets(action, event.value, now_ms)
            case SendOffsetForLeaderEpoch():
                events = self._engine.on_epoch_end_offsets(action, event.value, now_ms)
            case SendDescribeLogDirs():
                events = self._engine.on_log_dirs(action, event.value, now_ms)
            case SendFetch():
                return self._on_fetch_reply(action, event, now_ms)
            case _:
                assert_never(action)
        self._accounts.on_decisions(events.decisions)
        return events.deliveries

    def _on_fetch_reply(self, action: SendFetch, event: Answer, now_ms: int) -> Iterable[Delivery]:
        reply: FetchReply = event.value
        scans = {
            each.topic_partition: scan_record_batches(each.records, each.topic_partition)
            for each in reply.partitions
            if len(each.records)
        }
        serving = self._engine.view.nodes.get(action.plan.node_id)
        events = self._engine.on_fetch_reply(action, reply, scans, now_ms)
        self._accounts.on_fetch_reply(serving, reply, events)
        self._accounts.on_preferred({each: self._engine.preferred_replica(each, now_ms) for each in action.asked})
        return events.deliveries

    def _on_failure(self, failure: Failure, now_ms: int) -> None:
        unspoken = [
            each for each in failure.exchanges if isinstance(failure.error, UnsupportedApi) and _is_spared(each)
        ]
        if not failure.error.retriable and not unspoken:
            raise failure.error
        problem = str(failure.error)
        self._addresses.on_failed(failure.address)
        for exchange in failure.exchanges:
            action: Action = exchange.subject
            if exchange in unspoken:
                self._on_unsupported(action, now_ms)
                continue
            events = self._engine.on_node_failed(action, problem, now_ms)
            if isinstance(action, SendFetch):
                self._accounts.on_fetch_failed(self._engine.view.nodes.get(action.plan.node_id))
            self._accounts.on_decisions(events.decisions)

    def _on_unsupported(self, action: Action, now_ms: int) -> None:
        """Do without a question that a broker does not understand."""
        if isinstance(action, SendOffsetForLeaderEpoch):
            code = error_codes.UNSUPPORTED_VERSION
            answers = [EpochAnswer(each.topic_partition, code, -1, -1) for each in action.queries]
            self._engine.on_epoch_end_offsets(action, answers, now_ms)
        elif isinstance(action, SendDescribeLogDirs):
            self._engine.on_log_dirs(action, (), now_ms)


def _is_metadata(exchange: Exchange) -> bool:
    return isinstance(exchange.subject, SendMetadata)


def _is_spared(exchange: Exchange) -> bool:
    """Tell whether reading can do without the answer."""
    return isinstance(exchange.subject, SendOffsetForLeaderEpoch | SendDescribeLogDirs)


def _engine_settings(config: ClientConfig, rack: str | None) -> EngineSettings:
    return EngineSettings(
        rack=rack or "",
        replica_selection=config.replica_selection,
        session_use=config.session_use,
        isolation_level=config.isolation_level,
        is_data_loss_fatal=config.is_data_loss_fatal,
        local_log_ms=config.local_log_ms,
        local_log_bytes=config.local_log_bytes,
        follower_wait_ms=config.follower_wait_ms,
        progress_timeout_ms=config.progress_timeout_ms,
        metadata_max_age_ms=config.metadata_max_age_ms,
        error_backoff=Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms),
        fetch_max_bytes=config.fetch_max_bytes,
        partition_max_bytes=config.partition_max_bytes,
        fetch_max_wait_ms=config.fetch_max_wait_ms,
        fetch_min_bytes=config.fetch_min_bytes,
    )
