"""Read ranges: carry out what the engine plans, hand it what comes back, decode what arrived.

The loop decides nothing. Before the records of an answer are decoded, the next request is on its way, so that a
broker works while we do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final, assert_never

import pyarrow as pa

from connector.config import ClientConfig, ReplicaSelection
from connector.fetch.actions import Action, Delivery, EngineSettings, SendFetch, SendListOffsets, SendMetadata
from connector.fetch.engine import FetchEngine
from connector.fetch.progress import Backoff
from connector.metrics.recorder import Recorder
from connector.model import ClusterView, FetchReply, OffsetRange
from connector.net.accounts import FetchAccounts
from connector.net.addresses import AddressBook
from connector.net.clock import monotonic_ms
from connector.net.connection import Answer, ConnectionLimits, Exchange
from connector.net.network import Event, Failure, Network
from connector.net.transport import TcpTransports
from connector.records.arrow import RowBuilder
from connector.records.layout import scan_record_batches
from connector.wire import fetch_reply, fetch_request, list_offsets, metadata
from connector.wire.frames import DEFAULT_MAX_FRAME_BYTES
from connector.wire.versions import Api

__all__ = ["Fetcher"]

_NEVER_REDIRECTED_VERSION: Final = 10
"""The last Fetch version without a rack: leaders serve it themselves, followers refuse it (KIP-392)."""
_FOLLOWER_PATIENCE_MS: Final = 5_000
"""How much longer than its allowed wait a follower may stay silent, before the leader is asked."""
_LEADER_ONLY_MS: Final = 10_000
"""How long the leader is read after a follower failed: as long as an ISR needs to notice, or nearly."""


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
        self._engine = FetchEngine(_engine_settings(config, rack))
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
        # Connections that brokers closed since the last task are dropped here, or the first request would find out.
        self._network.wait_events(0)
        self._engine.on_read_started(ranges, view, monotonic_ms())
        self._accounts.on_view(self._engine.view, {each.topic_partition.topic for each in ranges})
        try:
            while not self._engine.is_finished:
                for delivery in self._turn():
                    yield from self._rows(builder, delivery)
            rest = builder.finish()
            if rest is not None:
                yield rest
        finally:
            # Also when the task is cancelled in mid-read: answers to its requests must not meet the next task.
            self._engine.on_read_ended()
            self._network.close_pending()

    def close(self) -> None:
        """Close all connections."""
        self._network.close()

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
            delivery.topic_partition, delivery.records, delivery.start_offset, delivery.end_offset
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
        match action:
            case SendMetadata():
                address, node = self._addresses.any_broker(view, self._network.has_ready)
                encode = partial(metadata.encode_request, action.topics)
                exchange = Exchange(
                    Api.METADATA, encode, metadata.decode_reply, action, self._config.request_timeout_ms
                )
            case SendListOffsets():
                address, node = self._addresses.of_node(view, action.node_id)
                encode = partial(list_offsets.encode_request, action.queries, isolation_level=0)
                exchange = Exchange(
                    Api.LIST_OFFSETS, encode, list_offsets.decode_reply, action, self._config.request_timeout_ms
                )
            case SendFetch():
                address, node = self._addresses.of_node(view, action.plan.node_id)
                exchange = self._fetch_exchange(action)
            case _:
                assert_never(action)
        self._network.submit(address, node, exchange)

    def _fetch_exchange(self, action: SendFetch) -> Exchange:
        timeout_ms = self._config.request_timeout_ms
        if not all(asked.from_leader for asked in action.asked.values()):
            timeout_ms = min(timeout_ms, action.plan.max_wait_ms + _FOLLOWER_PATIENCE_MS)
        return Exchange(
            Api.FETCH,
            partial(fetch_request.encode_request, action.plan),
            fetch_reply.decode_reply,
            action,
            timeout_ms,
            None if action.is_redirectable else _NEVER_REDIRECTED_VERSION,
        )

    def _on_event(self, event: Event) -> Iterable[Delivery]:
        now_ms = monotonic_ms()
        if isinstance(event, Failure):
            self._on_failure(event, now_ms)
            return ()
        action: Action = event.exchange.subject
        match action:
            case SendMetadata():
                self._engine.on_metadata(event.value, now_ms)
                self._accounts.on_view(self._engine.view, action.topics)
            case SendListOffsets():
                self._engine.on_bounds(action, event.value, now_ms)
            case SendFetch():
                return self._on_fetch_reply(action, event, now_ms)
            case _:
                assert_never(action)
        return ()

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
        if not failure.error.retriable:
            raise failure.error
        problem = str(failure.error)
        self._addresses.on_failed(failure.address)
        for exchange in failure.exchanges:
            action: Action = exchange.subject
            match action:
                case SendMetadata():
                    self._engine.on_metadata_failed(problem, now_ms)
                case SendListOffsets():
                    self._engine.on_node_failed(action.node_id, problem, now_ms)
                case SendFetch():
                    decisions = self._engine.on_node_failed(action.plan.node_id, problem, now_ms)
                    self._accounts.on_fetch_failed(self._engine.view.nodes.get(action.plan.node_id), decisions)
                case _:
                    assert_never(action)


def _engine_settings(config: ClientConfig, rack: str | None) -> EngineSettings:
    return EngineSettings(
        rack=rack or "",
        is_leader_only=config.replica_selection is ReplicaSelection.LEADER,
        follower_wait_ms=config.follower_wait_ms,
        progress_timeout_ms=config.progress_timeout_ms,
        metadata_max_age_ms=config.metadata_max_age_ms,
        leader_only_ms=_LEADER_ONLY_MS,
        error_backoff=Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms),
        fetch_max_bytes=config.fetch_max_bytes,
        partition_max_bytes=config.partition_max_bytes,
        fetch_max_wait_ms=config.fetch_max_wait_ms,
        fetch_min_bytes=config.fetch_min_bytes,
    )
