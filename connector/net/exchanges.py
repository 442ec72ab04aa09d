"""What the engine wants sent, as exchanges with a broker: which message, which version at most, how long to wait."""

from __future__ import annotations

from functools import partial
from typing import Final, assert_never

from connector.config import ClientConfig
from connector.fetch.actions import (
    Action,
    SendDescribeLogDirs,
    SendFetch,
    SendListOffsets,
    SendMetadata,
    SendOffsetForLeaderEpoch,
)
from connector.model import NO_TOPIC_ID, READ_UNCOMMITTED
from connector.net.connection import Exchange
from connector.wire import (
    describe_log_dirs,
    fetch_reply,
    fetch_request,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
)
from connector.wire.versions import Api

__all__ = ["exchange_for"]

_FOLLOWER_PATIENCE_MS: Final = 5_000
"""How much longer than its allowed wait a follower may stay silent, before the leader is asked."""


def exchange_for(action: Action, config: ClientConfig) -> Exchange:
    """Return the exchange that carries out an action; its `subject` is the action."""
    timeout_ms = config.request_timeout_ms
    match action:
        case SendMetadata():
            encode = partial(metadata.encode_request, action.topics)
            return Exchange(Api.METADATA, encode, metadata.decode_reply, action, timeout_ms)
        case SendListOffsets():
            encode = partial(
                list_offsets.encode_request,
                action.queries,
                isolation_level=READ_UNCOMMITTED,
                replica_id=action.replica_id,
            )
            return Exchange(Api.LIST_OFFSETS, encode, list_offsets.decode_reply, action, timeout_ms)
        case SendOffsetForLeaderEpoch():
            encode = partial(offset_for_leader_epoch.encode_request, action.queries)
            decode = offset_for_leader_epoch.decode_reply
            return Exchange(Api.OFFSET_FOR_LEADER_EPOCH, encode, decode, action, timeout_ms)
        case SendDescribeLogDirs():
            encode = partial(describe_log_dirs.encode_request, action.topic_partitions)
            return Exchange(Api.DESCRIBE_LOG_DIRS, encode, describe_log_dirs.decode_reply, action, timeout_ms)
        case SendFetch():
            return _fetch_exchange(action, timeout_ms)
        case _:
            assert_never(action)


def _fetch_exchange(action: SendFetch, timeout_ms: int) -> Exchange:
    if not all(asked.from_leader for asked in action.asked.values()):
        timeout_ms = min(timeout_ms, action.plan.max_wait_ms + _FOLLOWER_PATIENCE_MS)
    topic_names = {each.topic_id: each.topic_partition.topic for each in action.wanted if each.topic_id != NO_TOPIC_ID}
    return Exchange(
        Api.FETCH,
        partial(fetch_request.encode_request, action.plan),
        partial(fetch_reply.decode_reply, topic_names=topic_names),
        action,
        timeout_ms,
        action.max_version,
    )
