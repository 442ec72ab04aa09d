"""Where each byte is counted: facts of fetches, as metrics and log lines."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from connector.fetch.actions import Decision, Delivery, FetchEvents
from connector.fetch.outcome import (
    Deliver,
    LookUpOffsets,
    ReadFromReplica,
    RefreshMetadata,
    ReturnToLeader,
    Skip,
    ValidateEpoch,
)
from connector.metrics.catalog import (
    FETCH_BYTES,
    FETCH_RECORDS,
    FETCH_REQUESTS,
    PREFERRED_READ_REPLICA,
    READ_REPLICA_CHANGES,
    SKIPPED_OFFSETS,
    RequestOutcome,
    locality_of,
    starting_series,
)
from connector.metrics.recorder import NullRecorder, Recorder
from connector.model import ClusterView, FetchReply, Node, TopicPartition

__all__ = ["FetchAccounts"]

_log = logging.getLogger(__name__)


class FetchAccounts:
    """Counts what fetches bring, by the rack of the broker that served against our own.

    Parameters
    ----------
    own_rack : str or None
        The rack of this executor.
    """

    def __init__(self, own_rack: str | None) -> None:
        self._own_rack = own_rack
        self._recorder: Recorder = NullRecorder()
        self._announced: set[tuple[str, ...]] = set()
        self._served_by_rack: dict[TopicPartition, str | None] = {}

    def use_recorder(self, recorder: Recorder) -> None:
        """Count into this recorder from here on."""
        if recorder is not self._recorder:
            self._recorder = recorder
            self._announced.clear()

    def on_view(self, view: ClusterView, topics: Iterable[str]) -> None:
        """Make the series exist that reading these topics can lead to: a rate needs their zero."""
        racks = {node.rack for node in view.nodes.values()}
        for spec, label_values in starting_series(self._own_rack, racks, topics):
            if (spec.name, *label_values) not in self._announced:
                self._announced.add((spec.name, *label_values))
                self._recorder.count(spec, 0, *label_values)

    def on_fetch_reply(self, serving: Node | None, reply: FetchReply, events: FetchEvents) -> None:
        """Count one answer: its record bytes as they came over the wire, and what it was good for."""
        rack = serving.rack if serving else None
        locality = locality_of(self._own_rack, rack)
        for partition in reply.partitions:
            topic_partition = partition.topic_partition
            self._served_by_rack[topic_partition] = rack
            self._recorder.count(FETCH_BYTES, len(partition.records), topic_partition.topic, rack or "", locality)
        self._recorder.count(FETCH_REQUESTS, 1, rack or "", locality, _request_outcome(events.decisions))
        if events.session_reset is not None:
            _log.info("broker %s: fetch session ended: %s", serving, events.session_reset)
        self.on_decisions(events.decisions)

    def on_fetch_failed(self, serving: Node | None) -> None:
        """Count a request that got no answer."""
        rack = serving.rack if serving else None
        outcome = RequestOutcome.ERROR
        self._recorder.count(FETCH_REQUESTS, 1, rack or "", locality_of(self._own_rack, rack), outcome)

    def on_rows(self, delivery: Delivery, row_count: int) -> None:
        """Count rows that were handed to Spark."""
        rack = self._served_by_rack.get(delivery.topic_partition)
        locality = locality_of(self._own_rack, rack)
        self._recorder.count(FETCH_RECORDS, row_count, delivery.topic_partition.topic, rack or "", locality)

    def on_preferred(self, preferred: Mapping[TopicPartition, int]) -> None:
        """Show which replica these topic-partitions are read from."""
        for topic_partition, node_id in preferred.items():
            self._recorder.gauge(PREFERRED_READ_REPLICA, node_id, topic_partition.topic, str(topic_partition.partition))

    def on_decisions(self, decisions: Iterable[Decision]) -> None:
        """Count and log what was decided about topic-partitions."""
        for decision in decisions:
            if decision.change is not None:
                self._recorder.count(READ_REPLICA_CHANGES, 1, decision.change)
            if isinstance(decision.outcome, Skip):
                topic, reason = decision.topic_partition.topic, decision.outcome.error.reason
                self._recorder.count(SKIPPED_OFFSETS, decision.outcome.skipped_count, topic, reason)
            _log_decision(decision)


def _request_outcome(decisions: Iterable[Decision]) -> RequestOutcome:
    outcomes = [decision.outcome for decision in decisions]
    if any(isinstance(each, Deliver) for each in outcomes):
        return RequestOutcome.DATA
    if any(isinstance(each, ReadFromReplica) for each in outcomes):
        return RequestOutcome.REDIRECT
    if any(isinstance(each, ReturnToLeader | ValidateEpoch | LookUpOffsets | RefreshMetadata) for each in outcomes):
        return RequestOutcome.ERROR
    return RequestOutcome.EMPTY


def _log_decision(decision: Decision) -> None:
    """Write one line where the serving broker changes; the rest is only for debugging."""
    match decision.outcome:
        case ReturnToLeader(reason=reason, problem=problem):
            _log.info("%s: reading at the leader (%s): %s", decision.topic_partition, reason, problem)
        case RefreshMetadata(problem=problem):
            _log.info("%s: asking for metadata: %s", decision.topic_partition, problem)
        case ValidateEpoch(problem=problem):
            _log.info("%s: asking the leader where the position's epoch ends: %s", decision.topic_partition, problem)
        case LookUpOffsets(problem=problem):
            _log.warning("%s: asking the leader for its log's bounds: %s", decision.topic_partition, problem)
        case Skip(skipped_count=skipped_count, error=error):
            _log.warning("%d offsets skipped, because failOnDataLoss is false: %s", skipped_count, error)
        case ReadFromReplica(node_id=node_id):
            _log.debug("%s: reading at broker %s", decision.topic_partition, node_id)
        case _:
            pass
