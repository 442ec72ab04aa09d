"""Topics that vanish, or come back as another topic of the same name (KIP-516).

News of a topic needs a moment to reach every broker, and a broker that was away may speak of the past: only what
metadata says for longer than that is believed.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from connector.errors import DataLossError, TopicDeleted, TopicRecreated
from connector.fetch.state import EngineState
from connector.model import NO_TOPIC_ID, ClusterView, TopicPartition
from connector.wire import error_codes

__all__ = ["check_authorization", "decide_topic_loss", "on_topics_seen"]


def decide_topic_loss(
    topic: str, planned_id: UUID, found_id: UUID | None, trouble_ms: int, patience_ms: int
) -> DataLossError | None:
    """Return the loss of a topic that metadata shows under another id, or not at all, or None while it may pass.

    Parameters
    ----------
    found_id : UUID or None
        What metadata shows; None when it says that there is no such topic.
    trouble_ms : int
        For how long it has been so.
    """
    if trouble_ms < patience_ms:
        return None
    if found_id is None:
        return TopicDeleted(topic, trouble_ms)
    return TopicRecreated(topic, str(planned_id), str(found_id))


def check_authorization(view: ClusterView) -> None:
    """Raise what says which right is missing, if a topic may not be described."""
    for topic, code in view.topic_errors.items():
        if code == error_codes.TOPIC_AUTHORIZATION_FAILED:
            raise error_codes.not_authorized(topic)


def on_topics_seen(
    state: EngineState, view: ClusterView, now_ms: int
) -> tuple[tuple[TopicPartition, DataLossError], ...]:
    """Compare a Metadata answer with what was planned; return the ranges whose topic is lost."""
    for topic in {each.topic for each in state.ranges}:
        is_missing = view.topic_errors.get(topic) == error_codes.UNKNOWN_TOPIC_OR_PARTITION
        if is_missing or _is_another(view, topic, _planned_ids(state, topic)):
            state.topic_trouble_since_ms.setdefault(topic, now_ms)
        elif topic not in view.topic_errors:
            state.topic_trouble_since_ms.pop(topic, None)
    lost: list[tuple[TopicPartition, DataLossError]] = []
    for topic_partition, progress in state.ranges.items():
        since_ms = state.topic_trouble_since_ms.get(topic_partition.topic)
        if since_ms is not None:
            loss = decide_topic_loss(
                topic_partition.topic,
                progress.topic_id,
                view.topic_ids.get(topic_partition.topic),
                now_ms - since_ms,
                state.settings.topic_patience_ms,
            )
            if loss is not None:
                lost.append((topic_partition, loss))
    return tuple(lost)


def _planned_ids(state: EngineState, topic: str) -> set[UUID]:
    return {progress.topic_id for each, progress in state.ranges.items() if each.topic == topic} - {NO_TOPIC_ID}


def _is_another(view: ClusterView, topic: str, planned_ids: Iterable[UUID]) -> bool:
    found_id = view.topic_ids.get(topic, NO_TOPIC_ID)
    return found_id != NO_TOPIC_ID and any(each != found_id for each in planned_ids)
